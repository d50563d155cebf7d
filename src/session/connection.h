/*-------------------------------------------------------------------------
 *
 * connection.h
 *	  The connections to Redis that a session has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_CONNECTION_H
#define REDIS_EXPORT_CONNECTION_H

#include "base/compat.h"
#include "redis/resp.h"

extern redisReply *rexp_send_command(const char *server, Oid user,
									 const RexpBuffer *request);
extern bool rexp_server_is_cluster(const char *server, Oid user);

#endif							/* REDIS_EXPORT_CONNECTION_H */
