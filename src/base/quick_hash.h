/*-------------------------------------------------------------------------
 *
 * quick_hash.h
 *	  A hash of 64 bits, fast for values of some kilobytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_QUICK_HASH_H
#define REDIS_EXPORT_QUICK_HASH_H

#include "postgres.h"

extern uint64 rexp_quick_hash(const char *bytes, size_t len, uint64 seed);

#endif							/* REDIS_EXPORT_QUICK_HASH_H */
