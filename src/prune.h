/*-------------------------------------------------------------------------
 *
 * prune.h
 *	  Delete keys of Redis that no row has any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PRUNE_H
#define REDIS_EXPORT_PRUNE_H

#include "access/tupdesc.h"
#include "job.h"

typedef struct RexpPrune RexpPrune;

extern void rexp_prune_check(const RexpJob *job, TupleDesc desc);
extern RexpPrune *rexp_prune_create(const RexpJob *job, TupleDesc desc);
extern void rexp_prune_take(RexpPrune *prune, const char *key, size_t key_len);
extern bool rexp_prune_run(RexpPrune *prune, RexpPipeline *pipeline);

#endif							/* REDIS_EXPORT_PRUNE_H */
