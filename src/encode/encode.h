/*-------------------------------------------------------------------------
 *
 * encode.h
 *	  One row to its commands: the door between the query and the pipeline.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ENCODE_H
#define REDIS_EXPORT_ENCODE_H

#include "access/tupdesc.h"
#include "base/error.h"
#include "encode/document_column.h"
#include "executor/tuptable.h"
#include "flow/books.h"
#include "nodes/pg_list.h"

typedef enum RexpExportKind
{
	REXP_EXPORT_JSON,
	REXP_EXPORT_HASH,
	REXP_EXPORT_COMMAND
} RexpExportKind;

/* What each row shall become; the arguments of the SQL function. */
typedef struct RexpEncoding
{
	RexpExportKind kind;
	const char *key_template;	/* of documents and hashes */
	const char *value;			/* documents: column, "*", or NULL for the
								 * default */
	const char *path;			/* documents: template of a JSONPath */
	bool		merge;			/* documents: JSON.MERGE */
	bool		replace;		/* hashes: whole, whatever was there */
	List	   *exclude;		/* of char *: names of columns */
	List	   *words;			/* commands: of char *, templates */
	bool		skip_nulls;		/* commands: rows with a null are left out */
	RexpExpiry	expiry;			/* of each row, ... */
	const char *ttl_column;		/* ... or the column that tells it, or NULL */
} RexpEncoding;

typedef enum RexpEncoded
{
	REXP_ENCODED,
	REXP_ENCODE_SKIPPED,
	REXP_ENCODE_FAILED
} RexpEncoded;

/* What rows give to an index over their keys. */
typedef struct RexpGiven
{
	const char *key_begin;		/* with which each key begins; may be empty */
	List	   *names;			/* of char *: of fields or of members at the root;
								 * NIL: not known */
	bool		whole;			/* the key then has no others */
} RexpGiven;

/* What Redis calls the types of what exports write. */
#define REXP_TYPE_JSON "ReJSON-RL"
#define REXP_TYPE_HASH "hash"

typedef struct RexpEncoder RexpEncoder;

extern RexpEncoder *rexp_encoder_create(const RexpEncoding *encoding,
										TupleDesc desc);
extern void rexp_encoder_use_books(RexpEncoder *encoder, const RexpBooks *books,
								   RexpDocumentColumn *column);
extern const RexpGiven *rexp_encoder_gives(const RexpEncoder *encoder);
extern RexpEncoded rexp_encoder_encode(RexpEncoder *encoder, TupleTableSlot *slot,
									   RexpBuffer *out, RexpBlock *block,
									   RexpError *error);
extern const char *rexp_encoding_value(const RexpEncoding *encoding, TupleDesc desc);
extern const char *rexp_encoding_type(const RexpEncoding *encoding);
extern const char *rexp_encoding_command(const RexpEncoding *encoding);
extern char *rexp_encoding_template(const RexpEncoding *encoding);

#endif							/* REDIS_EXPORT_ENCODE_H */
