/*-------------------------------------------------------------------------
 *
 * digest.h
 *	  Values of Redis in few bytes each, to be compared.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_DIGEST_H
#define REDIS_EXPORT_DIGEST_H

#include "postgres.h"

typedef struct RexpDigest
{
	uint64		halves[2];
} RexpDigest;

extern bytea *rexp_digest_json(const char *json, size_t len);
extern bool rexp_digest_json_equal(const bytea *a, const bytea *b);
extern RexpDigest rexp_digest_bytes(const char *bytes, size_t len);
extern void rexp_digest_add(RexpDigest *sum, const RexpDigest *digest);

static inline bool
rexp_digest_equal(const RexpDigest *a, const RexpDigest *b)
{
	return a->halves[0] == b->halves[0] && a->halves[1] == b->halves[1];
}

#endif							/* REDIS_EXPORT_DIGEST_H */
