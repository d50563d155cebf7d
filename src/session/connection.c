/*-------------------------------------------------------------------------
 *
 * connection.c
 *	  The connections to Redis that a session has.
 *
 * The session keeps a connection for each server and user, until the options
 * that it was made with change.  A connection that an error has left between
 * command and answer is given up at its next use.  Where a node of a cluster sends
 * a command elsewhere, it is followed, and that connection is kept, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "redis/cluster.h"
#include "redis/connect.h"
#include "redis/error_reply.h"
#include "redis/link.h"
#include "session/connection.h"
#include "session/server_options.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

typedef struct ConnectionKey
{
	Oid			server;
	Oid			user;
	int			port;			/* of a node of a cluster, or 0 and ... */
	char		host[REXP_HOST_SIZE];	/* ... an empty name: where the options lead */
} ConnectionKey;

typedef struct Connection
{
	ConnectionKey key;
	MemoryContext context;		/* of link and options; NULL: not made */
	RexpLink   *link;
	int			timeout;		/* milliseconds */
	bool		busy;			/* a command is on its way, or an error came */
	bool		outdated;		/* options have changed */
} Connection;

/* From node to node of a cluster, for one command. */
#define MOST_HOPS 5

static HTAB *connections = NULL;

/* Options of some server or mapping have changed. */
static void
outdate_connections(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS scan;
	Connection *connection;

	hash_seq_init(&scan, connections);
	while ((connection = hash_seq_search(&scan)) != NULL)
		connection->outdated = true;
}

static void
close_connection(Connection *connection)
{
	if (connection->context == NULL)
		return;
	rexp_link_close(connection->link);
	MemoryContextDelete(connection->context);
	connection->context = NULL;
	connection->link = NULL;
	connection->busy = connection->outdated = false;
}

/* Close what is of no more use, of servers that may be gone too. */
static void
close_outdated(void)
{
	HASH_SEQ_STATUS scan;
	Connection *connection;

	hash_seq_init(&scan, connections);
	while ((connection = hash_seq_search(&scan)) != NULL)
	{
		if (connection->outdated || connection->busy)
			close_connection(connection);
	}
}

static void
init_connections(void)
{
	HASHCTL		control = {
		.keysize = sizeof(ConnectionKey),
		.entrysize = sizeof(Connection)
	};

	connections = hash_create("redis_export connections", 8, &control,
							  HASH_ELEM | HASH_BLOBS);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, outdate_connections, 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, outdate_connections, 0);
}

/*
 * A connection that is open, as far as can be told: to where the options lead, or
 * to the node that is named.
 */
static Connection *
get_connection(const char *server, Oid user, const RexpAddress *node)
{
	ConnectionKey key;
	Connection *connection;
	bool		found;
	RexpError	error;

	if (connections == NULL)
		init_connections();
	memset(&key, 0, sizeof(key));
	key.user = user;
	key.server = rexp_find_server(server, key.user);
	if (node != NULL)
	{
		key.port = node->port;
		strlcpy(key.host, node->host, sizeof(key.host));
	}
	close_outdated();

	connection = hash_search(connections, &key, HASH_ENTER, &found);
	if (!found)
	{
		connection->context = NULL;
		connection->link = NULL;
		connection->busy = connection->outdated = false;
	}
	if (connection->context == NULL)
	{
		/* below the current context until nothing can fail any more */
		MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
													  "redis_export connection",
													  ALLOCSET_SMALL_SIZES);
		MemoryContext old = MemoryContextSwitchTo(context);
		RexpLinkOptions *options = rexp_link_options(server, key.user, NULL);

		options->lead_to = node;
		connection->link = rexp_link_create(options, true);
		connection->timeout = options->timeout;
		connection->outdated = false;
		MemoryContextSwitchTo(old);
		MemoryContextSetParent(context, TopMemoryContext);
		connection->context = context;
	}

	/* Redis may have closed it meanwhile, which is to be known before we send. */
	if (rexp_link_is_open(connection->link) &&
		rexp_link_receive(connection->link, &error) != 0)
		rexp_link_close(connection->link);
	connection->busy = true;
	if (!rexp_link_is_open(connection->link) &&
		rexp_connect(connection->link, &error) != REXP_ANSWER_DONE)
		rexp_error_raise(&error);
	return connection;
}

/* Send the request over a connection, and wait for the reply. */
static redisReply *
exchange(Connection *connection, const RexpBuffer *request)
{
	RexpError	error;
	redisReply *reply = rexp_link_exchange(connection->link, request,
										   connection->timeout, &error);

	if (reply == NULL)
		rexp_error_raise(&error);
	return reply;
}

/*
 * With TLS, a node's certificate may have a name that only the map of its cluster
 * tells: ask who has sent us on, unless a connection to that node is there.
 */
static void
learn_name(const Connection *from, RexpAddress *node)
{
	const RexpTlsOptions *tls = &rexp_link_options_of(from->link)->tls;
	ConnectionKey key = from->key;
	const Connection *known;
	RexpCluster *cluster;
	RexpError	ignored;
	int			number;

	key.port = node->port;
	memset(key.host, 0, sizeof(key.host));
	strlcpy(key.host, node->host, sizeof(key.host));
	known = hash_search(connections, &key, HASH_FIND, NULL);
	if (!tls->enabled || tls->server_name != NULL || (known != NULL && known->context != NULL))
		return;
	cluster = rexp_cluster_create();
	if (rexp_cluster_refresh(cluster, from->link, from->timeout, &ignored) == REXP_ANSWER_DONE)
	{
		number = rexp_cluster_node(cluster, node);
		if (number >= 0)
			*node = cluster->nodes[number].address;
	}
}

/*
 * send_asking
 *	  Tell a node of a cluster to take the next command though the slot is not its
 *	  own yet.
 */
static void
send_asking(Connection *connection)
{
	RexpBuffer	request;

	rexp_buffer_init(&request, 32);
	rexp_resp_header(&request, '*', 1);
	rexp_resp_word(&request, "ASKING");
	freeReplyObject(exchange(connection, &request));
}

/* Is it an error that names another node?  Then that is where to go. */
static bool
is_redirected(const Connection *connection, const redisReply *reply,
			  RexpAnswer *answer, RexpAddress *to)
{
	RexpError	ignored;
	int			slot;

	*answer = reply->type == REDIS_REPLY_ERROR ?
		rexp_answer_to(reply->str, reply->len, &ignored) : REXP_ANSWER_DONE;
	return (*answer == REXP_ANSWER_MOVED || *answer == REXP_ANSWER_ASK) &&
		rexp_link_options_of(connection->link)->cluster != REXP_CLUSTER_OFF &&
		rexp_cluster_redirection(reply->str, rexp_link_address(connection->link), &slot, to);
}

/*
 * rexp_send_command
 *	  Send a command in RESP, as this user, to the node that takes it, and return its
 *	  reply, which is the caller's to free and may be an error of Redis.
 *
 * Raises an error when the connection fails or Redis is silent for the server's
 * timeout.  Serves interrupts while it waits.
 */
redisReply *
rexp_send_command(const char *server, Oid user, const RexpBuffer *request)
{
	RexpAddress node;
	RexpAnswer	answer = REXP_ANSWER_DONE;

	for (int hop = 0;; hop++)
	{
		Connection *connection = get_connection(server, user, hop == 0 ? NULL : &node);
		redisReply *reply;

		if (answer == REXP_ANSWER_ASK)
			send_asking(connection);
		reply = exchange(connection, request);
		connection->busy = false;
		if (hop == MOST_HOPS ||
			!is_redirected(connection, reply, &answer, &node))
		{
			/* another server may be the right one the next time */
			connection->busy = answer == REXP_ANSWER_RECONNECT;
			return reply;
		}
		freeReplyObject(reply);
		learn_name(connection, &node);
	}
}

/*
 * rexp_server_is_cluster
 *	  Is what this server stands for a cluster?  Raises errors as above.
 */
bool
rexp_server_is_cluster(const char *server, Oid user)
{
	Connection *connection = get_connection(server, user, NULL);
	RexpClusterMode mode = rexp_link_options_of(connection->link)->cluster;

	connection->busy = false;
	return mode == REXP_CLUSTER_ON ||
		(mode != REXP_CLUSTER_OFF && rexp_link_server_info(connection->link)->is_cluster);
}
