/*-------------------------------------------------------------------------
 *
 * redis_export.c
 *	  Module start, the setting, and the functions that SQL calls.
 *
 * Each function hands on its arguments, once they are taken apart
 * (arguments.c); nothing is done here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "access/xact.h"
#include "base/compat.h"
#include "executor/spi.h"
#include "export/job.h"
#include "export/record.h"
#include "export/watermark.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job/launch.h"
#include "nodes/parsenodes.h"
#include "session/server_options.h"
#include "sql/arguments.h"
#include "sql/command.h"
#include "sql/definition.h"
#include "sql/preview.h"
#include "sql/verify.h"
#include "status/progress.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "redis_export",.version = REXP_VERSION);
#else
PG_MODULE_MAGIC;
#endif

PG_FUNCTION_INFO_V1(redis_export_validator);
PG_FUNCTION_INFO_V1(redis_json_export);
PG_FUNCTION_INFO_V1(redis_hash_export);
PG_FUNCTION_INFO_V1(redis_command_export);
PG_FUNCTION_INFO_V1(redis_export_define);
PG_FUNCTION_INFO_V1(redis_export_drop);
PG_FUNCTION_INFO_V1(redis_export_record);
PG_FUNCTION_INFO_V1(redis_export_run);
PG_FUNCTION_INFO_V1(redis_export_preview);
PG_FUNCTION_INFO_V1(redis_export_verify);
PG_FUNCTION_INFO_V1(redis_export_jobs);
PG_FUNCTION_INFO_V1(redis_export_job_nodes);
PG_FUNCTION_INFO_V1(redis_export_failures);
PG_FUNCTION_INFO_V1(redis_export_cancel);
PG_FUNCTION_INFO_V1(redis_export_set_rate);
PG_FUNCTION_INFO_V1(redis_export_wait);
PG_FUNCTION_INFO_V1(redis_export_set_mark);
PG_FUNCTION_INFO_V1(redis_export_reset);
PG_FUNCTION_INFO_V1(redis_command);
PG_FUNCTION_INFO_V1(redis_scan);
PG_FUNCTION_INFO_V1(redis_json_scan);
PG_FUNCTION_INFO_V1(redis_hash_scan);

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	DefineCustomIntVariable("redis_export.notice_interval",
							"Time between the notices of an export that is waited for.",
							"Zero turns them off.",
							&rexp_notice_interval,
							10, 0, 86400,
							PGC_USERSET, GUC_UNIT_S,
							NULL, NULL, NULL);
	MarkGUCPrefixReserved("redis_export");
}

/*
 * Exports: the arguments differ, and what they mean does not
 */

static Datum
run_export(FunctionCallInfo fcinfo, RexpExportKind kind)
{
	RexpArguments arguments;
	RexpJob		job;
	RexpJobStatus status;

	rexp_arguments_init(&arguments, fcinfo);
	rexp_export_arguments(&arguments, kind, &job);
	rexp_definition_refuse(fcinfo, &job);
	rexp_job_run(&job, false, &status);
	PG_RETURN_DATUM(rexp_progress_row(&status, fcinfo));
}

/* redis_json_export(query text, key_template text, ...) returns redis_export_job */
Datum
redis_json_export(PG_FUNCTION_ARGS)
{
	return run_export(fcinfo, REXP_EXPORT_JSON);
}

/* redis_hash_export(query text, key_template text, ...) returns redis_export_job */
Datum
redis_hash_export(PG_FUNCTION_ARGS)
{
	return run_export(fcinfo, REXP_EXPORT_HASH);
}

/* redis_command_export(query text, command_template text[], ...) returns redis_export_job */
Datum
redis_command_export(PG_FUNCTION_ARGS)
{
	return run_export(fcinfo, REXP_EXPORT_COMMAND);
}

/* redis_export_define(name text, query text, key_template text, ...) returns void */
Datum
redis_export_define(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJob		job;

	rexp_arguments_init(&arguments, fcinfo);
	rexp_definition_arguments(&arguments, &job);
	rexp_definition_define(fcinfo, &job, rexp_flag_argument(&arguments, "or_replace"));
	PG_RETURN_VOID();
}

/* redis_export_drop(name text, keys boolean, force boolean) returns void */
Datum
redis_export_drop(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;

	rexp_arguments_init(&arguments, fcinfo);
	arguments.whose = "function";
	rexp_definition_drop(fcinfo, rexp_name_argument(&arguments),
						 rexp_flag_argument(&arguments, "keys"),
						 rexp_flag_argument(&arguments, "force"));
	PG_RETURN_VOID();
}

/* redis_export_record(name text) returns (running_by, ended_at, ...), for redis_exports */
Datum
redis_export_record(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	RexpJob		job;
	bool		visible = rexp_definition_look(fcinfo, name, &job);

	PG_RETURN_DATUM(rexp_record_show(visible ? &job : NULL, fcinfo));
}

/* May the procedure that is called commit? */
static bool
may_commit(FunctionCallInfo fcinfo)
{
	return fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!castNode(CallContext, fcinfo->context)->atomic && !IsSubTransaction();
}

/* redis_export_run(name text, ..., INOUT job bigint, ...): a procedure */
Datum
redis_export_run(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJob		job;
	RexpJobStatus status;

	rexp_arguments_init(&arguments, fcinfo);
	rexp_definition_load(fcinfo, rexp_name_argument(&arguments), &job);
	rexp_run_arguments(&arguments, &job);
	if (may_commit(fcinfo))
	{
		SPI_connect_ext(SPI_OPT_NONATOMIC);
		rexp_job_run(&job, true, &status);
		SPI_finish();

		/* what it pointed to went with SPI's memory */
		if (!rexp_progress_look(status.job, &status))
			elog(ERROR, "export job " INT64_FORMAT " is no longer known", status.job);
	}
	else
		rexp_job_run(&job, false, &status);
	PG_RETURN_DATUM(rexp_progress_outcome(&status, fcinfo));
}

/* The export that a function looks at: one that is defined, or that of its arguments. */
static void
find_export(FunctionCallInfo fcinfo, RexpArguments *arguments, RexpJob *job)
{
	rexp_arguments_init(arguments, fcinfo);
	if (rexp_is_by_name(arguments))
		rexp_definition_load(fcinfo, rexp_name_argument(arguments), job);
	else
		rexp_query_arguments(arguments, job);
}

/*
 * redis_export_preview(name text, rows int, prune boolean),
 * redis_export_preview(query text, key_template text, ..., rows int),
 * redis_export_preview(query text, command_template text[], ..., rows int)
 *	  returns setof (row_number, action, command, error)
 */
Datum
redis_export_preview(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJob		job;
	int64		rows;

	find_export(fcinfo, &arguments, &job);
	rows = rexp_integer_argument(&arguments, "rows", 1, PG_INT32_MAX);
	job.prune = rexp_flag_argument(&arguments, "prune");
	rexp_preview(&job, rows, fcinfo);
	return (Datum) 0;
}

/*
 * redis_export_verify(name text, examples int),
 * redis_export_verify(query text, key_template text, ..., examples int)
 *	  returns (expected, missing, different, extra, ..., and keys of these)
 */
Datum
redis_export_verify(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJob		job;
	int			examples;

	find_export(fcinfo, &arguments, &job);
	examples = (int) rexp_integer_argument(&arguments, "examples", 0, 100000);
	PG_RETURN_DATUM(rexp_verify(&job, examples, fcinfo));
}

/* The rows of the view redis_export_progress. */
Datum
redis_export_jobs(PG_FUNCTION_ARGS)
{
	rexp_progress_rows(fcinfo);
	return (Datum) 0;
}

/* The rows of the view redis_export_nodes. */
Datum
redis_export_job_nodes(PG_FUNCTION_ARGS)
{
	rexp_progress_node_rows(fcinfo);
	return (Datum) 0;
}

/* redis_export_failures(job bigint) returns setof (row_number, key, sqlstate, message) */
Datum
redis_export_failures(PG_FUNCTION_ARGS)
{
	rexp_progress_failures(PG_GETARG_INT64(0), fcinfo);
	return (Datum) 0;
}

/* redis_export_cancel(job bigint) returns boolean */
Datum
redis_export_cancel(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(rexp_job_cancel(PG_GETARG_INT64(0)));
}

/* redis_export_set_rate(job bigint, rate int) returns boolean */
Datum
redis_export_set_rate(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	rexp_arguments_init(&arguments, fcinfo);
	PG_RETURN_BOOL(rexp_job_set_rate(PG_GETARG_INT64(0),
									 rexp_rate_argument(&arguments)));
}

/* redis_export_wait(job bigint, timeout interval) returns redis_export_job */
Datum
redis_export_wait(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJobStatus status;
	int64		timeout = -1;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	rexp_arguments_init(&arguments, fcinfo);
	if (!PG_ARGISNULL(1))
		timeout = rexp_interval_argument(&arguments, "timeout");
	rexp_job_wait(PG_GETARG_INT64(0), timeout, &status);
	PG_RETURN_DATUM(rexp_progress_row(&status, fcinfo));
}

/* redis_export_set_mark(name text, mark text) returns void */
Datum
redis_export_set_mark(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJob		job;
	RexpMark	mark;

	rexp_arguments_init(&arguments, fcinfo);
	arguments.whose = "function";
	rexp_definition_load(fcinfo, rexp_name_argument(&arguments), &job);
	mark = rexp_watermark_given(&job, rexp_job_check(&job), rexp_mark_argument(&arguments));
	rexp_record_set_mark(&job, &mark);
	PG_RETURN_VOID();
}

/* redis_export_reset(name text) returns void */
Datum
redis_export_reset(PG_FUNCTION_ARGS)
{
	RexpArguments arguments;
	RexpJob		job;

	rexp_arguments_init(&arguments, fcinfo);
	arguments.whose = "function";
	rexp_definition_load(fcinfo, rexp_name_argument(&arguments), &job);
	rexp_record_forget(&job, true);
	PG_RETURN_VOID();
}

/* redis_command(server name, VARIADIC "any") returns jsonb */
Datum
redis_command(PG_FUNCTION_ARGS)
{
	Datum	   *words;
	Oid		   *types;
	bool	   *nulls;
	int			nwords;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the server must not be null")));
	nwords = extract_variadic_args(fcinfo, 1, true, &words, &types, &nulls);
	if (nwords < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the command has no words"),
				 errhint("Give its words one by one, as in redis_command('redis', 'GET', 'key').")));
	PG_RETURN_DATUM(rexp_command(NameStr(*PG_GETARG_NAME(0)), nwords, words,
								 types, nulls));
}

/*
 * redis_scan(server name, pattern text, type text, skip_invalid boolean)
 *	  returns setof text
 * redis_json_scan(server name, pattern text, path text, skip_invalid boolean)
 *	  returns setof (key text, document jsonb)
 * redis_hash_scan(server name, pattern text, skip_invalid boolean)
 *	  returns setof (key text, fields jsonb)
 */
static Datum
run_scan(FunctionCallInfo fcinfo, RexpScanKind kind)
{
	RexpArguments arguments;
	RexpScanOptions options;

	if (!SRF_IS_FIRSTCALL())
		return rexp_scan(fcinfo, NULL);
	rexp_arguments_init(&arguments, fcinfo);
	rexp_scan_arguments(&arguments, kind, &options);
	return rexp_scan(fcinfo, &options);
}

Datum
redis_scan(PG_FUNCTION_ARGS)
{
	return run_scan(fcinfo, REXP_SCAN_KEYS);
}

Datum
redis_json_scan(PG_FUNCTION_ARGS)
{
	return run_scan(fcinfo, REXP_SCAN_JSON);
}

Datum
redis_hash_scan(PG_FUNCTION_ARGS)
{
	return run_scan(fcinfo, REXP_SCAN_HASH);
}

/* The validator of the foreign data wrapper: (options text[], catalog oid) */
Datum
redis_export_validator(PG_FUNCTION_ARGS)
{
	rexp_validate_options(untransformRelOptions(PG_GETARG_DATUM(0)),
						  PG_GETARG_OID(1));
	PG_RETURN_VOID();
}
