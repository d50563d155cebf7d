/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  The keys that Redis holds, and their values, as rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SCAN_H
#define REDIS_EXPORT_SCAN_H

#include "base/compat.h"
#include "fmgr.h"
#include "redis/nodes.h"

typedef enum RexpScanKind
{
	REXP_SCAN_KEYS,
	REXP_SCAN_JSON,				/* keys and documents */
	REXP_SCAN_HASH				/* keys and fields */
} RexpScanKind;

typedef struct RexpScanOptions
{
	RexpScanKind kind;
	const char *server;
	RexpNodes  *nodes;			/* of it, if it is connected already, or NULL */
	const char *pattern;		/* as in SCAN MATCH, in UTF-8 */
	const char *type;			/* as in SCAN TYPE, or NULL */
	const char *path;			/* of documents, in UTF-8 */
	int			memory;			/* for the keys, kB */
	bool		any_order;		/* with REXP_SCAN_KEYS: as they come */
	bool		skip_invalid;	/* leave out what is no text */
} RexpScanOptions;

typedef struct RexpScan RexpScan;

extern RexpScan *rexp_scan_begin(const RexpScanOptions *options);
extern const bytea *rexp_scan_next(RexpScan *scan, const redisReply **value);
extern void rexp_scan_end(RexpScan *scan);
extern Datum rexp_scan(FunctionCallInfo fcinfo, const RexpScanOptions *options);

#endif							/* REDIS_EXPORT_SCAN_H */
