/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  The exports that have a name: what they are defined to be, in a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_DEFINITION_H
#define REDIS_EXPORT_DEFINITION_H

#include "fmgr.h"
#include "job.h"

extern void rexp_definition_store(FunctionCallInfo fcinfo, const RexpJob *job);
extern void rexp_definition_load(FunctionCallInfo fcinfo, const char *name,
								 RexpJob *job);

#endif							/* REDIS_EXPORT_DEFINITION_H */
