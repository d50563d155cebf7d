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
 * The mark moves at the very end, if each row was acknowledged and Redis has not
 * lost any since; where that is in doubt it stays, and the next run repeats what
 * was done.  mark.c keeps it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "expiry.h"
#include "fence.h"
#include "mark.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "source.h"
#include "template.h"
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
#include "value.h"
#include "watermark.h"
#include "writers.h"

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
	const RexpSession *session;
	MemoryContext context;		/* of all that lives as long as this */
	MemoryContext row_context;	/* of one comparison */
	char	   *key;			/* of the mark */
	RexpMark	found;			/* as it was at the start */
	const char *begun;			/* the note of this first run; else NULL */
	RexpMark	next;			/* as it shall be; no value: as it was */
	Column		column;
	bool		has_highest;
	Datum		highest;		/* value that was read, or that of the mark */
	int64		writer_age;		/* as in RexpCounters */
	bool		stays;
};

/*
 * The column
 */

static bool
has_overlap(const RexpJob *job)
{
	return job->overlap.month != 0 || job->overlap.day != 0 || job->overlap.time != 0;
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
				 errmsg("watermark column \"%s\" of type %s requires overlap => '0'",
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
rexp_watermark_create(int64 number, const RexpJob *job, const RexpSession *session)
{
	RexpWatermark *w;

	if (job->watermark_column == NULL)
		return NULL;
	w = palloc0(sizeof(RexpWatermark));
	w->number = number;
	w->job = job;
	w->session = session;
	w->context = CurrentMemoryContext;
	w->row_context = AllocSetContextCreate(w->context, "redis_export watermark",
										   ALLOCSET_SMALL_SIZES);
	w->key = rexp_mark_key(job->mark);
	w->next.fields[REXP_MARK_COLUMN] = utf8(job->watermark_column);
	w->next.fields[REXP_MARK_KEY_TEMPLATE] = utf8(rexp_encoding_template(&job->encoding));
	w->next.fields[REXP_MARK_ROLE] = utf8(GetUserNameFromId(session->current_user, false));
	w->next.fields[REXP_MARK_DATABASE] = utf8(get_database_name(session->database));
	return w;
}

/* Is it a mark at all? */
static bool
is_there(const RexpMark *mark)
{
	return mark->fields[REXP_MARK_VALUE] != NULL;
}

/*
 * rexp_watermark_read
 *	  Ask Redis for the mark.  Returns false if the job has failed.
 */
bool
rexp_watermark_read(RexpWatermark *w, RexpPipeline *pipeline)
{
	MemoryContext old;
	bool		good;

	if (w == NULL)
		return true;
	old = MemoryContextSwitchTo(w->context);
	good = rexp_mark_read(pipeline, w->key, &w->found);
	if (good && !is_there(&w->found))
	{
		w->begun = w->found.begun;
		if (w->begun == NULL)
			w->begun = rexp_mark_note(pipeline, w->key);
		good = w->begun != NULL;
	}
	MemoryContextSwitchTo(old);
	return good;
}

/* A field as it can be shown. */
static const char *
shown(const RexpMark *mark, RexpMarkField field)
{
	return mark->fields[field] ? rexp_text_shown(mark->fields[field]) : "";
}

/* Is the field of both marks the same? */
static bool
is_same(const RexpMark *one, const RexpMark *other, RexpMarkField field)
{
	return one->fields[field] != NULL && other->fields[field] != NULL &&
		strcmp(one->fields[field], other->fields[field]) == 0;
}

/* Raise an error if the mark is one of another column or export. */
static void
check_mark(const RexpWatermark *w)
{
	const char *of_mark = NULL;
	const char *of_job;

	if (!is_same(&w->found, &w->next, REXP_MARK_COLUMN))
	{
		of_mark = psprintf("column \"%s\"", shown(&w->found, REXP_MARK_COLUMN));
		of_job = psprintf("column \"%s\"", w->job->watermark_column);
	}
	else if (!is_same(&w->found, &w->next, REXP_MARK_TYPE))
	{
		of_mark = psprintf("type %s", shown(&w->found, REXP_MARK_TYPE));
		of_job = psprintf("type %s", shown(&w->next, REXP_MARK_TYPE));
	}
	else if (!is_same(&w->found, &w->next, REXP_MARK_KEY_TEMPLATE))
	{
		of_mark = psprintf("the keys \"%s\"", shown(&w->found, REXP_MARK_KEY_TEMPLATE));
		of_job = psprintf("\"%s\"", shown(&w->next, REXP_MARK_KEY_TEMPLATE));
	}
	if (of_mark != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("mark \"%s\" in Redis is of %s, not of %s",
						w->job->mark, of_mark, of_job),
				 errhint("Take another mark, or forget this one: SELECT redis_export_reset_mark(%s, %s).",
						 quote_literal_cstr(w->job->server),
						 quote_literal_cstr(w->job->mark))));
}

/* A value as Redis has it. */
static Datum
parse_value(const Column *column, const char *field)
{
	RexpOutputSettings saved;
	Datum		value;

	rexp_output_settings_enter(&saved);
	value = rexp_mark_value(column->type, rexp_mark_text(field));
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
	return psprintf("%s::%s", quote_literal_cstr(rexp_mark_output(w->column.type, bound)),
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

/* Warn if a transaction has been writing for longer than the overlap. */
static void
look_for_writers(RexpWatermark *w)
{
	TimestampTz began = rexp_oldest_writer();
	double		age = (GetCurrentTimestamp() - began) / 1000.0;
	RexpCounters counters = {0};

	if (began == 0 || !(age > rexp_interval_milliseconds(&w->job->overlap)))
		return;
	w->writer_age = Max((int64) age, 1);
	rexp_watermark_count(w, &counters);
	rexp_watermark_warn_of_writer(w->number, &counters);
}

/*
 * rexp_watermark_query
 *	  The query that returns those rows of a query only that are above the mark.
 *
 * Call it with the rights of the query, right before its snapshot is taken: a
 * transaction that ends before may be warned of, and one that ends later will.
 */
const char *
rexp_watermark_query(RexpWatermark *w, const char *query)
{
	MemoryContext old;
	char	   *result = NULL;
	Datum		mark;

	if (w == NULL)
		return query;
	look_for_writers(w);

	/* functions of a type may run queries, and constants are read by them */
	PushActiveSnapshot(GetTransactionSnapshot());
	w->column = find_column(w->job, rexp_source_check(query, NULL));
	old = MemoryContextSwitchTo(w->context);
	w->next.fields[REXP_MARK_TYPE] = utf8(rexp_mark_type_name(w->column.type));
	if (is_there(&w->found))
	{
		check_mark(w);
		mark = parse_value(&w->column, w->found.fields[REXP_MARK_VALUE]);
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
	w->next.fields[REXP_MARK_VALUE] = utf8(rexp_mark_output(w->column.type, w->highest));
	MemoryContextSwitchTo(old);
}

/*
 * The end
 */

typedef enum Meanwhile
{
	MEANWHILE_NOTHING,			/* it may be moved */
	MEANWHILE_FURTHER,			/* it is further than we would move it */
	MEANWHILE_RESET				/* somebody wants rows once more, or all is gone */
} Meanwhile;

/* Compare a mark that has changed with ours and with what it was. */
static Meanwhile
compare_marks(const RexpWatermark *w, const RexpMark *present)
{
	const Column *column = &w->column;
	Datum		value;

	if (!is_same(present, &w->next, REXP_MARK_COLUMN) ||
		!is_same(present, &w->next, REXP_MARK_TYPE))
		return MEANWHILE_RESET;
	value = parse_value(column, present->fields[REXP_MARK_VALUE]);
	if (is_there(&w->found) &&
		compare(column, value, parse_value(column, w->found.fields[REXP_MARK_VALUE])) < 0)
		return MEANWHILE_RESET;
	return compare(column, value, w->highest) > 0 ? MEANWHILE_FURTHER : MEANWHILE_NOTHING;
}

/*
 * What has become of the mark since we read it?  Between this and our writing it
 * there is a moment left, in which another run with this mark may move it: it then is
 * what we have read up to, which is true, and the next run reads what lies between
 * once more.
 */
static Meanwhile
meanwhile(const RexpWatermark *w, const RexpMark *present)
{
	Meanwhile	result;
	RexpFence	fence;

	/* with the note of a first run, rows that it has written have gone */
	if (w->begun != NULL &&
		(present->begun == NULL || strcmp(present->begun, w->begun) != 0))
		return MEANWHILE_RESET;
	if (!is_there(present))
		return is_there(&w->found) ? MEANWHILE_RESET : MEANWHILE_NOTHING;
	if (is_same(present, &w->found, REXP_MARK_VALUE) &&
		is_same(present, &w->found, REXP_MARK_COLUMN) &&
		is_same(present, &w->found, REXP_MARK_TYPE))
		return MEANWHILE_NOTHING;

	/* the type's functions may be anybody's, and need the catalogs */
	rexp_fence_begin(&fence, w->session->current_user, w->session->sec_context);
	PushActiveSnapshot(GetTransactionSnapshot());
	result = compare_marks(w, present);
	PopActiveSnapshot();
	rexp_fence_commit(&fence);
	return result;
}

/* Move it, if it may be.  Returns false if the job has failed. */
static bool
move(RexpWatermark *w, RexpPipeline *pipeline)
{
	const RexpCounters *counters = rexp_pipeline_counters(pipeline);
	RexpMark	present;

	w->stays = counters->rows_failed > 0 || rexp_may_have_lost(counters) ||
		counters->evicted_keys > 0;
	if (w->stays)
		return true;
	if (!rexp_mark_read(pipeline, w->key, &present))
		return false;
	switch (meanwhile(w, &present))
	{
		case MEANWHILE_FURTHER:
			break;
		case MEANWHILE_RESET:
			w->stays = true;
			break;
		case MEANWHILE_NOTHING:
			w->next.fields[REXP_MARK_ROWS] = psprintf(INT64_FORMAT, counters->rows_written);
			w->stays = !rexp_mark_write(pipeline, w->key, &w->next);
			break;
	}
	return rexp_pipeline_error(pipeline) == NULL;
}

/*
 * rexp_watermark_move
 *	  All rows are settled: move the mark, if each is acknowledged.  Returns false if
 *	  the job has failed.
 */
bool
rexp_watermark_move(RexpWatermark *w, RexpPipeline *pipeline)
{
	MemoryContext old;
	RexpCounters counters;
	bool		good;

	/* no row had a value: there is nothing to be told of */
	if (w == NULL || w->next.fields[REXP_MARK_VALUE] == NULL)
		return true;
	old = MemoryContextSwitchTo(w->context);
	good = move(w, pipeline);
	MemoryContextSwitchTo(old);
	if (good && w->stays)
	{
		counters = *rexp_pipeline_counters(pipeline);
		rexp_watermark_count(w, &counters);
		rexp_watermark_warn_of_mark(w->number, &counters);
	}
	return good;
}

/*
 * rexp_watermark_count
 *	  Put into the counters what is to be told of.
 */
void
rexp_watermark_count(const RexpWatermark *w, RexpCounters *counters)
{
	if (w == NULL)
		return;
	counters->writer_age = w->writer_age;
	counters->mark_stays = w->stays;
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
				 errdetail("It was reset while the export ran, or Redis was flushed."),
				 errhint("The next export with this mark writes these rows again."),
				 errhidestmt(true)));
}
