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
#include "session.h"

/* Which rows a run of a named export is to read, and of these, to write. */
typedef enum RexpRows
{
	REXP_ROWS_CHANGED,			/* reads all, writes what Redis lacks */
	REXP_ROWS_NEW,				/* reads those above the mark, writes what Redis lacks */
	REXP_ROWS_ALL,				/* reads and writes all */
	REXP_ROWS_NONE				/* reads none, as if there were none */
} RexpRows;

/* The arguments of an export, checked as far as one by one goes. */
typedef struct RexpJob
{
	const char *name;			/* of the export; NULL: it has none, and what is
								 * up to "query" means nothing */
	const char *id;				/* of its definition: a uuid */
	Oid			owner;			/* as whom the query runs; invalid: as the caller */
	List	   *settings;		/* of char *: name=value, under which it does */
	RexpRows	rows;
	bool		wait_for_lease; /* while another run has it */
	const char *query;
	const char *server;
	RexpEncoding encoding;
	RexpPipelineOptions pipeline;
	bool		prune;			/* delete keys that no row has ... */
	double		prune_limit;	/* ... unless more than this share of them */
	const char *watermark_column;	/* tells which rows are new, or NULL */
	bool		overlap_given;
	Interval	overlap;		/* taken off the mark, if it is a time */
	const char *wait_index;		/* name of an index, in UTF-8, or NULL */
	bool		wait;
} RexpJob;

extern int	rexp_notice_interval;	/* seconds; the GUC */

extern const RexpSession *rexp_job_session(const RexpJob *job);
extern RexpBooks *rexp_job_books(const RexpJob *job, const char *name, bool asked);
extern TupleDesc rexp_job_check(const RexpJob *job);
extern void rexp_job_run(const RexpJob *job, bool may_commit,
						 RexpJobStatus *status);
extern void rexp_job_wait(int64 job, int64 timeout, RexpJobStatus *status);
extern bool rexp_job_cancel(int64 job);
extern bool rexp_job_set_rate(int64 job, int rate);

extern PGDLLEXPORT void rexp_worker_main(Datum arg);

#endif							/* REDIS_EXPORT_JOB_H */
