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

#include "base/compat.h"
#include "base/encoding.h"
#include "catalog/pg_type.h"
#include "encode/value.h"
#include "encode/vector.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

struct RexpValue
{
	RexpValueKind kind;
	char	   *what;			/* it is, for errors: column "x" */
	FmgrInfo	output;
	RexpVector	vector;			/* if it is one */
	RexpConverter converter;
};

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
