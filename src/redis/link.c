/*-------------------------------------------------------------------------
 *
 * link.c
 *	  One connection to Redis.
 *
 * The socket is ours and does not block; hiredis parses what comes in, and
 * with TLS (tls.c) carries the bytes, too.  All waiting is for the latch and the
 * socket at once, and serves interrupts, so that cancel, terminate and recovery
 * conflicts work while Redis is silent.  The one call that cannot be interrupted
 * is getaddrinfo().
 *
 * hiredis keeps malloc(), and nothing that can raise an error is called from
 * its callbacks: an error would jump through its frames.
 *
 * Which commands are sent, and what is to be done when the connection is lost,
 * is not known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/compat.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/postmaster.h"
#include "redis/link.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Read at most so much at a time. */
#define RECEIVE_SIZE (64 * 1024)

/* Where PostgreSQL usually listens, besides where this one does. */
#define POSTGRES_PORT 5432

/* The positions in the wait event set. */
#define EVENT_SOCKET 2
#define EVENT_COUNT 3

struct RexpLink
{
	RexpLinkOptions options;
	RexpAddress address;		/* where it leads */
	bool		keep_trees;		/* replies as hiredis makes them */
	redisContext *context;		/* NULL: not connected */
	uint64		connection;		/* which one, of all that this process had */
	RexpTls		tls;
	bool		heard;			/* has anything come in on this connection? */
	char		first[8];		/* the first bytes of that, then zeros */
	WaitEventSet *events;
	uint32		watched;		/* what the set waits for on the socket */
	RexpReply	reply;
	char	   *text;			/* malloc'd: the text of reply */
	size_t		text_size;
	RexpServerInfo info;
	int64		client_id;		/* Redis' number of this connection, or 0 */
	char		client_refused[REXP_MESSAGE_SIZE];	/* what it answered instead, or
													 * empty */
	char	   *input;			/* RECEIVE_SIZE bytes */
};

/*
 * hiredis calls these for each reply, instead of making a tree of objects.  Of
 * an array only the first error in it is kept, and the last integer.  They return
 * the link itself, as some pointer that is not NULL.
 */
static void *
on_string(const redisReadTask *task, char *str, size_t len)
{
	RexpLink   *link = task->privdata;
	bool		is_error = task->type == REDIS_REPLY_ERROR;

	if (task->parent != NULL && (!is_error || link->reply.type == REXP_REPLY_ERROR))
		return link;
	link->reply.type = is_error ? REXP_REPLY_ERROR :
		task->type == REDIS_REPLY_STATUS ? REXP_REPLY_STATUS : REXP_REPLY_STRING;
	if (len + 1 > link->text_size)
	{
		char	   *larger = realloc(link->text, len + 1);

		if (larger == NULL)
			return NULL;
		link->text = larger;
		link->text_size = len + 1;
	}
	memcpy(link->text, str, len);
	link->text[len] = '\0';
	link->reply.text = link->text;
	link->reply.len = len;
	return link;
}

static void *
on_array(const redisReadTask *task, rexp_array_len elements)
{
	RexpLink   *link = task->privdata;

	if (task->parent == NULL)
	{
		link->reply.type = REXP_REPLY_ARRAY;
		link->reply.integer = 0;
	}
	return link;
}

static void *
on_integer(const redisReadTask *task, long long value)
{
	RexpLink   *link = task->privdata;

	if (task->parent == NULL)
		link->reply.type = REXP_REPLY_INTEGER;
	link->reply.integer = value;
	return link;
}

static void *
on_nil(const redisReadTask *task)
{
	RexpLink   *link = task->privdata;

	if (task->parent == NULL)
		link->reply.type = REXP_REPLY_NIL;
	return link;
}

static void
on_free(void *reply)
{
}

static redisReplyObjectFunctions reply_functions = {
	.createString = on_string,
	.createArray = on_array,
	.createInteger = on_integer,
	REXP_HIREDIS_RESP3_FUNCTIONS
	.createNil = on_nil,
	.freeObject = on_free
};

/*
 * Where hiredis makes a tree, an array of more elements than this is refused: it
 * would make room for as many as are announced, up to 16 GB, before any came.
 */
#define MOST_ELEMENTS ((rexp_array_len) 16 * 1024 * 1024)

static redisReplyObjectFunctions tree_functions;
static void *(*make_array) (const redisReadTask *, rexp_array_len) = NULL;

static void *
on_tree_array(const redisReadTask *task, rexp_array_len elements)
{
	return elements > MOST_ELEMENTS ? NULL : make_array(task, elements);
}

/* hiredis' own functions but for arrays. */
static redisReplyObjectFunctions *
limited_functions(const redisReplyObjectFunctions *own)
{
	if (make_array == NULL)
	{
		tree_functions = *own;
		make_array = own->createArray;
		tree_functions.createArray = on_tree_array;
	}
	return &tree_functions;
}

/*
 * rexp_link_create
 *	  A link that is not connected yet, in the current memory context, which
 *	  must live as long as the link; so must the options' strings.
 *
 * With keep_trees, rexp_link_exchange() returns redisReply objects; otherwise
 * replies are looked at with rexp_link_next_reply().
 */
RexpLink *
rexp_link_create(const RexpLinkOptions *options, bool keep_trees)
{
	RexpLink   *link = palloc0(sizeof(RexpLink));

	link->options = *options;
	rexp_link_set_address(link, options->lead_to);
	link->options.lead_to = NULL;
	link->keep_trees = keep_trees;
	link->input = palloc(RECEIVE_SIZE);
	return link;
}

bool
rexp_link_is_open(const RexpLink *link)
{
	return link->context != NULL;
}

/* Milliseconds of silence after which the connection counts as lost. */
int
rexp_link_timeout(const RexpLink *link)
{
	return link->options.timeout;
}

const RexpServerInfo *
rexp_link_server_info(const RexpLink *link)
{
	return &link->info;
}

/* What Redis answered where it refused to number connections, or to end one; or empty. */
const char *
rexp_link_client_refused(const RexpLink *link)
{
	return link->client_refused;
}

const RexpLinkOptions *
rexp_link_options_of(const RexpLink *link)
{
	return &link->options;
}

/* Where the link leads, as long as it does. */
const RexpAddress *
rexp_link_address(const RexpLink *link)
{
	return &link->address;
}

/* Was it TLS that made the last attempt to connect fail, a certificate or a protocol? */
bool
rexp_link_refused_by_tls(const RexpLink *link)
{
	return link->tls.refused;
}

/*
 * rexp_link_set_address
 *	  Lead the link, which must be closed, elsewhere; with NULL, where the options of
 *	  the server say.
 */
void
rexp_link_set_address(RexpLink *link, const RexpAddress *address)
{
	RexpAddress before = link->address;

	Assert(link->context == NULL);
	if (address != NULL)
		link->address = *address;
	else
		rexp_address_of_option(&link->address, link->options.host, link->options.port);
	if (strcmp(link->address.host, before.host) != 0 || link->address.port != before.port)
	{
		/* what it was told of the other server is not true of this one */
		memset(&link->info, 0, sizeof(link->info));
		link->client_id = 0;
	}
}

/* Of a link that is open: its socket, ... */
int
rexp_link_socket(const RexpLink *link)
{
	return link->context->fd;
}

/* ... a number that no other connection of this process had, ... */
uint64
rexp_link_connection(const RexpLink *link)
{
	return link->connection;
}

/* ... and what to wait for on the socket. */
uint32
rexp_link_events(const RexpLink *link, bool until_writable)
{
	return WL_SOCKET_READABLE |
		(until_writable || link->tls.unsent ? WL_SOCKET_WRITEABLE : 0);
}

/* Where the link leads, for errors.  In a static buffer. */
static const char *
address_text(const RexpLink *link)
{
	static char text[REXP_HOST_SIZE + 32];

	if (rexp_address_is_socket(&link->address))
		snprintf(text, sizeof(text), "\"%s\"", link->address.host);
	else
		snprintf(text, sizeof(text), "\"%s\", port %d", link->address.host,
				 link->address.port);
	return text;
}

/* Give up the connection, and all that came in and was not looked at. */
void
rexp_link_close(RexpLink *link)
{
	if (link->events != NULL)
	{
		FreeWaitEventSet(link->events);
		link->events = NULL;
	}
	if (link->context != NULL)
	{
		redisFree(link->context);	/* closes the socket, and frees TLS */
		link->context = NULL;
		rexp_tls_end(&link->tls);
		ReleaseExternalFD();
	}
	free(link->text);
	link->text = NULL;
	link->text_size = 0;
}

/*
 * The connection is of no use any more: say why.  It is for the caller to close
 * it, who may find replies that came in before.
 */
static void
lost(RexpLink *link, RexpError *error, const char *reason)
{
	rexp_error_set(error, ERRCODE_CONNECTION_FAILURE,
				   "lost the connection to Redis server \"%s\" at %s: %s",
				   link->options.server, address_text(link), reason);
}

/*
 * rexp_link_send
 *	  Hand bytes to the kernel, as many as it takes now.
 *
 * Returns how many those were, which may be 0, or -1 after a loss of the
 * connection.  Replies that came in before can still be received.  With TLS the
 * last of the bytes may be kept here until there is room for them; they have
 * been sent as far as the caller is concerned, and cannot be taken back.
 */
ssize_t
rexp_link_send(RexpLink *link, const char *bytes, size_t len, RexpError *error)
{
	ssize_t		n;

	if (link->tls.context != NULL)
	{
		n = rexp_tls_send(&link->tls, bytes, len);
		if (n < 0)
			lost(link, error, link->tls.reason);
		return n;
	}

	do
	{
		n = send(link->context->fd, bytes, len, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);

	if (n >= 0)
		return n;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return 0;
	lost(link, error, strerror(errno));
	return -1;
}

/*
 * rexp_link_receive
 *	  Read what has come in, for rexp_link_next_reply().
 *
 * Returns the number of bytes, 0 if there are none now, -1 after a loss of the
 * connection.  Only when it has returned 0, one may wait for more.
 */
ssize_t
rexp_link_receive(RexpLink *link, RexpError *error)
{
	const char *reason;
	ssize_t		n;

	if (link->tls.context != NULL)
	{
		n = rexp_tls_receive(&link->tls, link->input, RECEIVE_SIZE);
		reason = link->tls.reason;
	}
	else
	{
		do
		{
			n = recv(link->context->fd, link->input, RECEIVE_SIZE, 0);
		} while (n < 0 && errno == EINTR);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		reason = n == 0 ? "the server closed it" : strerror(errno);
		if (n == 0)
			n = -1;
	}

	if (n < 0)
		lost(link, error, reason);
	else if (n > 0)
	{
		if (!link->heard)
			memcpy(link->first, link->input, Min((size_t) n, sizeof(link->first)));
		link->heard = true;
		if (redisReaderFeed(link->context->reader, link->input, n) == REDIS_OK)
			return n;
		lost(link, error, "out of memory");
		return -1;
	}
	return n;
}

/* What listens there is not Redis, by its first bytes: what may it be? */
static const char *
hint_at_stranger(const RexpLink *link)
{
	const char *first = link->first;

	if (strncmp(first, "HTTP/", 5) == 0 || first[0] == '<')
		return "A web server answers there. See host and port of the foreign server.";
	/* an error, and its length in four bytes */
	if (first[0] == 'E' && first[1] == '\0')
		return "PostgreSQL, or a pooler of its connections, answers there. See host and port of the foreign server.";
	/* an alert, and the version */
	if (first[0] == 0x15 && first[1] == 0x03 && !link->options.tls.enabled)
		return "If Redis speaks TLS there, set the option \"tls\" to true.";
	return link->options.tls.enabled ? "Something other than Redis may listen there." :
		"Something other than Redis, or Redis with TLS, may listen there.";
}

/* And if it hangs up at our first word, and says nothing? */
static void
hint_at_silence(const RexpLink *link, RexpError *error)
{
	if (!rexp_address_is_socket(&link->address) &&
		(link->address.port == POSTGRES_PORT || link->address.port == PostPortNumber))
		rexp_error_hint(error, "Port %d may be that of PostgreSQL, which hangs up on others. See host and port of the foreign server. If Redis speaks TLS there, set the option \"tls\" to true.",
						link->address.port);
	else
		rexp_error_hint(error, "If Redis speaks TLS there, set the option \"tls\" to true. If something else listens there, see host and port of the foreign server.");
}

/* The next reply as hiredis' functions made it; see rexp_link_next_reply(). */
static int
next_object(RexpLink *link, void **object, RexpError *error)
{
	/* the type is left alone: half an array may have come in before */
	*object = NULL;
	if (redisReaderGetReply(link->context->reader, object) != REDIS_OK)
	{
		rexp_error_set(error, ERRCODE_PROTOCOL_VIOLATION,
					   "Redis server \"%s\" at %s sent what is no reply of Redis: %s",
					   link->options.server, address_text(link),
					   link->context->reader->errstr);
		rexp_error_hint(error, "%s", hint_at_stranger(link));
		return -1;
	}
	return *object != NULL;
}

/*
 * rexp_link_next_reply
 *	  Look at the next reply that has come in whole.
 *
 * Returns 1 for a reply, 0 if there is none, -1 if what came is no RESP.
 */
int
rexp_link_next_reply(RexpLink *link, RexpReply *reply, RexpError *error)
{
	void	   *object;
	int			result = next_object(link, &object, error);

	*reply = link->reply;
	return result;
}

/* Say that the server has been silent for so many milliseconds. */
void
rexp_link_timed_out(RexpLink *link, int timeout, RexpError *error)
{
	char		reason[64];

	snprintf(reason, sizeof(reason), "no answer for %g seconds", timeout / 1000.0);
	lost(link, error, reason);
}

/*
 * rexp_link_wait
 *	  Wait for input, for room to write if asked for or needed, or for so many
 *	  milliseconds.  Serves interrupts, so it may raise an error.  Without a
 *	  connection it only waits.
 */
void
rexp_link_wait(RexpLink *link, bool until_writable, long timeout)
{
	uint32		watched = rexp_link_events(link, until_writable);
	WaitEvent	occurred[EVENT_COUNT];

	if (link->events == NULL)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, rexp_wait_event());
	else
	{
		if (watched != link->watched)
		{
			ModifyWaitEvent(link->events, EVENT_SOCKET, watched, NULL);
			link->watched = watched;
		}
		(void) WaitEventSetWait(link->events, timeout, occurred, EVENT_COUNT,
								rexp_wait_event());
	}
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Take over a socket: from here on rexp_link_close() closes it. */
static void
adopt_socket(RexpLink *link, int fd)
{
	static uint64 connections = 0;

	link->context = redisConnectFd(fd);
	if (link->context == NULL)
	{
		close(fd);
		ReleaseExternalFD();
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	}
	link->connection = ++connections;
	link->context->flags &= ~REDIS_BLOCK;
	link->context->reader->fn = limited_functions(link->context->reader->fn);
	if (!link->keep_trees)
	{
		link->context->reader->fn = &reply_functions;
		link->context->reader->privdata = link;
	}

	link->events = rexp_create_wait_event_set(EVENT_COUNT);
	AddWaitEventToSet(link->events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(link->events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	link->watched = WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE;
	AddWaitEventToSet(link->events, link->watched, fd, NULL, NULL);
}

/* Milliseconds from now to a moment, at least 0. */
static long
time_left(TimestampTz until)
{
	return Max(0, (long) ((until - GetCurrentTimestamp()) / 1000) + 1);
}

/*
 * open_address
 *	  Connect to one address.  On failure *reason says why, as a static string.
 */
static bool
open_address(RexpLink *link, const struct sockaddr *address, socklen_t len,
			 const char **reason)
{
	TimestampTz deadline = GetCurrentTimestamp() +
		(int64) link->options.connect_timeout * 1000;
	int			on = 1;
	int			problem = 0;
	socklen_t	size = sizeof(problem);
	int			fd;

	if (!AcquireExternalFD())
	{
		*reason = "too many open files";
		return false;
	}
	fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
	{
		*reason = strerror(errno);
		ReleaseExternalFD();
		return false;
	}
	if (address->sa_family != AF_UNIX)
	{
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		(void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	adopt_socket(link, fd);

	/* A socket of the Unix domain says EAGAIN while its queue is full. */
	if (connect(fd, address, len) != 0 && errno != EINPROGRESS)
	{
		*reason = strerror(errno);
		rexp_link_close(link);
		return false;
	}
	for (;;)
	{
		struct sockaddr_storage peer;
		socklen_t	peer_size = sizeof(peer);

		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) != 0)
			problem = errno;
		if (problem != 0)
			break;
		if (getpeername(fd, (struct sockaddr *) &peer, &peer_size) == 0)
			return true;
		if (GetCurrentTimestamp() >= deadline)
		{
			problem = ETIMEDOUT;
			break;
		}
		rexp_link_wait(link, true, time_left(deadline));
	}
	*reason = strerror(problem);
	rexp_link_close(link);
	return false;
}

/* Connect to the first address of a list that answers, and free the list. */
static bool
open_any(RexpLink *link, struct addrinfo *list, const char **reason)
{
	volatile bool open = false;

	PG_TRY();
	{
		for (struct addrinfo *at = list; at != NULL && !open; at = at->ai_next)
			open = open_address(link, at->ai_addr, at->ai_addrlen, reason);
	}
	PG_FINALLY();
	{
		freeaddrinfo(list);
	}
	PG_END_TRY();
	return open;
}

/* Nobody can be reached: who has said that it is there?  If the options, this hint. */
static void
hint_at_address(const RexpLink *link, const char *hint, RexpError *error)
{
	switch (link->address.source)
	{
		case REXP_ADDRESS_BY_MAP:
		case REXP_ADDRESS_BY_REDIRECTION:
			hint = "The nodes of the cluster tell this address. See that Redis runs there, and that it can be reached from this machine: cluster-announce-ip (or -hostname) and cluster-announce-port say what they tell.";
			break;
		case REXP_ADDRESS_BY_SENTINEL:
			hint = "The sentinels tell this address. See that Redis runs there, and that it can be reached from this machine: replica-announce-ip and replica-announce-port say what they tell.";
			break;
		case REXP_ADDRESS_BY_SENTINEL_HOSTS:
		case REXP_ADDRESS_BY_HOST:
			break;
	}
	if (hint != NULL)
		rexp_error_hint(error, "%s", hint);
}

/*
 * open_host
 *	  Connect to the first address of the host that answers: the one door by which
 *	  we leave, whoever has said where to.
 */
static RexpAnswer
open_host(RexpLink *link, RexpError *error)
{
	const char *host = link->address.host;
	const char *fault = rexp_address_fault(&link->address);
	const char *reason = "it has no address";
	bool		open = false;

	if (fault != NULL)
	{
		char		shown[REXP_HOST_SIZE + 64];

		rexp_printable(shown, sizeof(shown), host, strlen(host));
		rexp_error_set(error, ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE,
					   "could not connect to Redis server \"%s\": \"%s\" is not a valid host",
					   link->options.server, shown);
		rexp_error_detail(error, "%s", fault);
		return REXP_ANSWER_FATAL;
	}
	if (rexp_address_is_socket(&link->address))
	{
		struct sockaddr_un address = {.sun_family = AF_UNIX};

		strlcpy(address.sun_path, host, sizeof(address.sun_path));
		open = open_address(link, (struct sockaddr *) &address, sizeof(address), &reason);
	}
	else
	{
		struct addrinfo hints = {.ai_family = AF_UNSPEC,.ai_socktype = SOCK_STREAM};
		struct addrinfo *list = NULL;
		char		port[16];
		int			problem;

		snprintf(port, sizeof(port), "%d", link->address.port);
		problem = getaddrinfo(host, port, &hints, &list);
		if (problem != 0)
		{
			rexp_error_set(error, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
						   "could not find the address of Redis server \"%s\", host \"%s\": %s",
						   link->options.server, host, gai_strerror(problem));
			hint_at_address(link, NULL, error);
			return problem == EAI_NONAME ? REXP_ANSWER_FATAL : REXP_ANSWER_RECONNECT;
		}
		open = open_any(link, list, &reason);
	}
	if (open)
		return REXP_ANSWER_DONE;
	rexp_error_set(error, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
				   "could not connect to Redis server \"%s\" at %s: %s",
				   link->options.server, address_text(link), reason);
	hint_at_address(link, "See that Redis runs there, and host and port of the foreign server.", error);
	return REXP_ANSWER_RECONNECT;
}

/* Say that there is no TLS with the server, for the reason in link->tls. */
static void
not_secured(RexpLink *link, const char *hint, RexpError *error)
{
	rexp_error_set(error, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
				   "could not connect to Redis server \"%s\" at %s with TLS: %s",
				   link->options.server, address_text(link), link->tls.reason);
	if (hint != NULL)
		rexp_error_hint(error, "%s", hint);
}

/*
 * secure
 *	  Have a handshake of TLS on the connection, within connect_timeout.
 *
 * What is refused is FATAL, with the SQLSTATE of a connection that could not be
 * made: who had one to this server before may still try again.
 */
static RexpAnswer
secure(RexpLink *link, const char *name, RexpError *error)
{
	const RexpLinkOptions *options = &link->options;
	TimestampTz deadline = GetCurrentTimestamp() +
		(int64) options->connect_timeout * 1000;
	RexpTlsProgress progress = REXP_TLS_FAILED;

	if (rexp_tls_start(&link->tls, link->context, &options->tls, name))
	{
		while ((progress = rexp_tls_handshake(&link->tls)) == REXP_TLS_READ ||
			   progress == REXP_TLS_WRITE)
		{
			if (GetCurrentTimestamp() >= deadline)
			{
				snprintf(link->tls.reason, sizeof(link->tls.reason),
						 "no handshake within %g seconds",
						 options->connect_timeout / 1000.0);
				break;
			}
			rexp_link_wait(link, progress == REXP_TLS_WRITE, time_left(deadline));
		}
	}
	if (progress == REXP_TLS_DONE)
		return REXP_ANSWER_DONE;
	not_secured(link, link->tls.refused ? link->tls.hint :
				"See that this is the port where Redis speaks TLS, or set the option \"tls\" to false.",
				error);
	return link->tls.refused ? REXP_ANSWER_FATAL : REXP_ANSWER_RECONNECT;
}

/* Add to a certificate's hint what to do where a cluster says how its nodes are called. */
static void
hint_at_names(const RexpLink *link, RexpError *error)
{
	const RexpAddress *address = &link->address;

	if (address->name[0] != '\0')
		rexp_error_hint(error, "The certificate has neither name that the cluster tells of this node, \"%s\" and \"%s\": set the option \"tls_server_name\" to a name that all have.",
						address->host, address->name);
	else
		rexp_error_hint(error, "The cluster tells this address of its node. Have it tell a name that the certificate has (cluster-announce-hostname), or set the option \"tls_server_name\" to a name that all have.");
}

/*
 * secure_host
 *	  The same with the name that the option says; or else that by which a cluster calls
 *	  its node besides the address, or the address, whichever the certificate has.
 */
static RexpAnswer
secure_host(RexpLink *link, RexpError *error)
{
	const RexpAddress *address = &link->address;
	const char *name = link->options.tls.server_name;
	RexpAnswer	answer;

	if (name != NULL)
		return secure(link, name, error);
	answer = secure(link, address->name[0] != '\0' ? address->name : address->host, error);
	if (link->tls.other_name && address->name[0] != '\0')
	{
		rexp_link_close(link);
		answer = open_host(link, error);
		if (answer == REXP_ANSWER_DONE)
			answer = secure(link, address->host, error);
	}
	if (answer == REXP_ANSWER_FATAL && link->tls.other_name &&
		(address->source == REXP_ADDRESS_BY_MAP ||
		 address->source == REXP_ADDRESS_BY_REDIRECTION))
		hint_at_names(link, error);
	return answer;
}

/*
 * rexp_link_converse
 *	  Send what is left of a request, and wait for the next reply.
 *
 * *sent is how many of its bytes have been sent; the request may have grown since
 * the last call.  timeout is in milliseconds without a byte either way.  Returns
 * what hiredis' functions made of the reply: a redisReply that the caller frees, if
 * the link keeps trees, else a pointer that only says that link->reply is filled.
 * Returns NULL after a loss of the connection, a reply that is no RESP, or when
 * time is up; the connection is closed then.  Serves interrupts: after an error
 * that was raised here the connection may still hold the reply, and must be
 * closed.
 */
void *
rexp_link_converse(RexpLink *link, const RexpBuffer *request, size_t *sent,
				   int timeout, RexpError *error)
{
	TimestampTz deadline = GetCurrentTimestamp() + (int64) timeout * 1000;
	void	   *object;

	for (;;)
	{
		ssize_t		received;
		ssize_t		n = 0;

		if (next_object(link, &object, error) != 0)
		{
			if (object == NULL)
				break;
			return object;
		}
		received = rexp_link_receive(link, error);
		if (received < 0)
			break;
		if (received > 0)
		{
			deadline = GetCurrentTimestamp() + (int64) timeout * 1000;
			CHECK_FOR_INTERRUPTS();
			continue;
		}
		if (*sent < request->len)
		{
			n = rexp_link_send(link, request->data + *sent, request->len - *sent,
							   error);
			if (n < 0)
			{
				/* a refusal may have come before the connection was cut */
				RexpError	ignored;

				if (rexp_link_receive(link, &ignored) > 0 &&
					next_object(link, &object, &ignored) > 0)
					return object;
				break;
			}
			*sent += n;
		}
		if (n > 0)
		{
			deadline = GetCurrentTimestamp() + (int64) timeout * 1000;
			CHECK_FOR_INTERRUPTS();
			continue;
		}
		if (GetCurrentTimestamp() >= deadline)
		{
			rexp_link_timed_out(link, timeout, error);
			break;
		}
		rexp_link_wait(link, *sent < request->len, time_left(deadline));
	}
	rexp_link_close(link);
	return NULL;
}

/*
 * rexp_link_exchange
 *	  Send one command and wait for its reply, as rexp_link_converse() does.
 *
 * If an error is raised meanwhile, the connection is closed: what is sent on it would
 * get the answer to this.
 */
void *
rexp_link_exchange(RexpLink *link, const RexpBuffer *request, int timeout,
				   RexpError *error)
{
	size_t		sent = 0;
	void	   *volatile reply = NULL;

	PG_TRY();
	{
		reply = rexp_link_converse(link, request, &sent, timeout, error);
	}
	PG_CATCH();
	{
		rexp_link_close(link);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return reply;
}

/*
 * rexp_link_ask
 *	  rexp_link_exchange() with the whole reply as a redisReply, which the caller
 *	  frees, also on a link that does not keep trees.  Nothing else must be on
 *	  its way.
 */
void *
rexp_link_ask(RexpLink *link, const RexpBuffer *request, int timeout,
			  RexpError *error)
{
	void	   *tree;

	if (!link->keep_trees)
		link->context->reader->fn = &tree_functions;
	tree = rexp_link_exchange(link, request, timeout, error);
	if (!link->keep_trees && link->context != NULL)
		link->context->reader->fn = &reply_functions;
	return tree;
}

/*
 * Send a command of words and look at the reply.  Returns DONE, what an error
 * reply means, or RECONNECT after a loss.
 */
static RexpAnswer
call(RexpLink *link, int nwords, const char *const *words, RexpError *error)
{
	RexpBuffer	request;
	redisReply *tree;
	RexpAnswer	answer = REXP_ANSWER_DONE;

	rexp_buffer_init(&request, 256);
	rexp_resp_header(&request, '*', nwords);
	for (int i = 0; i < nwords; i++)
		rexp_resp_word(&request, words[i]);
	tree = rexp_link_exchange(link, &request, link->options.connect_timeout, error);
	rexp_buffer_free(&request);

	if (tree == NULL)
		return rexp_link_failure(error);
	if (link->keep_trees)
	{
		if (tree->type == REDIS_REPLY_ERROR)
			answer = rexp_answer_to(tree->str, tree->len, error);
		freeReplyObject(tree);
	}
	else if (link->reply.type == REXP_REPLY_ERROR)
		answer = rexp_answer_to(link->reply.text, link->reply.len, error);
	return answer;
}

/* The number or word after "name:" in the text of INFO, or NULL. */
static const char *
info_field(const char *text, const char *name)
{
	const char *at = text;
	size_t		len = strlen(name);

	while (at != NULL)
	{
		if (strncmp(at, name, len) == 0 && at[len] == ':')
			return at + len + 1;
		at = strchr(at, '\n');
		if (at != NULL)
			at++;
	}
	return NULL;
}

/* Copy the word after "name:" in the text of INFO, if it is there. */
static void
info_word(const char *text, const char *name, char *to, size_t size)
{
	const char *field = info_field(text, name);

	if (field != NULL)
		strlcpy(to, field, Min(size, strcspn(field, "\r\n") + 1));
}

/*
 * Is it only this command that Redis does not take: an ACL without it, a name that was
 * taken away, a proxy that does not know it?  Then we do without what it would tell.
 */
static bool
is_refused(RexpAnswer answer, const RexpError *error)
{
	return rexp_answer_is_own(answer) ||
		(answer == REXP_ANSWER_FATAL &&
		 (error->sqlstate == ERRCODE_UNDEFINED_FUNCTION ||
		  (error->sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE &&
		   strstr(error->message, "NOPERM") != NULL)));
}

/* Ask the server who it is.  One that does not tell is taken as it is. */
static RexpAnswer
inspect(RexpLink *link, RexpError *error)
{
	static const char *const words[] = {"INFO"};
	bool		keep_trees = link->keep_trees;
	RexpAnswer	answer;
	const char *field;

	link->keep_trees = false;
	link->context->reader->fn = &reply_functions;
	link->context->reader->privdata = link;
	answer = call(link, 1, words, error);
	link->keep_trees = keep_trees;
	if (keep_trees && link->context != NULL)
		link->context->reader->fn = &tree_functions;

	memset(&link->info, 0, sizeof(link->info));
	if (answer == REXP_ANSWER_DONE && link->reply.type == REXP_REPLY_STRING)
	{
		info_word(link->text, "run_id", link->info.run_id,
				  sizeof(link->info.run_id));
		info_word(link->text, "master_replid", link->info.history,
				  sizeof(link->info.history));
		info_word(link->text, "master_replid2", link->info.history_before,
				  sizeof(link->info.history_before));
		field = info_field(link->text, "role");
		link->info.is_replica = field != NULL && strncmp(field, "slave", 5) == 0;
		field = info_field(link->text, "cluster_enabled");
		link->info.is_cluster = field != NULL && *field == '1';
		link->info.tells_cluster = field != NULL;
		field = info_field(link->text, "loading");
		link->info.loading = field != NULL && *field == '1';
		field = info_field(link->text, "evicted_keys");
		link->info.evicted_keys = field ? strtoll(field, NULL, 10) : 0;
		field = info_field(link->text, "uptime_in_seconds");
		link->info.uptime = field ? strtoll(field, NULL, 10) : -1;
		if (link->info.run_id[0] == '\0')
			strlcpy(link->info.refused, "its answer has no run_id", sizeof(link->info.refused));
	}
	else if (answer == REXP_ANSWER_DONE)
		strlcpy(link->info.refused, "its answer is no text", sizeof(link->info.refused));
	else if (is_refused(answer, error))
	{
		strlcpy(link->info.refused, error->message, sizeof(link->info.refused));
		answer = REXP_ANSWER_DONE;
	}
	return answer;
}

/* Ask again; false after a loss of the connection. */
bool
rexp_link_refresh_info(RexpLink *link, RexpError *error)
{
	(void) inspect(link, error);
	return link->context != NULL;
}

/*
 * end_old_connection
 *	  Have Redis forget the connection that we had to it before, and ask the
 *	  number of this one.
 *
 * Of the old connection, bytes may still be on their way, or lie unread with a
 * Redis that stood still: it would carry out those commands after ours, and old
 * rows would overwrite newer ones.  Redis may refuse it, and may be too old for
 * it; then that remains as it is.
 */
static RexpAnswer
end_old_connection(RexpLink *link, const char *old_run_id, RexpError *error)
{
	static const char *const ask[] = {"CLIENT", "ID"};
	char		number[32];
	const char *const kill_old[] = {"CLIENT", "KILL", "ID", number};

	RexpAnswer	answer = REXP_ANSWER_DONE;

	snprintf(number, sizeof(number), INT64_FORMAT, link->client_id);
	link->client_refused[0] = '\0';
	if (link->client_id != 0 && old_run_id[0] != '\0' &&
		strcmp(old_run_id, link->info.run_id) == 0)
		answer = call(link, lengthof(kill_old), kill_old, error);
	link->client_id = 0;
	if (answer == REXP_ANSWER_DONE)
	{
		answer = call(link, lengthof(ask), ask, error);
		if (answer == REXP_ANSWER_DONE && link->reply.type == REXP_REPLY_INTEGER)
			link->client_id = link->reply.integer;
	}
	if (!is_refused(answer, error))
		return answer;
	strlcpy(link->client_refused, error->message, sizeof(link->client_refused));
	return REXP_ANSWER_DONE;
}

/* The names and passwords of the link's options as they are now. */
void
rexp_link_renew(RexpLink *link)
{
	if (link->options.renew != NULL)
		link->options.renew(&link->options);
}

/* Enter: password, database, name, and a look at who is there. */
static RexpAnswer
handshake(RexpLink *link, RexpError *error)
{
	const RexpLinkOptions *options = &link->options;
	RexpAnswer	answer;
	char		old_run_id[sizeof(link->info.run_id)];
	char		db[16];

	rexp_link_renew(link);
	if (options->password != NULL)
	{
		const char *const with_name[] = {"AUTH", options->username, options->password};
		const char *const without[] = {"AUTH", options->password};

		answer = options->username ? call(link, 3, with_name, error) :
			call(link, 2, without, error);
		if (answer != REXP_ANSWER_DONE)
		{
			if (rexp_answer_is_own(answer))
				rexp_error_hint(error, "See the username and password of the user mapping.");
			return answer;
		}
	}
	if (options->db != 0)
	{
		const char *const words[] = {"SELECT", db};

		snprintf(db, sizeof(db), "%d", options->db);
		answer = call(link, 2, words, error);
		if (answer != REXP_ANSWER_DONE)
		{
			if (rexp_answer_is_own(answer))
				rexp_error_hint(error, "See the option \"db\" of the foreign server.");
			return answer;
		}
	}
	strlcpy(old_run_id, link->info.run_id, sizeof(old_run_id));
	answer = inspect(link, error);
	if (answer == REXP_ANSWER_DONE && link->info.loading)
	{
		static const char loading[] = "LOADING Redis is loading the dataset in memory";

		return rexp_answer_to(loading, strlen(loading), error);
	}
	if (answer == REXP_ANSWER_DONE && !link->keep_trees)
		answer = end_old_connection(link, old_run_id, error);
	if (answer == REXP_ANSWER_DONE && options->client_name[0] != '\0' &&
		rexp_link_is_open(link))
	{
		const char *const words[] = {"CLIENT", "SETNAME", options->client_name};

		/* a refusal does no harm; the first command of all must not be this */
		(void) call(link, 3, words, error);
	}
	if (answer == REXP_ANSWER_DONE && !rexp_link_is_open(link))
		return rexp_link_failure(error);
	return answer;
}

/*
 * rexp_link_connect
 *	  Connect and enter.  Waits, and serves interrupts.
 *
 * Returns DONE; RECONNECT if it may go better later; FATAL if it will not.
 * *error says why, as it does the link is closed.
 */
RexpAnswer
rexp_link_connect(RexpLink *link, RexpError *error)
{
	bool		with_tls = link->options.tls.enabled;
	RexpAnswer	answer;

	rexp_link_close(link);
	if (with_tls && !rexp_tls_supported(error))
		return REXP_ANSWER_FATAL;
	link->heard = false;
	memset(link->first, 0, sizeof(link->first));
	link->tls.refused = link->tls.other_name = false;
	answer = open_host(link, error);
	if (answer == REXP_ANSWER_DONE && with_tls)
		answer = secure_host(link, error);
	if (answer == REXP_ANSWER_DONE)
	{
		error->sqlstate = 0;
		answer = handshake(link, error);
		if (answer == REXP_ANSWER_DONE)
			return answer;
		if (with_tls && link->tls.refused)
		{
			/* since TLS 1.3 a refusal of our certificate comes that late */
			not_secured(link, link->tls.hint, error);
			answer = REXP_ANSWER_FATAL;
		}
		else
		{
			rexp_error_prefix(error, "could not log in to Redis server \"%s\" at %s: ",
							  link->options.server, address_text(link));
			if (!with_tls && !link->heard && answer == REXP_ANSWER_RECONNECT)
				hint_at_silence(link, error);
		}
	}
	rexp_link_close(link);
	/* what is a row's own fault elsewhere is nothing that will pass here */
	return answer == REXP_ANSWER_LATER || answer == REXP_ANSWER_RECONNECT ?
		answer : REXP_ANSWER_FATAL;
}
