/*-------------------------------------------------------------------------
 *
 * waiter.h
 *	  Waiting for several connections at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_WAITER_H
#define REDIS_EXPORT_WAITER_H

#include "redis/link.h"

typedef struct RexpWaiter RexpWaiter;

extern RexpWaiter *rexp_waiter_create(void);
extern void rexp_waiter_begin(RexpWaiter *waiter);
extern void rexp_waiter_add(RexpWaiter *waiter, RexpLink *link,
							bool until_writable);
extern void rexp_waiter_wait(RexpWaiter *waiter, long timeout);
extern void rexp_waiter_close(RexpWaiter *waiter);

#endif							/* REDIS_EXPORT_WAITER_H */
