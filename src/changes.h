/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Does Redis hold a row already?  Digests that are kept beside the keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_CHANGES_H
#define REDIS_EXPORT_CHANGES_H

#include "resp.h"

/* What is kept of a row, and where. */
typedef struct RexpPrint
{
	uint64		field;			/* of the hash with the digests: stands for the key */
	uint64		digest;			/* of the row's commands */
	uint16		slot;			/* of the key, which names the hash */
} RexpPrint;

typedef struct RexpChanges RexpChanges;

/* The error when they cannot be had. */
#define REXP_CHANGES_FAILING "could not look at the digests of changed_only"
#define REXP_CHANGES_HINT \
	"They are in keys that begin with \"redis_export:\", which must be allowed (ACL: ~redis_export:*), and nobody else's."

extern RexpChanges *rexp_changes_create(void);
extern char *rexp_changes_seed_key(const char *pattern);
extern void rexp_changes_set_seed(RexpChanges *changes, uint64 seed);
extern void rexp_changes_reserve(RexpBuffer *out);
extern void rexp_changes_take(const RexpChanges *changes, RexpBuffer *out, size_t start,
							  int *commands, size_t *key_start, size_t key_len,
							  RexpPrint *print);
extern void rexp_changes_check(const RexpChanges *changes, const RexpPrint *print,
							   const char *key, size_t key_len, RexpBuffer *out);
extern void rexp_changes_note(const RexpChanges *changes, const RexpPrint *print,
							  RexpBuffer *out);
extern bool rexp_changes_same(const RexpPrint *print, const char *found, size_t len);

#endif							/* REDIS_EXPORT_CHANGES_H */
