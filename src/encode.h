/*-------------------------------------------------------------------------
 *
 * encode.h
 *	  One row to one command: the door between the query and the pipeline.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ENCODE_H
#define REDIS_EXPORT_ENCODE_H

#include "access/tupdesc.h"
#include "error.h"
#include "executor/tuptable.h"
#include "nodes/pg_list.h"
#include "resp.h"

/* What each row shall become; the arguments of the SQL function. */
typedef struct RexpEncoding
{
	const char *key_template;
	const char *value;			/* column, "*", or NULL for the default */
	const char *path;			/* JSONPath */
	List	   *exclude;		/* of char *: names of columns */
} RexpEncoding;

typedef struct RexpEncoder RexpEncoder;

extern RexpEncoder *rexp_encoder_create(const RexpEncoding *encoding,
										TupleDesc desc);
extern bool rexp_encoder_encode(RexpEncoder *encoder, TupleTableSlot *slot,
								RexpBuffer *out, RexpError *error);
extern void rexp_encoder_key(const RexpEncoder *encoder, const char **bytes,
							 size_t *len);

#endif							/* REDIS_EXPORT_ENCODE_H */
