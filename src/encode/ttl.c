/*-------------------------------------------------------------------------
 *
 * ttl.c
 *	  When a row's key expires.
 *
 * A column of numbers holds seconds, one of intervals a time from now, one of
 * timestamptz the moment itself.  Zero takes an old expiry away, as infinity
 * does, and null leaves it as it is.  A moment that has passed is no error:
 * Redis deletes the key.
 *
 * Nothing here knows commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "encode/template.h"
#include "encode/ttl.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

struct RexpExpiryColumn
{
	int			attno;
	Oid			type;			/* no domain */
	char	   *name;
};

/* As in extract(epoch): a month is 30 days, a year 365.25. */
double
rexp_interval_milliseconds(const Interval *interval)
{
	return interval->time / 1000.0 +
		86400000.0 * (interval->day + 30.0 * (interval->month % 12) +
					  365.25 * (interval->month / 12));
}

/*
 * rexp_expiry_column_create
 *	  Find the column, in the current memory context.  Raises an error if it is
 *	  not there, or of a type that tells no time.
 */
RexpExpiryColumn *
rexp_expiry_column_create(const char *name, TupleDesc desc)
{
	RexpExpiryColumn *column = palloc0(sizeof(RexpExpiryColumn));

	column->name = pstrdup(name);
	column->attno = rexp_need_column(desc, name, "ttl_column");
	column->type = getBaseType(TupleDescAttr(desc, column->attno - 1)->atttypid);
	switch (column->type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case INTERVALOID:
		case TIMESTAMPTZOID:
			return column;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of type %s cannot tell when a key expires",
							name,
							format_type_be(TupleDescAttr(desc, column->attno - 1)->atttypid)),
					 errhint("It is a number of seconds, an interval, or a timestamp with time zone.")));
	}
	return NULL;
}

/* Milliseconds from now, as a column that holds no moment says. */
static double
milliseconds(const RexpExpiryColumn *column, Datum value)
{
	switch (column->type)
	{
		case INT2OID:
			return DatumGetInt16(value) * 1000.0;
		case INT4OID:
			return DatumGetInt32(value) * 1000.0;
		case INT8OID:
			return DatumGetInt64(value) * 1000.0;
		case FLOAT4OID:
			return DatumGetFloat4(value) * 1000.0;
		case FLOAT8OID:
			return DatumGetFloat8(value) * 1000.0;
		case NUMERICOID:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
													  value)) * 1000.0;
		default:
			return rexp_interval_milliseconds(DatumGetIntervalP(value));
	}
}

/*
 * rexp_expiry_of_row
 *	  What the row's column says, or false and what is wrong with it.
 *
 * All columns of the slot must have been got.
 */
bool
rexp_expiry_of_row(RexpExpiryColumn *column, TupleTableSlot *slot,
				   RexpExpiry *expiry, RexpError *error)
{
	Datum		value = slot->tts_values[column->attno - 1];
	double		time;

	expiry->kind = REXP_EXPIRY_NONE;
	if (slot->tts_isnull[column->attno - 1])
		return true;
	if (column->type == TIMESTAMPTZOID)
	{
		TimestampTz moment = DatumGetTimestampTz(value);
		int64		epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;

		if (TIMESTAMP_IS_NOEND(moment))
		{
			expiry->kind = REXP_EXPIRY_NEVER;
			return true;
		}
		expiry->kind = REXP_EXPIRY_AT;
		expiry->time = TIMESTAMP_IS_NOBEGIN(moment) ? 1 :
			Max(1, moment / 1000 + epoch * 1000);
		return true;
	}
	time = milliseconds(column, value);
	if (isinf(time) && time > 0)
	{
		expiry->kind = REXP_EXPIRY_NEVER;
		return true;
	}
	if (!(time >= 0) || time > REXP_EXPIRY_MOST_DAYS * 86400000.0)
	{
		rexp_error_set(error, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
					   "column \"%s\", the time until the key expires, is out of range",
					   column->name);
		rexp_error_detail(error, "It is 0 or more seconds, and up to %d days.",
						  REXP_EXPIRY_MOST_DAYS);
		return false;
	}
	expiry->kind = time == 0 ? REXP_EXPIRY_NEVER : REXP_EXPIRY_IN;
	expiry->time = (int64) ceil(time);
	return true;
}
