/*-------------------------------------------------------------------------
 *
 * key_set.h
 *	  Any number of keys, each once, in order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_KEY_SET_H
#define REDIS_EXPORT_KEY_SET_H

#include "postgres.h"

typedef struct RexpKeySet RexpKeySet;

extern RexpKeySet *rexp_key_set_create(int memory);
extern void rexp_key_set_add(RexpKeySet *set, const char *key, size_t len);
extern void rexp_key_set_sort(RexpKeySet *set);
extern const bytea *rexp_key_set_next(RexpKeySet *set);
extern bool rexp_key_set_has(RexpKeySet *set, const bytea *key);
extern int64 rexp_key_set_count(RexpKeySet *set);
extern void rexp_key_set_end(RexpKeySet *set);
extern int	rexp_key_compare(const bytea *a, const bytea *b);

#endif							/* REDIS_EXPORT_KEY_SET_H */
