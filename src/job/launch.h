/*-------------------------------------------------------------------------
 *
 * launch.h
 *	  An export, from the call to its end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_LAUNCH_H
#define REDIS_EXPORT_LAUNCH_H

#include "access/tupdesc.h"
#include "export/job.h"
#include "status/progress.h"

extern int	rexp_notice_interval;	/* seconds; the GUC */

extern TupleDesc rexp_job_check(const RexpJob *job);
extern void rexp_job_run(const RexpJob *job, bool may_commit,
						 RexpJobStatus *status);
extern void rexp_job_wait(int64 job, int64 timeout, RexpJobStatus *status);
extern bool rexp_job_cancel(int64 job);
extern bool rexp_job_set_rate(int64 job, int rate);

extern PGDLLEXPORT void rexp_worker_main(Datum arg);

#endif							/* REDIS_EXPORT_LAUNCH_H */
