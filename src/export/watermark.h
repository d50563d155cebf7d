/*-------------------------------------------------------------------------
 *
 * watermark.h
 *	  An export of those rows only that are newer than a mark.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_WATERMARK_H
#define REDIS_EXPORT_WATERMARK_H

#include "executor/tuptable.h"
#include "export/job.h"
#include "export/record.h"

/* NULL is that of a job that has none. */
typedef struct RexpWatermark RexpWatermark;

/* in the caller */
extern void rexp_watermark_check(const RexpJob *job, TupleDesc desc);

/* in the caller, for redis_export_set_mark() */
extern RexpMark rexp_watermark_given(const RexpJob *job, TupleDesc desc,
									 const char *text);

/* in the worker, in this order */
extern RexpWatermark *rexp_watermark_create(int64 number, const RexpJob *job);
extern const char *rexp_watermark_query(RexpWatermark *watermark, const char *query,
										const RexpMark *found);
extern void rexp_watermark_note(RexpWatermark *watermark, TupleTableSlot *slot);
extern void rexp_watermark_seal(RexpWatermark *watermark);
extern const RexpMark *rexp_watermark_next(const RexpWatermark *watermark);
extern void rexp_watermark_count(const RexpWatermark *watermark,
								 RexpCounters *counters);

/* in both */
extern void rexp_watermark_warn_of_writer(int64 job, const RexpCounters *counters);
extern void rexp_watermark_warn_of_mark(int64 job, const RexpCounters *counters);

#endif							/* REDIS_EXPORT_WATERMARK_H */
