/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  All of Redis, to be read: a connection to each master.
 *
 * Without a cluster that is one.  In a cluster, each key and each slot belongs to one of
 * the nodes, by the map that was asked for at the beginning.  Whoever has read all that
 * there is of something asks in the end whether it was from those who had it all the time
 * (rexp_nodes_check_whole); if not, that is an error, since a part is not the whole.
 *
 * Commands are sent in pipelines.  When a connection breaks, that is an error: what is
 * sent over them only reads, and can be asked again.
 *
 * Nothing here knows what is asked for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "redis/cluster.h"
#include "redis/connect.h"
#include "redis/nodes.h"

/* One node: the connection, and what is on its way. */
typedef struct Member
{
	RexpLink   *link;
	int			timeout;		/* milliseconds */
	bool		is_replica;		/* when it was entered */
	RexpBuffer	request;
	size_t		sent;
} Member;

struct RexpNodes
{
	const char *failing;		/* errors of Redis begin with it, or NULL */
	MemoryContextCallback callback;
	RexpCluster *cluster;		/* NULL: there is one node */
	int			nnodes;
	Member	   *nodes;
};

/* Hang up. */
void
rexp_nodes_close(RexpNodes *nodes)
{
	for (int i = 0; i < nodes->nnodes; i++)
		rexp_link_close(nodes->nodes[i].link);
}

/* The end, if it comes by the reset of the memory context. */
static void
close_nodes(void *arg)
{
	rexp_nodes_close(arg);
}

static void
add_node(RexpNodes *nodes, const RexpLinkOptions *options)
{
	Member	   *node = &nodes->nodes[nodes->nnodes];

	node->link = rexp_link_create(options, true);
	node->timeout = options->timeout;
	node->sent = 0;
	rexp_buffer_init(&node->request, 4096);
	nodes->nnodes++;
}

/* Raise an error, and say what it was for. */
void
rexp_nodes_fail(const RexpNodes *nodes, RexpError *error)
{
	if (nodes->failing != NULL)
		rexp_error_prefix(error, "%s: ", nodes->failing);
	rexp_error_raise(error);
}

/* Connect, or raise an error. */
static void
open_node(const RexpNodes *nodes, Member *node)
{
	RexpError	error;

	if (rexp_connect(node->link, &error) != REXP_ANSWER_DONE)
		rexp_nodes_fail(nodes, &error);
	node->is_replica = rexp_link_server_info(node->link)->is_replica;
}

/* Some slots belong to nobody, or to one whose address is not known: their keys cannot be read. */
static void
check_coverage(const RexpNodes *nodes)
{
	RexpError	error;
	int			lacking = 0;

	for (int slot = 0; slot < REXP_SLOTS; slot++)
		lacking += nodes->cluster->owner[slot] < 0;
	if (lacking == 0)
		return;
	rexp_error_set(&error, ERRCODE_CANNOT_CONNECT_NOW,
				   "no node of the Redis Cluster has %d of its %d slots", lacking,
				   REXP_SLOTS);
	rexp_error_hint(&error, "See CLUSTER NODES and CLUSTER SLOTS in Redis.");
	rexp_nodes_fail(nodes, &error);
}

/*
 * find_cluster
 *	  Is this a node of a cluster?  Then get the map.
 *
 * One node of several is no answer to what Redis holds: what may be one, and does not
 * tell where the others are, raises an error.
 */
static bool
find_cluster(RexpNodes *nodes, const RexpLinkOptions *options)
{
	const RexpServerInfo *info = rexp_link_server_info(nodes->nodes[0].link);
	bool		is_known = info->is_cluster || options->cluster == REXP_CLUSTER_ON;
	RexpError	error;

	if (options->cluster == REXP_CLUSTER_OFF && info->is_cluster)
	{
		rexp_error_set(&error, ERRCODE_FEATURE_NOT_SUPPORTED,
					   "the keys of one node of a Redis Cluster are not all there are");
		rexp_error_hint(&error, "Set the option \"cluster\" of the foreign server to true or auto.");
		rexp_nodes_fail(nodes, &error);
	}
	if (options->cluster == REXP_CLUSTER_OFF || (info->tells_cluster && !is_known))
		return false;

	nodes->cluster = rexp_cluster_create();
	if (rexp_cluster_refresh(nodes->cluster, nodes->nodes[0].link, options->connect_timeout,
							 &error) == REXP_ANSWER_DONE)
	{
		check_coverage(nodes);
		return true;
	}
	nodes->cluster = NULL;
	if (!is_known && error.sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED)
		return false;
	if (is_known)
		rexp_error_prefix(&error, "could not ask for the nodes of the cluster: ");
	else
	{
		rexp_error_prefix(&error, "could not find out whether Redis is a cluster: ");
		rexp_error_hint(&error, "If it is none, set the option \"cluster\" of the foreign server to false; or grant the Redis user the command: ACL SETUSER ... +info, or +cluster|slots.");
	}
	rexp_nodes_fail(nodes, &error);
	return false;				/* keeps the compiler quiet */
}

/*
 * rexp_nodes_open
 *	  Connect to the Redis of the options, or to all masters of the cluster.
 *
 * All of it lies in the current memory context, whose reset hangs up.  Errors of Redis
 * begin with "failing", unless that is NULL.
 */
RexpNodes *
rexp_nodes_open(const RexpLinkOptions *options, const char *failing)
{
	RexpNodes  *nodes = palloc0(sizeof(RexpNodes));
	RexpLinkOptions node;

	nodes->failing = failing;
	nodes->callback.func = close_nodes;
	nodes->callback.arg = nodes;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &nodes->callback);
	nodes->nodes = palloc0(sizeof(Member));
	add_node(nodes, options);
	open_node(nodes, &nodes->nodes[0]);
	if (!find_cluster(nodes, options))
		return nodes;

	rexp_link_close(nodes->nodes[0].link);
	nodes->nnodes = 0;
	nodes->nodes = palloc0(sizeof(Member) * Max(nodes->cluster->nnodes, 1));
	node = *options;
	for (int i = 0; i < nodes->cluster->nnodes; i++)
	{
		node.lead_to = &nodes->cluster->nodes[i].address;
		add_node(nodes, &node);
		if (nodes->cluster->nodes[i].slots > 0)
			open_node(nodes, &nodes->nodes[i]);
	}
	return nodes;
}

/*
 * rexp_nodes_next
 *	  The number of the next node that has keys after this one (-1: of the first); -1 if
 *	  there are no more.
 */
int
rexp_nodes_next(const RexpNodes *nodes, int node)
{
	while (++node < nodes->nnodes)
	{
		if (rexp_link_is_open(nodes->nodes[node].link))
			return node;
	}
	return -1;
}

bool
rexp_nodes_are_cluster(const RexpNodes *nodes)
{
	return nodes->cluster != NULL;
}

/* The number of the node that has a slot; without a cluster, of the only one. */
int
rexp_nodes_of_slot(const RexpNodes *nodes, int slot)
{
	/* each has an owner: see check_coverage() */
	return nodes->cluster != NULL ? nodes->cluster->owner[slot] : 0;
}

/* The number of the node that has a key. */
int
rexp_nodes_of_key(const RexpNodes *nodes, const char *key, size_t len)
{
	return nodes->cluster != NULL ?
		rexp_nodes_of_slot(nodes, rexp_key_slot(key, len)) : 0;
}

/* Where commands for a node are to be appended. */
RexpBuffer *
rexp_nodes_request(RexpNodes *nodes, int node)
{
	Member	   *at = &nodes->nodes[node];

	/* nothing is left of what was there: begin anew */
	if (at->sent == at->request.len)
		at->request.len = at->sent = 0;
	return &at->request;
}

/* Send as much as goes at once, for Redis to be at it; the rest goes while we receive. */
void
rexp_nodes_push(RexpNodes *nodes)
{
	for (int i = 0; i < nodes->nnodes; i++)
	{
		Member	   *node = &nodes->nodes[i];
		RexpError	error;
		ssize_t		n;

		if (node->sent == node->request.len)
			continue;
		n = rexp_link_send(node->link, node->request.data + node->sent,
						   node->request.len - node->sent, &error);
		if (n < 0)
			rexp_nodes_fail(nodes, &error);
		node->sent += n;
	}
}

/*
 * rexp_nodes_receive
 *	  The next reply of a node, which is the caller's to free; or an error is raised.
 */
redisReply *
rexp_nodes_receive(RexpNodes *nodes, int node)
{
	Member	   *at = &nodes->nodes[node];
	RexpError	error;
	redisReply *reply = rexp_link_converse(at->link, &at->request, &at->sent,
										   at->timeout, &error);

	if (reply == NULL)
		rexp_nodes_fail(nodes, &error);
	return reply;
}

/* Raise an error: what has been read is a part of what there is, or may be. */
static void
fail_incomplete(const RexpNodes *nodes, const char *why)
{
	RexpError	error;

	rexp_error_set(&error, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "%s while the keys of Redis were read", why);
	rexp_error_detail(&error, "Some of them may not have been seen.");
	rexp_error_hint(&error, "Try again when that is over.");
	rexp_nodes_fail(nodes, &error);
}

/*
 * Does a node still have the slots whose keys were read there, and no others?  By its
 * own map: others may hear of a change later.  Each node may write an address in its own
 * way, but not the port.
 */
static bool
has_same_slots(const RexpNodes *nodes, int number)
{
	Member   *node = &nodes->nodes[number];
	const RexpCluster *before = nodes->cluster;
	RexpCluster *now = rexp_cluster_create();
	int			owner = -1;
	bool		same = true;
	RexpError	error;

	if (rexp_cluster_refresh(now, node->link, node->timeout, &error) != REXP_ANSWER_DONE)
		rexp_nodes_fail(nodes, &error);
	for (int slot = 0; slot < REXP_SLOTS && same; slot++)
	{
		if (before->owner[slot] != number)
			continue;
		if (owner < 0)
			owner = now->owner[slot];
		same = owner >= 0 && now->owner[slot] == owner;
	}
	same = same && owner >= 0 && now->nodes[owner].slots == before->nodes[number].slots &&
		now->nodes[owner].address.port == before->nodes[number].address.port;
	pfree(now->nodes);
	pfree(now);
	return same;
}

/*
 * Is a slot of this node on its way?  Its keys go one by one, and one may have gone from
 * a node that was still to be read to one that had been.  Who may not ask is not told.
 */
static bool
moves_slots(RexpNodes *nodes, int number)
{
	RexpBuffer *request = rexp_nodes_request(nodes, number);
	redisReply *reply;
	bool		moves;

	rexp_resp_header(request, '*', 2);
	rexp_resp_word(request, "CLUSTER");
	rexp_resp_word(request, "NODES");
	reply = rexp_nodes_receive(nodes, number);
	moves = reply->type != REDIS_REPLY_ERROR && reply->str != NULL &&
		strstr(reply->str, " [") != NULL;
	freeReplyObject(reply);
	return moves;
}

/*
 * rexp_nodes_check_whole
 *	  All keys have been read: was it from those who had them, all the time?
 */
void
rexp_nodes_check_whole(RexpNodes *nodes)
{
	for (int i = 0; i < nodes->nnodes; i++)
	{
		Member   *node = &nodes->nodes[i];
		RexpError	error;

		if (!rexp_link_is_open(node->link))
			continue;
		if (!rexp_link_refresh_info(node->link, &error))
			rexp_nodes_fail(nodes, &error);
		if (rexp_link_server_info(node->link)->is_replica && !node->is_replica)
			fail_incomplete(nodes, "another Redis took over as the master");
		if (nodes->cluster == NULL)
			continue;
		if (!has_same_slots(nodes, i) || moves_slots(nodes, i))
			fail_incomplete(nodes, "slots of the Redis Cluster moved");
	}
}

/*
 * rexp_nodes_fail_reply
 *	  Raise an error, since this is no answer to the command.  It frees the reply.
 */
void
rexp_nodes_fail_reply(const RexpNodes *nodes, redisReply *reply, const char *command)
{
	RexpError	error;
	RexpAnswer	answer = REXP_ANSWER_FATAL;

	if (reply->type == REDIS_REPLY_ERROR)
		answer = rexp_answer_to(reply->str, reply->len, &error);
	else
		rexp_error_set(&error, ERRCODE_PROTOCOL_VIOLATION,
					   "Redis gave no answer to %s that can be read", command);
	freeReplyObject(reply);
	if (nodes->cluster != NULL &&
		(answer == REXP_ANSWER_MOVED || answer == REXP_ANSWER_ASK ||
		 answer == REXP_ANSWER_TRY_AGAIN))
		fail_incomplete(nodes, "slots of the Redis Cluster moved");
	rexp_nodes_fail(nodes, &error);
}

/*
 * rexp_nodes_receive_page
 *	  The next reply of a node, to SCAN or one of its kin, which is the caller's to free:
 *	  an array of a cursor and an array of strings; or an error is raised.
 */
redisReply *
rexp_nodes_receive_page(RexpNodes *nodes, int node, const char *command)
{
	redisReply *reply = rexp_nodes_receive(nodes, node);
	bool		good = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		reply->element[0]->type == REDIS_REPLY_STRING &&
		reply->element[1]->type == REDIS_REPLY_ARRAY;

	for (size_t i = 0; good && i < reply->element[1]->elements; i++)
		good = reply->element[1]->element[i]->type == REDIS_REPLY_STRING;
	if (!good)
		rexp_nodes_fail_reply(nodes, reply, command);
	return reply;
}
