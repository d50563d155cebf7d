/*-------------------------------------------------------------------------
 *
 * source.h
 *	  The rows of a query, one after the other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SOURCE_H
#define REDIS_EXPORT_SOURCE_H

#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "session/session.h"

/* What takes the rows; returns false when it wants no more. */
typedef bool (*RexpRowSink) (TupleTableSlot *slot, void *arg);

typedef struct RexpSource RexpSource;

extern TupleDesc rexp_source_check(const char *query, const RexpSession *as);
extern const char *rexp_source_shown(const char *query, Oid user);
extern RexpSource *rexp_source_open(const char *query);
extern TupleDesc rexp_source_columns(const RexpSource *source);
extern double rexp_source_estimate(const RexpSource *source);
extern void rexp_source_run(RexpSource *source, RexpRowSink sink, void *arg);
extern void rexp_source_close(RexpSource *source);

#endif							/* REDIS_EXPORT_SOURCE_H */
