/*-------------------------------------------------------------------------
 *
 * search_index.h
 *	  How far an index of Redis' search is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SEARCH_INDEX_H
#define REDIS_EXPORT_SEARCH_INDEX_H

#include "compat.h"
#include "resp.h"

typedef struct RexpIndexInfo
{
	bool		complete;		/* it has taken all that Redis holds for it */
	int64		failures;		/* attempts that it refused since it was made */
	char		last_error[200];	/* empty: none */
	char		last_key[128];
} RexpIndexInfo;

extern void rexp_index_request(const char *name, RexpBuffer *request);
extern void rexp_index_read(const redisReply *reply, RexpIndexInfo *info);

#endif							/* REDIS_EXPORT_SEARCH_INDEX_H */
