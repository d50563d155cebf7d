/*-------------------------------------------------------------------------
 *
 * command.h
 *	  One command to Redis in the calling session, and its answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_COMMAND_H
#define REDIS_EXPORT_COMMAND_H

#include "fmgr.h"

extern Datum rexp_command(const char *server, int nwords, const Datum *words,
						  const Oid *types, const bool *nulls);

#endif							/* REDIS_EXPORT_COMMAND_H */
