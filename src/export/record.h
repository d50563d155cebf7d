/*-------------------------------------------------------------------------
 *
 * record.h
 *	  What Redis knows of an export as a whole: whose it is, who runs it, how its
 *	  last run ended, and how far it got.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_RECORD_H
#define REDIS_EXPORT_RECORD_H

#include "export/job.h"
#include "flow/pipeline.h"

/* How far a run with a watermark got, in UTF-8; value NULL: there is no mark. */
typedef struct RexpMark
{
	const char *value;
	const char *type;			/* of the column */
	const char *column;
} RexpMark;

/* That of a run; NULL is that of an export without a name. */
typedef struct RexpRecord RexpRecord;

/* in the worker, in this order */
extern RexpRecord *rexp_record_create(int64 number, const RexpJob *job,
									  const RexpSession *session);
extern bool rexp_record_begin(RexpRecord *record, RexpPipeline *pipeline);
extern const RexpMark *rexp_record_mark(const RexpRecord *record);
extern bool rexp_record_settle(RexpRecord *record, RexpPipeline *pipeline);
extern bool rexp_record_end(RexpRecord *record, RexpPipeline *pipeline,
							const RexpMark *next);
extern bool rexp_record_mark_stays(const RexpRecord *record);

/* in a session */
extern void rexp_record_set_mark(const RexpJob *job, const RexpMark *mark);
extern void rexp_record_forget(const RexpJob *job, bool anybodys);
extern Datum rexp_record_show(const RexpJob *job, FunctionCallInfo fcinfo);

#endif							/* REDIS_EXPORT_RECORD_H */
