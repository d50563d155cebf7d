/*-------------------------------------------------------------------------
 *
 * own_keys.h
 *	  Keys of Redis in which we keep books, and which are none of an export's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_OWN_KEYS_H
#define REDIS_EXPORT_OWN_KEYS_H

/* Books (books.c), records (record.c) and leases (lease.c). */
#define REXP_OWN_PREFIX "redis_export:"

/* The set of the names of exports that have books there. */
#define REXP_REGISTRY REXP_OWN_PREFIX "exports"

static inline bool
rexp_is_own_key(const char *key, size_t len)
{
	return len >= sizeof(REXP_OWN_PREFIX) - 1 &&
		memcmp(key, REXP_OWN_PREFIX, sizeof(REXP_OWN_PREFIX) - 1) == 0;
}

#endif							/* REDIS_EXPORT_OWN_KEYS_H */
