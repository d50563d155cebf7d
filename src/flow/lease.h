/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  Who may run an export now: at most one, of all servers that know it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_LEASE_H
#define REDIS_EXPORT_LEASE_H

#include "base/compat.h"
#include "base/error.h"
#include "portability/instr_time.h"
#include "redis/resp.h"

/* How long Redis keeps it, and how often it is renewed (ms). */
#define REXP_LEASE_TIME 30000
#define REXP_LEASE_RENEWAL 10000

/* Has a command answered: the reply, which the caller frees, or NULL with an error. */
typedef redisReply *(*RexpAsk) (void *arg, const RexpBuffer *request, RexpError *error);

typedef enum RexpLeaseState
{
	REXP_LEASE_OURS,
	REXP_LEASE_HELD,			/* by somebody else */
	REXP_LEASE_UNKNOWN			/* Redis has not answered */
} RexpLeaseState;

/*
 * Is this run still the one that is recorded?  Called when the lease was renewed, with a
 * way to ask the same node.
 */
typedef RexpLeaseState (*RexpLeaseCheck) (void *arg, RexpAsk ask, void *ask_arg,
										  RexpError *error);

typedef struct RexpLease RexpLease;

extern RexpLease *rexp_lease_create(const char *name, Oid user, int64 job);
extern const char *rexp_lease_key(const RexpLease *lease);
extern const char *rexp_lease_holder(const RexpLease *lease);
extern RexpLeaseState rexp_lease_take(RexpLease *lease, RexpAsk ask, void *arg,
									  char **holder, RexpError *error);
extern RexpLeaseState rexp_lease_renew(RexpLease *lease, RexpAsk ask, void *arg,
									   RexpError *error);
extern bool rexp_lease_give_back(RexpLease *lease, RexpAsk ask, void *arg,
								 RexpError *error);
extern bool rexp_lease_is_due(const RexpLease *lease);
extern bool rexp_lease_has_run_out(const RexpLease *lease);
extern bool rexp_lease_is_alive(const char *holder);
extern const char *rexp_lease_people_text(const char *holder);
extern void rexp_lease_refuse(const char *name, const char *holder, RexpError *error);

#endif							/* REDIS_EXPORT_LEASE_H */
