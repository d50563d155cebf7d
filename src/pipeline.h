/*-------------------------------------------------------------------------
 *
 * pipeline.h
 *	  Commands on their way to Redis, kept until they are answered.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PIPELINE_H
#define REDIS_EXPORT_PIPELINE_H

#include "link.h"
#include "progress.h"

typedef struct RexpPipelineOptions
{
	int			batch;			/* rows */
	int			rate;			/* rows a second, or 0 for no limit; the job's
								 * slot may say another later */
	bool		ignore_errors;	/* go on after a failed row ... */
	int64		reject_limit;	/* ... up to so many of them; -1: any number */
	int64		retry_timeout;	/* milliseconds since the last row that was
								 * acknowledged */
	bool		nil_is_failure; /* what nil means to the command */
	bool		expire;			/* set or remove an expiry: ... */
	int64		ttl;			/* ... milliseconds, 0 removes it */
	int			wait_replicas;	/* that must have a row before it counts */
} RexpPipelineOptions;

typedef struct RexpPipeline RexpPipeline;

extern RexpPipeline *rexp_pipeline_create(const RexpPipelineOptions *options,
										  RexpLink *link,
										  RexpProgress *progress);
extern bool rexp_pipeline_open(RexpPipeline *pipeline);
extern RexpBuffer *rexp_pipeline_row_begin(RexpPipeline *pipeline);
extern bool rexp_pipeline_row_end(RexpPipeline *pipeline);
extern bool rexp_pipeline_row_reject(RexpPipeline *pipeline, const char *key,
									 size_t key_len, const RexpError *error);
extern bool rexp_pipeline_finish(RexpPipeline *pipeline);
extern void rexp_pipeline_drain(RexpPipeline *pipeline, int milliseconds);
extern void rexp_pipeline_close(RexpPipeline *pipeline);

extern const RexpError *rexp_pipeline_error(const RexpPipeline *pipeline);
extern const RexpCounters *rexp_pipeline_counters(const RexpPipeline *pipeline);

#endif							/* REDIS_EXPORT_PIPELINE_H */
