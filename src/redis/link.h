/*-------------------------------------------------------------------------
 *
 * link.h
 *	  One connection to Redis: bytes out, replies in, never blocking but in
 *	  calls that say so.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_LINK_H
#define REDIS_EXPORT_LINK_H

#include "base/error.h"
#include "redis/address.h"
#include "redis/error_reply.h"
#include "redis/resp.h"
#include "redis/tls.h"

/* Is Redis a cluster? */
typedef enum RexpClusterMode
{
	REXP_CLUSTER_AUTO,			/* as it says itself */
	REXP_CLUSTER_ON,
	REXP_CLUSTER_OFF
} RexpClusterMode;

/* Where Redis is and how to enter.  Owned by whoever made the link. */
typedef struct RexpLinkOptions
{
	const char *server;			/* name of the foreign server, for errors */
	const char *host;			/* the options of the server, or ... */
	int			port;
	const RexpAddress *lead_to; /* ... where else it is, or NULL */
	int			db;
	int			connect_timeout;	/* milliseconds, for each address and for TLS */
	int			timeout;		/* milliseconds without a byte */
	const char *username;		/* or NULL */
	const char *password;		/* or NULL */
	/* before it enters: bring these, and those below, up to date; or NULL */
	void		(*renew) (struct RexpLinkOptions *options);
	Oid			serverid;		/* whose user mapping they are from ... */
	Oid			user;			/* ... for whom */
	const char *client_name;
	RexpClusterMode cluster;
	RexpTlsOptions tls;

	/* of sentinels, who know where the master is; host and port come from them */
	const char *sentinel_hosts; /* host:port, ..., or NULL: there are none */
	const char *sentinel_service;
	const char *sentinel_username;	/* or NULL */
	const char *sentinel_password;	/* or NULL */
	RexpTlsOptions sentinel_tls;
} RexpLinkOptions;

typedef enum RexpReplyType
{
	REXP_REPLY_STATUS,
	REXP_REPLY_ERROR,
	REXP_REPLY_INTEGER,
	REXP_REPLY_NIL,
	REXP_REPLY_STRING,
	REXP_REPLY_ARRAY			/* of its elements the last integer is kept */
} RexpReplyType;

/* The text lies in the link, until the next reply. */
typedef struct RexpReply
{
	RexpReplyType type;
	int64		integer;
	const char *text;
	size_t		len;
} RexpReply;

/* What INFO tells of the server at the other end. */
typedef struct RexpServerInfo
{
	char		run_id[48];		/* empty if Redis does not tell */
	char		history[48];	/* whose writes its data is made of ... */
	char		history_before[48]; /* ... and was, before it became a master */
	int64		uptime;			/* seconds since it was started, or -1 */
	bool		is_replica;
	bool		is_cluster;		/* a node of one ... */
	bool		tells_cluster;	/* ... or not, by its own word */
	bool		loading;
	int64		evicted_keys;
	char		refused[REXP_MESSAGE_SIZE]; /* what it answered instead of all that,
											 * or empty */
} RexpServerInfo;

typedef struct RexpLink RexpLink;

extern RexpLink *rexp_link_create(const RexpLinkOptions *options,
								  bool keep_trees);
extern RexpAnswer rexp_link_connect(RexpLink *link, RexpError *error);
extern void rexp_link_close(RexpLink *link);
extern bool rexp_link_is_open(const RexpLink *link);
extern const RexpLinkOptions *rexp_link_options_of(const RexpLink *link);
extern const RexpAddress *rexp_link_address(const RexpLink *link);
extern bool rexp_link_refused_by_tls(const RexpLink *link);
extern void rexp_link_set_address(RexpLink *link, const RexpAddress *address);
extern int	rexp_link_socket(const RexpLink *link);
extern uint64 rexp_link_connection(const RexpLink *link);
extern uint32 rexp_link_events(const RexpLink *link, bool until_writable);
extern int	rexp_link_timeout(const RexpLink *link);
extern const RexpServerInfo *rexp_link_server_info(const RexpLink *link);
extern const char *rexp_link_client_refused(const RexpLink *link);

/* A conversation has ended with this error: what is to be done?  No RESP stays none. */
static inline RexpAnswer
rexp_link_failure(const RexpError *error)
{
	return error->sqlstate == ERRCODE_PROTOCOL_VIOLATION ?
		REXP_ANSWER_FATAL : REXP_ANSWER_RECONNECT;
}

extern void rexp_link_renew(RexpLink *link);
extern bool rexp_link_refresh_info(RexpLink *link, RexpError *error);

extern ssize_t rexp_link_send(RexpLink *link, const char *bytes, size_t len,
							  RexpError *error);
extern ssize_t rexp_link_receive(RexpLink *link, RexpError *error);
extern int	rexp_link_next_reply(RexpLink *link, RexpReply *reply,
								 RexpError *error);
extern void rexp_link_timed_out(RexpLink *link, int timeout, RexpError *error);
extern void rexp_link_wait(RexpLink *link, bool until_writable, long timeout);
extern void *rexp_link_converse(RexpLink *link, const RexpBuffer *request,
								size_t *sent, int timeout, RexpError *error);
extern void *rexp_link_exchange(RexpLink *link, const RexpBuffer *request,
								int timeout, RexpError *error);
extern void *rexp_link_ask(RexpLink *link, const RexpBuffer *request,
						   int timeout, RexpError *error);

#endif							/* REDIS_EXPORT_LINK_H */
