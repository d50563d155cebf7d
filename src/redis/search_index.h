/*-------------------------------------------------------------------------
 *
 * search_index.h
 *	  How far an index of Redis' search is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SEARCH_INDEX_H
#define REDIS_EXPORT_SEARCH_INDEX_H

#include "base/compat.h"
#include "nodes/pg_list.h"
#include "redis/resp.h"

typedef struct RexpIndexInfo
{
	bool		complete;		/* it has taken all that Redis holds for it */
	bool		indexing;		/* it is filled in the background ... */
	double		share;			/* ... and is so far, from 0 to 1 */
	int64		documents;		/* that it holds */
	int64		failures;		/* attempts that it refused since it was made */
	char		last_error[200];	/* empty: none */
	char		last_key[128];
} RexpIndexInfo;

/* What an index is over, as far as it tells; palloc'd. */
typedef struct RexpIndexSchema
{
	char	   *key_type;		/* "HASH", "JSON", or NULL */
	List	   *prefixes;		/* of char *; NIL: not told */
	List	   *fields;			/* of char *: names of fields, or paths */
} RexpIndexSchema;

extern void rexp_index_request(const char *name, RexpBuffer *request);
extern void rexp_index_read_schema(const redisReply *reply, RexpIndexSchema *schema);
extern bool rexp_index_has_moved(const RexpIndexInfo *before,
								 const RexpIndexInfo *after);
extern void rexp_index_read(const redisReply *reply, RexpIndexInfo *info);

#endif							/* REDIS_EXPORT_SEARCH_INDEX_H */
