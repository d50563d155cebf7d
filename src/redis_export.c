/*-------------------------------------------------------------------------
 *
 * redis_export.c
 *	  Module start, the setting, and the functions that SQL calls.
 *
 * Each function takes its arguments apart, checks them one by one, and hands
 * them on; nothing is done here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/reloptions.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job.h"
#include "progress.h"
#include "server_options.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "redis_export",.version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

/* Limits of arguments. */
#define MAX_BATCH 50000
#define MAX_RATE 10000000
#define MAX_REPLICAS 1000
#define MAX_DAYS 36500

PG_FUNCTION_INFO_V1(redis_export_validator);
PG_FUNCTION_INFO_V1(redis_json_export);
PG_FUNCTION_INFO_V1(redis_export_jobs);
PG_FUNCTION_INFO_V1(redis_export_failures);
PG_FUNCTION_INFO_V1(redis_export_cancel);
PG_FUNCTION_INFO_V1(redis_export_set_rate);
PG_FUNCTION_INFO_V1(redis_export_wait);
PG_FUNCTION_INFO_V1(redis_command);

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
 * Arguments
 */

static void
refuse_null(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" of the export must not be null", name)));
}

/* A text argument; NULL only if it is optional. */
static const char *
text_argument(FunctionCallInfo fcinfo, int n, const char *name, bool optional)
{
	if (!PG_ARGISNULL(n))
		return text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (!optional)
		refuse_null(name);
	return NULL;
}

static void
check_range(const char *name, int64 value, int64 least, int64 most)
{
	if (value < least || value > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of the export is out of range: " INT64_FORMAT,
						name, value),
				 errhint("It is a number from " INT64_FORMAT " to " INT64_FORMAT ".",
						 least, most)));
}

/* An interval in milliseconds, where a month is 30 days as in extract(epoch). */
static int64
interval_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	Interval   *interval = PG_GETARG_INTERVAL_P(n);
	double		seconds = interval->time / 1e6 +
		86400.0 * (interval->day + 30.0 * (interval->month % 12) +
				   365.25 * (interval->month / 12));
	double		milliseconds = seconds * 1000.0;

	if (!(seconds >= 0) || seconds > 86400.0 * MAX_DAYS ||
		(milliseconds > 0 && milliseconds < 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of the export is out of range", name),
				 errhint("It is an interval of 0, or from 1 millisecond to %d days.",
						 MAX_DAYS)));
	return (int64) milliseconds;
}

/* A text[] as a list of strings. */
static List *
array_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	List	   *list = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	if (PG_ARGISNULL(n))
		return NIL;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" of the export must not contain nulls",
							name)));
		list = lappend(list, TextDatumGetCString(elements[i]));
	}
	return list;
}

/* Rows a second, or 0 for null: no limit. */
static int
rate_argument(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return 0;
	check_range("rate", PG_GETARG_INT32(n), 1, MAX_RATE);
	return PG_GETARG_INT32(n);
}

/* on_error and reject_limit, which go together. */
static void
error_arguments(FunctionCallInfo fcinfo, int on_error, int reject_limit,
				RexpPipelineOptions *options)
{
	const char *word = text_argument(fcinfo, on_error, "on_error", false);

	if (strcmp(word, "ignore") == 0)
		options->ignore_errors = true;
	else if (strcmp(word, "stop") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"on_error\" of the export is not known: \"%s\"", word),
				 errhint("It is \"stop\" or \"ignore\".")));

	options->reject_limit = -1;
	if (!PG_ARGISNULL(reject_limit))
	{
		options->reject_limit = PG_GETARG_INT64(reject_limit);
		check_range("reject_limit", options->reject_limit, 1, PG_INT64_MAX);
		if (!options->ignore_errors)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("reject_limit requires on_error => 'ignore'")));
	}
}

/*
 * redis_json_export(query text, key_template text, batch int, server name,
 *	  value name, path text, exclude text[], ttl interval, rate int,
 *	  on_error text, reject_limit bigint, retry_timeout interval,
 *	  wait_replicas int, wait boolean)
 *	  returns redis_export_progress
 */
Datum
redis_json_export(PG_FUNCTION_ARGS)
{
	RexpJob		job = {0};
	RexpJobStatus status;

	job.command = "JSON.SET";
	job.query = text_argument(fcinfo, 0, "query", false);
	job.encoding.key_template = text_argument(fcinfo, 1, "key_template", false);
	if (PG_ARGISNULL(2))
		refuse_null("batch");
	job.pipeline.batch = PG_GETARG_INT32(2);
	check_range("batch", job.pipeline.batch, 1, MAX_BATCH);
	if (PG_ARGISNULL(3))
		refuse_null("server");
	job.server = NameStr(*PG_GETARG_NAME(3));
	if (!PG_ARGISNULL(4))
		job.encoding.value = NameStr(*PG_GETARG_NAME(4));
	job.encoding.path = text_argument(fcinfo, 5, "path", false);
	job.encoding.exclude = array_argument(fcinfo, 6, "exclude");
	if (!PG_ARGISNULL(7))
	{
		job.pipeline.expire = true;
		job.pipeline.ttl = interval_argument(fcinfo, 7, "ttl");
	}
	job.pipeline.rate = rate_argument(fcinfo, 8);
	error_arguments(fcinfo, 9, 10, &job.pipeline);
	if (PG_ARGISNULL(11))
		refuse_null("retry_timeout");
	job.pipeline.retry_timeout = interval_argument(fcinfo, 11, "retry_timeout");
	if (PG_ARGISNULL(12))
		refuse_null("wait_replicas");
	job.pipeline.wait_replicas = PG_GETARG_INT32(12);
	check_range("wait_replicas", job.pipeline.wait_replicas, 0, MAX_REPLICAS);
	if (PG_ARGISNULL(13))
		refuse_null("wait");
	job.wait = PG_GETARG_BOOL(13);
	job.pipeline.nil_is_failure = true;

	rexp_job_run(&job, &status);
	PG_RETURN_DATUM(rexp_progress_row(&status, fcinfo));
}

/* The rows of the view redis_export_progress. */
Datum
redis_export_jobs(PG_FUNCTION_ARGS)
{
	rexp_progress_rows(fcinfo);
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
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_BOOL(rexp_job_set_rate(PG_GETARG_INT64(0), rate_argument(fcinfo, 1)));
}

/* redis_export_wait(job bigint, timeout interval) returns redis_export_progress */
Datum
redis_export_wait(PG_FUNCTION_ARGS)
{
	RexpJobStatus status;
	int64		timeout = -1;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(1))
		timeout = interval_argument(fcinfo, 1, "timeout");
	rexp_job_wait(PG_GETARG_INT64(0), timeout, &status);
	PG_RETURN_DATUM(rexp_progress_row(&status, fcinfo));
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

/* The validator of the foreign data wrapper: (options text[], catalog oid) */
Datum
redis_export_validator(PG_FUNCTION_ARGS)
{
	rexp_validate_options(untransformRelOptions(PG_GETARG_DATUM(0)),
						  PG_GETARG_OID(1));
	PG_RETURN_VOID();
}
