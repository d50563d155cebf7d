/*-------------------------------------------------------------------------
 *
 * index_fit.h
 *	  Can an index of Redis' search take what an export writes?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_INDEX_FIT_H
#define REDIS_EXPORT_INDEX_FIT_H

#include "encode/form.h"
#include "redis/search_index.h"

extern bool rexp_index_fits(const char *index, const RexpIndexSchema *schema,
							RexpExportKind kind, const RexpGiven *given,
							RexpError *error);

#endif							/* REDIS_EXPORT_INDEX_FIT_H */
