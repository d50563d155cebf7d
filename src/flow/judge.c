/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  What Redis' answers mean for the rows of a lane.
 *
 * Errors are looked up in error_reply.c, and then mean something else in a cluster than
 * without one; other answers mean what the command says that they answer: a write,
 * an expiry, a check, or a question to the replicas.  An error that no rule
 * knows stays one here (unknown.c).  What is done about it is decided in lane.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/lane.h"

/* How often an expiry may not find its key. */
#define MISSES_BORNE 3

/* What an error says, which differs in a cluster and without one. */
RexpAnswer
rexp_lane_judge_error(const RexpLane *lane, const char *text, size_t len, RexpError *error)
{
	RexpAnswer	answer = rexp_answer_to(text, len, error);
	bool		cluster = lane->traffic->redirect != NULL;

	/* what it tells to do is done */
	if (cluster && (answer == REXP_ANSWER_MOVED || answer == REXP_ANSWER_ASK ||
					answer == REXP_ANSWER_TRY_AGAIN))
		error->hint[0] = '\0';
	switch (answer)
	{
		case REXP_ANSWER_MOVED:
			return cluster ? answer : REXP_ANSWER_FATAL;
		case REXP_ANSWER_ASK:
			/* key and books may not move together: wait until both have */
			if (cluster && lane->traffic->options.books != NULL)
				return REXP_ANSWER_LATER;
			return cluster ? answer : REXP_ANSWER_FATAL;
		case REXP_ANSWER_TRY_AGAIN:
			return cluster ? REXP_ANSWER_LATER : REXP_ANSWER_FATAL;
		case REXP_ANSWER_CLUSTER_DOWN:
			return cluster ? REXP_ANSWER_LATER : REXP_ANSWER_RECONNECT;
		default:
			return answer;
	}
}

/* An answer that the books cannot be kept: that concerns all rows. */
static RexpAnswer
books_failed(RexpError *error)
{
	rexp_error_prefix(error, "%s: ", REXP_BOOKS_FAILING);
	rexp_error_hint(error, "%s", REXP_BOOKS_HINT);
	return REXP_ANSWER_FATAL;
}

/*
 * judge_check
 *	  Is the key there, of the type that it must have (part 1), and is its entry in the
 *	  books that of the row (part 2)?
 */
static RexpAnswer
judge_check(RexpLane *lane, RexpRow *row, const RexpReply *reply, RexpError *error)
{
	const RexpBooks *books = lane->traffic->options.books;
	bool		first = lane->window.receive_part == 1;
	RexpAnswer	answer = REXP_ANSWER_DONE;

	if (reply->type == REXP_REPLY_ERROR)
		answer = rexp_lane_judge_error(lane, reply->text, reply->len, error);
	if (first)
		row->found = reply->type == REXP_REPLY_STATUS &&
			rexp_books_has_type(books, reply->text, reply->len);
	else
		row->unchanged = row->found && reply->type == REXP_REPLY_STRING &&
			rexp_books_same(books, row->digest, reply->text, reply->len);
	if (answer != REXP_ANSWER_ROW)
		return answer;

	/* what is wrong with the key, its write will tell */
	return first ? REXP_ANSWER_DONE : books_failed(error);
}

/* Do as many replicas have what the master has as shall? */
static RexpAnswer
judge_replicas(RexpLane *lane, const RexpFlight *flight, const RexpReply *reply,
			   RexpError *error)
{
	/* the write before the WAIT may be denied: then it is as it is */
	if (flight->batch->fenced && lane->window.receive_part == 1)
		return REXP_ANSWER_DONE;
	if (reply->type == REXP_REPLY_ERROR)
	{
		RexpAnswer	answer = rexp_lane_judge_error(lane, reply->text, reply->len, error);

		/* it is no row's fault: a replica, say, takes no WAIT */
		return rexp_answer_is_own(answer) ? REXP_ANSWER_RECONNECT : answer;
	}
	if (reply->type == REXP_REPLY_INTEGER &&
		reply->integer < lane->traffic->options.wait_replicas)
	{
		rexp_error_set(error, ERRCODE_CANNOT_CONNECT_NOW,
					   "only " INT64_FORMAT " of %d replicas of Redis have acknowledged the rows",
					   reply->integer, lane->traffic->options.wait_replicas);
		rexp_error_hint(error, "See that the replicas are up, or export with a smaller wait_replicas.");
		return REXP_ANSWER_LATER;
	}
	return REXP_ANSWER_DONE;
}

/* What an answer says of a write. */
static RexpAnswer
judge_write(RexpLane *lane, RexpRow *row, const RexpReply *reply, RexpError *error)
{
	RexpReplyType refusal = row->refusal == REXP_REFUSAL_OLD_VALUE ?
		REXP_REPLY_STRING : REXP_REPLY_NIL;

	if (reply->type == REXP_REPLY_ERROR)
	{
		RexpAnswer	answer = rexp_lane_judge_error(lane, reply->text, reply->len, error);

		/* the first command of the transaction is that of the books */
		return answer == REXP_ANSWER_ROW && row->booked && lane->window.receive_part == 2 ?
			books_failed(error) : answer;
	}
	if (row->deletes)
	{
		/* sent twice, the first time may have been the one that did it */
		row->found = reply->integer > 0 || row->in_doubt;
		return REXP_ANSWER_DONE;
	}
	if (row->refusal == REXP_REFUSAL_NONE || reply->type != refusal)
		return REXP_ANSWER_DONE;
	rexp_error_set(error, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, "%s",
				   rexp_refusal_text(row->refusal));
	return REXP_ANSWER_ROW;
}

/* And of an expiry: has it found its key? */
static RexpAnswer
judge_expiry(RexpLane *lane, RexpRow *row, const RexpReply *reply, RexpError *error)
{
	if (row->expiry.kind == REXP_EXPIRY_NEVER || reply->type != REXP_REPLY_INTEGER ||
		reply->integer != 0)
		return REXP_ANSWER_DONE;
	rexp_error_set(error, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
				   "the key was gone before its expiry could be set");

	/*
	 * A write may leave the old expiry, which then has come before the new one: so it
	 * is written again.  While slots move, it may also be asked for at a node that has
	 * lost it; and one that was found unchanged may have gone since.
	 */
	if ((lane->traffic->redirect == NULL && !row->repeatable) ||
		row->misses++ >= MISSES_BORNE)
		return REXP_ANSWER_ROW;
	return lane->traffic->redirect != NULL ? REXP_ANSWER_LATER : REXP_ANSWER_AGAIN;
}

/* What the reply says of the command it answers. */
RexpAnswer
rexp_lane_judge(RexpLane *lane, const RexpFlight *flight, const RexpReply *reply,
	  RexpError *error)
{
	RexpRow    *row;

	if (flight->kind == REXP_FLIGHT_REPLICAS)
		return judge_replicas(lane, flight, reply, error);
	row = &flight->batch->rows[lane->window.receive_at];
	if (flight->kind == REXP_FLIGHT_CHECKS)
		return judge_check(lane, row, reply, error);
	if (flight->kind == REXP_FLIGHT_WRITES)
		return judge_write(lane, row, reply, error);
	if (reply->type == REXP_REPLY_ERROR)
		return rexp_lane_judge_error(lane, reply->text, reply->len, error);
	return judge_expiry(lane, row, reply, error);
}
