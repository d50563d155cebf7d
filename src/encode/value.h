/*-------------------------------------------------------------------------
 *
 * value.h
 *	  The value of a column as bytes: in a key, as an argument or as a field.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_VALUE_H
#define REDIS_EXPORT_VALUE_H

#include "access/tupdesc.h"
#include "base/error.h"
#include "redis/resp.h"

/* How a type's values are written. */
typedef enum RexpValueKind
{
	REXP_VALUE_INT2,
	REXP_VALUE_INT4,
	REXP_VALUE_INT8,
	REXP_VALUE_BOOL,
	REXP_VALUE_TEXT,			/* the varlena's bytes are the text */
	REXP_VALUE_BYTEA,
	REXP_VALUE_NUMBER,			/* float or numeric */
	REXP_VALUE_TIME,			/* what JsonEncodeDateTime() knows */
	REXP_VALUE_JSON,
	REXP_VALUE_JSONB,
	REXP_VALUE_VECTOR,			/* of floats, if it may become a blob */
	REXP_VALUE_OTHER
} RexpValueKind;

/* Room for the digits of any integer. */
#define REXP_DIGITS_SIZE 32

extern RexpValueKind rexp_value_kind(Oid base_type);
extern int	rexp_value_integer(RexpValueKind kind, Datum value, char *dest);
extern void rexp_value_varlena(Datum value, const char **bytes, size_t *len);

/* The writer of one column, or of other values of one type. */
typedef struct RexpValue RexpValue;

/* What a vector of floats becomes. */
typedef enum RexpVectorForm
{
	REXP_VECTOR_AS_TEXT,
	REXP_VECTOR_AS_BLOB
} RexpVectorForm;

extern RexpValue *rexp_value_create(TupleDesc desc, int attno,
									RexpVectorForm form);
extern RexpValue *rexp_value_create_for_type(Oid type, const char *what,
											 RexpVectorForm form);
extern bool rexp_value_bytes(RexpValue *value, Datum datum, char *scratch,
							 const char **bytes, size_t *len, RexpError *error);

#endif							/* REDIS_EXPORT_VALUE_H */
