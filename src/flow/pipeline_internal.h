/*-------------------------------------------------------------------------
 *
 * pipeline_internal.h
 *	  What the parts of the pipeline share, and nobody else: pipeline.c (rows),
 *	  routing.c (to which node each goes) and ask.c (what is asked besides rows).
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PIPELINE_INTERNAL_H
#define REDIS_EXPORT_PIPELINE_INTERNAL_H

#include "flow/lane.h"
#include "redis/cluster.h"
#include "redis/search_index.h"
#include "redis/waiter.h"

struct RexpPipeline
{
	MemoryContext context;
	RexpLinkOptions link_options;
	RexpLinkOptions reachable;	/* see rexp_pipeline_link_options() */
	RexpTraffic traffic;
	RexpLane   *single;			/* without a cluster: the one lane */

	/* in a cluster: */
	RexpCluster *cluster;		/* NULL: there is none */
	int			nlanes;
	RexpLane  **lanes;			/* by number of the node, NULL: not made */
	RexpLane   *homeless;		/* rows whose slots no node has */
	RexpLane  **home;			/* by slot: the lane that holds its rows */
	RexpLink   *control;		/* that asks for the map when no lane can */
	unsigned int turn;			/* which lane is the first in the next step */
	RexpWaiter *waiter;
	RexpBuffer	scratch;		/* the row at hand, until its key is known */
	TimestampTz nodes_shown;

	RexpBuffer	aside;			/* a row that has to wait for others */
	size_t		unlooked;		/* bytes gathered since the last look */
	bool		ending;			/* no more rows, whether it has failed or not */
	bool		closed;
	TimestampTz attended_at;	/* the end of the last step */

	RexpLeaseCheck lease_check; /* after the lease was renewed */
	void	   *lease_arg;
	RexpLane   *held;			/* to renew it: nothing is to be on its way there */
	uint64		lease_connection;	/* over which Redis last said that it is ours */
	bool		unless_lost;	/* ask nothing more once rows may be lost */
	const char *index;			/* that is waited for, in UTF-8, or NULL */
	int64		index_base;		/* its failures at the last look */
	RexpIndexSchema schema;		/* at the first look */
	RexpError	misfit;			/* it cannot take what is written; sqlstate 0: it can */
};

/* pipeline.c */
extern RexpLane *rexp_pipeline_next_lane(RexpPipeline *p, int *at);
extern bool rexp_pipeline_has_failed(const RexpPipeline *p);
extern bool rexp_pipeline_step(RexpPipeline *p, bool may_wait);
extern bool rexp_pipeline_wind_up(RexpPipeline *p);
extern void rexp_pipeline_show_nodes(RexpPipeline *p, bool at_once);

/* ask.c */
extern void rexp_pipeline_tend_lease(RexpPipeline *p);
extern void rexp_pipeline_give_lease_back(RexpPipeline *p);

/* routing.c */
extern RexpLane *rexp_pipeline_lane_of(RexpPipeline *p, int node);
extern RexpLane *rexp_pipeline_route(RexpPipeline *p, int slot);
extern bool rexp_pipeline_refresh_map(RexpPipeline *p, RexpLane *first, RexpError *error);
extern void rexp_pipeline_reroute(RexpPipeline *p, RexpLane *lane);
extern bool rexp_pipeline_enter_cluster(RexpPipeline *p);

#endif							/* REDIS_EXPORT_PIPELINE_INTERNAL_H */
