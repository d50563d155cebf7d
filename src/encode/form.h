/*-------------------------------------------------------------------------
 *
 * form.h
 *	  In what form the rows of an export go to Redis: its arguments, as they are shown.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_FORM_H
#define REDIS_EXPORT_FORM_H

#include "access/tupdesc.h"
#include "flow/block.h"
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

extern const char *rexp_encoding_value(const RexpEncoding *encoding, TupleDesc desc);
extern const char *rexp_encoding_type(const RexpEncoding *encoding);
extern const char *rexp_encoding_command(const RexpEncoding *encoding);
extern char *rexp_encoding_template(const RexpEncoding *encoding);

#endif							/* REDIS_EXPORT_FORM_H */
