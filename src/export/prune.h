/*-------------------------------------------------------------------------
 *
 * prune.h
 *	  Delete keys of Redis that an export has written and that no row has any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PRUNE_H
#define REDIS_EXPORT_PRUNE_H

#include "base/key_set.h"
#include "flow/pipeline.h"
#include "redis/nodes.h"

typedef struct RexpPrune RexpPrune;

extern RexpPrune *rexp_prune_create(void);
extern void rexp_prune_take(RexpPrune *prune, const char *key, size_t key_len,
							bool erases);
extern RexpKeySet *rexp_prune_find(RexpPrune *prune, RexpNodes *nodes, RexpBooks *books,
								   bool all_written);
extern bool rexp_prune_run(RexpPrune *prune, RexpPipeline *pipeline, RexpBooks *books,
						   double limit);
extern bool rexp_prune_sweep(RexpPipeline *pipeline, RexpBooks *books);

#endif							/* REDIS_EXPORT_PRUNE_H */
