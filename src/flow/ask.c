/*-------------------------------------------------------------------------
 *
 * ask.c
 *	  What is asked of Redis besides rows, over the connections of the pipeline.
 *
 * One command at a time, by the node that has its key, again and again while Redis is
 * away, and only while no rows are on their way: the mark of a watermark (record.c), and
 * how far a search index is (search_index.c).
 *
 * A part of the pipeline; nothing here knows SQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/pipeline.h"
#include "flow/pipeline_internal.h"
#include "redis/connect.h"
#include "redis/search_index.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* How long a job that has failed waits for Redis to take its lease back (ms). */
#define GIVE_BACK_PATIENCE 200

/* While an index is waited for, look at it so often (ms). */
#define INDEX_INTERVAL 100

/* Who can be asked for anything: the one Redis, or a node that is there. */
static RexpLane *
any_lane(RexpPipeline *p)
{
	int			at = -1;
	RexpLane   *lane;
	RexpLane   *any = p->single;

	if (p->cluster == NULL)
		return p->single;
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
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
		p->reachable.lead_to = rexp_link_address(lane->link);
	return &p->reachable;
}

/* The lane for a command by itself, with this key or, for NULL, with none. */
static RexpLane *
lane_for_key(RexpPipeline *p, const char *key, size_t key_len)
{
	if (p->cluster == NULL || key == NULL)
		return any_lane(p);
	return rexp_pipeline_lane_of(p, p->cluster->owner[rexp_key_slot(key, key_len)]);
}

/* What was asked for was not answered: go back to wait for a node. */
static void
ask_again_later(RexpPipeline *p, RexpLane *lane, RexpAnswer answer, const RexpError *why)
{
	RexpError	ignored;

	if (answer == REXP_ANSWER_MOVED)
		(void) rexp_pipeline_refresh_map(p, lane, &ignored);
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
	RexpAddress address;
	int			slot;
	int			node;
	RexpLane   *to;
	RexpBuffer	asking;
	RexpError	error;
	redisReply *reply;

	if (!rexp_cluster_redirection(where, rexp_link_address(from->link), &slot, &address))
		return NULL;
	node = rexp_cluster_node(p->cluster, &address);
	if (node < 0)
		return NULL;
	to = rexp_pipeline_lane_of(p, node);
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
 *
 * An error that no rule knows is asked about once more, after a pause: *puzzled is
 * whether that has been.
 */
static redisReply *
ask_once(RexpPipeline *p, RexpLane *lane, const RexpBuffer *request, const char *failing,
		 bool *puzzled)
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
	lane->pause = answer == REXP_ANSWER_UNKNOWN && !*puzzled;
	*puzzled |= lane->pause;
	if (answer == REXP_ANSWER_DONE || (rexp_answer_is_own(answer) && !lane->pause) ||
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
	bool		puzzled = false;
	int			at = -1;

	p->traffic.asking = true;
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
		lane->waiting_since = GetCurrentTimestamp();
	while (reply == NULL && !rexp_pipeline_has_failed(p) &&
		   !(p->unless_lost && rexp_may_have_lost(rexp_pipeline_counters(p))) &&
		   (p->traffic.ask_until == 0 || GetCurrentTimestamp() < p->traffic.ask_until))
	{
		lane = lane_for_key(p, key, key_len);
		if (lane == p->homeless && lane->flow == REXP_FLOW_IDLE)
		{
			char		shown[128];

			rexp_printable(shown, sizeof(shown), key, key_len);
			rexp_error_set(&error, ERRCODE_CANNOT_CONNECT_NOW,
						   "no node of the Redis Cluster has the slot of key \"%s\"", shown);
			rexp_lane_wait_for_node(lane, &error, false);
		}
		if (lane->flow == REXP_FLOW_IDLE)
			lane->flow = REXP_FLOW_CONNECT;
		if (lane->flow != REXP_FLOW_OPEN)
			(void) rexp_pipeline_step(p, true);
		else
			reply = ask_once(p, lane, request, failing, &puzzled);
		if (reply != NULL)
		{
			lane->waiting_since = p->attended_at = GetCurrentTimestamp();
			rexp_lane_settled(lane);
		}
	}
	p->traffic.asking = false;
	at = -1;
	while (reply != NULL && (lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		/* who was asked before, and did not answer, is not needed any more */
		if (!rexp_lane_has_rows(lane))
			rexp_lane_settled(lane);
	}
	if (reply == NULL && p->traffic.ask_until != 0)
	{
		/* not asked any more: should it be needed again, it connects anew */
		lane = lane_for_key(p, key, key_len);
		if (lane->link != NULL)
			rexp_link_close(lane->link);
		lane->flow = REXP_FLOW_IDLE;
		rexp_lane_settled(lane);
	}
	if (reply == NULL && rexp_pipeline_has_failed(p))
		(void) rexp_pipeline_wind_up(p);
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
 * The lease
 */

/* Has this been asked of Redis before there are rows: as RexpAsk, of the pipeline. */
redisReply *
rexp_pipeline_ask_for_lease(void *pipeline, const RexpBuffer *request, RexpError *error)
{
	RexpPipeline *p = pipeline;
	const char *key = rexp_lease_key(p->traffic.lease);
	redisReply *reply = rexp_pipeline_ask(p, request, key, strlen(key),
										  "could not ask for the lease of the export");

	if (reply == NULL)
		*error = *rexp_pipeline_error(p);
	return reply;
}

/*
 * The same between rows, of a lane on which nothing is on its way.  What Redis refuses for
 * good, as what its user may not do, is the end of the job.
 */
static redisReply *
ask_over_lane(void *arg, const RexpBuffer *request, RexpError *error)
{
	RexpLane   *lane = arg;
	redisReply *reply = rexp_link_ask(lane->link, request, rexp_link_timeout(lane->link),
									  error);
	RexpError	why;
	RexpAnswer	answer;

	if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
	{
		answer = rexp_lane_judge_error(lane, reply->str, reply->len, &why);
		if (answer == REXP_ANSWER_FATAL || answer == REXP_ANSWER_ROW)
		{
			rexp_error_prefix(&why, "could not renew the lease of the export: ");
			rexp_ledger_stop(&lane->traffic->ledger, &why);
		}
	}
	return reply;
}

/* The same for a moment only. */
static redisReply *
ask_in_passing(void *arg, const RexpBuffer *request, RexpError *error)
{
	RexpLane   *lane = arg;

	return rexp_link_ask(lane->link, request, GIVE_BACK_PATIENCE, error);
}

/*
 * rexp_pipeline_keep_lease
 *	  From now on rows are sent only while we have this lease, which is renewed in between.
 *	  It, and what check is called with, must live as long as the pipeline.
 */
void
rexp_pipeline_keep_lease(RexpPipeline *p, RexpLease *lease, RexpLeaseCheck check, void *arg)
{
	p->traffic.lease = lease;
	p->lease_check = check;
	p->lease_arg = arg;
}

/* Let rows be sent again where they were held. */
static void
let_go(RexpPipeline *p)
{
	if (p->held != NULL)
		p->held->held = false;
	p->held = NULL;
}

/* What was sent in part cannot be sent to its end: those connections are of no use. */
static void
cut_unfinished(RexpPipeline *p)
{
	RexpError	why;
	int			at = -1;
	RexpLane   *lane;

	rexp_error_set(&why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "the lease of the export has run out");
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (lane->window.send_offset > 0 && lane->flow == REXP_FLOW_OPEN)
			rexp_lane_lost(lane, &why);
	}
}

/* Renew it now, over this lane, on which nothing is on its way. */
static void
renew_lease(RexpPipeline *p, RexpLane *lane)
{
	RexpError	error;
	RexpError	ignored;
	RexpLeaseState state = rexp_lease_renew(p->traffic.lease, ask_over_lane, lane, &error);

	if (state == REXP_LEASE_OURS)
		state = p->lease_check(p->lease_arg, ask_over_lane, lane, &error);
	switch (state)
	{
		case REXP_LEASE_OURS:
			p->lease_connection = rexp_link_connection(lane->link);
			p->traffic.lease_is_out = false;
			break;
		case REXP_LEASE_HELD:
			/* it may have been free, and another run have come and gone */
			(void) rexp_lease_give_back(p->traffic.lease, ask_over_lane, lane, &ignored);
			p->traffic.lease_is_out = true;
			rexp_ledger_stop(&p->traffic.ledger, &error);
			break;
		case REXP_LEASE_UNKNOWN:
			if (rexp_pipeline_has_failed(p))
				break;
			if (p->cluster != NULL && rexp_link_is_open(lane->link))
				(void) rexp_pipeline_refresh_map(p, lane, &ignored);
			if (lane->flow == REXP_FLOW_OPEN)
				rexp_lane_lost(lane, &error);
			break;
	}
}

/*
 * rexp_pipeline_give_lease_back
 *	  The job has failed, and answers have been received: give the lease back, if that can
 *	  be asked for at once.  Otherwise it runs out.
 */
void
rexp_pipeline_give_lease_back(RexpPipeline *p)
{
	RexpLease  *lease = p->traffic.lease;
	RexpLane   *lane;
	RexpError	ignored;

	if (lease == NULL)
		return;
	lane = lane_for_key(p, rexp_lease_key(lease), strlen(rexp_lease_key(lease)));
	if (lane->link != NULL && rexp_link_is_open(lane->link) &&
		lane->window.outstanding == 0 && lane->window.send_offset == 0)
		(void) rexp_lease_give_back(lease, ask_in_passing, lane, &ignored);
}

/*
 * rexp_pipeline_tend_lease
 *	  Renew the lease when it is time, or when Redis may have lost it: on a new
 *	  connection, before rows are sent there.
 *
 * The lane that has its key is held for it until nothing is on its way there.
 */
void
rexp_pipeline_tend_lease(RexpPipeline *p)
{
	RexpLease  *lease = p->traffic.lease;
	RexpLane   *lane;
	bool		is_new;

	if (lease == NULL || p->ending || p->traffic.asking || rexp_pipeline_has_failed(p))
		return;
	if (rexp_lease_has_run_out(lease))
	{
		p->traffic.lease_is_out = true;
		cut_unfinished(p);
	}
	lane = lane_for_key(p, rexp_lease_key(lease), strlen(rexp_lease_key(lease)));
	is_new = lane->flow == REXP_FLOW_OPEN && rexp_link_is_open(lane->link) &&
		rexp_link_connection(lane->link) != p->lease_connection;
	if (p->held != lane)
		let_go(p);
	if (!is_new && !rexp_lease_is_due(lease))
		return;
	if (lane->flow == REXP_FLOW_IDLE && lane->link != NULL)
	{
		lane->waiting_since = GetCurrentTimestamp();
		lane->flow = REXP_FLOW_CONNECT;
	}
	if (lane->flow != REXP_FLOW_OPEN || !rexp_link_is_open(lane->link))
		return;
	p->held = lane;
	lane->held = true;
	if (lane->window.outstanding > 0 || lane->window.send_offset > 0)
		return;
	renew_lease(p, lane);
	let_go(p);
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

/*
 * Ask for the index, and with schema for what it is over.  False if the job has
 * failed.
 */
static bool
look_at_index(RexpPipeline *p, RexpIndexInfo *info, RexpIndexSchema *schema)
{
	RexpBuffer	request;
	RexpError	error;
	redisReply *reply;
	char		shown[128];
	char		failing[REXP_MESSAGE_SIZE];

	rexp_printable(shown, sizeof(shown), p->index, strlen(p->index));
	snprintf(failing, sizeof(failing), "could not look at index \"%s\"", shown);
	rexp_buffer_init(&request, 128);
	rexp_index_request(p->index, &request);
	reply = rexp_pipeline_ask(p, &request, NULL, 0, failing);
	rexp_buffer_free(&request);
	if (reply == NULL)
		return false;
	if (reply->type != REDIS_REPLY_ERROR)
	{
		rexp_index_read(reply, info);
		if (schema != NULL)
			rexp_index_read_schema(reply, schema);
		freeReplyObject(reply);
		return true;
	}
	(void) rexp_answer_to(reply->str, reply->len, &error);
	freeReplyObject(reply);
	rexp_error_prefix(&error, "%s: ", failing);
	rexp_error_hint(&error, "wait_index names an index that is there. Create it before the export, with FT.CREATE.");
	rexp_ledger_stop(&p->traffic.ledger, &error);
	return rexp_pipeline_wind_up(p);
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
	MemoryContext old;
	bool		good;

	p->index = index;
	old = MemoryContextSwitchTo(p->context);
	good = look_at_index(p, &info, &p->schema);
	MemoryContextSwitchTo(old);
	if (!good)
		return false;
	p->index_base = info.failures;
	p->traffic.ledger.counters.has_index = true;
	publish(p);
	return true;
}

/* What the index that is watched is over. */
const RexpIndexSchema *
rexp_pipeline_index_schema(const RexpPipeline *p)
{
	return &p->schema;
}

/*
 * rexp_pipeline_index_misfit
 *	  The index cannot take what is written: note it, for the log and who waits.
 */
void
rexp_pipeline_index_misfit(RexpPipeline *p, const RexpError *error)
{
	p->misfit = *error;
	p->traffic.ledger.counters.index_misfit = true;
	ereport(WARNING,
			(errcode(error->sqlstate),
			 errmsg("%s", error->message),
			 errhidestmt(true)));
}

/* The index has stood still for so long (ms): the job fails.  Always false. */
static bool
give_up_index(RexpPipeline *p, const RexpIndexInfo *info, double milliseconds)
{
	RexpError	error;
	char		shown[128];

	rexp_printable(shown, sizeof(shown), p->index, strlen(p->index));
	rexp_error_set(&error, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "gave up waiting for index \"%s\", which has stood still for %.1f seconds",
				   shown, milliseconds / 1000);
	rexp_error_detail(&error, "It has indexed %.1f %% of what Redis holds for it, and has " INT64_FORMAT " documents.",
					  info->share * 100, info->documents);
	rexp_error_hint(&error, "The rows are written. See what FT.INFO and Redis' log say of the index; it may go on by itself, and the rows need not be exported again.");
	rexp_ledger_stop(&p->traffic.ledger, &error);
	return rexp_pipeline_wind_up(p);
}

/*
 * rexp_pipeline_wait_index
 *	  Wait until the index has taken everything, as long as it gets further within
 *	  retry_timeout.  Returns false if the job has failed.  Call it when the pipeline
 *	  is finished.
 */
bool
rexp_pipeline_wait_index(RexpPipeline *p)
{
	RexpIndexInfo info;
	RexpIndexInfo before;
	RexpError	refused;
	bool		first = true;
	int64		reconnects = 0;
	TimestampTz since = 0;

	rexp_pipeline_enter(p, REXP_STATE_INDEXING);
	if (p->misfit.sqlstate != 0)
		rexp_progress_state(p->traffic.ledger.progress, REXP_STATE_INDEXING, &p->misfit);
	while (look_at_index(p, &info, NULL))
	{
		int64		more = info.failures - p->index_base;
		TimestampTz now;

		/* an index that was made anew counts from zero */
		p->traffic.ledger.counters.index_failures += more >= 0 ? more : info.failures;
		p->index_base = info.failures;
		publish(p);
		if (more != 0 && p->traffic.ledger.counters.index_failures > 0)
		{
			char		shown[128];

			rexp_printable(shown, sizeof(shown), p->index, strlen(p->index));
			rexp_error_set(&refused, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
						   "index \"%s\" refused the document of key \"%s\": %s",
						   shown, info.last_key, info.last_error);
			rexp_progress_state(p->traffic.ledger.progress, REXP_STATE_INDEXING, &refused);
		}
		if (info.complete)
			return true;

		/* the time that Redis was away is not the index' own */
		now = GetCurrentTimestamp();
		if (first || rexp_index_has_moved(&before, &info) ||
			reconnects != p->traffic.ledger.counters.reconnects)
			since = now;
		else if (now - since >= p->traffic.options.retry_timeout * 1000)
			return give_up_index(p, &info, (double) (now - since) / 1000);
		first = false;
		before = info;
		reconnects = p->traffic.ledger.counters.reconnects;
		rexp_link_wait(any_lane(p)->link, false, INDEX_INTERVAL);
	}
	return false;
}
