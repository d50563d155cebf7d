/*-------------------------------------------------------------------------
 *
 * pipeline.c
 *	  Rows on their way to Redis: to which node each goes, and when the query has
 *	  to wait for them.
 *
 * There is one lane (lane.c) for each node of Redis: one without a cluster, which
 * holds the rows that are encoded right into its batch; in a cluster one for each
 * master that has slots (cluster.c), and one more, without a connection, for rows
 * whose slot no node has at the time.
 *
 * In a cluster all rows of a slot that are not settled are in one lane, so that
 * they stay in order, whatever the map says meanwhile: a row joins the lane that
 * holds others of its slot.  When a lane finds that its rows may belong elsewhere
 * (a slot has moved, or its node is gone), and nothing of it is with Redis any
 * more, the map is asked for, and its rows are handed over.
 *
 * Nothing here knows SQL, or what the commands are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "cluster.h"
#include "lane.h"
#include "miscadmin.h"
#include "pipeline.h"
#include "search_index.h"
#include "sentinel.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "waiter.h"

/* While a batch is filled, look after the others each so many bytes. */
#define LOOK_EVERY ((size_t) 64 * 1024)

/* A batch that is older than this (ms) is sent though it is not full. */
#define BATCH_AGE 100

/* While an index is waited for, look at it so often (ms). */
#define INDEX_INTERVAL 100

/* What all windows of a cluster hold together, and one at least. */
#define CLUSTER_WINDOW_BYTES ((size_t) 40 * 1024 * 1024)
#define LEAST_WINDOW_BYTES ((size_t) 1024 * 1024)

/*
 * How long a node of a cluster may take to let us in (ms): the others stand still
 * meanwhile.  It is tried again and again.
 */
#define NODE_TIMEOUT 1000

/* How long a node may take to tell the map of its cluster (ms). */
#define MAP_TIMEOUT 2000

/* Show the nodes at most so often (ms). */
#define NODES_INTERVAL 200

struct RexpPipeline
{
	MemoryContext context;
	RexpLinkOptions link_options;
	RexpLinkOptions reachable;	/* see rexp_pipeline_link_options() */
	RexpTraffic traffic;
	RexpLane   *single;			/* without a cluster: the one lane */

	/* in a cluster: */
	RexpCluster *cluster;		/* NULL: there is none */
	int			nlanes;
	RexpLane  **lanes;			/* by number of the node, NULL: not made */
	RexpLane   *homeless;		/* rows whose slots no node has */
	RexpLane  **home;			/* by slot: the lane that holds its rows */
	RexpLink   *control;		/* that asks for the map when no lane can */
	unsigned int turn;			/* which lane is the first in the next step */
	RexpWaiter *waiter;
	RexpBuffer	scratch;		/* the row at hand, until its key is known */
	TimestampTz nodes_shown;

	RexpBuffer	aside;			/* a row that has to wait for others */
	size_t		unlooked;		/* bytes gathered since the last look */
	bool		ending;			/* no more rows, whether it has failed or not */
	bool		closed;
	TimestampTz attended_at;	/* the end of the last step */

	bool		unless_lost;	/* ask nothing more once rows may be lost */
	const char *index;			/* that is waited for, in UTF-8, or NULL */
	int64		index_base;		/* its failures at the last look */
};

static bool step(RexpPipeline *p, bool may_wait);
static bool void_digests(RexpPipeline *p);

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
	if (options->changed_only)
		p->traffic.changes = rexp_changes_create();
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

static bool
has_failed(const RexpPipeline *p)
{
	return p->ending || rexp_ledger_has_failed(&p->traffic.ledger);
}

/* All lanes one after the other: begin with -1; NULL when there are no more. */
static RexpLane *
next_lane(RexpPipeline *p, int *at)
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
fill_node(RexpNodeStatus *status, const char *host, int port, int slots,
		  const RexpLane *lane)
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

	rexp_clip(status->host, sizeof(status->host), host, strlen(host));
	status->port = port;
	status->slots = slots;
	strlcpy(status->state, lane->retrying ? "retrying" : names[lane->flow],
			sizeof(status->state));
	status->rows_written = lane->rows_written;
	status->rows_with_redis = lane->window.outstanding;
	status->bytes_sent = lane->bytes_sent;
	status->reconnects = lane->reconnects;
	if (lane->retrying)
		rexp_clip(status->trouble, sizeof(status->trouble), lane->why.message,
				  strlen(lane->why.message));
	else
		status->trouble[0] = '\0';
}

/* Show the nodes, unless it was done a moment ago. */
static void
show_nodes(RexpPipeline *p, bool at_once)
{
	TimestampTz now = GetCurrentTimestamp();
	RexpNodeStatus nodes[REXP_NODES_SHOWN];
	int			nnodes = 0;

	if (!at_once && now - p->nodes_shown < NODES_INTERVAL * 1000)
		return;
	p->nodes_shown = now;
	if (p->cluster == NULL)
		fill_node(&nodes[nnodes++], rexp_link_host(p->single->link),
				  rexp_link_port(p->single->link), 0, p->single);
	for (int i = 0; i < p->nlanes && nnodes < REXP_NODES_SHOWN; i++)
	{
		const RexpNode *node = &p->cluster->nodes[i];

		/* one that neither has slots nor had rows is of no interest */
		if (p->lanes[i] != NULL && (node->slots > 0 || p->lanes[i]->bytes_sent > 0))
			fill_node(&nodes[nnodes++], node->host, node->port, node->slots, p->lanes[i]);
	}
	rexp_progress_nodes(p->traffic.ledger.progress, nodes, nnodes);
}

/*
 * Routing
 */

/* The lane of a node, which may have to be made; of -1, that of no node. */
static RexpLane *
lane_of(RexpPipeline *p, int node)
{
	MemoryContext old;
	RexpLinkOptions options;

	if (node < 0)
		return p->homeless;
	if (node < p->nlanes && p->lanes[node] != NULL)
		return p->lanes[node];

	old = MemoryContextSwitchTo(p->context);
	if (node >= p->nlanes)
	{
		int			more = node + 8;

		p->lanes = p->lanes == NULL ? palloc0(sizeof(RexpLane *) * more) :
			repalloc(p->lanes, sizeof(RexpLane *) * more);
		for (int i = p->nlanes; i < more; i++)
			p->lanes[i] = NULL;
		p->nlanes = more;
	}
	options = p->link_options;
	options.connect_timeout = Min(options.connect_timeout, NODE_TIMEOUT);
	options.host = pstrdup(p->cluster->nodes[node].host);
	options.port = p->cluster->nodes[node].port;
	p->lanes[node] = rexp_lane_create(&p->traffic, rexp_link_create(&options, false));
	p->lanes[node]->window.pending = p->homeless->window.pending;
	p->lanes[node]->window.bytes_most = p->homeless->window.bytes_most;
	MemoryContextSwitchTo(old);
	return p->lanes[node];
}

/*
 * The lane for a row of this slot, which it joins.  A row without a key may go
 * anywhere; it goes where slot 0 is.
 */
static RexpLane *
route(RexpPipeline *p, int slot)
{
	if (p->homeless->window.pending[slot] == 0 || p->home[slot] == NULL)
		p->home[slot] = lane_of(p, p->cluster->owner[slot]);
	return p->home[slot];
}

/* How much each window may hold depends on how many there are. */
static void
share_memory(RexpPipeline *p)
{
	int			masters = 0;
	size_t		each;
	int			at = -1;
	RexpLane   *lane;

	for (int i = 0; i < p->cluster->nnodes; i++)
		masters += p->cluster->nodes[i].slots > 0;
	each = CLUSTER_WINDOW_BYTES / Max(masters, 1);
	each = Max(LEAST_WINDOW_BYTES, Min(each, REXP_WINDOW_BYTES));
	while ((lane = next_lane(p, &at)) != NULL)
		lane->window.bytes_most = each;
}

/* Ask over this link.  True if the map is known then. */
static bool
ask_for_map(RexpPipeline *p, RexpLink *link, RexpError *error)
{
	if (rexp_cluster_refresh(p->cluster, link, MAP_TIMEOUT, error) != REXP_ANSWER_DONE)
		return false;
	share_memory(p);
	return true;
}

/* Ask by a connection of its own: of the host of the options, then of each node. */
static bool
ask_anyone_for_map(RexpPipeline *p, RexpError *error)
{
	if (rexp_link_is_open(p->control) && ask_for_map(p, p->control, error))
		return true;
	for (int i = -1; i < p->cluster->nnodes; i++)
	{
		rexp_link_close(p->control);
		rexp_link_set_address(p->control,
							  i < 0 ? p->link_options.host : p->cluster->nodes[i].host,
							  i < 0 ? p->link_options.port : p->cluster->nodes[i].port);
		if (rexp_link_connect(p->control, error) == REXP_ANSWER_DONE &&
			ask_for_map(p, p->control, error))
			return true;
	}
	rexp_link_close(p->control);
	return false;
}

/*
 * refresh_map
 *	  Ask for the map: the lane that wants it, if it has a connection, then others
 *	  on whose nothing is on its way, then by a connection of its own.
 */
static bool
refresh_map(RexpPipeline *p, RexpLane *first, RexpError *error)
{
	int			at = -1;
	RexpLane   *lane;

	if (first->link != NULL && rexp_link_is_open(first->link) &&
		ask_for_map(p, first->link, error))
		return true;
	while ((lane = next_lane(p, &at)) != NULL)
	{
		if (lane == first || lane->flow != REXP_FLOW_OPEN ||
			lane->window.outstanding > 0 || lane->window.send_offset > 0)
			continue;
		if (ask_for_map(p, lane->link, error))
			return true;
		if (!rexp_link_is_open(lane->link))
			rexp_lane_lost(lane, error);
	}
	return ask_anyone_for_map(p, error);
}

/*
 * Hand over the rows of a lane that belong to others; nothing is with Redis.  Those
 * that this node was to take before the slot is its own stay, as long as it may.
 */
static void
hand_over(RexpPipeline *p, RexpLane *lane)
{
	int			at_batch = 0;
	int			at_row = 0;
	RexpBatch  *batch;
	RexpRow    *row;
	bool		asked_stay = lane->link != NULL && rexp_link_is_open(lane->link) &&
		!lane->moved;

	while ((row = rexp_window_next_homeless(&lane->window, &at_batch, &at_row,
											&batch)) != NULL)
	{
		RexpLane   *to = lane_of(p, p->cluster->owner[row->slot]);

		if (to == lane || (row->asking && asked_stay))
			continue;
		if (!rexp_lane_has_rows(to))
			to->waiting_since = lane->waiting_since;
		rexp_window_adopt(&to->window, &lane->window, batch, row, false);
		p->home[row->slot] = to;
		to->due = true;
	}
	rexp_window_advance_receiver(&lane->window, true);
}

/* A lane's rows may belong elsewhere: find out, and let it go on. */
static void
reroute(RexpPipeline *p, RexpLane *lane)
{
	RexpError	error;

	if (!refresh_map(p, lane, &error))
	{
		rexp_error_prefix(&error, "could not ask for the nodes of the cluster: ");
		rexp_lane_wait_for_node(lane, &error, true);
		return;
	}
	hand_over(p, lane);
	if (!rexp_lane_has_rows(lane))
	{
		rexp_lane_settled(lane);
		lane->flow = lane->link != NULL && rexp_link_is_open(lane->link) ?
			REXP_FLOW_OPEN : REXP_FLOW_IDLE;
	}
	else if (lane == p->homeless)
	{
		rexp_error_set(&error, ERRCODE_CANNOT_CONNECT_NOW,
					   "no node of the Redis Cluster has the slots of some rows");
		rexp_error_hint(&error, "See CLUSTER NODES and CLUSTER SLOTS in Redis.");
		rexp_lane_wait_for_node(lane, &error, false);
	}
	else
		rexp_lane_go_on(lane);
	show_nodes(p, true);
}

/* A node says that a slot, or for now a key, is with another. */
static bool
redirect(void *arg, RexpLane *lane, RexpAnswer answer, const char *text,
		 RexpBatch *batch, RexpRow *row)
{
	RexpPipeline *p = arg;
	char		host[256];
	int			slot;
	int			port;
	int			node;

	if (!rexp_cluster_redirection(text, rexp_link_host(lane->link), &slot, host,
								  sizeof(host), &port))
		return false;
	node = rexp_cluster_node(p->cluster, host, port);
	if (node < 0)
		return false;
	if (answer == REXP_ANSWER_ASK)
	{
		RexpLane   *to = lane_of(p, node);

		if (to == lane)
			return false;
		if (!rexp_lane_has_rows(to))
			to->waiting_since = lane->waiting_since;
		rexp_window_adopt(&to->window, &lane->window, batch, row, true);
		to->due = true;
	}
	else
		p->cluster->owner[slot] = (int16) node;
	return true;
}

/*
 * first_map
 *	  The host of the options is a node of a cluster: ask for its map, again and again
 *	  while Redis is away.  False if the job has failed.
 */
static bool
first_map(RexpPipeline *p, RexpCluster *cluster)
{
	RexpLane   *lane = p->single;
	RexpError	error;

	while (!has_failed(p))
	{
		RexpAnswer	answer;

		if (lane->flow != REXP_FLOW_OPEN)
		{
			(void) step(p, true);
			continue;
		}
		answer = rexp_cluster_refresh(cluster, lane->link, MAP_TIMEOUT, &error);
		if (answer == REXP_ANSWER_DONE)
			return true;
		rexp_error_prefix(&error, "could not ask for the nodes of the cluster: ");
		if (answer == REXP_ANSWER_LATER || answer == REXP_ANSWER_RECONNECT ||
			answer == REXP_ANSWER_CLUSTER_DOWN)
			rexp_lane_wait_for_node(lane, &error, answer == REXP_ANSWER_RECONNECT);
		else
			rexp_ledger_stop(&p->traffic.ledger, &error);
	}
	return false;
}

/* Make lanes for all nodes of the cluster.  False if the job has failed. */
static bool
enter_cluster(RexpPipeline *p)
{
	MemoryContext old = MemoryContextSwitchTo(p->context);
	RexpLinkOptions options = p->link_options;
	RexpCluster *cluster = rexp_cluster_create();
	uint32	   *pending = palloc0(sizeof(uint32) * REXP_SLOTS);

	if (!first_map(p, cluster))
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	rexp_lane_settled(p->single);
	options.connect_timeout = Min(options.connect_timeout, MAP_TIMEOUT);
	p->cluster = cluster;
	p->control = rexp_link_create(&options, false);
	p->waiter = rexp_waiter_create();
	p->home = palloc0(sizeof(RexpLane *) * REXP_SLOTS);
	rexp_buffer_init(&p->scratch, 8192);
	p->homeless = rexp_lane_create(&p->traffic, NULL);
	p->homeless->window.pending = pending;
	p->traffic.redirect = redirect;
	p->traffic.arg = p;
	MemoryContextSwitchTo(old);

	share_memory(p);
	for (int i = 0; i < p->cluster->nnodes; i++)
	{
		if (p->cluster->nodes[i].slots > 0)
			(void) lane_of(p, i);
	}
	rexp_link_close(p->single->link);
	return true;
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
	while ((lane = next_lane(p, &at)) != NULL)
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

	while ((lane = next_lane(p, &at)) != NULL)
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
static bool
step(RexpPipeline *p, bool may_wait)
{
	bool		active = false;
	TimestampTz away = may_wait ? 0 : GetCurrentTimestamp() - p->attended_at;
	RexpLane   *lane;

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
		if (has_failed(p))
			rexp_lane_halt(lane);
		else
			(void) rexp_lane_queue(lane);
		active |= rexp_lane_work(lane);
		if (lane->flow == REXP_FLOW_ROUTE)
		{
			reroute(p, lane);
			active = true;
		}
	}
	show_nodes(p, false);
	if (!active && may_wait)
		wait_for_lanes(p);
	p->attended_at = GetCurrentTimestamp();
	return active;
}

/* Once the job has failed: receive what is still to come.  Always false. */
static bool
wind_up(RexpPipeline *p)
{
	for (;;)
	{
		bool		open = false;
		int			at = -1;
		RexpLane   *lane;

		while ((lane = next_lane(p, &at)) != NULL)
		{
			rexp_lane_halt(lane);
			open |= lane->flow != REXP_FLOW_CLOSED;
		}
		if (!open)
			return false;
		(void) step(p, true);
	}
}

/* The batch of a lane is to join its window: wait until it has room. */
static bool
dispatch(RexpPipeline *p, RexpLane *lane)
{
	lane->due = true;
	p->unlooked = 0;
	(void) rexp_lane_queue(lane);
	(void) step(p, false);
	while (rexp_window_is_full(&lane->window) && !has_failed(p))
		(void) step(p, true);
	return !has_failed(p) || wind_up(p);
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

		if (has_failed(p))
			return wind_up(p);
		while ((lane = next_lane(p, &at)) != NULL)
		{
			if (rexp_window_filling(&lane->window)->nrows > 0)
				lane->due = true;
			left |= rexp_lane_has_rows(lane) || lane->due;
		}
		if (!left)
			return true;
		(void) step(p, true);
	}
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

	if (p->traffic.changes != NULL)
		rexp_changes_reserve(out);
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

	while ((lane = next_lane(p, &at)) != NULL)
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
	block->key_start += out->len;
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

/* Only changes are to be written: take the row's digest, which its block forgets. */
static void
watch_row(RexpPipeline *p, RexpBlock *block)
{
	rexp_changes_take(p->traffic.changes, row_buffer(p), row_start(p), &block->commands,
					  &block->key_start, block->key_len, &block->print);
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
	lane = route(p, *slot);
	if (rexp_window_filling(&lane->window)->nrows == 0)
	{
		lane->batch_started = GetCurrentTimestamp();
		if (!rexp_lane_has_rows(lane))
			lane->waiting_since = lane->batch_started;
	}
	out = rexp_window_row_begin(&lane->window);
	block->key_start += out->len;
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
		batch->data.len >= REXP_BATCH_BYTES)
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
		(void) step(p, false);
		if (has_failed(p))
			return wind_up(p);
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
	block->deletes = false;
	block->watched = p->traffic.changes != NULL;
	if (p->traffic.changes != NULL)
		watch_row(p, block);
	return send_row(p, block, ++p->traffic.ledger.counters.rows_read);
}

/*
 * rexp_pipeline_delete
 *	  Have a key deleted that no row has, and count it as pruned if it was there.
 *	  Returns as _row_end().
 */
bool
rexp_pipeline_delete(RexpPipeline *p, const char *key, size_t key_len)
{
	RexpBuffer *out = rexp_pipeline_row_begin(p);
	RexpBlock	block = {.commands = 1, .key_len = key_len, .deletes = true};

	rexp_resp_header(out, '*', 2);
	rexp_resp_word(out, "UNLINK");
	rexp_resp_bulk(out, key, key_len);
	block.key_start = out->len - 2 - key_len;
	if (p->traffic.changes != NULL)
		watch_row(p, &block);
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

	if (has_failed(p))
		return wind_up(p);
	if (p->traffic.ledger.counters.rows_read % 16 != 0)
		return true;
	now = GetCurrentTimestamp();
	if (now - p->attended_at < BATCH_AGE * 1000)
		return true;
	while ((lane = next_lane(p, &at)) != NULL)
	{
		if (rexp_window_filling(&lane->window)->open > 0)
			lane->due = true;
	}
	(void) step(p, false);
	rexp_ledger_publish(&p->traffic.ledger, p->traffic.outstanding);
	CHECK_FOR_INTERRUPTS();
	return !has_failed(p) || wind_up(p);
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
		RexpLane   *lane = p->cluster->nodes[i].slots > 0 ? lane_of(p, i) : NULL;

		if (lane != NULL && !rexp_link_is_open(lane->link) &&
			rexp_connect(lane->link, &ignored) == REXP_ANSWER_DONE)
			rexp_lane_note_server(lane);
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
		(void) refresh_map(p, p->homeless, &ignored);
	if (p->traffic.lost)
		meet_new_masters(p);
	while ((lane = next_lane(p, &at)) != NULL)
	{
		if (lane->link == NULL || !rexp_link_is_open(lane->link))
			continue;
		if (rexp_link_refresh_info(lane->link, &ignored))
			rexp_lane_note_server(lane);
		else
			lane->flow = REXP_FLOW_CONNECT; /* should it be needed again */
	}
	show_nodes(p, true);
}

/*
 * rexp_pipeline_finish
 *	  Send the rest and wait for all answers.  Returns false if the job has
 *	  failed.
 */
bool
rexp_pipeline_finish(RexpPipeline *p)
{
	if (has_failed(p))
		return wind_up(p);
	if (p->traffic.state < REXP_STATE_FINISHING)
		rexp_pipeline_enter(p, REXP_STATE_FINISHING);
	(void) step(p, false);
	if (!settle_all(p))
		return false;

	/* exports that keep digests may have begun meanwhile */
	if (!void_digests(p))
		return false;
	look_at_servers(p);
	return true;
}

/*
 * Commands by themselves
 */

/* Who can be asked for anything: the one Redis, or a node that is there. */
static RexpLane *
any_lane(RexpPipeline *p)
{
	int			at = -1;
	RexpLane   *lane;
	RexpLane   *any = p->single;

	if (p->cluster == NULL)
		return p->single;
	while ((lane = next_lane(p, &at)) != NULL)
	{
		if (lane->link == NULL)
			continue;
		any = lane;
		if (lane->flow == REXP_FLOW_OPEN)
			break;
	}
	return any;
}

/*
 * rexp_pipeline_link_options
 *	  Where to connect to, for who wants to look at all of Redis: what the options
 *	  say; in a cluster, whose node of the options may be gone by now, a node that is
 *	  there.
 *
 * Good until the next call.
 */
const RexpLinkOptions *
rexp_pipeline_link_options(RexpPipeline *p)
{
	const RexpLane *lane = any_lane(p);

	p->reachable = p->link_options;
	if (p->cluster != NULL && lane->flow == REXP_FLOW_OPEN)
	{
		p->reachable.host = rexp_link_host(lane->link);
		p->reachable.port = rexp_link_port(lane->link);
	}
	return &p->reachable;
}

/* The lane for a command by itself, with this key or, for NULL, with none. */
static RexpLane *
lane_for_key(RexpPipeline *p, const char *key, size_t key_len)
{
	if (p->cluster == NULL || key == NULL)
		return any_lane(p);
	return lane_of(p, p->cluster->owner[rexp_key_slot(key, key_len)]);
}

/* What was asked for was not answered: go back to wait for a node. */
static void
ask_again_later(RexpPipeline *p, RexpLane *lane, RexpAnswer answer, const RexpError *why)
{
	RexpError	ignored;

	if (answer == REXP_ANSWER_MOVED)
		(void) refresh_map(p, lane, &ignored);
	rexp_lane_wait_for_node(lane, why, answer == REXP_ANSWER_RECONNECT);
}

/*
 * ask_there
 *	  The slot of a key is on its way, and the key not where it was: ask where it
 *	  goes.  NULL if that cannot be done.
 */
static redisReply *
ask_there(RexpPipeline *p, RexpLane *from, const char *where, const RexpBuffer *request)
{
	char		host[256];
	int			slot;
	int			port;
	int			node;
	RexpLane   *to;
	RexpBuffer	asking;
	RexpError	error;
	redisReply *reply;

	if (!rexp_cluster_redirection(where, rexp_link_host(from->link), &slot, host,
								  sizeof(host), &port))
		return NULL;
	node = rexp_cluster_node(p->cluster, host, port);
	if (node < 0)
		return NULL;
	to = lane_of(p, node);
	if (!rexp_link_is_open(to->link) && rexp_connect(to->link, &error) != REXP_ANSWER_DONE)
		return NULL;
	rexp_buffer_init(&asking, 32);
	rexp_resp_header(&asking, '*', 1);
	rexp_resp_word(&asking, "ASKING");
	reply = rexp_link_ask(to->link, &asking, rexp_link_timeout(to->link), &error);
	rexp_buffer_free(&asking);
	if (reply != NULL)
	{
		freeReplyObject(reply);
		reply = rexp_link_ask(to->link, request, rexp_link_timeout(to->link), &error);
	}
	if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
	{
		freeReplyObject(reply);
		reply = NULL;
	}
	if (to->flow != REXP_FLOW_OPEN)
		rexp_link_close(to->link);
	return reply;
}

/*
 * ask_once
 *	  One attempt to have a command answered.  NULL if it was not.
 */
static redisReply *
ask_once(RexpPipeline *p, RexpLane *lane, const RexpBuffer *request, const char *failing)
{
	RexpError	error;
	RexpAnswer	answer;
	redisReply *reply = rexp_link_ask(lane->link, request, rexp_link_timeout(lane->link),
									  &error);

	if (reply == NULL)
		answer = rexp_link_failure(&error);
	else if (reply->type == REDIS_REPLY_ERROR)
		answer = rexp_lane_judge_error(lane, reply->str, reply->len, &error);
	else
		answer = REXP_ANSWER_DONE;
	if (answer == REXP_ANSWER_DONE || answer == REXP_ANSWER_ROW ||
		(answer == REXP_ANSWER_FATAL && reply != NULL && failing == NULL))
		return reply;

	if (reply != NULL)
	{
		redisReply *there = NULL;

		if (p->cluster != NULL && strncmp(reply->str, "ASK ", 4) == 0)
			there = ask_there(p, lane, reply->str, request);
		freeReplyObject(reply);
		if (there != NULL)
			return there;
	}
	if (failing != NULL)
		rexp_error_prefix(&error, "%s: ", failing);
	if (answer == REXP_ANSWER_FATAL)
		rexp_ledger_stop(&p->traffic.ledger, &error);
	else
		ask_again_later(p, lane, answer, &error);
	return NULL;
}

/*
 * rexp_pipeline_ask
 *	  Have one command answered, by the node that has the key (NULL: by any), again
 *	  and again while Redis is away.
 *
 * To be called when there are no rows.  Returns the reply, which is the caller's to
 * free, and may be an error of the command's own; or NULL if the job has failed, with
 * an error that begins with "failing".  If that is NULL, the job does not depend on
 * it: any error but that Redis is away is a reply.
 */
redisReply *
rexp_pipeline_ask(RexpPipeline *p, const RexpBuffer *request, const char *key,
				  size_t key_len, const char *failing)
{
	redisReply *reply = NULL;
	RexpError	error;
	RexpLane   *lane;
	int			at = -1;

	p->traffic.asking = true;
	while ((lane = next_lane(p, &at)) != NULL)
		lane->waiting_since = GetCurrentTimestamp();
	while (reply == NULL && !has_failed(p) &&
		   !(p->unless_lost && rexp_may_have_lost(rexp_pipeline_counters(p))))
	{
		lane = lane_for_key(p, key, key_len);
		if (lane == p->homeless && lane->flow == REXP_FLOW_IDLE)
		{
			rexp_error_set(&error, ERRCODE_CANNOT_CONNECT_NOW,
						   "no node of the Redis Cluster has the slot of key \"%s\"", key);
			rexp_lane_wait_for_node(lane, &error, false);
		}
		if (lane->flow == REXP_FLOW_IDLE)
			lane->flow = REXP_FLOW_CONNECT;
		if (lane->flow != REXP_FLOW_OPEN)
			(void) step(p, true);
		else
			reply = ask_once(p, lane, request, failing);
		if (reply != NULL)
		{
			lane->waiting_since = p->attended_at = GetCurrentTimestamp();
			rexp_lane_settled(lane);
		}
	}
	p->traffic.asking = false;
	if (reply == NULL && has_failed(p))
		(void) wind_up(p);
	return reply;
}

/*
 * rexp_pipeline_ask_unless_lost
 *	  The same for a command that says what rows Redis holds: it must not reach a
 *	  Redis that was restarted since it acknowledged them.  NULL, then, too, though
 *	  the job has not failed.
 */
redisReply *
rexp_pipeline_ask_unless_lost(RexpPipeline *p, const RexpBuffer *request, const char *key,
							  size_t key_len, const char *failing)
{
	redisReply *reply;

	p->unless_lost = true;
	reply = rexp_pipeline_ask(p, request, key, key_len, failing);
	p->unless_lost = false;
	return reply;
}

/*
 * The seed of the digests
 */

/* Have a command with the seed's key answered; NULL if the job has failed. */
static redisReply *
ask_for_seed(RexpPipeline *p, int nwords, const char *const *words, const char *failing)
{
	const char *key = p->traffic.options.seed_key;
	RexpBuffer	request;
	redisReply *reply;

	rexp_buffer_init(&request, 256);
	rexp_resp_header(&request, '*', nwords);
	for (int i = 0; i < nwords; i++)
		rexp_resp_word(&request, words[i]);
	reply = rexp_pipeline_ask(p, &request, key, strlen(key), failing);
	rexp_buffer_free(&request);
	return reply;
}

/*
 * Exports without digests make those void that there are of their keys, if there can be
 * any.  False on failure.
 */
static bool
void_digests(RexpPipeline *p)
{
	const char *words[] = {"DEL", p->traffic.options.seed_key};
	redisReply *reply;

	if (p->traffic.options.seed_key == NULL || p->traffic.changes != NULL)
		return true;
	reply = ask_for_seed(p, lengthof(words), words, NULL);
	if (reply == NULL)
		return false;

	/* who may not delete it has kept none either */
	freeReplyObject(reply);
	return true;
}

/*
 * agree_on_seed
 *	  The seed that Redis keeps, or one of ours if there is none yet.  False if the
 *	  job has failed.
 *
 * Of two jobs that are the first at once, both take the one that came first.
 */
static bool
agree_on_seed(RexpPipeline *p)
{
	const char *key = p->traffic.options.seed_key;
	char		ours[2 * sizeof(uint64) + 1];
	const char *set[] = {"SET", key, ours, "NX"};
	const char *get[] = {"GET", key};
	const char *failing = REXP_CHANGES_FAILING;
	uint64		seed;
	redisReply *reply;
	RexpError	error;

	if (!pg_strong_random(&seed, sizeof(seed)))
		seed = (uint64) GetCurrentTimestamp();
	snprintf(ours, sizeof(ours), "%016" PRIx64, seed);
	reply = ask_for_seed(p, lengthof(set), set, failing);
	if (reply == NULL)
		return false;
	freeReplyObject(reply);
	reply = ask_for_seed(p, lengthof(get), get, failing);
	if (reply == NULL)
		return false;
	if (reply->type == REDIS_REPLY_STRING && reply->len == sizeof(ours) - 1 &&
		sscanf(reply->str, "%16" SCNx64, &seed) == 1)
	{
		rexp_changes_set_seed(p->traffic.changes, seed);
		freeReplyObject(reply);
		return true;
	}
	if (reply->type == REDIS_REPLY_ERROR)
		(void) rexp_answer_to(reply->str, reply->len, &error);
	else
		rexp_error_set(&error, ERRCODE_DATA_EXCEPTION, "key \"%s\" holds no seed", key);
	freeReplyObject(reply);
	rexp_error_prefix(&error, "%s: ", failing);
	rexp_error_hint(&error, "%s", REXP_CHANGES_HINT);
	rexp_ledger_stop(&p->traffic.ledger, &error);
	return wind_up(p);
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
	while (p->single->flow != REXP_FLOW_OPEN && !has_failed(p))
		(void) step(p, true);
	if (!has_failed(p) && mode != REXP_CLUSTER_OFF &&
		(mode == REXP_CLUSTER_ON ||
		 rexp_link_server_info(p->single->link)->is_cluster))
		(void) enter_cluster(p);
	show_nodes(p, true);
	if (!has_failed(p))
		(void) (p->traffic.changes != NULL ? agree_on_seed(p) : void_digests(p));
	return !has_failed(p) || wind_up(p);
}

/*
 * The index
 */

/* Show the ledger as it stands, with nothing on its way. */
static void
publish(RexpPipeline *p)
{
	rexp_ledger_publish(&p->traffic.ledger, 0);
}

/* Ask for the index.  False if the job has failed. */
static bool
look_at_index(RexpPipeline *p, RexpIndexInfo *info)
{
	RexpBuffer	request;
	RexpError	error;
	redisReply *reply;
	char		failing[REXP_MESSAGE_SIZE];

	snprintf(failing, sizeof(failing), "could not look at index \"%s\"", p->index);
	rexp_buffer_init(&request, 128);
	rexp_index_request(p->index, &request);
	reply = rexp_pipeline_ask(p, &request, NULL, 0, failing);
	rexp_buffer_free(&request);
	if (reply == NULL)
		return false;
	if (reply->type != REDIS_REPLY_ERROR)
	{
		rexp_index_read(reply, info);
		freeReplyObject(reply);
		return true;
	}
	(void) rexp_answer_to(reply->str, reply->len, &error);
	freeReplyObject(reply);
	rexp_error_prefix(&error, "%s: ", failing);
	rexp_error_hint(&error, "wait_index names an index that is there. Create it before the export, with FT.CREATE.");
	rexp_ledger_stop(&p->traffic.ledger, &error);
	return wind_up(p);
}

/*
 * rexp_pipeline_watch_index
 *	  Count from now on what an index refuses.  index, in UTF-8, must live as long
 *	  as the pipeline.  Returns false if the job has failed: there may be no such
 *	  index.
 *
 * Call it before there are rows.
 */
bool
rexp_pipeline_watch_index(RexpPipeline *p, const char *index)
{
	RexpIndexInfo info;

	p->index = index;
	if (!look_at_index(p, &info))
		return false;
	p->index_base = info.failures;
	p->traffic.ledger.counters.has_index = true;
	publish(p);
	return true;
}

/*
 * rexp_pipeline_wait_index
 *	  Wait until the index has taken everything.  Returns false if the job has
 *	  failed.  Call it when the pipeline is finished.
 */
bool
rexp_pipeline_wait_index(RexpPipeline *p)
{
	RexpIndexInfo info;
	RexpError	refused;

	rexp_pipeline_enter(p, REXP_STATE_INDEXING);
	while (look_at_index(p, &info))
	{
		int64		more = info.failures - p->index_base;

		/* an index that was made anew counts from zero */
		p->traffic.ledger.counters.index_failures += more >= 0 ? more : info.failures;
		p->index_base = info.failures;
		publish(p);
		if (more != 0 && p->traffic.ledger.counters.index_failures > 0)
		{
			rexp_error_set(&refused, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
						   "index \"%s\" refused the document of key \"%s\": %s",
						   p->index, info.last_key, info.last_error);
			rexp_progress_state(p->traffic.ledger.progress, REXP_STATE_INDEXING, &refused);
		}
		if (info.complete)
			return true;
		rexp_link_wait(any_lane(p)->link, false, INDEX_INTERVAL);
	}
	return false;
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
		(void) wind_up(p);
		return;
	}
	while ((lane = next_lane(p, &at)) != NULL)
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
	while ((lane = next_lane(p, &at)) != NULL)
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
	show_nodes(p, true);
	if (p->cluster != NULL)
	{
		rexp_link_close(p->control);
		rexp_waiter_close(p->waiter);
	}
	rexp_progress_counters(p->traffic.ledger.progress, counters);
}
