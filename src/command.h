/*-------------------------------------------------------------------------
 *
 * command.h
 *	  One command to Redis in the calling session, and its answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_COMMAND_H
#define REDIS_EXPORT_COMMAND_H

#include "compat.h"
#include "fmgr.h"
#include "resp.h"

extern redisReply *rexp_send_command(const char *server, Oid user,
									 const RexpBuffer *request);
extern bool rexp_server_is_cluster(const char *server, Oid user);
extern Datum rexp_command(const char *server, int nwords, const Datum *words,
						  const Oid *types, const bool *nulls);

#endif							/* REDIS_EXPORT_COMMAND_H */
