/*-------------------------------------------------------------------------
 *
 * verify.h
 *	  Does Redis hold what an export would write?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_VERIFY_H
#define REDIS_EXPORT_VERIFY_H

#include "export/job.h"
#include "fmgr.h"

extern Datum rexp_verify(const RexpJob *job, int examples, FunctionCallInfo fcinfo);

#endif							/* REDIS_EXPORT_VERIFY_H */
