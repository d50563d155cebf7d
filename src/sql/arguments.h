/*-------------------------------------------------------------------------
 *
 * arguments.h
 *	  The arguments of our SQL functions, by name.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ARGUMENTS_H
#define REDIS_EXPORT_ARGUMENTS_H

#include "export/job.h"
#include "fmgr.h"
#include "sql/scan.h"

/* Values with names: arguments of a function, or columns of a definition. */
typedef struct RexpArguments
{
	const char *whose;			/* for errors: "export" */
	int			count;
	Oid		   *types;
	char	  **names;
	const NullableDatum *values;
} RexpArguments;

extern void rexp_arguments_init(RexpArguments *arguments, FunctionCallInfo fcinfo);
extern int64 rexp_integer_argument(RexpArguments *arguments, const char *name,
								   int64 least, int64 most);
extern int64 rexp_interval_argument(RexpArguments *arguments, const char *name);
extern int	rexp_rate_argument(RexpArguments *arguments);
extern RexpExportKind rexp_preview_kind(RexpArguments *arguments);
extern void rexp_export_arguments(RexpArguments *arguments, RexpExportKind kind,
								  RexpJob *job);
extern void rexp_query_arguments(RexpArguments *arguments, RexpJob *job);
extern bool rexp_is_by_name(const RexpArguments *arguments);
extern void rexp_definition_arguments(RexpArguments *arguments, RexpJob *job);
extern bool rexp_flag_argument(const RexpArguments *arguments, const char *name);
extern const char *rexp_name_argument(RexpArguments *arguments);
extern void rexp_run_arguments(RexpArguments *arguments, RexpJob *job);
extern const char *rexp_mark_argument(RexpArguments *arguments);
extern void rexp_scan_arguments(RexpArguments *arguments, RexpScanKind kind,
								RexpScanOptions *options);

#endif							/* REDIS_EXPORT_ARGUMENTS_H */
