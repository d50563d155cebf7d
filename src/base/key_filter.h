/*-------------------------------------------------------------------------
 *
 * key_filter.h
 *	  Has this key been seen before?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_KEY_FILTER_H
#define REDIS_EXPORT_KEY_FILTER_H

#include "postgres.h"

typedef enum RexpSeen
{
	REXP_SEEN_NEVER,			/* and is remembered from now on */
	REXP_SEEN_BEFORE,
	REXP_SEEN_UNKNOWN			/* not among those remembered; no more can be */
} RexpSeen;

typedef struct RexpKeyFilter RexpKeyFilter;

extern RexpKeyFilter *rexp_key_filter_create(int memory);
extern RexpSeen rexp_key_filter_look(RexpKeyFilter *filter, const char *key, size_t len);

#endif							/* REDIS_EXPORT_KEY_FILTER_H */
