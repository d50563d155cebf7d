/*-------------------------------------------------------------------------
 *
 * pipeline.h
 *	  Commands on their way to Redis, kept until they are answered.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PIPELINE_H
#define REDIS_EXPORT_PIPELINE_H

#include "base/compat.h"
#include "flow/lease.h"
#include "flow/pipeline_options.h"
#include "redis/link.h"
#include "redis/search_index.h"
#include "status/progress.h"

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
