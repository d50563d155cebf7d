/*-------------------------------------------------------------------------
 *
 * ttl.h
 *	  When a row's key expires, as an argument or a column says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_TTL_H
#define REDIS_EXPORT_TTL_H

#include "base/error.h"
#include "executor/tuptable.h"
#include "flow/block.h"
#include "utils/timestamp.h"

/* The longest time from now, in days. */
#define REXP_EXPIRY_MOST_DAYS 36500

typedef struct RexpExpiryColumn RexpExpiryColumn;

extern double rexp_interval_milliseconds(const Interval *interval);
extern RexpExpiryColumn *rexp_expiry_column_create(const char *name,
												   TupleDesc desc);
extern bool rexp_expiry_of_row(RexpExpiryColumn *column, TupleTableSlot *slot,
							   RexpExpiry *expiry, RexpError *error);

#endif							/* REDIS_EXPORT_TTL_H */
