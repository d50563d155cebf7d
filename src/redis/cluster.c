/*-------------------------------------------------------------------------
 *
 * cluster.c
 *	  Which node of a Redis Cluster has which keys.
 *
 * A key belongs to one of 16384 slots, and each slot to a node (Redis manual,
 * "Redis cluster specification").  The map of slots is asked of any node, and
 * corrected by those that say that a slot has moved.
 *
 * Nothing here knows rows, or what is sent where.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "redis/cluster.h"
#include "utils/memutils.h"

/* An empty map in the current memory context. */
RexpCluster *
rexp_cluster_create(void)
{
	RexpCluster *cluster = palloc0(sizeof(RexpCluster));

	cluster->context = CurrentMemoryContext;
	cluster->capacity = 16;
	cluster->nodes = palloc0(sizeof(RexpNode) * cluster->capacity);
	memset(cluster->owner, 0xff, sizeof(cluster->owner));
	return cluster;
}

/*
 * CRC16 as Redis Cluster has it: the polynomial 0x1021, no reflection, from 0
 * (Redis manual, "Redis cluster specification", appendix A).
 */
static uint16
crc16(const char *bytes, size_t len)
{
	static uint16 table[256];
	static bool made = false;
	uint16		crc = 0;

	if (!made)
	{
		for (int i = 0; i < 256; i++)
		{
			uint16		value = (uint16) (i << 8);

			for (int bit = 0; bit < 8; bit++)
				value = (uint16) ((value & 0x8000) ? (value << 1) ^ 0x1021 : value << 1);
			table[i] = value;
		}
		made = true;
	}
	for (size_t i = 0; i < len; i++)
		crc = (uint16) ((crc << 8) ^ table[((crc >> 8) ^ (unsigned char) bytes[i]) & 0xff]);
	return crc;
}

/*
 * rexp_key_slot
 *	  The slot of a key: that of what is between the first { and the first } after
 *	  it, if there is anything, or else that of the whole.
 */
int
rexp_key_slot(const char *key, size_t len)
{
	const char *open = memchr(key, '{', len);

	if (open != NULL)
	{
		const char *close = memchr(open + 1, '}', len - (open + 1 - key));

		if (close != NULL && close > open + 1)
			return crc16(open + 1, close - open - 1) & (REXP_SLOTS - 1);
	}
	return crc16(key, len) & (REXP_SLOTS - 1);
}

/* The number of the node at this address, which may be new; -1: there are too many. */
int
rexp_cluster_node(RexpCluster *cluster, const RexpAddress *address)
{
	for (int i = 0; i < cluster->nnodes; i++)
	{
		RexpAddress *known = &cluster->nodes[i].address;

		if (known->port == address->port && strcmp(known->host, address->host) == 0)
		{
			/* a map knows more of it than a node that sends us on */
			if (address->source == REXP_ADDRESS_BY_MAP)
				*known = *address;
			return i;
		}
	}
	if (cluster->nnodes == REXP_NODES_MOST)
		return -1;
	if (cluster->nnodes == cluster->capacity)
	{
		cluster->capacity *= 2;
		cluster->nodes = repalloc(cluster->nodes, sizeof(RexpNode) * cluster->capacity);
	}
	cluster->nodes[cluster->nnodes].address = *address;
	cluster->nodes[cluster->nnodes].slots = 0;
	return cluster->nnodes++;
}

/*
 * told_address
 *	  The address that a node tells of one of its cluster.  False if it is none to
 *	  be followed.
 *
 * A host that is not told is that of the node that was asked, unless that was asked
 * through a socket, where no other can be.
 */
static bool
told_address(RexpAddress *address, RexpAddressSource source, const char *host, size_t len,
			 int64 port, const RexpAddress *asked)
{
	if (len > 0 || rexp_address_is_socket(asked))
		return rexp_address_told(address, source, host, len, port);
	return rexp_address_told(address, source, asked->host, strlen(asked->host), port);
}

/*
 * Since Redis 7 a node may have a name besides its address (cluster-announce-hostname),
 * in a list of words and values.
 */
static void
read_name(RexpAddress *address, const redisReply *node)
{
	const redisReply *list = node->elements > 3 ? node->element[3] : NULL;

	if (list == NULL || list->type != REDIS_REPLY_ARRAY)
		return;
	for (size_t i = 0; i + 1 < list->elements; i += 2)
	{
		const redisReply *value = list->element[i + 1];

		if (list->element[i]->type == REDIS_REPLY_STRING &&
			strcmp(list->element[i]->str, "hostname") == 0 &&
			value->type == REDIS_REPLY_STRING)
			rexp_address_name(address, value->str, value->len);
	}
}

/*
 * One range of CLUSTER SLOTS: first and last slot, then the master as host and
 * port.  "?" is a host that is not known.
 */
static bool
read_range(RexpCluster *cluster, const redisReply *range, const RexpAddress *asked,
		   int16 *owner)
{
	const redisReply *master;
	const redisReply *host;
	RexpAddress address;
	bool		is_told;
	int			node;

	if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 ||
		range->element[0]->type != REDIS_REPLY_INTEGER ||
		range->element[1]->type != REDIS_REPLY_INTEGER)
		return false;
	master = range->element[2];
	if (master->type != REDIS_REPLY_ARRAY || master->elements < 2 ||
		master->element[1]->type != REDIS_REPLY_INTEGER ||
		range->element[0]->integer < 0 ||
		range->element[1]->integer < range->element[0]->integer ||
		range->element[1]->integer >= REXP_SLOTS)
		return false;
	host = master->element[0];
	is_told = host->type == REDIS_REPLY_STRING;
	if (is_told && strcmp(host->str, "?") == 0)
		return true;
	if (!told_address(&address, REXP_ADDRESS_BY_MAP, is_told ? host->str : "", is_told ? host->len : 0,
					  master->element[1]->integer, asked))
		return false;
	read_name(&address, master);
	node = rexp_cluster_node(cluster, &address);
	if (node < 0)
		return false;
	for (int slot = (int) range->element[0]->integer;
		 slot <= (int) range->element[1]->integer; slot++)
		owner[slot] = (int16) node;
	return true;
}

static bool
read_slots(RexpCluster *cluster, const redisReply *reply, const RexpAddress *asked)
{
	int16		owner[REXP_SLOTS];

	if (reply->type != REDIS_REPLY_ARRAY)
		return false;
	memset(owner, 0xff, sizeof(owner));
	for (size_t i = 0; i < reply->elements; i++)
	{
		if (!read_range(cluster, reply->element[i], asked, owner))
			return false;
	}

	memcpy(cluster->owner, owner, sizeof(owner));
	for (int i = 0; i < cluster->nnodes; i++)
		cluster->nodes[i].slots = 0;
	for (int slot = 0; slot < REXP_SLOTS; slot++)
	{
		if (owner[slot] >= 0)
			cluster->nodes[owner[slot]].slots++;
	}
	return true;
}

/*
 * rexp_cluster_refresh
 *	  Ask a node for the map, of which nothing else is awaited, within so many
 *	  milliseconds.
 *
 * Returns DONE, what an error reply means, or RECONNECT after a loss of the
 * connection, with *error; the map is then as it was.  Serves interrupts.
 */
RexpAnswer
rexp_cluster_refresh(RexpCluster *cluster, RexpLink *link, int timeout,
					 RexpError *error)
{
	RexpBuffer	request;
	redisReply *reply;
	RexpAnswer	answer = REXP_ANSWER_DONE;

	rexp_buffer_init(&request, 64);
	rexp_resp_header(&request, '*', 2);
	rexp_resp_word(&request, "CLUSTER");
	rexp_resp_word(&request, "SLOTS");
	reply = rexp_link_ask(link, &request, timeout, error);
	rexp_buffer_free(&request);
	if (reply == NULL)
		return rexp_link_failure(error);
	if (reply->type == REDIS_REPLY_ERROR)
		answer = rexp_answer_to(reply->str, reply->len, error);
	else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 0)
	{
		/* it was taken out of its cluster, or is in none yet */
		rexp_error_set(error, ERRCODE_CANNOT_CONNECT_NOW,
					   "the Redis at \"%s\", port %d knows no slots of its cluster",
					   rexp_link_address(link)->host, rexp_link_address(link)->port);
		answer = REXP_ANSWER_LATER;
	}
	else if (!read_slots(cluster, reply, rexp_link_address(link)))
	{
		rexp_error_set(error, ERRCODE_PROTOCOL_VIOLATION,
					   "Redis gave no map of its cluster that can be read");
		answer = REXP_ANSWER_FATAL;
	}
	freeReplyObject(reply);
	return answer;
}

/*
 * rexp_cluster_redirection
 *	  Read "MOVED 3999 127.0.0.1:6381" or "ASK ...", of which the host may be empty
 *	  for that of the node that was asked.  False if it is something else.
 */
bool
rexp_cluster_redirection(const char *text, const RexpAddress *asked, int *slot,
						 RexpAddress *to)
{
	const char *at = strchr(text, ' ');
	const char *colon;
	char	   *end;
	long		number;

	if (at == NULL)
		return false;
	number = strtol(at + 1, &end, 10);
	if (end == at + 1 || *end != ' ' || number < 0 || number >= REXP_SLOTS)
		return false;
	at = end + 1;
	/* an IPv6 address holds colons itself */
	colon = strrchr(at, ':');
	if (colon == NULL)
		return false;
	*slot = (int) number;
	return told_address(to, REXP_ADDRESS_BY_REDIRECTION, at, colon - at, atoi(colon + 1),
						asked);
}
