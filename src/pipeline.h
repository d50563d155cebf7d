/*-------------------------------------------------------------------------
 *
 * pipeline.h
 *	  Commands on their way to Redis, kept until they are answered.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PIPELINE_H
#define REDIS_EXPORT_PIPELINE_H

#include "books.h"
#include "compat.h"
#include "lease.h"
#include "link.h"
#include "progress.h"
#include "search_index.h"

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

/*
 * Is this run still the one that is recorded?  Called when the lease was renewed, with a
 * way to ask the same node.
 */
typedef RexpLeaseState (*RexpLeaseCheck) (void *arg, RexpAsk ask, void *ask_arg,
										  RexpError *error);

extern RexpPipeline *rexp_pipeline_create(const RexpPipelineOptions *options,
										  const RexpLinkOptions *link_options,
										  RexpProgress *progress);
extern void rexp_pipeline_complete_with(RexpPipeline *pipeline,
										RexpCompleteValue complete, void *arg);
extern bool rexp_pipeline_open(RexpPipeline *pipeline);
extern RexpBuffer *rexp_pipeline_row_begin(RexpPipeline *pipeline);
extern bool rexp_pipeline_row_end(RexpPipeline *pipeline, RexpBlock *block);
extern bool rexp_pipeline_row_reject(RexpPipeline *pipeline,
									 const RexpBlock *block,
									 const RexpError *error);
extern bool rexp_pipeline_row_skip(RexpPipeline *pipeline);
extern bool rexp_pipeline_delete(RexpPipeline *pipeline, const char *key,
								 size_t key_len);
extern bool rexp_pipeline_forget(RexpPipeline *pipeline, const char *key, size_t key_len);
extern void rexp_pipeline_not_pruned(RexpPipeline *pipeline);
extern void rexp_pipeline_enter(RexpPipeline *pipeline, RexpState state);
extern bool rexp_pipeline_finish(RexpPipeline *pipeline);
extern redisReply *rexp_pipeline_ask(RexpPipeline *pipeline, const RexpBuffer *request,
									 const char *key, size_t key_len,
									 const char *failing);
extern redisReply *rexp_pipeline_ask_unless_lost(RexpPipeline *pipeline,
												 const RexpBuffer *request,
												 const char *key, size_t key_len,
												 const char *failing);
extern redisReply *rexp_pipeline_ask_for_lease(void *pipeline, const RexpBuffer *request,
											   RexpError *error);
extern void rexp_pipeline_keep_lease(RexpPipeline *pipeline, RexpLease *lease,
									 RexpLeaseCheck check, void *arg);
extern bool rexp_pipeline_watch_index(RexpPipeline *pipeline, const char *index);
extern const RexpIndexSchema *rexp_pipeline_index_schema(const RexpPipeline *pipeline);
extern void rexp_pipeline_index_misfit(RexpPipeline *pipeline, const RexpError *error);
extern bool rexp_pipeline_wait_index(RexpPipeline *pipeline);
extern void rexp_pipeline_drain(RexpPipeline *pipeline, int milliseconds);
extern void rexp_pipeline_close(RexpPipeline *pipeline);
extern bool rexp_pipeline_is_clean(const RexpPipeline *pipeline);

extern const RexpError *rexp_pipeline_error(const RexpPipeline *pipeline);
extern const RexpCounters *rexp_pipeline_counters(const RexpPipeline *pipeline);
extern const RexpLinkOptions *rexp_pipeline_link_options(RexpPipeline *pipeline);

#endif							/* REDIS_EXPORT_PIPELINE_H */
