/*-------------------------------------------------------------------------
 *
 * connect.h
 *	  Connecting to Redis, wherever it is: at the host of the options, or where
 *	  sentinels say that the master is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_CONNECT_H
#define REDIS_EXPORT_CONNECT_H

#include "redis/link.h"

extern bool rexp_sentinel_hosts_are_valid(const char *hosts);
extern RexpAnswer rexp_connect(RexpLink *link, RexpError *error);

#endif							/* REDIS_EXPORT_CONNECT_H */
