/*-------------------------------------------------------------------------
 *
 * preview.h
 *	  What an export would send, as text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PREVIEW_H
#define REDIS_EXPORT_PREVIEW_H

#include "export/job.h"
#include "fmgr.h"

extern void rexp_preview(const RexpJob *job, int64 rows, FunctionCallInfo fcinfo);

#endif							/* REDIS_EXPORT_PREVIEW_H */
