/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  Where code that is not ours may run, and with whose rights.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_FENCE_H
#define REDIS_EXPORT_FENCE_H

#include "session/session.h"

/* Who we were before. */
typedef struct RexpFence
{
	Oid			user;
	int			sec_context;
} RexpFence;

/* in the worker: a transaction */
extern void rexp_fence_begin(RexpFence *fence, Oid user, int sec_context);
extern void rexp_fence_commit(const RexpFence *fence);

/* in any transaction: a subtransaction of which nothing is left */
extern void rexp_fence_and_roll_back(const RexpSession *as,
									 void (*work) (void *arg), void *arg);

#endif							/* REDIS_EXPORT_FENCE_H */
