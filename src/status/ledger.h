/*-------------------------------------------------------------------------
 *
 * ledger.h
 *	  What has become of a job's rows, and whether it may go on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_LEDGER_H
#define REDIS_EXPORT_LEDGER_H

#include "status/progress.h"

typedef struct RexpLedger
{
	RexpProgress *progress;
	bool		ignore_errors;	/* go on after a failed row ... */
	int64		reject_limit;	/* ... up to so many of them; -1: any number */
	RexpCounters counters;
	RexpError	error;			/* why the job failed; sqlstate 0: it has not */
} RexpLedger;

static inline bool
rexp_ledger_has_failed(const RexpLedger *ledger)
{
	return ledger->error.sqlstate != 0;
}

extern void rexp_ledger_stop(RexpLedger *ledger, const RexpError *error);
extern void rexp_ledger_failed_row(RexpLedger *ledger, int64 number,
								   const char *key, size_t key_len,
								   const RexpError *reason);
extern void rexp_ledger_publish(RexpLedger *ledger, int with_redis);
extern char *rexp_ledger_text(const RexpCounters *counters, const char *written);

#endif							/* REDIS_EXPORT_LEDGER_H */
