/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  The exports that have a name: what they are defined to be, in a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_DEFINITION_H
#define REDIS_EXPORT_DEFINITION_H

#include "export/job.h"
#include "fmgr.h"

extern void rexp_definition_define(FunctionCallInfo fcinfo, RexpJob *job,
								   bool or_replace);
extern void rexp_definition_load(FunctionCallInfo fcinfo, const char *name,
								 RexpJob *job);
extern bool rexp_definition_look(FunctionCallInfo fcinfo, const char *name, RexpJob *job);
extern void rexp_definition_drop(FunctionCallInfo fcinfo, const char *name, bool keys,
								 bool force);
extern void rexp_definition_refuse(FunctionCallInfo fcinfo, const RexpJob *job);

#endif							/* REDIS_EXPORT_DEFINITION_H */
