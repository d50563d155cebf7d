/*-------------------------------------------------------------------------
 *
 * vector.h
 *	  Vectors of floats as the blobs that vector fields of Redis hold.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_VECTOR_H
#define REDIS_EXPORT_VECTOR_H

#include "postgres.h"

#include "base/error.h"
#include "fmgr.h"

typedef enum RexpVectorKind
{
	REXP_VECTOR_NONE,
	REXP_VECTOR_FLOAT4_ARRAY,
	REXP_VECTOR_FLOAT8_ARRAY,
	REXP_VECTOR_VECTOR,			/* pgvector's */
	REXP_VECTOR_HALFVEC			/* pgvector's */
} RexpVectorKind;

typedef struct RexpVector
{
	RexpVectorKind kind;
	FmgrInfo	send;			/* of pgvector's types */
} RexpVector;

extern RexpVectorKind rexp_vector_kind(Oid base_type);
extern bool rexp_vector_init(RexpVector *vector, Oid base_type);
extern bool rexp_vector_blob(RexpVector *vector, Datum datum, const char *what,
							 const char **bytes, size_t *len, RexpError *error);

#endif							/* REDIS_EXPORT_VECTOR_H */
