/*-------------------------------------------------------------------------
 *
 * server_options.h
 *	  Foreign servers and user mappings: where Redis is, and how to enter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SERVER_OPTIONS_H
#define REDIS_EXPORT_SERVER_OPTIONS_H

#include "redis/link.h"

extern void rexp_validate_options(List *options, Oid catalog);
extern Oid	rexp_find_server(const char *name, Oid user);
extern RexpLinkOptions *rexp_link_options(const char *name, Oid user,
										  Oid *mapping);

#endif							/* REDIS_EXPORT_SERVER_OPTIONS_H */
