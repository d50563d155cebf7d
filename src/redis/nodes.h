/*-------------------------------------------------------------------------
 *
 * nodes.h
 *	  All of Redis, to be read: a connection to each master.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_NODES_H
#define REDIS_EXPORT_NODES_H

#include "base/compat.h"
#include "redis/link.h"

typedef struct RexpNodes RexpNodes;

extern RexpNodes *rexp_nodes_open(const RexpLinkOptions *options, const char *failing);
extern void rexp_nodes_close(RexpNodes *nodes);
extern int	rexp_nodes_next(const RexpNodes *nodes, int node);
extern bool rexp_nodes_are_cluster(const RexpNodes *nodes);
extern int	rexp_nodes_of_slot(const RexpNodes *nodes, int slot);
extern int	rexp_nodes_of_key(const RexpNodes *nodes, const char *key, size_t len);
extern RexpBuffer *rexp_nodes_request(RexpNodes *nodes, int node);
extern void rexp_nodes_push(RexpNodes *nodes);
extern redisReply *rexp_nodes_receive(RexpNodes *nodes, int node);
extern redisReply *rexp_nodes_receive_page(RexpNodes *nodes, int node, const char *command);
extern void rexp_nodes_check_whole(RexpNodes *nodes);
extern void rexp_nodes_fail(const RexpNodes *nodes, RexpError *error);
extern void rexp_nodes_fail_reply(const RexpNodes *nodes, redisReply *reply,
								  const char *command);

#endif							/* REDIS_EXPORT_NODES_H */
