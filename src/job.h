/*-------------------------------------------------------------------------
 *
 * job.h
 *	  An export, from the call to its end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_JOB_H
#define REDIS_EXPORT_JOB_H

#include "datatype/timestamp.h"
#include "encode.h"
#include "pipeline.h"
#include "progress.h"

/* The arguments of an export, checked as far as one by one goes. */
typedef struct RexpJob
{
	const char *query;
	const char *server;
	RexpEncoding encoding;
	RexpPipelineOptions pipeline;
	bool		prune;			/* delete keys that no row has ... */
	double		prune_limit;	/* ... unless more than this share of them */
	const char *watermark_column;	/* rows above the mark only, or NULL */
	const char *mark;			/* its name, with watermark_column */
	Interval	overlap;		/* taken off the mark */
	const char *wait_index;		/* name of an index, in UTF-8, or NULL */
	bool		wait;
} RexpJob;

extern int	rexp_notice_interval;	/* seconds; the GUC */

extern void rexp_job_run(const RexpJob *job, RexpJobStatus *status);
extern void rexp_job_wait(int64 job, int64 timeout, RexpJobStatus *status);
extern bool rexp_job_cancel(int64 job);
extern bool rexp_job_set_rate(int64 job, int rate);

extern PGDLLEXPORT void rexp_worker_main(Datum arg);

#endif							/* REDIS_EXPORT_JOB_H */
