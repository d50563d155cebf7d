/*-------------------------------------------------------------------------
 *
 * search_index.h
 *	  How far an index of Redis' search is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SEARCH_INDEX_H
#define REDIS_EXPORT_SEARCH_INDEX_H

#include "link.h"

typedef struct RexpIndexInfo
{
	bool		complete;		/* it has taken all that Redis holds for it */
	int64		failures;		/* attempts that it refused since it was made */
	char		last_error[200];	/* empty: none */
	char		last_key[128];
} RexpIndexInfo;

extern RexpAnswer rexp_index_look(RexpLink *link, const char *name,
								  RexpIndexInfo *info, RexpError *error);

#endif							/* REDIS_EXPORT_SEARCH_INDEX_H */
