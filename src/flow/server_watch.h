/*-------------------------------------------------------------------------
 *
 * server_watch.h
 *	  Is it the same Redis, with the same data, as before?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SERVER_WATCH_H
#define REDIS_EXPORT_SERVER_WATCH_H

#include "nodes/pg_list.h"
#include "redis/link.h"
#include "status/progress.h"

/* What is known of the server at one place.  Zeros at the start. */
typedef struct RexpServerWatch
{
	bool		known;			/* there was a connection once */
	char		run_id[48];
	char		history[48];	/* of its data, while it is a master */
	int64		evicted_base;	/* its count of evicted keys at the last look */
} RexpServerWatch;

extern bool rexp_server_watch_note(RexpServerWatch *watch, const RexpLink *link,
								   RexpCounters *counters, List **histories,
								   TimestampTz last_byte, bool held_by_replicas);

#endif							/* REDIS_EXPORT_SERVER_WATCH_H */
