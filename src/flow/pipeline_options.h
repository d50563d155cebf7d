/*-------------------------------------------------------------------------
 *
 * pipeline_options.h
 *	  How rows are sent: what a pipeline is told, and its lanes are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PIPELINE_OPTIONS_H
#define REDIS_EXPORT_PIPELINE_OPTIONS_H

#include "flow/books.h"

typedef struct RexpPipelineOptions
{
	int			batch;			/* rows */
	int			rate;			/* rows a second, or 0 for no limit; the job's
								 * slot may say another later */
	bool		ignore_errors;	/* go on after a failed row ... */
	int64		reject_limit;	/* ... up to so many of them; -1: any number */
	int64		retry_timeout;	/* milliseconds since the last row that was
								 * acknowledged */
	int			wait_replicas;	/* that must have a row before it counts */
	bool		expire;			/* rows may have an expiry */
	bool		keys_apart;		/* of rows with the same key, one at a time */
	RexpBooks  *books;			/* that rows are kept in; NULL: in none.  The worker
								 * makes them */
} RexpPipelineOptions;

typedef struct RexpPipeline RexpPipeline;

#endif							/* REDIS_EXPORT_PIPELINE_OPTIONS_H */
