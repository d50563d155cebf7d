/*-------------------------------------------------------------------------
 *
 * value.c
 *	  The value of a column as bytes.
 *
 * A text is what the type's output function says, in UTF-8 and under fixed
 * settings: ISO dates, UTC, shortest exact floats, hexadecimal bytea.  So the
 * same row gives the same bytes whoever exports it.
 *
 * What is wrong with one row comes back as a RexpError, from calls that cannot
 * raise errors; whatever does raise one (an output function, memory) ends the
 * job.  Memory is taken from the current context, which the caller resets
 * after each row.  Nothing here knows Redis, JSON or commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "value.h"
#include "vector.h"

struct RexpValue
{
	RexpValueKind kind;
	char	   *what;			/* it is, for errors: column "x" */
	FmgrInfo	output;
	RexpVector	vector;			/* if it is one */
	RexpConverter converter;
};

/* The output settings as they are. */
void
rexp_output_settings_get(RexpOutputSettings *saved)
{
	saved->date_style = DateStyle;
	saved->date_order = DateOrder;
	saved->interval_style = IntervalStyle;
	saved->float_digits = extra_float_digits;
	saved->bytea_format = bytea_output;
	saved->timezone = session_timezone;
	saved->quote_identifiers = quote_all_identifiers;
}

/*
 * rexp_output_settings_enter
 *	  Put our fixed output settings in place of the session's.
 *
 * The query itself runs under its caller's settings, so the switch is made
 * around the writing of each row: seven assignments, where set_config_option()
 * would cost more than the row.  The variables are put back before anything
 * else runs.
 *
 * It is for the fence only (fence.c), which puts them back after an error; so
 * rows need no PG_TRY.  Elsewhere, call rexp_under_output_settings().
 */
void
rexp_output_settings_enter(RexpOutputSettings *saved)
{
	static pg_tz *utc = NULL;

	if (utc == NULL)
		utc = pg_tzset("UTC");
	rexp_output_settings_get(saved);

	DateStyle = USE_ISO_DATES;
	DateOrder = DATEORDER_YMD;
	IntervalStyle = INTSTYLE_POSTGRES;
	extra_float_digits = 1;
	bytea_output = BYTEA_OUTPUT_HEX;
	quote_all_identifiers = false;
	if (utc != NULL)
		session_timezone = utc;
}

void
rexp_output_settings_leave(const RexpOutputSettings *saved)
{
	DateStyle = saved->date_style;
	DateOrder = saved->date_order;
	IntervalStyle = saved->interval_style;
	extra_float_digits = saved->float_digits;
	bytea_output = saved->bytea_format;
	session_timezone = saved->timezone;
	quote_all_identifiers = saved->quote_identifiers;
}

/*
 * rexp_under_output_settings
 *	  Do some work under our fixed output settings, whose errors leave the session's
 *	  as they were.
 */
void
rexp_under_output_settings(void (*work) (void *arg), void *arg)
{
	RexpOutputSettings saved;

	rexp_output_settings_enter(&saved);
	PG_TRY();
	{
		work(arg);
	}
	PG_FINALLY();
	{
		rexp_output_settings_leave(&saved);
	}
	PG_END_TRY();
}

void
rexp_converter_init(RexpConverter *converter)
{
	converter->encoding = GetDatabaseEncoding();
	converter->proc = InvalidOid;
	if (converter->encoding != PG_UTF8 && converter->encoding != PG_SQL_ASCII)
	{
		converter->proc = FindDefaultConversionProc(converter->encoding, PG_UTF8);
		if (!OidIsValid(converter->proc))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("there is no conversion from encoding \"%s\" to \"%s\"",
							pg_encoding_to_char(converter->encoding), "UTF8")));
	}
}

/*
 * rexp_literal_utf8
 *	  Text of the caller's, in the database's encoding, as UTF-8: palloc'd, and with
 *	  a zero behind it.  In an SQL_ASCII database it is what it is.  Raises an error
 *	  if it cannot be converted.
 */
char *
rexp_literal_utf8(const char *text, size_t len)
{
	char	   *copy = pnstrdup(text, len);

	return GetDatabaseEncoding() == PG_SQL_ASCII ? copy :
		pg_server_to_any(copy, (int) len, PG_UTF8);
}

/*
 * rexp_to_utf8
 *	  Bytes in the database's encoding as UTF-8, palloc'd if they differ.
 *
 * Bytes of an SQL_ASCII database are what they are: checked if "strict", as
 * JSON must be UTF-8, and passed on as they are otherwise.
 */
bool
rexp_to_utf8(const RexpConverter *converter, bool strict, const char **bytes,
			 size_t *len, const char *what, RexpError *error)
{
	bool		good;

	if (converter->encoding == PG_UTF8)
		return true;
	if (converter->encoding == PG_SQL_ASCII)
		good = !strict || pg_verify_mbstr(PG_UTF8, *bytes, (int) *len, true);
	else
	{
		size_t		room = *len * MAX_CONVERSION_GROWTH + 1;
		unsigned char *dest;
		int			done;

		if (room > PG_INT32_MAX)
		{
			rexp_error_set(error, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						   "the value is too long to be converted to UTF-8");
			return false;
		}
		dest = MemoryContextAllocHuge(CurrentMemoryContext, room);
		done = pg_do_encoding_conversion_buf(converter->proc,
											 converter->encoding, PG_UTF8,
											 (unsigned char *) unconstify(char *, *bytes),
											 (int) *len, dest, (int) room, true);
		good = done == (int) *len;
		*bytes = (const char *) dest;
		*len = strlen((const char *) dest);
	}
	if (!good)
		rexp_error_set(error, ERRCODE_UNTRANSLATABLE_CHARACTER,
					   "%s holds bytes that cannot be converted to UTF-8", what);
	return good;
}

RexpValueKind
rexp_value_kind(Oid base_type)
{
	switch (base_type)
	{
		case INT2OID:
			return REXP_VALUE_INT2;
		case INT4OID:
			return REXP_VALUE_INT4;
		case INT8OID:
			return REXP_VALUE_INT8;
		case BOOLOID:
			return REXP_VALUE_BOOL;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return REXP_VALUE_TEXT;
		case BYTEAOID:
			return REXP_VALUE_BYTEA;
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return REXP_VALUE_NUMBER;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return REXP_VALUE_TIME;
		case JSONOID:
			return REXP_VALUE_JSON;
		case JSONBOID:
			return REXP_VALUE_JSONB;
		default:
			return REXP_VALUE_OTHER;
	}
}

/* Decimal digits of an integer; room for REXP_DIGITS_SIZE bytes. */
int
rexp_value_integer(RexpValueKind kind, Datum value, char *dest)
{
	int64		number;

	if (kind == REXP_VALUE_INT8)
		number = DatumGetInt64(value);
	else if (kind == REXP_VALUE_INT4)
		number = DatumGetInt32(value);
	else
		number = DatumGetInt16(value);
	return pg_lltoa(number, dest);
}

/* Bytes of a varlena, detoasted in the current context. */
void
rexp_value_varlena(Datum value, const char **bytes, size_t *len)
{
	struct varlena *data = PG_DETOAST_DATUM_PACKED(value);

	*bytes = VARDATA_ANY(data);
	*len = VARSIZE_ANY_EXHDR(data);
}

/*
 * rexp_value_create_for_type
 *	  Prepare to write values of a type, in the current context.
 *
 * what is it that has the value, for errors: 'column "x"'.
 */
RexpValue *
rexp_value_create_for_type(Oid type, const char *what, RexpVectorForm form)
{
	RexpValue  *value = palloc0(sizeof(RexpValue));
	Oid			base_type = getBaseType(type);
	Oid			function;
	bool		is_varlena;

	value->kind = rexp_value_kind(base_type);
	value->what = pstrdup(what);
	if (form == REXP_VECTOR_AS_BLOB && rexp_vector_init(&value->vector, base_type))
		value->kind = REXP_VALUE_VECTOR;
	getTypeOutputInfo(type, &function, &is_varlena);
	fmgr_info(function, &value->output);
	rexp_converter_init(&value->converter);
	return value;
}

/* The same for a column of a query's result. */
RexpValue *
rexp_value_create(TupleDesc desc, int attno, RexpVectorForm form)
{
	Form_pg_attribute attribute = TupleDescAttr(desc, attno - 1);

	return rexp_value_create_for_type(attribute->atttypid,
									  psprintf("column \"%s\"", NameStr(attribute->attname)),
									  form);
}

/*
 * rexp_value_bytes
 *	  A value that is not null as bytes: bytea as it is, vectors as blobs if so
 *	  asked for, all else as its type writes it, in UTF-8.
 *
 * They lie in the value itself, in scratch (REXP_DIGITS_SIZE bytes), or are
 * palloc'd.  Returns false and why if there are none.  Call it between
 * rexp_output_settings_enter() and _leave().
 */
bool
rexp_value_bytes(RexpValue *value, Datum datum, char *scratch,
				 const char **bytes, size_t *len, RexpError *error)
{
	switch (value->kind)
	{
		case REXP_VALUE_INT2:
		case REXP_VALUE_INT4:
		case REXP_VALUE_INT8:
			*len = rexp_value_integer(value->kind, datum, scratch);
			*bytes = scratch;
			return true;
		case REXP_VALUE_BYTEA:
			rexp_value_varlena(datum, bytes, len);
			return true;
		case REXP_VALUE_VECTOR:
			return rexp_vector_blob(&value->vector, datum, value->what, bytes,
									len, error);
		case REXP_VALUE_TEXT:
		case REXP_VALUE_JSON:
			rexp_value_varlena(datum, bytes, len);
			break;
		default:
			*bytes = OutputFunctionCall(&value->output, datum);
			*len = strlen(*bytes);
			break;
	}
	return rexp_to_utf8(&value->converter, false, bytes, len, value->what, error);
}
