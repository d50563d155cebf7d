/*-------------------------------------------------------------------------
 *
 * pipeline.c
 *	  Rows on their way to Redis, and when the query has to wait for them.
 *
 * There is one lane (lane.c) for each node of Redis: one without a cluster, which
 * holds the rows that are encoded right into its batch; in a cluster several
 * (routing.c).  All lanes are driven from here, step by step, between the rows of the
 * query and while it has to wait.
 *
 * Nothing here knows SQL, or what the commands are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/pipeline.h"
#include "flow/pipeline_internal.h"
#include "miscadmin.h"
#include "redis/connect.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* While a batch is filled, look after the others each so many bytes. */
#define LOOK_EVERY ((size_t) 64 * 1024)

/* A batch that is older than this (ms) is sent though it is not full. */
#define BATCH_AGE 100

/* Show the nodes at most so often (ms). */
#define NODES_INTERVAL 200

/*
 * rexp_pipeline_create
 *	  An empty pipeline in a memory context of its own below the current one.
 *
 * The strings of the options and the progress are the caller's, and must live as
 * long.
 */
RexpPipeline *
rexp_pipeline_create(const RexpPipelineOptions *options,
					 const RexpLinkOptions *link_options, RexpProgress *progress)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "redis_export pipeline",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	RexpPipeline *p = palloc0(sizeof(RexpPipeline));

	p->context = context;
	p->link_options = *link_options;
	p->traffic.options = *options;
	p->traffic.state = REXP_STATE_RUNNING;
	p->traffic.ledger.progress = progress;
	p->traffic.ledger.ignore_errors = options->ignore_errors;
	p->traffic.ledger.reject_limit = options->reject_limit;
	p->traffic.ledger.counters.held_by_replicas = options->wait_replicas > 0;
	p->traffic.tokens_at = p->attended_at = GetCurrentTimestamp();
	rexp_buffer_init(&p->aside, 64);
	if (options->books != NULL)
	{
		rexp_buffer_init(&p->traffic.failed_keys, 64);
		p->traffic.row_context = AllocSetContextCreate(context, "redis_export completed row",
													   ALLOCSET_DEFAULT_SIZES);
	}
	p->single = rexp_lane_create(&p->traffic, rexp_link_create(link_options, false));
	MemoryContextSwitchTo(old);
	return p;
}

const RexpError *
rexp_pipeline_error(const RexpPipeline *p)
{
	return rexp_ledger_has_failed(&p->traffic.ledger) ? &p->traffic.ledger.error : NULL;
}

const RexpCounters *
rexp_pipeline_counters(const RexpPipeline *p)
{
	return &p->traffic.ledger.counters;
}

bool
rexp_pipeline_has_failed(const RexpPipeline *p)
{
	return p->ending || rexp_ledger_has_failed(&p->traffic.ledger);
}

/* All lanes one after the other: begin with -1; NULL when there are no more. */
RexpLane *
rexp_pipeline_next_lane(RexpPipeline *p, int *at)
{
	if (p->cluster == NULL)
		return (*at)++ < 0 ? p->single : NULL;
	while (++*at < p->nlanes)
	{
		if (p->lanes[*at] != NULL)
			return p->lanes[*at];
	}
	return *at == p->nlanes ? p->homeless : NULL;
}

/*
 * Showing the nodes
 */

static void
fill_node(RexpNodeStatus *status, const RexpAddress *address, int slots, const RexpLane *lane)
{
	static const char *const names[] = {
		[REXP_FLOW_IDLE] = "idle",
		[REXP_FLOW_CONNECT] = "connecting",
		[REXP_FLOW_OPEN] = "open",
		[REXP_FLOW_DRAIN] = "retrying",
		[REXP_FLOW_BACKOFF] = "retrying",
		[REXP_FLOW_ROUTE] = "retrying",
		[REXP_FLOW_STOP] = "closing",
		[REXP_FLOW_CLOSED] = "closed"
	};

	rexp_clip(status->host, sizeof(status->host), address->host, strlen(address->host));
	status->port = address->port;
	status->slots = slots;
	strlcpy(status->state, lane->retrying && lane->flow < REXP_FLOW_STOP ? "retrying" :
			names[lane->flow], sizeof(status->state));
	status->rows_written = lane->rows_written;
	status->rows_with_redis = lane->window.outstanding;
	status->bytes_sent = lane->bytes_sent;
	status->reconnects = lane->reconnects;
	if (lane->retrying || lane->to_blame)
		rexp_clip(status->trouble, sizeof(status->trouble), lane->why.message,
				  strlen(lane->why.message));
	else
		status->trouble[0] = '\0';
}

/* Show the nodes, unless it was done a moment ago. */
void
rexp_pipeline_show_nodes(RexpPipeline *p, bool at_once)
{
	TimestampTz now = GetCurrentTimestamp();
	RexpNodeStatus nodes[REXP_NODES_SHOWN];
	int			nnodes = 0;

	if (!at_once && now - p->nodes_shown < NODES_INTERVAL * 1000)
		return;
	p->nodes_shown = now;
	if (p->cluster == NULL)
		fill_node(&nodes[nnodes++], rexp_link_address(p->single->link), 0, p->single);
	for (int i = 0; i < p->nlanes && nnodes < REXP_NODES_SHOWN; i++)
	{
		const RexpNode *node = &p->cluster->nodes[i];

		/* one that neither has slots nor had rows is of no interest */
		if (p->lanes[i] != NULL && (node->slots > 0 || p->lanes[i]->bytes_sent > 0))
			fill_node(&nodes[nnodes++], &node->address, node->slots, p->lanes[i]);
	}
	rexp_progress_nodes(p->traffic.ledger.progress, nodes, nnodes);
}

/*
 * Steps
 */

/* Wait until there is something to be done. */
static void
wait_for_lanes(RexpPipeline *p)
{
	TimestampTz now = GetCurrentTimestamp();
	long		wait = 1000;
	int			at = -1;
	RexpLane   *lane;

	if (p->cluster == NULL)
	{
		rexp_link_wait(p->single->link, p->single->flow == REXP_FLOW_BACKOFF ? false :
					   rexp_lane_wants_to_send(p->single),
					   rexp_lane_wait_time(p->single, now));
		return;
	}
	rexp_waiter_begin(p->waiter);
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (lane->flow == REXP_FLOW_IDLE || lane->flow == REXP_FLOW_CLOSED)
			continue;
		wait = Min(wait, rexp_lane_wait_time(lane, now));
		if (lane->link != NULL && rexp_link_is_open(lane->link))
			rexp_waiter_add(p->waiter, lane->link, lane->flow != REXP_FLOW_BACKOFF &&
							rexp_lane_wants_to_send(lane));
	}
	rexp_waiter_wait(p->waiter, wait);
}

/*
 * Is the batch that is being filled to be sent for its age?  Not while others wait: a
 * window of small batches would be full with few rows.
 */
static bool
is_old(const RexpLane *lane, TimestampTz now)
{
	return now - lane->batch_started >= BATCH_AGE * 1000 &&
		(lane->flow == REXP_FLOW_OPEN || lane->flow == REXP_FLOW_IDLE) &&
		lane->window.queued < 2;
}

/* Batches of other lanes that nobody fills up any more are sent as they are. */
static void
note_old_batches(RexpPipeline *p, TimestampTz now)
{
	int			at = -1;
	RexpLane   *lane;

	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (rexp_window_filling(&lane->window)->open > 0 && is_old(lane, now))
			lane->due = true;
	}
}

/* The lane that is at this place in this step; NULL if there is none. */
static RexpLane *
lane_in_turn(RexpPipeline *p, int place)
{
	int			nnodes;

	if (p->cluster == NULL)
		return place == 0 ? p->single : NULL;
	nnodes = Min(p->cluster->nnodes, p->nlanes);
	if (place < nnodes)
		return p->lanes[(p->turn + place) % nnodes];
	return place == nnodes ? p->homeless : NULL;
}

/*
 * step
 *	  Do with each lane what can be done, and wait if that is nothing.
 *
 * Without may_wait, which is how it is called between two rows of the query, it
 * does what can be done at once; but connecting waits in any case.
 */
bool
rexp_pipeline_step(RexpPipeline *p, bool may_wait)
{
	bool		active = false;
	TimestampTz away = may_wait ? 0 : GetCurrentTimestamp() - p->attended_at;
	RexpLane   *lane;

	rexp_pipeline_tend_lease(p);
	p->traffic.may_wait = may_wait;
	p->traffic.options.rate = rexp_progress_rate(p->traffic.ledger.progress);
	if (p->cluster != NULL)
		note_old_batches(p, GetCurrentTimestamp());
	/* each is the first at times, as the first has the best of a rate */
	p->turn++;
	for (int i = 0; (lane = lane_in_turn(p, i)) != NULL || i < p->nlanes; i++)
	{
		if (lane == NULL)
			continue;

		/* the time that the query took is none that Redis let us wait */
		lane->waiting_since += away;
		if (rexp_pipeline_has_failed(p))
			rexp_lane_halt(lane);
		else
			(void) rexp_lane_queue(lane);
		active |= rexp_lane_work(lane);
		if (lane->flow == REXP_FLOW_ROUTE)
		{
			rexp_pipeline_reroute(p, lane);
			active = true;
		}
	}
	rexp_pipeline_show_nodes(p, false);
	if (!active && may_wait)
		wait_for_lanes(p);
	p->attended_at = GetCurrentTimestamp();
	return active;
}

/* Once the job has failed: receive what is still to come.  Always false. */
bool
rexp_pipeline_wind_up(RexpPipeline *p)
{
	for (;;)
	{
		bool		open = false;
		int			at = -1;
		RexpLane   *lane;

		while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
		{
			rexp_lane_halt(lane);
			open |= lane->flow != REXP_FLOW_CLOSED;
		}
		if (!open)
			return false;
		(void) rexp_pipeline_step(p, true);
	}
}

/* The batch of a lane is to join its window: wait until it has room. */
static bool
dispatch(RexpPipeline *p, RexpLane *lane)
{
	lane->due = true;
	p->unlooked = 0;
	(void) rexp_lane_queue(lane);
	(void) rexp_pipeline_step(p, false);
	while (rexp_window_is_full(&lane->window) && !rexp_pipeline_has_failed(p))
		(void) rexp_pipeline_step(p, true);
	return !rexp_pipeline_has_failed(p) || rexp_pipeline_wind_up(p);
}

/* Wait until no row is left.  False if the job has failed. */
static bool
settle_all(RexpPipeline *p)
{
	for (;;)
	{
		bool		left = false;
		int			at = -1;
		RexpLane   *lane;

		if (rexp_pipeline_has_failed(p))
			return rexp_pipeline_wind_up(p);
		while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
		{
			if (rexp_window_filling(&lane->window)->nrows > 0)
				lane->due = true;
			left |= rexp_lane_has_rows(lane) || lane->due;
		}
		if (!left)
			return true;
		(void) rexp_pipeline_step(p, true);
	}
}

/*
 * rexp_pipeline_complete_with
 *	  How arguments are completed that rows of a pipeline with books have put off; arg
 *	  must live as long.
 */
void
rexp_pipeline_complete_with(RexpPipeline *p, RexpCompleteValue complete, void *arg)
{
	p->traffic.complete = complete;
	p->traffic.complete_arg = arg;
}

/*
 * rexp_pipeline_open
 *	  Connect.  Returns false if the job has failed.
 */
bool
rexp_pipeline_open(RexpPipeline *p)
{
	RexpClusterMode mode = p->link_options.cluster;

	p->single->flow = REXP_FLOW_CONNECT;
	while (p->single->flow != REXP_FLOW_OPEN && !rexp_pipeline_has_failed(p))
		(void) rexp_pipeline_step(p, true);
	if (!rexp_pipeline_has_failed(p) && mode != REXP_CLUSTER_OFF &&
		(mode == REXP_CLUSTER_ON ||
		 rexp_link_server_info(p->single->link)->is_cluster))
		(void) rexp_pipeline_enter_cluster(p);
	if (p->cluster != NULL && p->traffic.options.books != NULL)
		rexp_books_spread(p->traffic.options.books);
	rexp_pipeline_show_nodes(p, true);
	return !rexp_pipeline_has_failed(p) || rexp_pipeline_wind_up(p);
}

/* Where the next row's block goes. */
static RexpBuffer *
begin_row(RexpPipeline *p)
{
	if (p->cluster != NULL)
	{
		p->scratch.len = 0;
		return &p->scratch;
	}
	if (rexp_window_filling(&p->single->window)->nrows == 0)
		p->single->batch_started = GetCurrentTimestamp();
	return rexp_window_row_begin(&p->single->window);
}

/*
 * rexp_pipeline_row_begin
 *	  Where the next row's commands are to be appended, whole, before it is handed
 *	  over with rexp_pipeline_row_end() or taken back with _row_reject().
 */
RexpBuffer *
rexp_pipeline_row_begin(RexpPipeline *p)
{
	RexpBuffer *out = begin_row(p);

	if (p->traffic.options.books != NULL)
		rexp_books_reserve(p->traffic.options.books, out);
	return out;
}

/* The buffer in which the row at hand is. */
static RexpBuffer *
row_buffer(RexpPipeline *p)
{
	return p->cluster != NULL ? &p->scratch :
		&rexp_window_filling(&p->single->window)->data;
}

/* Is a row with the same key on its way? */
static bool
has_key(RexpPipeline *p, const RexpBlock *block)
{
	const char *key = row_buffer(p)->data + block->key_start;
	int			at = -1;
	RexpLane   *lane;

	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (rexp_window_has_key(&lane->window, key, block->key_len))
			return true;
	}
	return false;
}

/*
 * wait_for_others
 *	  A row with the same key is on its way, whose expiry must not hit this one:
 *	  let all that came before be settled first.  False if the job has failed.
 */
static bool
wait_for_others(RexpPipeline *p, RexpBlock *block)
{
	RexpBuffer *out;

	if (p->cluster != NULL)
		return settle_all(p);
	rexp_window_set_apart(&p->single->window, block, &p->aside);
	if (!settle_all(p))
		return false;
	out = begin_row(p);
	rexp_block_moved(block, out->len);
	rexp_buffer_append(out, p->aside.data, p->aside.len);
	return true;
}

/* Where in that buffer it begins. */
static size_t
row_start(RexpPipeline *p)
{
	const RexpBatch *batch;

	if (p->cluster != NULL)
		return 0;
	batch = rexp_window_filling(&p->single->window);
	return batch->rows[batch->nrows].start;
}

/* The lane for the row at hand, in whose batch its commands then are. */
static RexpLane *
place_row(RexpPipeline *p, RexpBlock *block, int *slot)
{
	RexpLane   *lane;
	RexpBuffer *out;

	*slot = 0;
	if (p->cluster == NULL)
		return p->single;
	if (block->key_len > 0)
		*slot = rexp_key_slot(p->scratch.data + block->key_start, block->key_len);
	lane = rexp_pipeline_route(p, *slot);
	if (rexp_window_filling(&lane->window)->nrows == 0)
	{
		lane->batch_started = GetCurrentTimestamp();
		if (!rexp_lane_has_rows(lane))
			lane->waiting_since = lane->batch_started;
	}
	out = rexp_window_row_begin(&lane->window);
	rexp_block_moved(block, out->len);
	rexp_buffer_append(out, p->scratch.data, p->scratch.len);
	return lane;
}

/* The row at hand goes on its way.  Returns as rexp_pipeline_row_end(). */
static bool
send_row(RexpPipeline *p, RexpBlock *block, int64 number)
{
	int			slot;
	RexpLane   *lane = place_row(p, block, &slot);
	RexpBatch  *batch = rexp_window_filling(&lane->window);
	RexpRow    *row = rexp_window_row_end(&lane->window, block, slot);

	row->number = number;
	if (batch->nrows >= p->traffic.options.batch ||
		batch->weight >= REXP_BATCH_BYTES)
		return dispatch(p, lane);
	if (batch->nrows < 16 || batch->nrows % 16 == 0)
	{
		TimestampTz now = GetCurrentTimestamp();

		if (is_old(lane, now))
			return dispatch(p, lane);
		if (now - p->attended_at >= BATCH_AGE * 1000)
			p->unlooked = LOOK_EVERY;
	}

	p->unlooked += batch->data.len - row->start;
	if (p->unlooked >= LOOK_EVERY)
	{
		p->unlooked = 0;
		(void) rexp_pipeline_step(p, false);
		if (rexp_pipeline_has_failed(p))
			return rexp_pipeline_wind_up(p);
	}
	return true;
}

/*
 * rexp_pipeline_row_end
 *	  The row is complete.  Returns false if the job has failed, when no more
 *	  rows are wanted.  May wait for Redis, and serves interrupts.
 */
bool
rexp_pipeline_row_end(RexpPipeline *p, RexpBlock *block)
{
	if (p->traffic.options.keys_apart && has_key(p, block) &&
		!wait_for_others(p, block))
		return false;
	if (p->traffic.options.books != NULL)
		rexp_books_wrap(p->traffic.options.books, row_buffer(p), row_start(p), block);
	block->watched = p->traffic.options.books != NULL &&
		rexp_books_are_asked(p->traffic.options.books);
	return send_row(p, block, ++p->traffic.ledger.counters.rows_read);
}

/*
 * rexp_pipeline_delete
 *	  Have a key deleted that no row has, with its entry in the books, and count it as
 *	  pruned if it was there.  Returns as _row_end().
 */
bool
rexp_pipeline_delete(RexpPipeline *p, const char *key, size_t key_len)
{
	RexpBuffer *out = rexp_pipeline_row_begin(p);
	RexpBlock	block = {.commands = 1, .key_len = key_len, .repeatable = true, .erases = true, .deletes = true};

	rexp_resp_header(out, '*', 2);
	rexp_resp_word(out, "UNLINK");
	rexp_resp_bulk(out, key, key_len);
	block.key_start = out->len - 2 - key_len;
	if (p->traffic.options.books != NULL)
		rexp_books_wrap(p->traffic.options.books, out, row_start(p), &block);
	return send_row(p, &block, 0);
}

/*
 * correct_entries
 *	  Of keys whose rows have failed, let the books say no more than that they are ours.
 *	  False if the job has failed.
 */
static bool
correct_entries(RexpPipeline *p)
{
	RexpTraffic *traffic = &p->traffic;

	for (size_t at = 0; at < traffic->failed_keys.len;)
	{
		RexpBuffer *out = begin_row(p);
		RexpBlock	block = {.commands = 1, .repeatable = true, .corrects = true};
		const char *key;

		memcpy(&block.key_len, traffic->failed_keys.data + at, sizeof(block.key_len));
		key = traffic->failed_keys.data + at + sizeof(block.key_len);
		at += sizeof(block.key_len) + block.key_len;
		block.key_start = out->len;
		block.key_start += rexp_books_doubt(traffic->options.books, key, block.key_len, out);
		if (!send_row(p, &block, 0))
			return false;
	}
	traffic->failed_keys.len = 0;
	return settle_all(p);
}

/*
 * rexp_pipeline_forget
 *	  Have a key that is gone from Redis taken out of the books.  Returns as _row_end().
 */
bool
rexp_pipeline_forget(RexpPipeline *p, const char *key, size_t key_len)
{
	RexpBuffer *out = begin_row(p);
	RexpBlock	block = {.commands = 1, .key_len = key_len, .repeatable = true, .corrects = true};

	block.key_start = out->len;
	block.key_start += rexp_books_forget(p->traffic.options.books, key, key_len, out);
	return send_row(p, &block, 0);
}

/* Rows have failed, so that nothing is deleted: note it, for who waits. */
void
rexp_pipeline_not_pruned(RexpPipeline *p)
{
	p->traffic.ledger.counters.not_pruned = true;
	ereport(WARNING,
			(errmsg("nothing was pruned, since rows have failed")));
}

/* Show this state, now or when the trouble is over. */
void
rexp_pipeline_enter(RexpPipeline *p, RexpState state)
{
	p->traffic.state = state;
	if (p->traffic.retrying == 0)
		rexp_progress_state(p->traffic.ledger.progress, state, NULL);
}

/* Cut off what there is of a row that will not be sent. */
static void
take_back(RexpPipeline *p)
{
	RexpBatch  *batch;

	if (p->cluster != NULL)
		return;
	batch = rexp_window_filling(&p->single->window);
	batch->data.len = batch->rows[batch->nrows].start;
}

/*
 * attend
 *	  While rows come that are not sent, others must not wait for them, and the view
 *	  must show them.  False if the job has failed.
 */
static bool
attend(RexpPipeline *p)
{
	int			at = -1;
	RexpLane   *lane;
	TimestampTz now;

	if (rexp_pipeline_has_failed(p))
		return rexp_pipeline_wind_up(p);
	if (p->traffic.ledger.counters.rows_read % 16 != 0)
		return true;
	now = GetCurrentTimestamp();
	if (now - p->attended_at < BATCH_AGE * 1000)
		return true;
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (rexp_window_filling(&lane->window)->open > 0)
			lane->due = true;
	}
	(void) rexp_pipeline_step(p, false);
	rexp_ledger_publish(&p->traffic.ledger, p->traffic.outstanding);
	CHECK_FOR_INTERRUPTS();
	return !rexp_pipeline_has_failed(p) || rexp_pipeline_wind_up(p);
}

/*
 * rexp_pipeline_row_reject
 *	  The row cannot be sent: count it as failed.  The block tells its key.
 *	  Returns as _row_end().
 */
bool
rexp_pipeline_row_reject(RexpPipeline *p, const RexpBlock *block,
						 const RexpError *error)
{
	RexpLedger *ledger = &p->traffic.ledger;

	rexp_ledger_failed_row(ledger, ++ledger->counters.rows_read,
						   row_buffer(p)->data + block->key_start,
						   block->key_len, error);
	take_back(p);
	return attend(p);
}

/* The row is not to be sent, and that is no failure.  Returns as _row_end(). */
bool
rexp_pipeline_row_skip(RexpPipeline *p)
{
	p->traffic.ledger.counters.rows_read++;
	p->traffic.ledger.counters.rows_skipped++;
	take_back(p);
	return attend(p);
}

/*
 * A node was lost that had no more rows to come: has another taken over, which may
 * lack what that one had acknowledged?
 */
static void
meet_new_masters(RexpPipeline *p)
{
	RexpError	ignored;

	for (int i = 0; i < p->cluster->nnodes; i++)
	{
		RexpLane   *lane = p->cluster->nodes[i].slots > 0 ? rexp_pipeline_lane_of(p, i) : NULL;

		if (lane != NULL && !rexp_link_is_open(lane->link) &&
			rexp_connect(lane->link, &ignored) == REXP_ANSWER_DONE)
			(void) rexp_lane_note_server(lane);
	}
}

/* At the end: what do the servers say of the keys that they evicted? */
static void
look_at_servers(RexpPipeline *p)
{
	RexpError	ignored;
	int			at = -1;
	RexpLane   *lane;

	/* slots may have moved of which there were no rows */
	if (p->cluster != NULL)
		(void) rexp_pipeline_refresh_map(p, p->homeless, &ignored);
	if (p->traffic.lost)
		meet_new_masters(p);
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (lane->link == NULL || !rexp_link_is_open(lane->link))
			continue;
		if (rexp_link_refresh_info(lane->link, &ignored))
			(void) rexp_lane_note_server(lane);
		else
			lane->flow = REXP_FLOW_CONNECT; /* should it be needed again */
	}
	rexp_pipeline_show_nodes(p, true);
}

/*
 * rexp_pipeline_finish
 *	  Send the rest and wait for all answers, and let the books be right.  Returns
 *	  false if the job has failed.
 */
bool
rexp_pipeline_finish(RexpPipeline *p)
{
	if (rexp_pipeline_has_failed(p))
		return rexp_pipeline_wind_up(p);
	if (p->traffic.state < REXP_STATE_FINISHING)
		rexp_pipeline_enter(p, REXP_STATE_FINISHING);
	(void) rexp_pipeline_step(p, false);
	if (!settle_all(p) || !correct_entries(p))
		return false;
	look_at_servers(p);
	return true;
}

/*
 * rexp_pipeline_drain
 *	  The job ends before its time: receive what is still to come, for so many
 *	  milliseconds at most (0: what has come in already).
 */
void
rexp_pipeline_drain(RexpPipeline *p, int milliseconds)
{
	int			at = -1;
	RexpLane   *lane;

	p->ending = true;
	p->traffic.stop_at = GetCurrentTimestamp() + (int64) milliseconds * 1000;
	if (milliseconds > 0)
	{
		(void) rexp_pipeline_wind_up(p);
		rexp_pipeline_give_lease_back(p);
		return;
	}
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
		rexp_lane_hurry(lane);
}

/*
 * rexp_pipeline_close
 *	  Hang up and settle the ledger.  Raises no error.
 *
 * Rows that may have reached Redis and were not answered are in doubt; rows
 * that surely did not are taken off rows_read.
 */
void
rexp_pipeline_close(RexpPipeline *p)
{
	RexpCounters *counters = &p->traffic.ledger.counters;
	int			at = -1;
	RexpLane   *lane;

	if (p->closed)
		return;
	p->closed = true;
	p->ending = true;
	counters->rows_in_doubt = 0;
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		int64		in_doubt;
		int64		unsent;

		rexp_window_reckon(&lane->window, &in_doubt, &unsent);
		counters->rows_in_doubt += in_doubt;
		counters->rows_read -= unsent;
		lane->flow = REXP_FLOW_CLOSED;
		if (lane->link != NULL)
			rexp_link_close(lane->link);
	}
	rexp_link_close(p->single->link);
	rexp_pipeline_show_nodes(p, true);
	if (p->cluster != NULL)
	{
		rexp_link_close(p->control);
		rexp_waiter_close(p->waiter);
	}
	rexp_progress_counters(p->traffic.ledger.progress, counters);
}

/*
 * rexp_pipeline_is_clean
 *	  Is each entry that this run has made in the books one that holds?  To be asked
 *	  when the pipeline is finished.
 */
bool
rexp_pipeline_is_clean(const RexpPipeline *p)
{
	return !rexp_pipeline_has_failed(p) && !p->traffic.uncorrected;
}
