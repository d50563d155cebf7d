/*-------------------------------------------------------------------------
 *
 * arguments.c
 *	  The arguments of our SQL functions.
 *
 * Exports have many, most of them in common, at other places in each function:
 * they are found by the names that CREATE FUNCTION gave them, so that an argument
 * means the same wherever it is.  Each is checked here as far as can be without
 * the query.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/encoding.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "encode/ttl.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/arguments.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#define MAX_BATCH 50000
#define MAX_RATE 10000000
#define MAX_REPLICAS 1000
#define DEFAULT_OVERLAP (5 * USECS_PER_MINUTE)

/* Learn the names of the arguments of the function that is called. */
void
rexp_arguments_init(RexpArguments *arguments, FunctionCallInfo fcinfo)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID,
										ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	char	   *modes;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	arguments->values = fcinfo->args;
	arguments->whose = "export";
	(void) get_func_arg_info(tuple, &arguments->types, &arguments->names, &modes);
	arguments->count = fcinfo->nargs;
	ReleaseSysCache(tuple);
}

/* The number of the argument, or -1 if the function has none of this name. */
static int
find(const RexpArguments *arguments, const char *name)
{
	for (int i = 0; i < arguments->count; i++)
	{
		if (arguments->names != NULL && strcmp(arguments->names[i], name) == 0)
			return i;
	}
	return -1;
}

/* Is the argument there, and not null? */
static bool
is_given(const RexpArguments *arguments, const char *name)
{
	int			i = find(arguments, name);

	return i >= 0 && !arguments->values[i].isnull;
}

/* The value of an argument that must not be null. */
static Datum
value_of(const RexpArguments *arguments, const char *name)
{
	int			i = find(arguments, name);

	if (i < 0)
		elog(ERROR, "redis_export: the function has no argument \"%s\"", name);
	if (arguments->values[i].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" of the %s must not be null", name, arguments->whose)));
	return arguments->values[i].value;
}

/* A text or name, palloc'd or in the argument; NULL if it is null or not there. */
static const char *
string_or_null(const RexpArguments *arguments, const char *name)
{
	if (!is_given(arguments, name))
		return NULL;
	if (arguments->types[find(arguments, name)] == NAMEOID)
		return NameStr(*DatumGetName(value_of(arguments, name)));
	return TextDatumGetCString(value_of(arguments, name));
}

static const char *
string_of(const RexpArguments *arguments, const char *name)
{
	(void) value_of(arguments, name);
	return string_or_null(arguments, name);
}

/* A boolean; false if the function does not have it. */
bool
rexp_flag_argument(const RexpArguments *arguments, const char *name)
{
	return find(arguments, name) >= 0 && DatumGetBool(value_of(arguments, name));
}

/* A whole number from least to most. */
int64
rexp_integer_argument(RexpArguments *arguments, const char *name, int64 least,
					  int64 most)
{
	Datum		datum = value_of(arguments, name);
	int64		value = arguments->types[find(arguments, name)] == INT8OID ?
		DatumGetInt64(datum) : DatumGetInt32(datum);

	if (value < least || value > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of the %s is out of range: " INT64_FORMAT,
						name, arguments->whose, value),
				 errhint("It is a number from " INT64_FORMAT " to " INT64_FORMAT ".",
						 least, most)));
	return value;
}

/* An interval in milliseconds. */
int64
rexp_interval_argument(RexpArguments *arguments, const char *name)
{
	double		milliseconds =
		rexp_interval_milliseconds(DatumGetIntervalP(value_of(arguments, name)));

	if (!(milliseconds >= 0) ||
		milliseconds > 86400000.0 * REXP_EXPIRY_MOST_DAYS ||
		(milliseconds > 0 && milliseconds < 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of the %s is out of range", name, arguments->whose),
				 errhint("It is an interval of 0, or from 1 millisecond to %d days.",
						 REXP_EXPIRY_MOST_DAYS)));
	return (int64) milliseconds;
}

/* Rows a second, or 0 for null: no limit. */
int
rexp_rate_argument(RexpArguments *arguments)
{
	return is_given(arguments, "rate") ?
		(int) rexp_integer_argument(arguments, "rate", 1, MAX_RATE) : 0;
}

/* A text[] as a list of strings; NIL if it is null or not there. */
static List *
list_of(const RexpArguments *arguments, const char *name)
{
	List	   *list = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	if (!is_given(arguments, name))
		return NIL;
	deconstruct_array(DatumGetArrayTypeP(value_of(arguments, name)), TEXTOID, -1,
					  false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" of the %s must not contain nulls", name, arguments->whose)));
		list = lappend(list, TextDatumGetCString(elements[i]));
	}
	return list;
}

/* One of two words: is it the second? */
static bool
second_of(const RexpArguments *arguments, const char *name, const char *first,
		  const char *second)
{
	const char *word = string_of(arguments, name);

	if (strcmp(word, first) != 0 && strcmp(word, second) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of the %s is not known: \"%s\"", name,
						arguments->whose, word),
				 errhint("It is \"%s\" or \"%s\".", first, second)));
	return strcmp(word, second) == 0;
}

/* on_error and reject_limit, which go together. */
static void
error_arguments(RexpArguments *arguments, RexpPipelineOptions *options)
{
	options->ignore_errors = second_of(arguments, "on_error", "stop", "ignore");
	options->reject_limit = -1;
	if (is_given(arguments, "reject_limit"))
	{
		options->reject_limit = rexp_integer_argument(arguments, "reject_limit", 1,
													  PG_INT64_MAX);
		if (!options->ignore_errors)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("reject_limit requires on_error => 'ignore'")));
	}
}

/* ttl and ttl_column, of which there is one at most. */
static void
expiry_arguments(RexpArguments *arguments, RexpJob *job)
{
	if (is_given(arguments, "ttl"))
	{
		job->encoding.expiry.time = rexp_interval_argument(arguments, "ttl");
		job->encoding.expiry.kind = job->encoding.expiry.time > 0 ?
			REXP_EXPIRY_IN : REXP_EXPIRY_NEVER;
		job->pipeline.expire = true;
	}
	job->encoding.ttl_column = string_or_null(arguments, "ttl_column");
	if (job->encoding.ttl_column == NULL)
		return;
	if (job->pipeline.expire)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl and ttl_column cannot be used together"),
				 errhint("Let the query compute the column: coalesce(column, interval '1 day').")));
	job->pipeline.expire = true;
	job->pipeline.keys_apart = true;
}

/* What is to be sent for each row. */
static void
encoding_arguments(RexpArguments *arguments, RexpExportKind kind,
				   RexpEncoding *encoding)
{
	encoding->kind = kind;
	if (kind == REXP_EXPORT_COMMAND)
	{
		(void) value_of(arguments, "command_template");
		encoding->words = list_of(arguments, "command_template");
		encoding->skip_nulls = second_of(arguments, "on_null", "fail", "skip");
		return;
	}
	encoding->key_template = string_of(arguments, "key_template");
	encoding->exclude = list_of(arguments, "exclude");
	if (kind == REXP_EXPORT_HASH)
		encoding->replace = rexp_flag_argument(arguments, "replace");
	else
	{
		encoding->value = string_or_null(arguments, "value");
		encoding->path = find(arguments, "path") < 0 ? "$" : string_of(arguments, "path");
		encoding->merge = rexp_flag_argument(arguments, "merge");
	}
}

static void
prune_limit_argument(const RexpArguments *arguments, RexpJob *job)
{
	job->prune_limit = DatumGetFloat8(value_of(arguments, "prune_limit"));
	if (!(job->prune_limit >= 0 && job->prune_limit <= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"prune_limit\" of the %s is out of range: %g",
						arguments->whose, job->prune_limit),
				 errhint("It is the share of the keys that may go, from 0 to 1.")));
}

static const Interval *
overlap_argument(const RexpArguments *arguments)
{
	const Interval *overlap = DatumGetIntervalP(value_of(arguments, "overlap"));

	if (!(rexp_interval_milliseconds(overlap) >= 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"overlap\" of the %s must not be negative",
						arguments->whose)));
	return overlap;
}

/* watermark_column and overlap. */
static void
watermark_arguments(const RexpArguments *arguments, RexpJob *job)
{
	job->watermark_column = string_or_null(arguments, "watermark_column");
	job->overlap_given = is_given(arguments, "overlap");
	if (!job->overlap_given)
		job->overlap.time = DEFAULT_OVERLAP;
	else if (job->watermark_column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("overlap requires watermark_column")));
	else
		job->overlap = *overlap_argument(arguments);
}

/* wait_index, in UTF-8. */
static void
index_argument(RexpArguments *arguments, RexpJob *job)
{
	const char *index = string_or_null(arguments, "wait_index");

	if (index != NULL)
		job->wait_index = rexp_literal_utf8(index, strlen(index));
}

/* How an export goes, whatever it writes. */
static void
flow_arguments(RexpArguments *arguments, RexpJob *job)
{
	error_arguments(arguments, &job->pipeline);
	job->pipeline.batch = (int) rexp_integer_argument(arguments, "batch", 1, MAX_BATCH);
	job->pipeline.rate = rexp_rate_argument(arguments);
	job->pipeline.retry_timeout = rexp_interval_argument(arguments, "retry_timeout");
	job->pipeline.wait_replicas =
		(int) rexp_integer_argument(arguments, "wait_replicas", 0, MAX_REPLICAS);
	(void) value_of(arguments, "wait");
	job->wait = rexp_flag_argument(arguments, "wait");
}

/*
 * rexp_query_arguments
 *	  What is to be written: a query, and what becomes of its rows.  Strings lie in the
 *	  current context.  Raises an error for one that cannot be.
 */
void
rexp_query_arguments(RexpArguments *arguments, RexpJob *job)
{
	memset(job, 0, sizeof(RexpJob));
	job->query = string_of(arguments, "query");
	job->server = string_of(arguments, "server");
	encoding_arguments(arguments, rexp_preview_kind(arguments), &job->encoding);
	expiry_arguments(arguments, job);
}

/*
 * rexp_definition_arguments
 *	  What a definition says: what Redis is to hold.  The arguments are those of
 *	  redis_export_define(), or the columns of the definition's row.  Strings lie in
 *	  the current context.  Raises an error for one that cannot be.
 */
void
rexp_definition_arguments(RexpArguments *arguments, RexpJob *job)
{
	rexp_query_arguments(arguments, job);
	job->name = string_of(arguments, "name");
	watermark_arguments(arguments, job);
	job->settings = list_of(arguments, "settings");
	index_argument(arguments, job);
}

/* Is the function about an export that has a name? */
bool
rexp_is_by_name(const RexpArguments *arguments)
{
	return find(arguments, "name") >= 0;
}

/* The name of the export that a function is about. */
const char *
rexp_name_argument(RexpArguments *arguments)
{
	return string_of(arguments, "name");
}

/*
 * rexp_run_arguments
 *	  How this run of an export goes; *job is that of its definition.
 */
void
rexp_run_arguments(RexpArguments *arguments, RexpJob *job)
{
	const char *rows = string_of(arguments, "rows");

	if (strcmp(rows, "changed") == 0)
		job->rows = REXP_ROWS_CHANGED;
	else if (strcmp(rows, "new") == 0)
		job->rows = REXP_ROWS_NEW;
	else if (strcmp(rows, "all") == 0)
		job->rows = REXP_ROWS_ALL;
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for argument \"%s\" of the %s: \"%s\"", "rows",
						arguments->whose, rows),
				 errhint("Valid values are \"changed\", \"new\" and \"all\".")));
	if (job->rows == REXP_ROWS_NEW && job->watermark_column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("export \"%s\" has no watermark column", job->name),
				 errdetail("Without one it cannot be told which rows are new."),
				 errhint("Name it when you define the export (watermark_column), or run it with rows => 'changed'.")));

	/* nor must Redis be asked for a key of which a row is on its way */
	job->pipeline.keys_apart |= job->rows != REXP_ROWS_ALL;
	job->prune = rexp_flag_argument(arguments, "prune");
	prune_limit_argument(arguments, job);
	if (job->prune && job->rows == REXP_ROWS_NEW)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("prune cannot be used with rows => 'new'"),
				 errdetail("A run that does not read all rows cannot tell which keys have none.")));
	job->wait_for_lease = second_of(arguments, "if_running", "fail", "wait");
	flow_arguments(arguments, job);
}

/*
 * rexp_export_arguments
 *	  The arguments of an export, or of its preview.  Strings lie in the current
 *	  context.  Raises an error for one that cannot be.
 */
void
rexp_export_arguments(RexpArguments *arguments, RexpExportKind kind, RexpJob *job)
{
	memset(job, 0, sizeof(RexpJob));
	job->query = string_of(arguments, "query");
	job->server = string_of(arguments, "server");
	encoding_arguments(arguments, kind, &job->encoding);
	expiry_arguments(arguments, job);

	/* a row of nulls deletes its key, which an earlier row's expiry must find */
	job->pipeline.keys_apart |= job->encoding.replace && job->pipeline.expire;
	flow_arguments(arguments, job);
	index_argument(arguments, job);
}

/*
 * rexp_preview_kind
 *	  The export that a preview is one of.  Its arguments are those of all kinds;
 *	  one that is not of this kind must not be given.
 */
RexpExportKind
rexp_preview_kind(RexpArguments *arguments)
{
	static const char *const not_of_hashes[] = {"value", "merge"};
	RexpExportKind kind;

	if (find(arguments, "command_template") >= 0)
		return REXP_EXPORT_COMMAND;
	kind = second_of(arguments, "type", "json", "hash") ?
		REXP_EXPORT_HASH : REXP_EXPORT_JSON;
	if (kind == REXP_EXPORT_JSON && rexp_flag_argument(arguments, "replace"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("replace requires type => 'hash'")));
	if (kind == REXP_EXPORT_HASH &&
		(is_given(arguments, not_of_hashes[0]) || rexp_flag_argument(arguments, not_of_hashes[1])))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s requires type => 'json'",
						not_of_hashes[is_given(arguments, not_of_hashes[0]) ? 0 : 1])));
	return kind;
}

/* The mark that redis_export_set_mark() was given, or NULL. */
const char *
rexp_mark_argument(RexpArguments *arguments)
{
	return string_or_null(arguments, "mark");
}

/* The arguments of a scan, in the current memory context. */
void
rexp_scan_arguments(RexpArguments *arguments, RexpScanKind kind,
					RexpScanOptions *options)
{
	const char *pattern;
	const char *path;

	arguments->whose = "scan";
	pattern = string_of(arguments, "pattern");
	path = string_or_null(arguments, "path");
	memset(options, 0, sizeof(RexpScanOptions));
	options->kind = kind;
	options->server = string_of(arguments, "server");
	options->pattern = rexp_literal_utf8(pattern, strlen(pattern));
	options->type = kind == REXP_SCAN_JSON ? REXP_TYPE_JSON :
		kind == REXP_SCAN_HASH ? REXP_TYPE_HASH : string_or_null(arguments, "type");
	if (options->type != NULL && pg_strcasecmp(options->type, "json") == 0)
		options->type = REXP_TYPE_JSON;

	/* of "$", the answer would be an array that holds the document */
	options->path = path == NULL || strcmp(path, "$") == 0 ? "." :
		rexp_literal_utf8(path, strlen(path));
	options->memory = work_mem;
	options->any_order = kind == REXP_SCAN_KEYS;
	options->skip_invalid = rexp_flag_argument(arguments, "skip_invalid");
}
