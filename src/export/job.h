/*-------------------------------------------------------------------------
 *
 * job.h
 *	  The arguments of an export: what is exported, and how.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_JOB_H
#define REDIS_EXPORT_JOB_H

#include "datatype/timestamp.h"
#include "encode/form.h"
#include "flow/pipeline_options.h"
#include "session/session.h"

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

extern const RexpSession *rexp_job_session(const RexpJob *job);
extern RexpBooks *rexp_job_books(const RexpJob *job, const char *name, bool asked);

#endif							/* REDIS_EXPORT_JOB_H */
