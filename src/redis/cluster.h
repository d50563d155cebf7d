/*-------------------------------------------------------------------------
 *
 * cluster.h
 *	  Which node of a Redis Cluster has which keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_CLUSTER_H
#define REDIS_EXPORT_CLUSTER_H

#include "redis/link.h"

#define REXP_SLOTS 16384

/* More nodes than this a cluster does not have (Redis recommends up to 1000). */
#define REXP_NODES_MOST 1024

typedef struct RexpNode
{
	RexpAddress address;
	int			slots;			/* that it owns */
} RexpNode;

/* Nodes are added and never taken away: their numbers stay what they are. */
typedef struct RexpCluster
{
	MemoryContext context;
	int			nnodes;
	int			capacity;
	RexpNode   *nodes;
	int16		owner[REXP_SLOTS];	/* number of the node, or -1 */
} RexpCluster;

extern RexpCluster *rexp_cluster_create(void);
extern int	rexp_key_slot(const char *key, size_t len);
extern int	rexp_cluster_node(RexpCluster *cluster, const RexpAddress *address);
extern RexpAnswer rexp_cluster_refresh(RexpCluster *cluster, RexpLink *link,
									   int timeout, RexpError *error);
extern bool rexp_cluster_redirection(const char *text, const RexpAddress *asked,
									 int *slot, RexpAddress *to);

#endif							/* REDIS_EXPORT_CLUSTER_H */
