/*-------------------------------------------------------------------------
 *
 * routing.c
 *	  To which node of a cluster a row goes.
 *
 * There is a lane (lane.c) for each master that has slots (cluster.c), and one more,
 * without a connection, for rows whose slot no node has at the time.
 *
 * All rows of a slot that are not settled are in one lane, so that they stay in
 * order, whatever the map says meanwhile: a row joins the lane that holds others of
 * its slot.  When a lane finds that its rows may belong elsewhere (a slot has moved,
 * or its node is gone), and nothing of it is with Redis any more, the map is asked
 * for, and its rows are handed over.
 *
 * A part of the pipeline; nothing here knows what the commands are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/pipeline_internal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* What all windows of a cluster hold together, and one at least. */
#define CLUSTER_WINDOW_BYTES ((size_t) 40 * 1024 * 1024)
#define LEAST_WINDOW_BYTES ((size_t) 1024 * 1024)

/*
 * How long a node of a cluster may take to let us in (ms): the others stand still
 * meanwhile.  It is tried again and again.
 */
#define NODE_TIMEOUT 1000

/* How long a node may take to tell the map of its cluster (ms). */
#define MAP_TIMEOUT 2000

/* The lane of a node, which may have to be made; of -1, that of no node. */
RexpLane *
rexp_pipeline_lane_of(RexpPipeline *p, int node)
{
	MemoryContext old;
	RexpLinkOptions options;

	if (node < 0)
		return p->homeless;
	if (node < p->nlanes && p->lanes[node] != NULL)
		return p->lanes[node];

	old = MemoryContextSwitchTo(p->context);
	if (node >= p->nlanes)
	{
		int			more = node + 8;

		p->lanes = p->lanes == NULL ? palloc0(sizeof(RexpLane *) * more) :
			repalloc(p->lanes, sizeof(RexpLane *) * more);
		for (int i = p->nlanes; i < more; i++)
			p->lanes[i] = NULL;
		p->nlanes = more;
	}
	options = p->link_options;
	options.connect_timeout = Min(options.connect_timeout, NODE_TIMEOUT);
	options.lead_to = &p->cluster->nodes[node].address;
	p->lanes[node] = rexp_lane_create(&p->traffic, rexp_link_create(&options, false));
	p->lanes[node]->window.pending = p->homeless->window.pending;
	p->lanes[node]->window.bytes_most = p->homeless->window.bytes_most;
	MemoryContextSwitchTo(old);
	return p->lanes[node];
}

/*
 * The lane for a row of this slot, which it joins.  A row without a key may go
 * anywhere; it goes where slot 0 is.
 */
RexpLane *
rexp_pipeline_route(RexpPipeline *p, int slot)
{
	if (p->homeless->window.pending[slot] == 0 || p->home[slot] == NULL)
		p->home[slot] = rexp_pipeline_lane_of(p, p->cluster->owner[slot]);
	return p->home[slot];
}

/* How much each window may hold depends on how many there are. */
static void
share_memory(RexpPipeline *p)
{
	int			masters = 0;
	size_t		each;
	int			at = -1;
	RexpLane   *lane;

	for (int i = 0; i < p->cluster->nnodes; i++)
		masters += p->cluster->nodes[i].slots > 0;
	each = CLUSTER_WINDOW_BYTES / Max(masters, 1);
	each = Max(LEAST_WINDOW_BYTES, Min(each, REXP_WINDOW_BYTES));
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
		lane->window.bytes_most = each;
}

/* Ask over this link.  True if the map is known then. */
static bool
ask_for_map(RexpPipeline *p, RexpLink *link, RexpError *error)
{
	if (rexp_cluster_refresh(p->cluster, link, MAP_TIMEOUT, error) != REXP_ANSWER_DONE)
		return false;
	share_memory(p);

	/* it may tell more of a node than was known when its lane was made */
	for (int i = 0; i < Min(p->nlanes, p->cluster->nnodes); i++)
	{
		if (p->lanes[i] != NULL && !rexp_link_is_open(p->lanes[i]->link))
			rexp_link_set_address(p->lanes[i]->link, &p->cluster->nodes[i].address);
	}
	return true;
}

/* Ask by a connection of its own: of the host of the options, then of each node. */
static bool
ask_anyone_for_map(RexpPipeline *p, RexpError *error)
{
	if (rexp_link_is_open(p->control) && ask_for_map(p, p->control, error))
		return true;
	for (int i = -1; i < p->cluster->nnodes; i++)
	{
		rexp_link_close(p->control);
		rexp_link_set_address(p->control, i < 0 ? NULL : &p->cluster->nodes[i].address);
		if (rexp_link_connect(p->control, error) == REXP_ANSWER_DONE &&
			ask_for_map(p, p->control, error))
			return true;
	}
	rexp_link_close(p->control);
	return false;
}

/*
 * refresh_map
 *	  Ask for the map: the lane that wants it, if it has a connection, then others
 *	  on whose nothing is on its way, then by a connection of its own.
 */
bool
rexp_pipeline_refresh_map(RexpPipeline *p, RexpLane *first, RexpError *error)
{
	int			at = -1;
	RexpLane   *lane;

	if (first->link != NULL && rexp_link_is_open(first->link) &&
		ask_for_map(p, first->link, error))
		return true;
	while ((lane = rexp_pipeline_next_lane(p, &at)) != NULL)
	{
		if (lane == first || lane->flow != REXP_FLOW_OPEN ||
			lane->window.outstanding > 0 || lane->window.send_offset > 0)
			continue;
		if (ask_for_map(p, lane->link, error))
			return true;
		if (!rexp_link_is_open(lane->link))
			rexp_lane_lost(lane, error);
	}
	return ask_anyone_for_map(p, error);
}

/*
 * Rows that were written here stay so while the connection is kept; but not if others
 * of their slot go elsewhere, before which they would come too late if they had to be
 * written again.
 */
static void
unsettle_leaving(RexpPipeline *p, RexpLane *lane)
{
	int			at_batch = 0;
	int			at_row = 0;
	RexpBatch  *batch;
	RexpRow    *row;

	while ((row = rexp_window_next_open(&lane->window, &at_batch, &at_row, &batch)) != NULL)
	{
		if (rexp_row_is_answered(row) &&
			rexp_pipeline_lane_of(p, p->cluster->owner[row->slot]) != lane)
		{
			rexp_window_rewind(&lane->window, false);
			return;
		}
	}
}

/*
 * Hand over the rows of a lane that belong to others; nothing is with Redis.  Those
 * that this node was to take before the slot is its own stay, as long as it may.
 */
static void
hand_over(RexpPipeline *p, RexpLane *lane)
{
	int			at_batch = 0;
	int			at_row = 0;
	RexpBatch  *batch;
	RexpRow    *row;
	bool		asked_stay = lane->link != NULL && rexp_link_is_open(lane->link) &&
		!lane->moved;

	unsettle_leaving(p, lane);
	while ((row = rexp_window_next_homeless(&lane->window, &at_batch, &at_row,
											&batch)) != NULL)
	{
		RexpLane   *to = rexp_pipeline_lane_of(p, p->cluster->owner[row->slot]);

		if (to == lane || (row->asking && asked_stay))
			continue;
		if (!rexp_lane_has_rows(to))
			to->waiting_since = lane->waiting_since;
		rexp_window_adopt(&to->window, &lane->window, batch, row, false);
		p->home[row->slot] = to;
		to->due = true;
	}
	rexp_window_advance_receiver(&lane->window);
}

/* A lane's rows may belong elsewhere: find out, and let it go on. */
void
rexp_pipeline_reroute(RexpPipeline *p, RexpLane *lane)
{
	RexpError	error;

	if (!rexp_pipeline_refresh_map(p, lane, &error))
	{
		rexp_error_prefix(&error, "could not ask for the nodes of the cluster: ");
		rexp_lane_wait_for_node(lane, &error, true);
		return;
	}
	hand_over(p, lane);
	if (!rexp_lane_has_rows(lane))
	{
		/* who asks something of it is in trouble until it answers */
		if (!p->traffic.asking)
			rexp_lane_settled(lane);
		lane->flow = lane->link != NULL && rexp_link_is_open(lane->link) ?
			REXP_FLOW_OPEN : REXP_FLOW_IDLE;
	}
	else if (lane == p->homeless)
	{
		rexp_error_set(&error, ERRCODE_CANNOT_CONNECT_NOW,
					   "no node of the Redis Cluster has the slots of some rows");
		rexp_error_hint(&error, "See CLUSTER NODES and CLUSTER SLOTS in Redis.");
		rexp_lane_wait_for_node(lane, &error, false);
	}
	else
		rexp_lane_go_on(lane);
	rexp_pipeline_show_nodes(p, true);
}

/* A node says that a slot, or for now a key, is with another. */
static bool
redirect(void *arg, RexpLane *lane, RexpAnswer answer, const char *text,
		 RexpBatch *batch, RexpRow *row)
{
	RexpPipeline *p = arg;
	RexpAddress address;
	int			slot;
	int			node;

	if (!rexp_cluster_redirection(text, rexp_link_address(lane->link), &slot, &address))
		return false;
	node = rexp_cluster_node(p->cluster, &address);
	if (node < 0)
		return false;
	if (answer == REXP_ANSWER_ASK)
	{
		RexpLane   *to = rexp_pipeline_lane_of(p, node);

		if (to == lane)
			return false;
		if (!rexp_lane_has_rows(to))
			to->waiting_since = lane->waiting_since;
		rexp_window_adopt(&to->window, &lane->window, batch, row, true);
		to->due = true;
	}
	else
		p->cluster->owner[slot] = (int16) node;
	return true;
}

/*
 * first_map
 *	  The host of the options is a node of a cluster: ask for its map, again and again
 *	  while Redis is away.  False if the job has failed.
 */
static bool
first_map(RexpPipeline *p, RexpCluster *cluster)
{
	RexpLane   *lane = p->single;
	RexpError	error;

	while (!rexp_pipeline_has_failed(p))
	{
		RexpAnswer	answer;

		if (lane->flow != REXP_FLOW_OPEN)
		{
			(void) rexp_pipeline_step(p, true);
			continue;
		}
		answer = rexp_cluster_refresh(cluster, lane->link, MAP_TIMEOUT, &error);
		if (answer == REXP_ANSWER_DONE)
			return true;
		rexp_error_prefix(&error, "could not ask for the nodes of the cluster: ");
		if (answer == REXP_ANSWER_LATER || answer == REXP_ANSWER_RECONNECT ||
			answer == REXP_ANSWER_CLUSTER_DOWN)
			rexp_lane_wait_for_node(lane, &error, answer == REXP_ANSWER_RECONNECT);
		else
			rexp_ledger_stop(&p->traffic.ledger, &error);
	}
	return false;
}

/* Make lanes for all nodes of the cluster.  False if the job has failed. */
bool
rexp_pipeline_enter_cluster(RexpPipeline *p)
{
	MemoryContext old = MemoryContextSwitchTo(p->context);
	RexpLinkOptions options = p->link_options;
	RexpCluster *cluster = rexp_cluster_create();
	uint32	   *pending = palloc0(sizeof(uint32) * REXP_SLOTS);

	if (!first_map(p, cluster))
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	rexp_lane_settled(p->single);
	options.connect_timeout = Min(options.connect_timeout, MAP_TIMEOUT);
	p->cluster = cluster;
	p->control = rexp_link_create(&options, false);
	p->waiter = rexp_waiter_create();
	p->home = palloc0(sizeof(RexpLane *) * REXP_SLOTS);
	rexp_buffer_init(&p->scratch, 8192);
	p->homeless = rexp_lane_create(&p->traffic, NULL);
	p->homeless->window.pending = pending;
	p->traffic.redirect = redirect;
	p->traffic.arg = p;
	MemoryContextSwitchTo(old);

	share_memory(p);
	for (int i = 0; i < p->cluster->nnodes; i++)
	{
		if (p->cluster->nodes[i].slots > 0)
			(void) rexp_pipeline_lane_of(p, i);
	}
	rexp_link_close(p->single->link);
	return true;
}
