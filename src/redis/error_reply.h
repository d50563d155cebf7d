/*-------------------------------------------------------------------------
 *
 * error_reply.h
 *	  What Redis' error replies mean for a job.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ERROR_REPLY_H
#define REDIS_EXPORT_ERROR_REPLY_H

#include "base/error.h"

typedef enum RexpAnswer
{
	REXP_ANSWER_DONE,			/* the command was carried out */
	REXP_ANSWER_ROW,			/* the row's own fault: it failed */
	REXP_ANSWER_UNKNOWN,		/* no rule knows it: the row's own fault, or the
								 * state of the server */
	REXP_ANSWER_AGAIN,			/* nothing is to be waited for: resend */
	REXP_ANSWER_LATER,			/* refused for the moment; this connection is
								 * good: wait, resend */
	REXP_ANSWER_RECONNECT,		/* this connection is of no use, or leads to
								 * the wrong server: wait, connect, resend */
	REXP_ANSWER_MOVED,			/* another node of the cluster has the slot */
	REXP_ANSWER_ASK,			/* another node has the key: its slot moves */
	REXP_ANSWER_TRY_AGAIN,		/* the slot of several keys moves */
	REXP_ANSWER_CLUSTER_DOWN,	/* a slot has no owner now */
	REXP_ANSWER_FATAL			/* the job cannot go on */
} RexpAnswer;

/* Is it an error of the one command, as far as can be told? */
static inline bool
rexp_answer_is_own(RexpAnswer answer)
{
	return answer == REXP_ANSWER_ROW || answer == REXP_ANSWER_UNKNOWN;
}

extern RexpAnswer rexp_answer_to(const char *reply, size_t len,
								 RexpError *error);

#endif							/* REDIS_EXPORT_ERROR_REPLY_H */
