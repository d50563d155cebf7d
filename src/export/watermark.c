/*-------------------------------------------------------------------------
 *
 * watermark.c
 *	  An export of those rows only that are newer than a mark.
 *
 * The mark is the highest value of a column that an earlier run has read.  Rows
 * become visible when they are committed, and were stamped before: so the next run
 * reads again what is above the mark less an overlap, which must exceed the longest
 * transaction that writes.  Nothing else is assumed, on a replica neither: it sees
 * commits in their order, however late.  A transaction that is older than the
 * overlap is told.
 *
 * The bound is a constant in the text of the query, for the planner to see, and is
 * put around the query, so that this may be any.
 *
 * A run that reads all rows has a mark, too: it moves it, and does not read it.
 *
 * The mark moves at the very end, if each row was acknowledged and Redis has not
 * lost any since; where that is in doubt it stays, and the next run repeats what
 * was done.  record.c keeps it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "base/encoding.h"
#include "base/output_settings.h"
#include "base/text.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "encode/template.h"
#include "encode/ttl.h"
#include "export/watermark.h"
#include "export/writers.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "session/fence.h"
#include "session/source.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* The column, as the query returns it. */
typedef struct Column
{
	int			attno;
	Oid			type;			/* of a domain, the one below it */
	Oid			collation;
	TypeCacheEntry *order;
} Column;

struct RexpWatermark
{
	int64		number;			/* of the job */
	const RexpJob *job;
	MemoryContext context;		/* of all that lives as long as this */
	MemoryContext row_context;	/* of one comparison */
	const RexpMark *found;		/* as it was at the start */
	RexpMark	next;			/* as it shall be; no value: as it was */
	Column		column;
	bool		has_highest;
	Datum		highest;		/* value that was read, or that of the mark */
	int64		writer_age;		/* as in RexpCounters */
};

/*
 * Types and values
 */

/*
 * The name of a type that means the same whatever the search path, palloc'd.
 *
 * Without pg_catalog, which goes without saying.
 */
static char *
type_name(Oid type)
{
	/* as with a modifier, since char without one is char(1) */
	char	   *name = format_type_extended(type, -1, FORMAT_TYPE_TYPEMOD_GIVEN |
											FORMAT_TYPE_FORCE_QUALIFY);

	return strncmp(name, "pg_catalog.", 11) == 0 ? name + 11 : name;
}

/* The value of a text in the database's encoding, under the settings as they are. */
static Datum
value_of_text(Oid type, const char *text)
{
	Oid			function;
	Oid			parameter;

	getTypeInputInfo(type, &function, &parameter);
	return OidInputFunctionCall(function, unconstify(char *, text), parameter, -1);
}

/* A value, and its text. */
typedef struct Output
{
	Oid			type;
	Datum		value;
	char	   *text;
} Output;

static void
write_text(void *arg)
{
	Output	   *output = arg;
	Oid			function;
	bool		is_varlena;

	getTypeOutputInfo(output->type, &function, &is_varlena);
	output->text = OidOutputFunctionCall(function, output->value);
}

/* A value as text in the database's encoding, under our fixed settings, palloc'd. */
static char *
output_of(Oid type, Datum value)
{
	Output		output = {type, value, NULL};

	rexp_under_output_settings(write_text, &output);
	return output.text;
}

/*
 * The column
 */

static bool
has_overlap(const RexpJob *job)
{
	return job->overlap_given && (job->overlap.month != 0 || job->overlap.day != 0 ||
								  job->overlap.time != 0);
}

/* Can an interval be taken off it? */
static bool
is_time(Oid type)
{
	return type == TIMESTAMPTZOID || type == TIMESTAMPOID || type == DATEOID;
}

/* Find the column; an error if it can be no watermark. */
static Column
find_column(const RexpJob *job, TupleDesc desc)
{
	Column		column;
	Form_pg_attribute attribute;

	column.attno = rexp_need_column(desc, job->watermark_column, "watermark_column");
	attribute = TupleDescAttr(desc, column.attno - 1);
	column.type = getBaseType(attribute->atttypid);
	column.collation = attribute->attcollation;
	column.order = lookup_type_cache(column.type,
									 TYPECACHE_CMP_PROC_FINFO | TYPECACHE_GT_OPR);

	if (!OidIsValid(column.order->cmp_proc) || !OidIsValid(column.order->gt_opr) ||
		column.order->typtype == TYPTYPE_PSEUDO)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of type %s cannot be a watermark",
						job->watermark_column, format_type_be(column.type)),
				 errdetail("Its type has no order."),
				 errhint("It is a column that tells when a row was changed, or a number that grows.")));
	if (OidIsValid(column.order->typcollation) && !OidIsValid(column.collation))
		ereport(ERROR,
				(errcode(ERRCODE_INDETERMINATE_COLLATION),
				 errmsg("column \"%s\" cannot be a watermark, since it has no collation",
						job->watermark_column),
				 errhint("Give it one in the query, with COLLATE.")));
	if (!is_time(column.type) && has_overlap(job))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("watermark column \"%s\" of type %s cannot have an overlap",
						job->watermark_column, format_type_be(column.type)),
				 errdetail("An overlap can be taken off a timestamp or a date only."),
				 errhint("Without one, rows are missed that become visible after higher ones: ids are handed out before their transactions commit. Take a timestamp, or be sure that rows become visible in order.")));
	return column;
}

/*
 * rexp_watermark_check
 *	  Raise an error unless the column is there and can be a watermark.
 */
void
rexp_watermark_check(const RexpJob *job, TupleDesc desc)
{
	(void) find_column(job, desc);
}

/* Does the value say nothing of how far an export got, as all others are below it? */
static bool
is_endless(Oid type, Datum value)
{
	switch (type)
	{
		case TIMESTAMPTZOID:
		case TIMESTAMPOID:
			return TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value));
		case DATEOID:
			return DATE_NOT_FINITE(DatumGetDateADT(value));
		case FLOAT4OID:
			return !isfinite(DatumGetFloat4(value));
		case FLOAT8OID:
			return !isfinite(DatumGetFloat8(value));
		case NUMERICOID:
			return numeric_is_nan(DatumGetNumeric(value)) ||
				numeric_is_inf(DatumGetNumeric(value));
		default:
			return false;
	}
}

/* Negative, 0 or positive, by the order of the type and the column's collation. */
static int
compare(const Column *column, Datum one, Datum other)
{
	return DatumGetInt32(FunctionCall2Coll(&column->order->cmp_proc_finfo,
										   column->collation, one, other));
}

/*
 * Begin
 */

/* A name in UTF-8. */
static char *
utf8(const char *text)
{
	return rexp_literal_utf8(text, strlen(text));
}

/*
 * rexp_watermark_create
 *	  The watermark of a job, in a transaction, in the current context; NULL if it has
 *	  none.  job and session must live as long.
 */
RexpWatermark *
rexp_watermark_create(int64 number, const RexpJob *job)
{
	RexpWatermark *w;

	if (job->watermark_column == NULL)
		return NULL;
	w = palloc0(sizeof(RexpWatermark));
	w->number = number;
	w->job = job;
	w->context = CurrentMemoryContext;
	w->row_context = AllocSetContextCreate(w->context, "redis_export watermark",
										   ALLOCSET_SMALL_SIZES);
	w->next.column = utf8(job->watermark_column);
	return w;
}

/* Is the mark that was found one of this column, as it now is? */
static bool
is_of_column(const RexpWatermark *w)
{
	return w->found->value != NULL && w->found->type != NULL && w->found->column != NULL &&
		strcmp(w->found->type, w->next.type) == 0 &&
		strcmp(w->found->column, w->next.column) == 0;
}

/* A value as Redis has it; an error if it is no text in the database's encoding. */
static Datum
parse_value(const Column *column, const char *field)
{
	char	   *text = rexp_text_exact(field, strlen(field));
	RexpOutputSettings saved;
	Datum		value;

	if (text == NULL)
	{
		char		shown[128];

		rexp_printable(shown, sizeof(shown), field, strlen(field));
		ereport(ERROR,
				(errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
				 errmsg("the mark in Redis contains bytes that are not valid in the encoding of this database"),
				 errdetail("It is \"%s\".", shown)));
	}
	rexp_output_settings_enter(&saved);
	value = value_of_text(column->type, text);
	rexp_output_settings_leave(&saved);
	return value;
}

/* Keep a value as the highest. */
static void
keep(RexpWatermark *w, Datum value)
{
	const TypeCacheEntry *type = w->column.order;
	MemoryContext old = MemoryContextSwitchTo(w->context);
	Datum		copy = type->typlen == -1 ? PointerGetDatum(PG_DETOAST_DATUM_COPY(value)) :
		datumCopy(value, type->typbyval, type->typlen);

	MemoryContextSwitchTo(old);
	if (w->has_highest && !type->typbyval)
		pfree(DatumGetPointer(w->highest));
	w->highest = copy;
	w->has_highest = true;
}

/*
 * The query
 */

/*
 * The value above which rows are wanted.  A date is a whole day, which may have gone
 * on after the mark was read: of it, and of that on which the overlap begins, all
 * rows are.
 */
static Datum
bound_of(const RexpWatermark *w, Datum mark)
{
	Datum		overlap = IntervalPGetDatum(&w->job->overlap);
	Datum		moment;
	DateADT		day;

	if (!is_time(w->column.type) || is_endless(w->column.type, mark))
		return mark;
	if (w->column.type == TIMESTAMPTZOID)
		return DirectFunctionCall2(timestamptz_mi_interval, mark, overlap);
	if (w->column.type == TIMESTAMPOID)
		return DirectFunctionCall2(timestamp_mi_interval, mark, overlap);
	moment = DirectFunctionCall2(date_mi_interval, mark, overlap);
	day = DatumGetDateADT(DirectFunctionCall1(timestamp_date, moment));
	if (!DATE_NOT_FINITE(day))
	{
		day--;
		if (!IS_VALID_DATE(day))
			DATE_NOBEGIN(day);
	}
	return DateADTGetDatum(day);
}

/* The bound as a constant, with its type. */
static char *
bound_literal(const RexpWatermark *w, Datum mark)
{
	RexpOutputSettings saved;
	Datum		bound;

	/* days of an overlap are days of UTC, whoever exports */
	rexp_output_settings_enter(&saved);
	bound = bound_of(w, mark);
	rexp_output_settings_leave(&saved);
	return psprintf("%s::%s", quote_literal_cstr(output_of(w->column.type, bound)),
					format_type_extended(w->column.type, -1, FORMAT_TYPE_TYPEMOD_GIVEN |
										 FORMAT_TYPE_FORCE_QUALIFY));
}

/* The type's >, whatever the search path. */
static char *
greater_operator(const Column *column)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID,
										ObjectIdGetDatum(column->order->gt_opr));
	Form_pg_operator operator;
	char	   *text;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", column->order->gt_opr);
	operator = (Form_pg_operator) GETSTRUCT(tuple);
	text = psprintf("OPERATOR(%s.%s)",
					quote_identifier(get_namespace_name(operator->oprnamespace)),
					NameStr(operator->oprname));
	ReleaseSysCache(tuple);
	return text;
}

/*
 * The query, of which is known that it is one statement, without the semicolon and
 * what follows.  A comment at its end may be left.
 */
static char *
statement_of(const char *query)
{
	const RawStmt *statement = linitial_node(RawStmt, raw_parser(query, RAW_PARSE_DEFAULT));
	const char *start = query + Max(statement->stmt_location, 0);

	return statement->stmt_len > 0 ? pnstrdup(start, statement->stmt_len) : pstrdup(start);
}

/* Warn if a transaction, which began to write then, has done so for longer than the overlap. */
static void
judge_writer(RexpWatermark *w, TimestampTz began)
{
	double		age = (GetCurrentTimestamp() - began) / 1000.0;
	double		overlap = is_time(w->column.type) ?
		rexp_interval_milliseconds(&w->job->overlap) : 0;
	RexpCounters counters = {0};

	if (began == 0 || !(age > overlap))
		return;
	w->writer_age = Max((int64) age, 1);
	rexp_watermark_count(w, &counters);
	rexp_watermark_warn_of_writer(w->number, &counters);
}

/*
 * rexp_watermark_query
 *	  The query that returns those rows of a query only that are wanted: if only new ones
 *	  are, those above the mark that was found.
 *
 * Call it with the rights of the query, right before its snapshot is taken: a
 * transaction that ends before may be warned of, and one that ends later will.
 */
const char *
rexp_watermark_query(RexpWatermark *w, const char *query, const RexpMark *found)
{
	MemoryContext old;
	char	   *result = NULL;
	Datum		mark;
	TimestampTz writer;

	if (w == NULL)
		return query;
	w->found = found;
	writer = rexp_oldest_writer();

	/* functions of a type may run queries, and constants are read by them */
	PushActiveSnapshot(GetTransactionSnapshot());
	w->column = find_column(w->job, rexp_source_check(query, NULL));
	judge_writer(w, writer);
	old = MemoryContextSwitchTo(w->context);
	w->next.type = utf8(type_name(w->column.type));
	if (w->job->rows == REXP_ROWS_NEW && is_of_column(w))
	{
		mark = parse_value(&w->column, found->value);
		keep(w, mark);
		/* a comment at the end of the query ends with the line */
		result = psprintf("SELECT * FROM (%s\n) AS redis_export WHERE redis_export.%s %s %s",
						  statement_of(query), quote_identifier(w->job->watermark_column),
						  greater_operator(&w->column), bound_literal(w, mark));
	}
	MemoryContextSwitchTo(old);
	PopActiveSnapshot();
	return result != NULL ? result : query;
}

/*
 * rexp_watermark_note
 *	  A row of the query was read.
 */
void
rexp_watermark_note(RexpWatermark *w, TupleTableSlot *slot)
{
	MemoryContext old;
	Datum		value;
	bool		isnull;

	if (w == NULL)
		return;
	value = slot_getattr(slot, w->column.attno, &isnull);
	if (isnull)
		return;
	old = MemoryContextSwitchTo(w->row_context);
	if (!is_endless(w->column.type, value) &&
		(!w->has_highest || compare(&w->column, value, w->highest) > 0))
		keep(w, value);
	MemoryContextSwitchTo(old);

	/* what was copied to be compared */
	if (!w->column.order->typbyval)
		MemoryContextReset(w->row_context);
}

/*
 * rexp_watermark_seal
 *	  All rows were read: write down the highest value, as long as there is a
 *	  transaction for it.
 */
void
rexp_watermark_seal(RexpWatermark *w)
{
	MemoryContext old;

	if (w == NULL || !w->has_highest)
		return;
	old = MemoryContextSwitchTo(w->context);
	w->next.value = utf8(output_of(w->column.type, w->highest));
	MemoryContextSwitchTo(old);
}

/*
 * rexp_watermark_next
 *	  The mark as it is to be, or NULL if no row had a value.
 */
const RexpMark *
rexp_watermark_next(const RexpWatermark *w)
{
	return w != NULL && w->next.value != NULL ? &w->next : NULL;
}

/* A mark that somebody gives. */
typedef struct Given
{
	const Column *column;
	const char *text;
	char	   *value;			/* as it is to be in Redis */
} Given;

static void
read_given(void *arg)
{
	Given	   *given = arg;

	given->value = utf8(output_of(given->column->type,
								  value_of_text(given->column->type, given->text)));
}

/*
 * rexp_watermark_given
 *	  The mark of this text, in the settings of this session (of a type that is not built
 *	  in: of the export), as it is to be in Redis; palloc'd.  NULL is no mark.  Raises an error if the column cannot have it.
 */
RexpMark
rexp_watermark_given(const RexpJob *job, TupleDesc desc, const char *text)
{
	RexpMark	mark = {NULL, NULL, NULL};
	Column		column;
	Given		given = {&column, text, NULL};

	if (job->watermark_column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("export \"%s\" has no watermark column", job->name)));
	column = find_column(job, desc);
	mark.column = utf8(job->watermark_column);
	mark.type = utf8(type_name(column.type));
	if (text == NULL)
		return mark;

	/* the functions of other types may be anybody's; they see the export's settings */
	if (column.type < FirstUnpinnedObjectId)
		read_given(&given);
	else
		rexp_fence_and_roll_back(rexp_job_session(job), read_given, &given);
	mark.value = given.value;
	return mark;
}

/*
 * rexp_watermark_count
 *	  Put into the counters what is to be told of.
 */
void
rexp_watermark_count(const RexpWatermark *w, RexpCounters *counters)
{
	if (w != NULL)
		counters->writer_age = w->writer_age;
}

/*
 * Warnings: in the worker for the server's log, and in the caller who waits
 */

void
rexp_watermark_warn_of_writer(int64 job, const RexpCounters *counters)
{
	int64		seconds = counters->writer_age / 1000;

	if (counters->writer_age > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("a transaction that has been writing for %02d:%02d:%02d is older than the overlap",
						(int) (seconds / 3600), (int) (seconds / 60 % 60),
						(int) (seconds % 60)),
				 errdetail("Rows that it has stamped may be missed by the exports that follow export job " INT64_FORMAT ".",
						   job),
				 errhint("Raise overlap, or export again once it has ended, with a larger overlap or from a mark that is set back."),
				 errhidestmt(true)));
}

void
rexp_watermark_warn_of_mark(int64 job, const RexpCounters *counters)
{
	if (counters->mark_stays)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the mark of export job " INT64_FORMAT " stays where it was", job),
				 counters->rows_failed > 0 ? errdetail("Rows failed.") :
				 rexp_may_have_lost(counters) ?
				 errdetail("Redis may have lost rows that it had acknowledged.") :
				 counters->evicted_keys > 0 ?
				 errdetail("Redis evicted keys, which may be those of rows that it had acknowledged.") :
				 errdetail("Redis was flushed while the export ran."),
				 errhint("The next run with rows => 'new' writes these rows again."),
				 errhidestmt(true)));
}
