/*-------------------------------------------------------------------------
 *
 * pipeline.c
 *	  Commands on their way to Redis, kept until they are answered.
 *
 * Rows come in one by one and join the window (window.c), where they stay until
 * they are settled.  This file moves them: it sends, receives, says what an
 * answer means for its row, and decides what is to be done when one calls for a
 * resend, or the connection breaks.
 *
 * The state of the whole ("flow") is one of these:
 *
 *	   CONNECT	no connection: make one			-> OPEN, BACKOFF, STOP
 *	   OPEN		send and receive				-> DRAIN, BACKOFF, STOP
 *	   DRAIN	an answer calls for a resend: send nothing more, receive what
 *				is still to come				-> BACKOFF, STOP
 *	   BACKOFF	wait, longer each time			-> OPEN, CONNECT, STOP
 *	   STOP		the job has failed: send no more rows, only the expiries of
 *				those that are written; receive what is still to come -> CLOSED
 *	   CLOSED	nothing more happens
 *
 * After DRAIN, and after a loss of the connection, everything is sent again
 * from the first row that is not settled, later rows that were acknowledged
 * included: if one of them has the same key, its value must win.
 *
 * What each answer means is looked up in answer.c.  Nothing here knows SQL, or
 * what the commands are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pipeline.h"
#include "search_index.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "window.h"

/* Bytes handed to the kernel at a time, and such hand-overs in a row. */
#define SEND_SIZE ((size_t) 128 * 1024)
#define SENDS_IN_A_ROW 4

/* While a batch is filled, look after the others each so many bytes. */
#define LOOK_EVERY ((size_t) 64 * 1024)

/* A batch that is older than this (ms) is sent though it is not full. */
#define BATCH_AGE 100

/* How long a WAIT holds up what follows it, at most (ms). */
#define REPLICAS_TIME 1000

/* Milliseconds between attempts: the first time, and at most. */
#define BACKOFF_FIRST 50
#define BACKOFF_MOST 2000

/* While an index is waited for, look at it so often (ms). */
#define INDEX_INTERVAL 100

/* Connection losses of the row that is first in line. */
#define LOSSES_ALONE 2			/* send it alone */
#define LOSSES_FAILED 3			/* it is to blame */

typedef enum Flow
{
	FLOW_CONNECT,
	FLOW_OPEN,
	FLOW_DRAIN,
	FLOW_BACKOFF,
	FLOW_STOP,
	FLOW_CLOSED
} Flow;

struct RexpPipeline
{
	RexpPipelineOptions options;
	RexpLink   *link;
	int			timeout;		/* of the link, milliseconds */
	RexpProgress *progress;
	RexpCounters counters;
	RexpError	error;			/* why the job failed */
	RexpError	why;			/* why rows must be sent again */
	RexpError	block_error;	/* of the block being answered; sqlstate 0:
								 * none so far */
	RexpAnswer	block_answer;	/* what that error calls for */

	Flow		flow;
	bool		reconnect;		/* after DRAIN */
	bool		alone;			/* one command at a time, until one goes well */
	bool		finishing;
	bool		indexing;
	bool		retrying;		/* as the view shows it */
	bool		closed;
	bool		unsent_dropped; /* in STOP */
	int			delay;			/* of the last BACKOFF, milliseconds */
	TimestampTz resume_at;		/* end of the BACKOFF */
	TimestampTz waiting_since;	/* for an acknowledgement */
	TimestampTz attended_at;	/* the end of the last step */
	TimestampTz last_byte;		/* that went either way */
	TimestampTz stop_at;		/* end of STOP, or 0 */

	RexpWindow	window;
	RexpBuffer	aside;			/* a row that has to wait for others */
	size_t		looked_at;		/* length of the batch at the last look */
	TimestampTz batch_started;

	const char *index;			/* that is waited for, in UTF-8, or NULL */
	int64		index_base;		/* its failures at the last look */

	double		tokens;			/* rows that the rate allows now */
	TimestampTz tokens_at;

	char		run_id[48];
	char		history[48];	/* of the server's data, while it is a master */
	int64		evicted_base;
};

static void stop(RexpPipeline *p, const RexpError *error);
static void advance(RexpPipeline *p);

/*
 * rexp_pipeline_create
 *	  An empty pipeline in a memory context of its own below the current one.
 *
 * The link and the progress are the caller's, and must live as long.
 */
RexpPipeline *
rexp_pipeline_create(const RexpPipelineOptions *options, RexpLink *link,
					 RexpProgress *progress)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "redis_export pipeline",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	RexpPipeline *p = palloc0(sizeof(RexpPipeline));
	RexpSequel	sequel;

	sequel.expire = options->expire;
	sequel.expiries_differ = options->expiries_differ;
	sequel.wait_replicas = options->wait_replicas;
	sequel.wait_time = Min(REPLICAS_TIME, rexp_link_timeout(link) / 2);

	p->options = *options;
	p->link = link;
	p->timeout = rexp_link_timeout(link);
	p->progress = progress;
	p->flow = FLOW_CONNECT;
	p->waiting_since = p->last_byte = p->tokens_at = p->attended_at =
		GetCurrentTimestamp();
	rexp_buffer_init(&p->aside, 64);
	rexp_window_init(&p->window, options->batch, &sequel,
					 options->verb.repeatable);
	MemoryContextSwitchTo(old);
	return p;
}

const RexpError *
rexp_pipeline_error(const RexpPipeline *p)
{
	return p->error.sqlstate != 0 ? &p->error : NULL;
}

const RexpCounters *
rexp_pipeline_counters(const RexpPipeline *p)
{
	return &p->counters;
}

/*
 * Show the ledger as it stands.  What is with Redis is in doubt for now, but for
 * what is there once more.
 */
static void
publish(RexpPipeline *p)
{
	RexpCounters *counters = &p->counters;

	counters->rows_in_doubt = Min(p->window.outstanding, counters->rows_read -
								  counters->rows_written - counters->rows_failed -
								  counters->rows_skipped);
	rexp_progress_counters(p->progress, &p->counters);
}

/* Show whether we are in trouble, and what it is now. */
static void
publish_retrying(RexpPipeline *p, bool retrying)
{
	if (!retrying && !p->retrying)
		return;
	p->retrying = retrying;
	rexp_progress_state(p->progress, retrying ? REXP_STATE_RETRYING :
						p->indexing ? REXP_STATE_INDEXING :
						p->finishing ? REXP_STATE_FINISHING : REXP_STATE_RUNNING,
						retrying ? &p->why : NULL);
}

/*
 * Settling rows
 */

/*
 * A row is acknowledged for good.  What was so before does not bring us further:
 * if only such rows go well, again and again, it is right to wait longer.
 */
static void
settle_done(RexpPipeline *p, RexpBatch *batch, RexpRow *row)
{
	rexp_window_settle(batch, row, REXP_ROW_DONE);
	if (!row->counted)
	{
		row->counted = true;
		p->counters.rows_written++;
		p->delay = 0;
	}
	p->alone = false;
	publish_retrying(p, false);
}

/* Count a failed row, keep what is wrong with it, and see whether to go on. */
static void
count_failure(RexpPipeline *p, int64 number, const char *key, size_t key_len,
			  const RexpError *reason)
{
	RexpError	error = *reason;
	char		text[sizeof(((RexpFailure *) NULL)->key)];

	rexp_printable(text, sizeof(text), key, key_len);
	p->counters.rows_failed++;
	rexp_progress_failure(p->progress, number, text, &error);

	if (p->counters.rows_failed <= REXP_FAILURES_KEPT)
	{
		/* a warning serves interrupts, and we are in the midst of a reply */
		HOLD_INTERRUPTS();
		ereport(WARNING,
				(errcode(error.sqlstate),
				 errmsg("row " INT64_FORMAT " with key \"%s\" failed: %s",
						number, text, error.message)));
		RESUME_INTERRUPTS();
	}

	if (!p->options.ignore_errors)
	{
		rexp_error_prefix(&error, "row " INT64_FORMAT " with key \"%s\" failed: ",
						  number, text);
		stop(p, &error);
	}
	else if (p->options.reject_limit >= 0 &&
			 p->counters.rows_failed > p->options.reject_limit)
	{
		rexp_error_prefix(&error, "more rows failed than the reject_limit of " INT64_FORMAT " allows, the last with key \"%s\": ",
						  p->options.reject_limit, text);
		stop(p, &error);
	}
}

/* A row's answer is that it cannot be done. */
static void
settle_failed(RexpPipeline *p, RexpBatch *batch, RexpRow *row, const RexpError *error)
{
	rexp_window_settle(batch, row, REXP_ROW_FAILED);
	if (row->counted)
	{
		/* it went well before it was sent again; what counts is the last word */
		row->counted = false;
		p->counters.rows_written--;
	}
	p->alone = false;
	p->delay = 0;
	publish_retrying(p, false);
	count_failure(p, row->number, batch->data.data + row->key_start, row->key_len,
				  error);
}

/*
 * Changes of the flow
 */

/* The job has failed; the first error counts. */
static void
stop(RexpPipeline *p, const RexpError *error)
{
	if (p->error.sqlstate == 0)
		p->error = *error;
	if (p->flow != FLOW_CLOSED)
		p->flow = FLOW_STOP;
}

/* An answer calls for a resend. */
static void
begin_drain(RexpPipeline *p, const RexpError *why, bool reconnect)
{
	if (p->flow != FLOW_OPEN && p->flow != FLOW_DRAIN)
		return;
	if (p->flow == FLOW_OPEN)
	{
		p->why = *why;
		p->reconnect = false;
	}
	p->reconnect |= reconnect;
	p->flow = FLOW_DRAIN;
}

static void
begin_backoff(RexpPipeline *p)
{
	p->delay = p->delay == 0 ? BACKOFF_FIRST : Min(p->delay * 2, BACKOFF_MOST);
	p->resume_at = GetCurrentTimestamp() + (int64) p->delay * 1000;
	p->flow = FLOW_BACKOFF;
	publish_retrying(p, true);
	publish(p);
}

/*
 * give_up_doubtful
 *	  Rows were with Redis whose command must not be sent twice: whether they are
 *	  written is for the user to find out.
 */
static void
give_up_doubtful(RexpPipeline *p, const RexpError *why)
{
	RexpError	error = *why;

	rexp_error_detail(&error, "Of some rows it is not known whether Redis has carried out their command, which is not one that may be sent twice.");
	rexp_error_hint(&error, "See rows_in_doubt. Look what Redis holds before you export them again.");
	stop(p, &error);
	p->flow = FLOW_CLOSED;
}

/*
 * connection_lost
 *	  What was with Redis is in doubt, and will be sent again, if it may be.
 *
 * Was it cut?  A row can be to blame for that, but not for a silence: then Redis
 * stands still, which is to be borne until retry_timeout.
 */
static void
connection_lost(RexpPipeline *p, const RexpError *why, bool cut)
{
	RexpBatch  *batch;
	RexpRow    *row = rexp_window_first_in_line(&p->window, &batch);

	rexp_link_close(p->link);
	p->block_error.sqlstate = 0;
	if (row != NULL && cut)
		row->losses++;
	if (p->flow != FLOW_STOP && !p->options.verb.repeatable &&
		rexp_window_is_in_doubt(&p->window))
	{
		give_up_doubtful(p, why);
		return;
	}
	rexp_window_rewind(&p->window);
	if (p->flow == FLOW_STOP)
	{
		p->flow = FLOW_CLOSED;
		return;
	}
	p->why = *why;
	p->flow = FLOW_DRAIN;
	p->reconnect = true;
	if (row != NULL && cut && row->losses >= LOSSES_FAILED)
	{
		RexpError	error = *why;

		rexp_error_prefix(&error, "the connection broke %d times at this row: ",
						  row->losses);
		rexp_error_hint(&error, "Is its value larger than Redis' proto-max-bulk-len?");
		settle_failed(p, batch, row, &error);
		advance(p);
	}
	else if (row != NULL && (row->losses >= LOSSES_ALONE || !cut))
		p->alone = true;
	if (p->flow == FLOW_STOP)
		p->flow = FLOW_CLOSED;
	else
		begin_backoff(p);
}

/*
 * Receiving
 */

/* Let the window go on; what follows a write is no use on a broken connection. */
static void
advance(RexpPipeline *p)
{
	rexp_window_advance_receiver(&p->window,
								 p->flow == FLOW_OPEN || p->flow == FLOW_STOP);
}

/* What the reply says of the command it answers. */
static RexpAnswer
judge(RexpPipeline *p, const RexpFlight *flight, const RexpReply *reply,
	  RexpError *error)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
	{
		if (reply->type == REXP_REPLY_ERROR)
		{
			RexpAnswer	answer = rexp_answer_to(reply->text, reply->len, error);

			/* it is no row's fault: a replica, say, takes no WAIT */
			return answer == REXP_ANSWER_ROW ? REXP_ANSWER_RECONNECT : answer;
		}
		if (reply->type == REXP_REPLY_INTEGER &&
			reply->integer < p->options.wait_replicas)
		{
			rexp_error_set(error, ERRCODE_CANNOT_CONNECT_NOW,
						   "only " INT64_FORMAT " of %d replicas of Redis have acknowledged the rows",
						   reply->integer, p->options.wait_replicas);
			rexp_error_hint(error, "See that the replicas are up, or export with a smaller wait_replicas.");
			return REXP_ANSWER_LATER;
		}
		return REXP_ANSWER_DONE;
	}
	if (reply->type == REXP_REPLY_ERROR)
		return rexp_answer_to(reply->text, reply->len, error);
	if (flight->kind == REXP_FLIGHT_WRITES && reply->type == REXP_REPLY_NIL &&
		p->options.verb.nil != REXP_NIL_IS_FINE)
	{
		rexp_error_set(error, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
					   p->options.verb.nil == REXP_NIL_NO_PLACE ?
					   "Redis answered nil: the document has no place for the path" :
					   "Redis answered nil: the condition of the command did not hold");
		return REXP_ANSWER_ROW;
	}
	if (flight->kind == REXP_FLIGHT_EXPIRIES &&
		flight->batch->rows[p->window.receive_at].expiry.kind != REXP_EXPIRY_NEVER &&
		reply->type == REXP_REPLY_INTEGER && reply->integer == 0)
	{
		rexp_error_set(error, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
					   "the key was gone before its expiry could be set");
		return REXP_ANSWER_ROW;
	}
	return REXP_ANSWER_DONE;
}

/* What was asked for the row at hand is done; is it settled by that? */
static void
row_went_well(RexpPipeline *p, const RexpFlight *flight, RexpRow *row)
{
	if (flight->kind == REXP_FLIGHT_WRITES &&
		row->expiry.kind != REXP_EXPIRY_NONE)
		row->state = REXP_ROW_WRITTEN;
	else if (p->options.wait_replicas > 0)
		row->state = REXP_ROW_HELD;
	else
	{
		settle_done(p, flight->batch, row);
		return;
	}
	p->alone = false;
}

/* The replicas have all rows of the batch that the master has. */
static void
replicas_went_well(RexpPipeline *p, RexpBatch *batch)
{
	for (int i = 0; i < batch->nrows; i++)
	{
		if (batch->rows[i].state == REXP_ROW_HELD)
			settle_done(p, batch, &batch->rows[i]);
	}
}

/*
 * judge_block
 *	  Take one reply of a block of several commands, from MULTI to EXEC.  False
 *	  while more are to come.
 *
 * Each command in it is answered when it is queued, and EXEC when all are carried
 * out.  Once one was refused, EXEC carries out none (EXECABORT): what counts is
 * why the first one was refused.
 */
static bool
judge_block(RexpPipeline *p, const RexpFlight *flight, const RexpReply *reply,
			RexpAnswer *answer, RexpError *error)
{
	bool		last = ++p->window.receive_part == rexp_window_commands(&p->window);

	*answer = judge(p, flight, reply, error);
	if (*answer != REXP_ANSWER_DONE && p->block_error.sqlstate == 0)
	{
		p->block_error = *error;
		p->block_answer = *answer;
	}
	if (!last)
		return false;
	if (p->block_error.sqlstate != 0)
	{
		*answer = p->block_answer;
		*error = p->block_error;
		p->block_error.sqlstate = 0;
	}
	p->window.receive_part = 0;
	return true;
}

/* An answer that calls for more than to go on: the row is not settled. */
static void
refuse(RexpPipeline *p, const RexpFlight *flight, RexpRow *row, RexpAnswer answer,
	   const RexpError *error)
{
	if (row != NULL)
	{
		bool		expiring = flight->kind == REXP_FLIGHT_EXPIRIES;

		/* what was asked before may be there */
		row->in_doubt |= expiring;
		row->state = expiring && !p->options.verb.repeatable ?
			REXP_ROW_WRITTEN : REXP_ROW_REFUSED;
	}
	if (answer == REXP_ANSWER_FATAL)
		stop(p, error);
	else
		begin_drain(p, error, answer == REXP_ANSWER_RECONNECT);
}

/* Take one reply for the block that is first in line. */
static void
take_reply(RexpPipeline *p, const RexpReply *reply)
{
	RexpFlight	flight = p->window.flights[0];
	RexpRow    *row = flight.kind == REXP_FLIGHT_REPLICAS ? NULL :
		&flight.batch->rows[p->window.receive_at];
	RexpError	error;
	RexpAnswer	answer;

	if (rexp_window_commands(&p->window) == 1)
		answer = judge(p, &flight, reply, &error);
	else if (!judge_block(p, &flight, reply, &answer, &error))
		return;

	p->window.outstanding--;
	if (row == NULL)
		flight.batch->wait = REXP_WAIT_NONE;
	if (answer == REXP_ANSWER_ROW)
		settle_failed(p, flight.batch, row, &error);
	else if (answer != REXP_ANSWER_DONE)
		refuse(p, &flight, row, answer, &error);
	else if (row != NULL)
		row_went_well(p, &flight, row);
	else
		replicas_went_well(p, flight.batch);
	advance(p);
}

/* Take what replies are there.  False if the connection is of no use. */
static bool
take_replies(RexpPipeline *p, RexpError *error)
{
	RexpReply	reply;
	int64		settled = p->counters.rows_written + p->counters.rows_failed;
	int			found;

	while ((found = rexp_link_next_reply(p->link, &reply, error)) > 0)
	{
		if (p->window.outstanding > 0)
			take_reply(p, &reply);
		else
		{
			/* an answer to what it does not know whole: it will hang up */
			if (reply.type == REXP_REPLY_ERROR)
				(void) rexp_answer_to(reply.text, reply.len, error);
			else
				rexp_error_set(error, ERRCODE_PROTOCOL_VIOLATION,
							   "Redis sent an answer to nothing");
			return false;
		}
	}
	if (p->counters.rows_written + p->counters.rows_failed != settled)
		p->waiting_since = GetCurrentTimestamp();
	if (found < 0)
	{
		stop(p, error);
		return false;
	}
	return true;
}

/* Receive all there is.  Returns the number of bytes, or -1 after a loss. */
static ssize_t
receive(RexpPipeline *p, RexpError *error)
{
	ssize_t		total = 0;

	for (;;)
	{
		ssize_t		n = rexp_link_receive(p->link, error);
		RexpError	problem;

		if (n > 0)
		{
			total += n;
			if (take_replies(p, &problem))
				continue;
			*error = problem;
			n = -1;
		}
		return n < 0 ? -1 : total;
	}
}

/*
 * Sending
 */

/* Commands of the flight that may be sent now, the one begun included. */
static int
commands_allowed(RexpPipeline *p, const RexpFlight *flight)
{
	int			begun = p->window.send_offset > 0 ? 1 : 0;

	/* if others shall follow, a command begun must be sent to its end */
	if (p->flow == FLOW_STOP)
	{
		if (!rexp_window_has_sequel(&p->window))
			return 0;
		return flight->kind != REXP_FLIGHT_WRITES ? PG_INT32_MAX : begun;
	}
	if (p->flow != FLOW_OPEN)
		return p->flow == FLOW_DRAIN ? begun : 0;
	if (p->alone)
		return p->window.outstanding == 0 ? 1 : 0;
	if (p->options.rate > 0 && flight->kind == REXP_FLIGHT_WRITES)
	{
		TimestampTz now = GetCurrentTimestamp();
		double		most = Max(1.0, p->options.rate / 20.0);

		p->tokens += (double) (now - p->tokens_at) * p->options.rate / 1e6;
		p->tokens = Min(p->tokens, most);
		p->tokens_at = now;
		return (int) p->tokens + begun;
	}
	return PG_INT32_MAX;
}

static bool
has_output(RexpPipeline *p)
{
	return rexp_window_advance_sender(&p->window) &&
		commands_allowed(p, &p->window.flights[p->window.send_flight]) > 0;
}

/* Send a piece.  Returns the number of bytes, or -1 after a loss. */
static ssize_t
send_piece(RexpPipeline *p, RexpError *error)
{
	RexpWindow *window = &p->window;
	const char *bytes;
	size_t		len;
	bool		metered;
	int			allowed;
	int			begun;
	ssize_t		sent;

	if (!rexp_window_advance_sender(window))
		return 0;
	allowed = commands_allowed(p, &window->flights[window->send_flight]);
	if (allowed <= 0)
		return 0;
	len = rexp_window_piece(window, allowed, SEND_SIZE, &bytes);
	sent = rexp_link_send(p->link, bytes, len, error);
	if (sent <= 0)
		return sent;

	p->counters.bytes_sent += sent;
	if (window->outstanding == 0 && window->send_offset == 0 && p->delay == 0)
		p->waiting_since = GetCurrentTimestamp();
	metered = p->options.rate > 0 &&
		window->flights[window->send_flight].kind == REXP_FLIGHT_WRITES;
	begun = rexp_window_sent(window, sent);
	if (metered)
		p->tokens -= begun;
	return sent;
}

/*
 * Steps of the flow
 */

/* How long may we wait, in milliseconds, before something is to be done? */
static long
wait_time(RexpPipeline *p, TimestampTz now)
{
	long		wait = 1000;

	if (p->stop_at != 0)
		wait = Min(wait, (long) ((p->stop_at - now) / 1000) + 1);
	if (p->flow == FLOW_OPEN && p->options.rate > 0 && rexp_window_advance_sender(&p->window))
	{
		/* gather a hundredth of a second's worth */
		double		enough = Max(1.0, p->options.rate / 100.0);

		if (p->tokens < enough)
			wait = Min(wait, (long) ((enough - p->tokens) * 1000.0 / p->options.rate) + 1);
	}
	if (p->window.outstanding > 0 || p->window.send_offset > 0)
		wait = Min(wait, (long) ((p->last_byte - now) / 1000) + p->timeout + 1);
	return Max(wait, 1);
}

/*
 * exchange
 *	  Receive and send what can be, or wait until something can.
 */
static void
exchange(RexpPipeline *p, bool may_wait)
{
	RexpError	error;
	ssize_t		received;
	ssize_t		sent = 0;
	TimestampTz now;

	p->options.rate = rexp_progress_rate(p->progress);
	received = receive(p, &error);

	if (received >= 0)
	{
		for (int i = 0; i < SENDS_IN_A_ROW; i++)
		{
			ssize_t		n = send_piece(p, &error);

			if (n < 0)
			{
				RexpError	ignored;

				/* what was answered before is known to be so */
				(void) receive(p, &ignored);
				received = -1;
				break;
			}
			sent += n;
			if (n == 0)
				break;
		}
	}
	if (received < 0)
	{
		publish(p);
		connection_lost(p, &error, true);
		return;
	}

	now = GetCurrentTimestamp();
	if (received > 0 || sent > 0)
	{
		p->last_byte = now;
		publish(p);
		CHECK_FOR_INTERRUPTS();
		return;
	}
	if (!may_wait)
		return;
	if (p->stop_at != 0 && now >= p->stop_at)
	{
		p->flow = FLOW_CLOSED;
		return;
	}
	if ((p->window.outstanding > 0 || p->window.send_offset > 0) &&
		now - p->last_byte >= (int64) p->timeout * 1000)
	{
		rexp_link_timed_out(p->link, p->timeout, &error);
		connection_lost(p, &error, false);
		return;
	}
	rexp_link_wait(p->link, has_output(p), wait_time(p, now));
}

/*
 * Was this server, the same process as before, a replica meanwhile that threw its
 * data away for another master's?  One that only was to be keeps its history as
 * the one before its present one; one that forgets it for its age has none before.
 */
static bool
has_other_data(const RexpPipeline *p, const RexpServerInfo *info)
{
	return p->history[0] != '\0' && info->history[0] != '\0' &&
		strcmp(info->history, p->history) != 0 &&
		strcmp(info->history_before, p->history) != 0 &&
		strspn(info->history_before, "0") != strlen(info->history_before);
}

static void
note_loss(RexpPipeline *p)
{
	if (p->counters.redis_restarts++ == 0)
		p->counters.written_at_restart = p->counters.rows_written;
}

/* Look whether it is the same server, with the same data, as before. */
static void
note_server(RexpPipeline *p, bool first)
{
	const RexpServerInfo *info = rexp_link_server_info(p->link);

	if (!first && info->run_id[0] != '\0' && p->run_id[0] != '\0' &&
		strcmp(info->run_id, p->run_id) != 0)
	{
		note_loss(p);
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("Redis was restarted after " INT64_FORMAT " rows were acknowledged",
						p->counters.rows_written),
				 errdetail("What it had not saved before is lost.")));
		p->evicted_base = 0;
		p->history[0] = '\0';
	}
	else if (!first && !info->is_replica && has_other_data(p, info))
	{
		note_loss(p);
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("Redis took over the data of another master after " INT64_FORMAT " rows were acknowledged",
						p->counters.rows_written),
				 errdetail("What it held before, and the other did not, is lost.")));
	}
	if (!info->is_replica)
		strlcpy(p->history, info->history, sizeof(p->history));
	if (first)
		p->evicted_base = info->evicted_keys;
	strlcpy(p->run_id, info->run_id, sizeof(p->run_id));
	p->counters.evicted_keys += Max(info->evicted_keys - p->evicted_base, 0);
	p->evicted_base = info->evicted_keys;
}

static void
step_connect(RexpPipeline *p)
{
	RexpError	error;
	bool		first = p->run_id[0] == '\0' && p->counters.bytes_sent == 0;

	switch (rexp_link_connect(p->link, &error))
	{
		case REXP_ANSWER_DONE:
			if (!first)
				p->counters.reconnects++;
			note_server(p, first);
			p->last_byte = GetCurrentTimestamp();
			p->flow = FLOW_OPEN;
			if (p->window.queued == 0)
			{
				p->delay = 0;
				publish_retrying(p, false);
			}
			break;
		case REXP_ANSWER_FATAL:
			/* a name that cannot be found may be found again */
			if (first || error.sqlstate != ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION)
			{
				stop(p, &error);
				break;
			}
			/* FALLTHROUGH */
		default:
			p->why = error;
			begin_backoff(p);
			break;
	}
	publish(p);
}

static void
step_backoff(RexpPipeline *p, bool may_wait)
{
	TimestampTz now = GetCurrentTimestamp();
	RexpError	ignored;

	/* nothing is awaited: what comes can but be the end of the connection */
	if (rexp_link_is_open(p->link) && receive(p, &ignored) < 0)
		rexp_link_close(p->link);
	if (p->flow == FLOW_STOP)
		return;
	if (now - p->waiting_since >= p->options.retry_timeout * 1000)
	{
		RexpError	error = p->why;

		rexp_error_prefix(&error, "gave up after no row was acknowledged for %.1f seconds: ",
						  (double) (now - p->waiting_since) / 1e6);
		stop(p, &error);
	}
	else if (now >= p->resume_at)
		p->flow = rexp_link_is_open(p->link) ? FLOW_OPEN : FLOW_CONNECT;
	else if (may_wait)
		rexp_link_wait(p->link, false, (long) ((p->resume_at - now) / 1000) + 1);
}

/*
 * step
 *	  One step of the flow.  Without may_wait, which is how it is called between
 *	  two rows of the query, it does what can be done at once; but connecting
 *	  waits in any case.
 */
static void
step(RexpPipeline *p, bool may_wait)
{
	/* the time that the query took is none that Redis let us wait */
	if (!may_wait)
		p->waiting_since += GetCurrentTimestamp() - p->attended_at;

	switch (p->flow)
	{
		case FLOW_CONNECT:
			step_connect(p);
			break;
		case FLOW_OPEN:
			exchange(p, may_wait);
			break;
		case FLOW_DRAIN:
			if (p->window.outstanding > 0 || p->window.send_offset > 0)
				exchange(p, may_wait);
			else
			{
				if (p->reconnect)
					rexp_link_close(p->link);
				rexp_window_rewind(&p->window);
				p->alone = true;
				begin_backoff(p);
			}
			break;
		case FLOW_BACKOFF:
			step_backoff(p, may_wait);
			break;
		case FLOW_STOP:
			if (!p->unsent_dropped)
			{
				p->unsent_dropped = true;
				rexp_window_drop_unsent(&p->window);
			}
			if (rexp_link_is_open(p->link) &&
				(p->window.outstanding > 0 || has_output(p)))
				exchange(p, may_wait);
			else
				p->flow = FLOW_CLOSED;
			break;
		case FLOW_CLOSED:
			break;
	}
	p->attended_at = GetCurrentTimestamp();
}

/* Once the job has failed: receive what is still to come.  Always false. */
static bool
wind_up(RexpPipeline *p)
{
	while (p->flow != FLOW_CLOSED)
		step(p, true);
	return false;
}

static bool
has_failed(const RexpPipeline *p)
{
	return p->flow == FLOW_STOP || p->flow == FLOW_CLOSED;
}

/* The batch that was being filled joins the window; wait until it has room. */
static bool
dispatch(RexpPipeline *p)
{
	rexp_window_queue(&p->window);
	p->looked_at = 0;
	step(p, false);
	while (rexp_window_is_full(&p->window) && !has_failed(p))
		step(p, true);
	return !has_failed(p) || wind_up(p);
}

/*
 * rexp_pipeline_open
 *	  Connect.  Returns false if the job has failed.
 */
bool
rexp_pipeline_open(RexpPipeline *p)
{
	while (p->flow != FLOW_OPEN && !has_failed(p))
		step(p, true);
	return !has_failed(p) || wind_up(p);
}

/*
 * rexp_pipeline_row_begin
 *	  Where the next row's command is to be appended, whole, before it is handed
 *	  over with rexp_pipeline_row_end() or taken back with _row_reject().
 */
RexpBuffer *
rexp_pipeline_row_begin(RexpPipeline *p)
{
	if (rexp_window_filling(&p->window)->nrows == 0)
		p->batch_started = GetCurrentTimestamp();
	return rexp_window_row_begin(&p->window);
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

	rexp_window_set_apart(&p->window, block, &p->aside);
	if (!dispatch(p))
		return false;
	while (p->window.queued > 0 && !has_failed(p))
		step(p, true);
	if (has_failed(p))
		return wind_up(p);
	out = rexp_pipeline_row_begin(p);
	block->key_start += out->len;
	rexp_buffer_append(out, p->aside.data, p->aside.len);
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
	RexpBatch  *batch;

	if (p->options.expiries_differ && rexp_window_has_key(&p->window, block) &&
		!wait_for_others(p, block))
		return false;
	batch = rexp_window_filling(&p->window);
	rexp_window_row_end(&p->window, block)->number = ++p->counters.rows_read;

	if (batch->nrows >= p->options.batch || batch->data.len >= REXP_BATCH_BYTES ||
		((batch->nrows < 16 || batch->nrows % 16 == 0) &&
		 GetCurrentTimestamp() - p->batch_started >= BATCH_AGE * 1000))
		return dispatch(p);

	if (batch->data.len - p->looked_at >= LOOK_EVERY && p->window.nflights > 0)
	{
		p->looked_at = batch->data.len;
		step(p, false);
		if (has_failed(p))
			return wind_up(p);
	}
	return true;
}

/* Cut off what there is of a row that will not be sent. */
static void
take_back(RexpPipeline *p)
{
	RexpBatch  *batch = rexp_window_filling(&p->window);

	batch->data.len = batch->rows[batch->nrows].start;
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
	count_failure(p, ++p->counters.rows_read,
				  rexp_window_filling(&p->window)->data.data + block->key_start,
				  block->key_len, error);
	take_back(p);
	return !has_failed(p) || wind_up(p);
}

/* The row is not to be sent, and that is no failure. */
void
rexp_pipeline_row_skip(RexpPipeline *p)
{
	p->counters.rows_read++;
	p->counters.rows_skipped++;
	take_back(p);
}

/*
 * rexp_pipeline_finish
 *	  Send the rest and wait for all answers.  Returns false if the job has
 *	  failed.
 */
bool
rexp_pipeline_finish(RexpPipeline *p)
{
	RexpError	ignored;

	if (has_failed(p))
		return wind_up(p);
	p->finishing = true;
	if (!p->retrying)
		rexp_progress_state(p->progress, REXP_STATE_FINISHING, NULL);
	if (!dispatch(p))
		return false;
	while (p->window.queued > 0 && !has_failed(p))
		step(p, true);
	if (has_failed(p))
		return wind_up(p);
	if (rexp_link_is_open(p->link) && rexp_link_refresh_info(p->link, &ignored))
		note_server(p, false);
	return true;
}

/*
 * The index
 */

/* Ask for the index, again and again while Redis is away.  False on failure. */
static bool
look_at_index(RexpPipeline *p, RexpIndexInfo *info)
{
	RexpError	error;

	while (!has_failed(p))
	{
		RexpAnswer	answer;

		if (p->flow != FLOW_OPEN)
		{
			step(p, true);
			continue;
		}
		answer = rexp_index_look(p->link, p->index, info, &error);
		if (answer == REXP_ANSWER_DONE)
		{
			p->waiting_since = p->attended_at = GetCurrentTimestamp();
			return true;
		}
		if (answer == REXP_ANSWER_LATER || answer == REXP_ANSWER_RECONNECT)
		{
			if (answer == REXP_ANSWER_RECONNECT)
				rexp_link_close(p->link);
			p->why = error;
			begin_backoff(p);
		}
		else
		{
			rexp_error_prefix(&error, "could not look at index \"%s\": ", p->index);
			if (answer == REXP_ANSWER_ROW)
				rexp_error_hint(&error, "wait_index names an index that is there. Create it before the export, with FT.CREATE.");
			stop(p, &error);
		}
	}
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
	p->counters.has_index = true;
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

	rexp_progress_state(p->progress, REXP_STATE_INDEXING, NULL);
	p->indexing = true;
	while (look_at_index(p, &info))
	{
		int64		more = info.failures - p->index_base;

		/* an index that was made anew counts from zero */
		p->counters.index_failures += more >= 0 ? more : info.failures;
		p->index_base = info.failures;
		publish_retrying(p, false);
		publish(p);
		if (more != 0 && p->counters.index_failures > 0)
		{
			rexp_error_set(&refused, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
						   "index \"%s\" refused the document of key \"%s\": %s",
						   p->index, info.last_key, info.last_error);
			rexp_progress_state(p->progress, REXP_STATE_INDEXING, &refused);
		}
		if (info.complete)
			return true;
		rexp_link_wait(p->link, false, INDEX_INTERVAL);
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
	if (p->flow == FLOW_CLOSED)
		return;
	p->flow = FLOW_STOP;
	p->stop_at = GetCurrentTimestamp() + (int64) milliseconds * 1000;
	if (milliseconds == 0)
	{
		RexpError	ignored;

		if (rexp_link_is_open(p->link))
			(void) receive(p, &ignored);
		p->flow = FLOW_CLOSED;
	}
	else
		(void) wind_up(p);
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
	int64		unsent;

	if (p->closed)
		return;
	p->closed = true;
	p->flow = FLOW_CLOSED;
	rexp_window_reckon(&p->window, &p->counters.rows_in_doubt, &unsent);
	p->counters.rows_read -= unsent;
	rexp_link_close(p->link);
	rexp_progress_counters(p->progress, &p->counters);
}
