/*-------------------------------------------------------------------------
 *
 * vector.c
 *	  Vectors of floats as blobs: little-endian numbers, one after the other
 *	  (Redis manual, "Vectors", on FLOAT16, FLOAT32 and FLOAT64).
 *
 * real[] and pgvector's vector become FLOAT32, float8[] FLOAT64, halfvec
 * FLOAT16.  Of pgvector's types only the binary form that their send functions
 * write is known: dimensions and flags as two 16-bit integers, then the
 * elements, all big-endian.
 *
 * Nothing here knows rows or commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/compat.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "encode/vector.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* Before the elements of pgvector's binary form. */
#define SEND_HEADER 4

/* Is it a type of this name that the extension "vector" owns? */
static bool
is_pgvector_type(Oid type, const char *name)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	bool		same;
	Oid			extension;
	char	   *extension_name;

	if (!HeapTupleIsValid(tuple))
		return false;
	same = strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), name) == 0;
	ReleaseSysCache(tuple);
	if (!same)
		return false;
	extension = getExtensionOfObject(TypeRelationId, type);
	extension_name = OidIsValid(extension) ? get_extension_name(extension) : NULL;
	return extension_name != NULL && strcmp(extension_name, "vector") == 0;
}

/* What kind of vector is a type that is no domain?  Raises no error. */
RexpVectorKind
rexp_vector_kind(Oid base_type)
{
	if (base_type == FLOAT4ARRAYOID)
		return REXP_VECTOR_FLOAT4_ARRAY;
	if (base_type == FLOAT8ARRAYOID)
		return REXP_VECTOR_FLOAT8_ARRAY;
	if (is_pgvector_type(base_type, "vector"))
		return REXP_VECTOR_VECTOR;
	if (is_pgvector_type(base_type, "halfvec"))
		return REXP_VECTOR_HALFVEC;
	return REXP_VECTOR_NONE;
}

/* Prepare for a type, in the current memory context.  False if it is none. */
bool
rexp_vector_init(RexpVector *vector, Oid base_type)
{
	vector->kind = rexp_vector_kind(base_type);
	if (vector->kind == REXP_VECTOR_VECTOR || vector->kind == REXP_VECTOR_HALFVEC)
	{
		Oid			function;
		bool		is_varlena;

		getTypeBinaryOutputInfo(base_type, &function, &is_varlena);
		fmgr_info(function, &vector->send);
	}
	return vector->kind != REXP_VECTOR_NONE;
}

/* Numbers of this width as they lie in memory, made little-endian in place. */
static void
make_little_endian(char *bytes, size_t len, int width)
{
#ifdef WORDS_BIGENDIAN
	for (size_t at = 0; at < len; at += width)
	{
		for (int i = 0; i < width / 2; i++)
		{
			char		swap = bytes[at + i];

			bytes[at + i] = bytes[at + width - 1 - i];
			bytes[at + width - 1 - i] = swap;
		}
	}
#endif
}

/* The elements of an array, which is the row's own fault if it is no vector. */
static bool
array_blob(Datum datum, int width, const char *what, const char **bytes,
		   size_t *len, RexpError *error)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	char	   *copy;

	if (ARR_NDIM(array) != 1)
	{
		rexp_error_set(error, ERRCODE_ARRAY_SUBSCRIPT_ERROR,
					   ARR_NDIM(array) == 0 ? "%s is an empty array, which is no vector" :
					   "%s is an array of more than one dimension, which is no vector",
					   what);
		return false;
	}
	if (array_contains_nulls(array))
	{
		rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
					   "%s is a vector that contains a null", what);
		return false;
	}
	*len = (size_t) ARR_DIMS(array)[0] * width;
	copy = palloc(*len);
	memcpy(copy, (char *) array + (ARR_HASNULL(array) ? (size_t) array->dataoffset :
								   ARR_OVERHEAD_NONULLS(1)), *len);
	make_little_endian(copy, *len, width);
	*bytes = copy;
	return true;
}

/* The elements of pgvector's binary form, turned round. */
static void
turned_blob(bytea *sent, int width, const char **bytes, size_t *len)
{
	char	   *from = VARDATA_ANY(sent);
	char	   *copy;

	*len = VARSIZE_ANY_EXHDR(sent) - SEND_HEADER;
	copy = palloc(*len);
	for (size_t at = 0; at + width <= *len; at += width)
	{
		for (int i = 0; i < width; i++)
			copy[at + i] = from[SEND_HEADER + at + width - 1 - i];
	}
	*bytes = copy;
}

/*
 * rexp_vector_blob
 *	  The blob of a vector that is not null, palloc'd.
 *
 * Returns false and what is wrong with it: a null, or not one dimension.  what
 * is it that has the value, for the error.
 */
bool
rexp_vector_blob(RexpVector *vector, Datum datum, const char *what,
				 const char **bytes, size_t *len, RexpError *error)
{
	switch (vector->kind)
	{
		case REXP_VECTOR_FLOAT4_ARRAY:
			return array_blob(datum, sizeof(float4), what, bytes, len, error);
		case REXP_VECTOR_FLOAT8_ARRAY:
			return array_blob(datum, sizeof(float8), what, bytes, len, error);
		case REXP_VECTOR_VECTOR:
			turned_blob(SendFunctionCall(&vector->send, datum), sizeof(float4),
						bytes, len);
			return true;
		case REXP_VECTOR_HALFVEC:
			turned_blob(SendFunctionCall(&vector->send, datum), sizeof(uint16),
						bytes, len);
			return true;
		case REXP_VECTOR_NONE:
			break;
	}
	Assert(false);
	return false;
}
