/*-------------------------------------------------------------------------
 *
 * lane.c
 *	  The rows of a job on their way to one node of Redis.
 *
 * Rows join the lane's window (window.c), where they stay until they are settled.
 * This file moves them: it sends, receives, and decides what is to be done when an
 * answer calls for a resend, or the connection breaks.
 *
 * The state of the whole ("flow") is one of these:
 *
 *	   IDLE		no connection, and no rows			-> CONNECT
 *	   CONNECT	make a connection					-> OPEN, BACKOFF, STOP
 *	   OPEN		send and receive					-> DRAIN, BACKOFF, STOP
 *	   DRAIN	an answer calls for a resend: send nothing more, receive what
 *				is still to come					-> BACKOFF, OPEN, ROUTE, STOP
 *	   BACKOFF	wait, longer each time				-> OPEN, CONNECT, ROUTE, STOP
 *	   ROUTE	in a cluster: rows may belong to other nodes by now, which is not
 *				decided here (routing.c)			-> OPEN, CONNECT, IDLE, BACKOFF
 *	   STOP		the job has failed: send no more rows, only the expiries of
 *				those that are written; receive what is still to come
 *													-> CLOSED
 *	   CLOSED	nothing more happens
 *
 * After a loss of the connection, everything is sent again from the first row that is
 * not settled, later rows that were acknowledged included: if one of them has the same
 * key, its value must win.  After DRAIN, while the connection is kept, the same is done
 * from the first row that was refused; what was written before it stays so, and only
 * what is to follow (say, whether the replicas have it) is asked for again.
 *
 * What each answer means for its row is said in judge.c.  Nothing here knows SQL, or
 * what the commands are, or other lanes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "flow/lane.h"
#include "miscadmin.h"
#include "redis/connect.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Bytes handed to the kernel at a time, and such hand-overs in a row. */
#define SEND_SIZE ((size_t) 128 * 1024)
#define SENDS_IN_A_ROW 4

/* How long a WAIT holds up what follows it, at most (ms). */
#define REPLICAS_TIME 1000

/* Milliseconds between attempts: the first time, and at most. */
#define BACKOFF_FIRST 50
#define BACKOFF_MOST 2000

/* How often rows that have moved are followed at once, none written between. */
#define MOVES_AT_ONCE 10

/* How often one row is sent on at once. */
#define HOPS_AT_ONCE 10

static void stop(RexpLane *lane, const RexpError *error);
static void halt_if_failed(RexpLane *lane);

/*
 * rexp_lane_create
 *	  A lane without rows, in the current memory context.
 *
 * Traffic and link are the caller's, and must live as long; without a link, rows
 * only wait here until a node is found for them.
 */
RexpLane *
rexp_lane_create(RexpTraffic *traffic, RexpLink *link)
{
	RexpLane   *lane = palloc0(sizeof(RexpLane));
	RexpSequel	sequel;

	lane->traffic = traffic;
	lane->link = link;
	lane->timeout = link != NULL ? rexp_link_timeout(link) : 0;
	lane->flow = REXP_FLOW_IDLE;
	lane->waiting_since = lane->last_byte = GetCurrentTimestamp();

	sequel.expire = traffic->options.expire;
	sequel.keys_apart = traffic->options.keys_apart;
	sequel.books = traffic->options.books;
	sequel.wait_replicas = traffic->options.wait_replicas;
	sequel.wait_time = Min(REPLICAS_TIME, lane->timeout / 2);
	rexp_window_init(&lane->window, traffic->options.batch, &sequel);
	return lane;
}

/* Show the ledger as it stands. */
static void
publish(RexpLane *lane)
{
	RexpTraffic *traffic = lane->traffic;

	traffic->outstanding += lane->window.outstanding - lane->shown;
	lane->shown = lane->window.outstanding;
	rexp_ledger_publish(&traffic->ledger, traffic->outstanding);
}

/* Show whether we are in trouble, and what it is now. */
static void
publish_retrying(RexpLane *lane, bool retrying)
{
	RexpTraffic *traffic = lane->traffic;

	if (!retrying && !lane->retrying)
		return;
	traffic->retrying += (int) retrying - (int) lane->retrying;
	lane->retrying = retrying;
	if (!retrying && traffic->retrying > 0)
		return;					/* others are */
	rexp_progress_state(traffic->ledger.progress,
						retrying ? REXP_STATE_RETRYING : traffic->state,
						retrying ? &lane->why : NULL);
}

/*
 * Settling rows
 */

/*
 * A row is acknowledged for good, or Redis has it.  What was so before does not bring
 * us further: if only such rows go well, again and again, it is right to wait longer.
 */
static void
settle_done(RexpLane *lane, RexpBatch *batch, RexpRow *row)
{
	rexp_window_settle(&lane->window, batch, row, REXP_ROW_DONE);
	if (!row->counted && !row->echo)
	{
		row->counted = true;
		if (row->deletes)
			lane->traffic->ledger.counters.keys_deleted += row->found;
		else if (row->unchanged)
			lane->traffic->ledger.counters.rows_unchanged++;
		else if (!row->corrects)
		{
			lane->traffic->ledger.counters.rows_written++;
			lane->rows_written++;
		}
		lane->went_on = true;
		lane->delay = lane->traffic->moves = 0;
	}
	lane->alone = false;
	publish_retrying(lane, false);
}

/*
 * A row has failed.  If its write was refused when its transaction was carried out, its
 * entry in the books was made nevertheless: it is to be corrected when all rows are
 * settled (rexp_pipeline_finish).  There may be as many of them as work_mem has room for.
 */
static void
note_wrong_entry(RexpLane *lane, const RexpBatch *batch, const RexpRow *row)
{
	RexpTraffic *traffic = lane->traffic;

	if (!row->booked || !row->tried)
		return;
	if (traffic->failed_keys.len + row->key_len > (size_t) work_mem * 1024)
	{
		traffic->uncorrected = true;
		return;
	}
	rexp_buffer_append(&traffic->failed_keys, (const char *) &row->key_len,
					   sizeof(row->key_len));
	rexp_buffer_append(&traffic->failed_keys, batch->data.data + row->key_start,
					   row->key_len);
}

/* A row's answer is that it cannot be done. */
static void
settle_failed(RexpLane *lane, RexpBatch *batch, RexpRow *row, const RexpError *error)
{
	rexp_window_settle(&lane->window, batch, row, REXP_ROW_FAILED);
	note_wrong_entry(lane, batch, row);
	if (row->corrects)
	{
		lane->traffic->uncorrected = true;
		return;
	}
	if (row->echo)
		return;
	if (row->deletes)
	{
		RexpError	fatal = *error;

		rexp_error_prefix(&fatal, "could not delete a key that no row has: ");
		stop(lane, &fatal);
		return;
	}
	if (row->counted)
	{
		/* it went well before it was sent again; what counts is the last word */
		row->counted = false;
		lane->traffic->ledger.counters.rows_written--;
		lane->rows_written--;
	}
	lane->alone = false;
	lane->went_on = true;
	lane->delay = lane->traffic->moves = 0;
	publish_retrying(lane, false);
	rexp_ledger_failed_row(&lane->traffic->ledger, row->number,
						   batch->data.data + row->key_start, row->key_len, error);
	halt_if_failed(lane);
}

/*
 * Has a row been settled, by whatever way?  Then one waits for the next only from now
 * on.
 */
static void
note_progress(RexpLane *lane)
{
	if (lane->went_on)
		lane->waiting_since = GetCurrentTimestamp();
	lane->went_on = false;
}

/*
 * Changes of the flow
 */

/* If the job has failed, nothing new is sent. */
static void
halt_if_failed(RexpLane *lane)
{
	if (rexp_ledger_has_failed(&lane->traffic->ledger))
		rexp_lane_halt(lane);
}

/* The job has failed; the first error counts. */
static void
stop(RexpLane *lane, const RexpError *error)
{
	if (!rexp_ledger_has_failed(&lane->traffic->ledger))
	{
		lane->why = *error;
		lane->to_blame = true;
	}
	rexp_ledger_stop(&lane->traffic->ledger, error);
	halt_if_failed(lane);
}

/*
 * stand_still
 *	  Rows are left, and nothing will ever happen to them: a fault of ours, which must
 *	  end the job rather than let it wait for good.
 */
static void
stand_still(RexpLane *lane)
{
	char		rows[128];
	RexpError	error;

	rexp_window_describe_open(&lane->window, rows, sizeof(rows));
	rexp_error_set(&error, ERRCODE_INTERNAL_ERROR,
				   "rows are left of which nothing is due: %s, flow %d", rows, lane->flow);
	rexp_error_hint(&error, "This is an error in redis_export. Please report it.");
	stop(lane, &error);
}

/* An answer calls for a resend. */
static void
begin_drain(RexpLane *lane, const RexpError *why, RexpAnswer answer)
{
	if (lane->flow != REXP_FLOW_OPEN && lane->flow != REXP_FLOW_DRAIN)
		return;
	if (lane->flow == REXP_FLOW_OPEN)
	{
		lane->reconnect = lane->moved = lane->pause = false;
		lane->at_once = true;
	}
	/* what is to be waited for is what is told */
	if (lane->flow == REXP_FLOW_OPEN || (lane->at_once && answer != REXP_ANSWER_AGAIN))
		lane->why = *why;
	lane->at_once &= answer == REXP_ANSWER_AGAIN;
	lane->reconnect |= answer == REXP_ANSWER_RECONNECT;
	lane->pause |= answer == REXP_ANSWER_UNKNOWN;
	lane->flow = REXP_FLOW_DRAIN;
}

static void
begin_backoff(RexpLane *lane)
{
	lane->moved = false;
	lane->delay = lane->delay == 0 ? BACKOFF_FIRST : Min(lane->delay * 2, BACKOFF_MOST);
	lane->resume_at = GetCurrentTimestamp() + (int64) lane->delay * 1000;

	/* one that is sent again for an answer that no rule knows shall be, in any case */
	if (lane->pause)
		lane->resume_at += Min(REXP_UNKNOWN_PAUSE, lane->traffic->options.retry_timeout / 2) * 1000;
	lane->pause = false;
	lane->flow = REXP_FLOW_BACKOFF;
	publish_retrying(lane, true);
	publish(lane);
}

/*
 * give_up_doubtful
 *	  Rows were with Redis whose command must not be sent twice: whether they are
 *	  written is for the user to find out.
 */
static void
give_up_doubtful(RexpLane *lane, const RexpError *why)
{
	RexpError	error = *why;

	rexp_error_detail(&error, "Of some rows it is not known whether Redis has carried out their command, which is not one that may be sent twice.");
	rexp_error_hint(&error, "See rows_in_doubt. Look what Redis holds before you export them again.");
	stop(lane, &error);
	lane->flow = REXP_FLOW_CLOSED;
}

/*
 * tells_of_row
 *	  Redis has hung up: has it said before that this was for the row that it was
 *	  being sent, and with what error?
 */
static bool
tells_of_row(const RexpLane *lane, const RexpError *why, RexpError *told)
{
	static const char refusal[] = "Redis answered: ERR Protocol error";

	if (lane->window.outstanding > 0)
		return false;
	/* what answers a part of a block was kept, not to be told before its end */
	*told = lane->block_error.sqlstate != 0 ? lane->block_error : *why;
	if (strncmp(told->message, refusal, strlen(refusal)) != 0)
		return false;
	rexp_error_hint(told, "Is its value larger than Redis' proto-max-bulk-len?");
	return true;
}

/* A row has failed since it breaks the connection, while nothing is with Redis. */
static void
settle_breaking(RexpLane *lane, RexpBatch *batch, RexpRow *row, const RexpError *error)
{
	settle_failed(lane, batch, row, error);
	note_progress(lane);
	rexp_window_advance_receiver(&lane->window);
}

/*
 * connection_lost
 *	  What was with Redis is in doubt, and will be sent again, if it may be.
 *
 * Was it cut?  A row can be to blame for that (suspect.c), but not for a silence: then
 * Redis stands still, which is to be borne until retry_timeout.
 */
static void
connection_lost(RexpLane *lane, const RexpError *why, bool cut)
{
	RexpBatch  *batch;
	RexpRow    *row = rexp_window_first_in_line(&lane->window, &batch);
	bool		only = lane->window.outstanding + (lane->window.send_offset > 0) == 1;
	RexpError	told;
	bool		is_told = row != NULL && tells_of_row(lane, why, &told);

	rexp_link_close(lane->link);
	lane->traffic->lost |= lane->traffic->redirect != NULL;
	lane->block_error.sqlstate = 0;
	if (row != NULL && cut)
		rexp_suspicion_cut(&lane->suspicion, &lane->window, batch, row, only, why);
	if (lane->flow != REXP_FLOW_STOP && rexp_window_is_in_doubt(&lane->window))
	{
		give_up_doubtful(lane, why);
		return;
	}
	rexp_window_rewind(&lane->window, false);
	if (lane->flow == REXP_FLOW_STOP)
	{
		lane->flow = REXP_FLOW_CLOSED;
		return;
	}
	lane->why = *why;
	lane->flow = REXP_FLOW_DRAIN;
	lane->reconnect = true;
	if (is_told)
		settle_breaking(lane, batch, row, &told);
	if (row != NULL)
		lane->alone = true;
	if (lane->flow == REXP_FLOW_STOP)
		lane->flow = REXP_FLOW_CLOSED;
	else
		begin_backoff(lane);
}

/*
 * Receiving
 */

/*
 * complete_row
 *	  A row is to be written: make what was put off.  False if it has failed by that.
 */
static bool
complete_row(RexpLane *lane, RexpBatch *batch, RexpRow *row)
{
	RexpTraffic *traffic = lane->traffic;
	MemoryContext old = MemoryContextSwitchTo(traffic->row_context);
	const char *stored = batch->data.data + row->stored_start;
	const char *bytes;
	size_t		len;
	RexpError	error;
	bool		good;

	error.detail[0] = error.hint[0] = '\0';
	(void) rexp_resp_take_header(&stored);
	good = traffic->complete(traffic->complete_arg, stored, row->stored_len, &bytes, &len,
							 &error);
	if (good)
		rexp_window_complete(&lane->window, batch, row, bytes, len);
	MemoryContextSwitchTo(old);
	MemoryContextReset(traffic->row_context);
	if (!good)
		settle_failed(lane, batch, row, &error);
	return good;
}

/* What was asked for the row at hand is done; is it settled by that? */
static void
row_went_well(RexpLane *lane, const RexpFlight *flight, RexpRow *row)
{
	if (flight->kind == REXP_FLIGHT_CHECKS && !row->unchanged)
	{
		if (lane->flow == REXP_FLOW_STOP)
			row->state = REXP_ROW_REFUSED;
		else if (row->stored_len == 0 || complete_row(lane, flight->batch, row))
			row->state = REXP_ROW_WAITING;
		return;
	}
	if (flight->kind <= REXP_FLIGHT_WRITES && row->expiry.kind != REXP_EXPIRY_NONE)
		row->state = REXP_ROW_WRITTEN;
	else if (lane->traffic->options.wait_replicas > 0 &&
			 flight->kind != REXP_FLIGHT_CHECKS)
		row->state = REXP_ROW_HELD;
	else
	{
		settle_done(lane, flight->batch, row);
		return;
	}
	lane->alone = false;
}

/* The replicas have all rows of the batch that the master has. */
static void
replicas_went_well(RexpLane *lane, RexpBatch *batch)
{
	for (int i = 0; i < batch->nrows; i++)
	{
		if (batch->rows[i].state == REXP_ROW_HELD)
			settle_done(lane, batch, &batch->rows[i]);
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
judge_block(RexpLane *lane, const RexpFlight *flight, const RexpReply *reply,
			RexpAnswer *answer, RexpError *error, const char **text)
{
	bool		last = ++lane->window.receive_part == rexp_window_commands(&lane->window);

	*answer = rexp_lane_judge(lane, flight, reply, error);
	if (*answer != REXP_ANSWER_DONE && lane->block_error.sqlstate == 0)
	{
		lane->block_error = *error;
		lane->block_answer = *answer;

		/* without MULTI, what comes behind it is carried out as it comes */
		if (lane->window.receive_part == 1 && flight->kind == REXP_FLIGHT_WRITES)
			flight->batch->rows[lane->window.receive_at].in_doubt = true;
		strlcpy(lane->block_text, reply->type == REXP_REPLY_ERROR ? reply->text : "",
				sizeof(lane->block_text));
	}
	if (!last)
		return false;
	if (lane->block_error.sqlstate != 0)
	{
		*answer = lane->block_answer;
		*error = lane->block_error;
		*text = lane->block_text;
		lane->block_error.sqlstate = 0;
	}
	lane->window.receive_part = 0;
	return true;
}

/* An answer that calls for more than to go on: the row is not settled. */
static void
refuse(RexpLane *lane, const RexpFlight *flight, RexpRow *row, RexpAnswer answer,
	   const RexpError *error)
{
	if (row != NULL)
	{
		bool		expiring = flight->kind == REXP_FLIGHT_EXPIRIES;

		/* what was asked before may be there */
		row->in_doubt |= expiring && !row->unchanged;
		row->state = expiring && (row->only_expiry || !row->repeatable) ?
			REXP_ROW_UNEXPIRED : REXP_ROW_REFUSED;
	}
	if (answer == REXP_ANSWER_FATAL)
		stop(lane, error);
	else
		begin_drain(lane, error, answer);
}

/*
 * look_into
 *	  An answer that no rule knows: has the row failed, or the job, or is the row to
 *	  be sent again, first and alone?  When it all ends, nothing is.
 */
static RexpAnswer
look_into(RexpLane *lane, const RexpFlight *flight, RexpRow *row, RexpError *error)
{
	bool		may_repeat = flight->kind != REXP_FLIGHT_WRITES || row->repeatable;
	RexpAnswer	answer;

	if (lane->flow == REXP_FLOW_STOP)
		return REXP_ANSWER_UNKNOWN;
	answer = rexp_unknown_judge(&lane->unknown, flight->kind, row->number, row->puzzled,
								may_repeat, error);
	if (answer == REXP_ANSWER_UNKNOWN && lane->flow == REXP_FLOW_OPEN)
	{
		row->puzzled = true;
		lane->unknown.passed = false;
	}
	return answer;
}

/*
 * redirected
 *	  The key is elsewhere: for good (MOVED), or already (ASK), while its slot is on
 *	  its way.
 *
 * After MOVED all that is still here of the slot has to go there, in order.  After
 * ASK only this row does: for rows with the same key that come behind it the
 * answer is the same.  (It is not if the move of the slot is given up after that: what
 * its new node has taken by then is lost to the cluster anyway.)
 */
static void
redirected(RexpLane *lane, const RexpFlight *flight, RexpRow *row,
		   RexpAnswer answer, const RexpError *error, const char *text)
{
	RexpTraffic *traffic = lane->traffic;
	bool		ask = answer == REXP_ANSWER_ASK && row != NULL &&
		lane->flow != REXP_FLOW_STOP;

	/* two nodes may send it to each other */
	if (ask && row->hops >= HOPS_AT_ONCE)
	{
		refuse(lane, flight, row, REXP_ANSWER_LATER, error);
		return;
	}
	if (ask)
	{
		/* once written, it might hit a later row if it were again */
		row->in_doubt |= flight->kind == REXP_FLIGHT_EXPIRIES;
		row->state = flight->kind == REXP_FLIGHT_EXPIRIES ?
			REXP_ROW_WRITTEN : REXP_ROW_WAITING;
	}
	if (traffic->redirect(traffic->arg, lane, ask ? answer : REXP_ANSWER_MOVED, text,
						  flight->batch, row) && ask)
		return;

	/* if it tells no address that can be followed, the map may */
	refuse(lane, flight, row, REXP_ANSWER_LATER, error);
	if (lane->flow == REXP_FLOW_DRAIN)
		lane->moved = true;
}

/* Take one reply for the block that is first in line. */
static void
take_reply(RexpLane *lane, const RexpReply *reply)
{
	RexpFlight	flight = lane->window.flights[0];
	RexpRow    *row = flight.kind == REXP_FLIGHT_REPLICAS ? NULL :
		&flight.batch->rows[lane->window.receive_at];
	const char *text = reply->text;
	RexpError	error;
	RexpAnswer	answer;

	if (rexp_window_commands(&lane->window) == 1)
		answer = rexp_lane_judge(lane, &flight, reply, &error);
	else if (!judge_block(lane, &flight, reply, &answer, &error, &text))
		return;

	lane->window.outstanding--;
	if (flight.kind == REXP_FLIGHT_WRITES)
		rexp_suspicion_write_answered(&lane->suspicion);
	if (row == NULL)
		flight.batch->wait = answer == REXP_ANSWER_DONE ? REXP_WAIT_NONE : REXP_WAIT_REFUSED;
	if (answer == REXP_ANSWER_UNKNOWN)
		answer = look_into(lane, &flight, row, &error);
	switch (answer)
	{
		case REXP_ANSWER_DONE:
			if (row != NULL)
			{
				if (lane->unknown.active && lane->unknown.kind == (int) flight.kind)
				{
					rexp_unknown_went_well(&lane->unknown, row->puzzled);
					row->puzzled = false;
				}
				row_went_well(lane, &flight, row);
			}
			else
				replicas_went_well(lane, flight.batch);
			break;
		case REXP_ANSWER_ROW:
			settle_failed(lane, flight.batch, row, &error);
			break;
		case REXP_ANSWER_MOVED:
		case REXP_ANSWER_ASK:
			redirected(lane, &flight, row, answer, &error, text);
			break;
		default:
			refuse(lane, &flight, row, answer, &error);
			break;
	}
	rexp_window_advance_receiver(&lane->window);
}

/* Take what replies are there.  False if the connection is of no use. */
static bool
take_replies(RexpLane *lane, RexpError *error)
{
	RexpReply	reply;
	int			found;

	while ((found = rexp_link_next_reply(lane->link, &reply, error)) > 0)
	{
		if (rexp_window_takes_reply(&lane->window))
			take_reply(lane, &reply);
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
	if (found < 0)
	{
		stop(lane, error);
		return false;
	}
	return true;
}

/* Receive all there is.  Returns the number of bytes, or -1 after a loss. */
static ssize_t
receive(RexpLane *lane, RexpError *error)
{
	ssize_t		total = 0;

	for (;;)
	{
		ssize_t		n = rexp_link_receive(lane->link, error);
		RexpError	problem;

		if (n > 0)
		{
			bool		good = take_replies(lane, &problem);

			total += n;
			note_progress(lane);
			if (good)
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
commands_allowed(RexpLane *lane, const RexpFlight *flight)
{
	int			begun = lane->window.send_offset > 0 ? 1 : 0;

	if (lane->traffic->lease_is_out)
		return 0;

	/* if others shall follow, a command begun must be sent to its end */
	if (lane->flow == REXP_FLOW_STOP)
	{
		if (!rexp_window_has_sequel(&lane->window))
			return 0;
		return flight->kind > REXP_FLIGHT_WRITES ? PG_INT32_MAX : begun;
	}
	if (lane->flow != REXP_FLOW_OPEN)
		return lane->flow == REXP_FLOW_DRAIN ? begun : 0;
	if (lane->held)
		return begun;
	if (lane->alone)
		return lane->window.outstanding == 0 ? 1 : 0;
	if (lane->traffic->options.rate > 0 && flight->kind == REXP_FLIGHT_WRITES)
	{
		TimestampTz now = GetCurrentTimestamp();
		double		most = Max(1.0, lane->traffic->options.rate / 20.0);

		lane->traffic->tokens += (double) (now - lane->traffic->tokens_at) * lane->traffic->options.rate / 1e6;
		lane->traffic->tokens = Min(lane->traffic->tokens, most);
		lane->traffic->tokens_at = now;
		return (int) lane->traffic->tokens + begun;
	}
	return PG_INT32_MAX;
}

/* Is there anything that may be sent now? */
bool
rexp_lane_wants_to_send(RexpLane *lane)
{
	return rexp_window_advance_sender(&lane->window) &&
		commands_allowed(lane, &lane->window.flights[lane->window.send_flight]) > 0;
}

/* Is the first write on this connection due, and a row suspected to break it? */
static bool
is_first_write(const RexpLane *lane)
{
	const RexpWindow *window = &lane->window;

	return lane->suspicion.active && !lane->suspicion.chosen &&
		lane->flow == REXP_FLOW_OPEN && window->outstanding == 0 &&
		window->send_offset == 0 &&
		window->flights[window->send_flight].kind == REXP_FLIGHT_WRITES;
}

/* Send a piece.  Returns the number of bytes, or -1 after a loss. */
static ssize_t
send_piece(RexpLane *lane, RexpError *error)
{
	RexpWindow *window = &lane->window;
	const char *bytes;
	size_t		len;
	bool		metered;
	bool		writing;
	int			allowed;
	int			begun;
	ssize_t		sent;

	if (!rexp_window_advance_sender(window))
		return 0;
	if (is_first_write(lane))
	{
		if (!rexp_suspicion_choose_first(&lane->suspicion, &lane->window, lane->link, error))
			return -1;
		(void) rexp_window_advance_sender(window);
	}
	allowed = commands_allowed(lane, &window->flights[window->send_flight]);
	if (allowed <= 0)
		return 0;
	len = rexp_window_piece(window, allowed, SEND_SIZE, &bytes);

	/* looked at last, since we may have been stopped for any time */
	if (lane->traffic->lease != NULL && rexp_lease_has_run_out(lane->traffic->lease))
	{
		lane->traffic->lease_is_out = true;
		return 0;
	}
	sent = rexp_link_send(lane->link, bytes, len, error);
	if (sent <= 0)
		return sent;

	lane->traffic->ledger.counters.bytes_sent += sent;
	lane->bytes_sent += sent;
	if (window->outstanding == 0 && window->send_offset == 0 &&
		lane->delay == 0 && lane->traffic->moves == 0)
		lane->waiting_since = GetCurrentTimestamp();
	metered = lane->traffic->options.rate > 0 &&
		window->flights[window->send_flight].kind == REXP_FLIGHT_WRITES;
	writing = window->flights[window->send_flight].kind == REXP_FLIGHT_WRITES;
	begun = rexp_window_sent(window, sent);
	if (metered)
		lane->traffic->tokens -= begun;
	if (writing)
		lane->suspicion.writes += begun;
	return sent;
}

/*
 * Steps of the flow
 */

/*
 * rexp_lane_wait_time
 *	  How long may one wait, in milliseconds, before there is something to be done?
 */
long
rexp_lane_wait_time(RexpLane *lane, TimestampTz now)
{
	RexpTraffic *traffic = lane->traffic;
	int			rate = traffic->options.rate;
	long		wait = 1000;

	if (traffic->stop_at != 0)
		wait = Min(wait, (long) ((traffic->stop_at - now) / 1000) + 1);
	if (lane->flow == REXP_FLOW_BACKOFF)
		wait = Min(wait, (long) ((lane->resume_at - now) / 1000) + 1);
	if (lane->flow == REXP_FLOW_OPEN && rate > 0 &&
		rexp_window_advance_sender(&lane->window))
	{
		/* gather a hundredth of a second's worth */
		double		enough = Max(1.0, rate / 100.0);

		if (traffic->tokens < enough)
			wait = Min(wait, (long) ((enough - traffic->tokens) * 1000.0 / rate) + 1);
	}
	if (lane->window.outstanding > 0 || lane->window.send_offset > 0)
		wait = Min(wait, (long) ((lane->last_byte - now) / 1000) + lane->timeout + 1);
	return Max(wait, 1);
}

/* Of two errors that a connection ended with, what Redis said counts. */
static void
prefer_answer(RexpError *error, const RexpError *other)
{
	if (strncmp(other->message, "Redis answered: ", strlen("Redis answered: ")) == 0)
		*error = *other;
}

/*
 * exchange
 *	  Receive and send what can be.  False if nothing could.
 */
static bool
exchange(RexpLane *lane)
{
	RexpError	error;
	ssize_t		received = receive(lane, &error);
	ssize_t		sent = 0;
	TimestampTz now;

	if (received >= 0)
	{
		for (int i = 0; i < SENDS_IN_A_ROW; i++)
		{
			ssize_t		n = send_piece(lane, &error);

			if (n < 0)
			{
				RexpError	last;

				/* what was answered before is known to be so, and why it was cut */
				if (rexp_link_is_open(lane->link) && receive(lane, &last) < 0)
					prefer_answer(&error, &last);
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
		publish(lane);
		connection_lost(lane, &error, true);
		return true;
	}

	now = GetCurrentTimestamp();
	if (received > 0 || sent > 0)
	{
		lane->last_byte = now;
		publish(lane);
		CHECK_FOR_INTERRUPTS();
		return true;
	}
	if (lane->flow == REXP_FLOW_OPEN && rexp_window_is_stuck(&lane->window))
	{
		stand_still(lane);
		return true;
	}
	if (!lane->traffic->may_wait)
		return false;
	if (lane->traffic->stop_at != 0 && now >= lane->traffic->stop_at)
	{
		lane->flow = REXP_FLOW_CLOSED;
		return true;
	}
	if ((lane->window.outstanding > 0 || lane->window.send_offset > 0) &&
		now - lane->last_byte >= (int64) lane->timeout * 1000)
	{
		rexp_link_timed_out(lane->link, lane->timeout, &error);
		connection_lost(lane, &error, false);
		return true;
	}
	return false;
}

/* Nothing is left to be done here: no longer is it in trouble. */
void
rexp_lane_settled(RexpLane *lane)
{
	lane->delay = 0;
	publish_retrying(lane, false);
}

/*
 * Has TLS refused a node that the cluster's map names?  One that only another node has
 * named may be in the map later, and have a name for its certificate there.
 */
static bool
is_refused_node(const RexpLink *link)
{
	return rexp_link_refused_by_tls(link) &&
		rexp_link_address(link)->source == REXP_ADDRESS_BY_MAP;
}

/*
 * rexp_lane_note_server
 *	  Look whether the lane's server is the same, with the same data, as before.  Returns
 *	  true if it was restarted or is another one.
 */
bool
rexp_lane_note_server(RexpLane *lane)
{
	RexpTraffic *traffic = lane->traffic;

	return rexp_server_watch_note(&lane->watch, lane->link, &traffic->ledger.counters,
								  &traffic->histories, lane->last_byte,
								  traffic->options.wait_replicas > 0);
}

static void
step_connect(RexpLane *lane)
{
	RexpError	error;
	bool		first = !lane->watch.known;
	bool		restarted;
	RexpBatch  *batch;
	RexpRow    *row;

	/*
	 * Whoever lost the connection: what was written on it is not known to be with the
	 * replicas, which can only be asked for where it was written.
	 */
	if (!first && rexp_window_is_in_doubt(&lane->window))
	{
		give_up_doubtful(lane, &lane->why);
		return;
	}
	switch (rexp_connect(lane->link, &error))
	{
		case REXP_ANSWER_DONE:
			if (!first)
			{
				lane->traffic->ledger.counters.reconnects++;
				lane->reconnects++;
				rexp_window_rewind(&lane->window, false);
			}
			restarted = rexp_lane_note_server(lane);
			rexp_suspicion_connected(&lane->suspicion, &lane->window, restarted);
			lane->last_byte = GetCurrentTimestamp();
			lane->flow = REXP_FLOW_OPEN;
			while ((row = rexp_suspicion_next_to_blame(&lane->suspicion, &lane->window, &batch,
														&error)) != NULL)
				settle_breaking(lane, batch, row, &error);
			if (!rexp_lane_has_rows(lane))
				rexp_lane_settled(lane);
			break;
		case REXP_ANSWER_FATAL:
			/* a name that cannot be found may be found again */
			if (lane->traffic->ask_until == 0 &&
				((first && (lane->traffic->redirect == NULL || is_refused_node(lane->link))) ||
				 error.sqlstate != ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION))
			{
				stop(lane, &error);
				break;
			}
			pg_fallthrough;
		default:
			lane->why = error;
			begin_backoff(lane);
			break;
	}
	publish(lane);
}

/* False if there is nothing to do but wait. */
static bool
step_backoff(RexpLane *lane)
{
	TimestampTz now = GetCurrentTimestamp();
	RexpError	ignored;

	/* nothing is awaited: what comes can but be the end of the connection */
	if (lane->link != NULL && rexp_link_is_open(lane->link) &&
		receive(lane, &ignored) < 0)
	{
		rexp_link_close(lane->link);
		if (rexp_window_is_in_doubt(&lane->window))
			give_up_doubtful(lane, &ignored);
	}
	if (lane->flow == REXP_FLOW_STOP || lane->flow == REXP_FLOW_CLOSED)
		return true;
	if (lane->traffic->ask_until == 0 &&
		(rexp_lane_has_rows(lane) || lane->traffic->redirect == NULL ||
		 lane->traffic->asking))
	{
		if (now - lane->waiting_since >= lane->traffic->options.retry_timeout * 1000)
		{
			RexpError	error = lane->why;

			rexp_suspicion_tell_crashes(&lane->suspicion, &lane->window, &error);
			rexp_error_prefix(&error, "gave up after no row was acknowledged for %.1f seconds: ",
							  (double) (now - lane->waiting_since) / 1e6);
			stop(lane, &error);
			return true;
		}
	}
	if (now < lane->resume_at)
		return false;
	if (lane->traffic->redirect != NULL)
		lane->flow = REXP_FLOW_ROUTE;
	else
		rexp_lane_go_on(lane);
	return true;
}

/* All that was on its way has been answered: what is to be sent again? */
static void
finish_drain(RexpLane *lane)
{
	if (lane->reconnect)
	{
		rexp_link_close(lane->link);

		/* what replicas have can only be asked for where it was written */
		if (rexp_window_is_in_doubt(&lane->window))
		{
			give_up_doubtful(lane, &lane->why);
			return;
		}
	}
	rexp_window_rewind(&lane->window, !lane->reconnect && !lane->moved);
	if (lane->moved && ++lane->traffic->moves <= MOVES_AT_ONCE)
		lane->flow = REXP_FLOW_ROUTE;
	else if (lane->at_once)
		rexp_lane_go_on(lane);
	else
	{
		lane->alone = true;
		begin_backoff(lane);
	}
}

/*
 * rexp_lane_work
 *	  One step of the flow, without waiting; but connecting waits in any case.
 *	  False if there is nothing to be done now.
 */
bool
rexp_lane_work(RexpLane *lane)
{
	switch (lane->flow)
	{
		case REXP_FLOW_IDLE:
			if (!rexp_lane_has_rows(lane))
				return false;
			lane->flow = lane->link != NULL ? REXP_FLOW_CONNECT : REXP_FLOW_ROUTE;
			return true;
		case REXP_FLOW_CONNECT:
			step_connect(lane);
			return true;
		case REXP_FLOW_OPEN:
			/* who asked something over it in between may have lost it */
			if (!rexp_link_is_open(lane->link))
			{
				lane->flow = REXP_FLOW_CONNECT;
				return true;
			}
			return exchange(lane);
		case REXP_FLOW_DRAIN:
			if (lane->window.outstanding > 0 || lane->window.send_offset > 0)
				return exchange(lane);
			finish_drain(lane);
			return true;
		case REXP_FLOW_BACKOFF:
			return step_backoff(lane);
		case REXP_FLOW_STOP:
			if (!lane->unsent_dropped)
			{
				lane->unsent_dropped = true;
				rexp_window_drop_unsent(&lane->window);
			}
			if (lane->link != NULL && rexp_link_is_open(lane->link) &&
				(lane->window.outstanding > 0 || rexp_lane_wants_to_send(lane)))
				return exchange(lane);
			lane->flow = REXP_FLOW_CLOSED;
			return true;
		case REXP_FLOW_CLOSED:
			/* unless it has failed or is to end, nobody else would say so */
			if (rexp_lane_has_rows(lane) && lane->traffic->stop_at == 0)
				stand_still(lane);
			break;
		case REXP_FLOW_ROUTE:
			break;
	}
	return false;
}

/* Does it hold rows that are not settled, those included that are gathered? */
bool
rexp_lane_has_rows(const RexpLane *lane)
{
	return lane->window.queued > 0 ||
		rexp_window_filling(unconstify(RexpWindow *, &lane->window))->open > 0;
}

/*
 * rexp_lane_queue
 *	  If the batch that is being filled is to be sent, and there is room, it joins
 *	  the window.  False if there was no room.
 */
bool
rexp_lane_queue(RexpLane *lane)
{
	if (!lane->due)
		return true;
	if (rexp_window_is_full(&lane->window))
		return false;
	rexp_window_queue(&lane->window);
	lane->due = false;
	return true;
}

/* Rows are where they belong, as far as is known: send them. */
void
rexp_lane_go_on(RexpLane *lane)
{
	lane->flow = rexp_link_is_open(lane->link) ? REXP_FLOW_OPEN : REXP_FLOW_CONNECT;
}

/* The connection was found to be lost, with nothing on its way. */
void
rexp_lane_lost(RexpLane *lane, const RexpError *why)
{
	connection_lost(lane, why, false);
}

/* There is nobody to send the rows to: look again after a while. */
void
rexp_lane_wait_for_node(RexpLane *lane, const RexpError *why, bool reconnect)
{
	if (reconnect && lane->link != NULL)
		rexp_link_close(lane->link);
	lane->why = *why;
	begin_backoff(lane);
}

/* The job has failed or is to end: send no more rows, and receive what comes. */
void
rexp_lane_halt(RexpLane *lane)
{
	if (lane->flow == REXP_FLOW_CLOSED)
		return;

	/* who was canceled while it connected may not have got as far as SELECT */
	if (lane->flow == REXP_FLOW_CONNECT && lane->link != NULL)
		rexp_link_close(lane->link);
	lane->flow = REXP_FLOW_STOP;
}

/* The job ends this moment: take what has come in already. */
void
rexp_lane_hurry(RexpLane *lane)
{
	RexpError	ignored;

	if (lane->flow == REXP_FLOW_CLOSED)
		return;
	lane->flow = REXP_FLOW_STOP;
	if (lane->link != NULL && rexp_link_is_open(lane->link))
		(void) receive(lane, &ignored);
	lane->flow = REXP_FLOW_CLOSED;
}
