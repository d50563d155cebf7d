/*-------------------------------------------------------------------------
 *
 * connect.c
 *	  Connecting to Redis, wherever it is.
 *
 * Sentinels watch a master and its replicas, and make a replica the master when
 * it is gone (Redis manual, "High availability with Redis Sentinel" and "Sentinel
 * client spec").  They are asked at each connect, one after the other, until one
 * tells an address; and the server there must be a master by its own word.
 *
 * What is sent to Redis is not known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "redis/connect.h"
#include "utils/memutils.h"

#define SENTINEL_PORT 26379

/* Can the option be read? */
bool
rexp_sentinel_hosts_are_valid(const char *hosts)
{
	RexpAddress address;

	do
	{
		if (!rexp_address_listed(&address, &hosts, SENTINEL_PORT))
			return false;
	} while (*hosts != '\0');
	return true;
}

/*
 * Take the address from the reply of a sentinel: an array of host and port, or nil if
 * it does not know the service.
 */
static RexpAnswer
read_master(const redisReply *reply, const RexpLinkOptions *options,
			const RexpAddress *sentinel, RexpAddress *master, RexpError *error)
{
	if (reply->type == REDIS_REPLY_ERROR)
	{
		RexpAnswer	answer = rexp_answer_to(reply->str, reply->len, error);

		if (answer == REXP_ANSWER_FATAL && error->sqlstate == ERRCODE_UNDEFINED_FUNCTION)
			rexp_error_hint(error, "It is no sentinel. See the option \"sentinel_hosts\" of the foreign server.");

		rexp_error_prefix(error, "could not ask the sentinel of Redis server \"%s\" at \"%s\", port %d: ",
						  options->server, sentinel->host, sentinel->port);
		return answer;
	}
	if (reply->type == REDIS_REPLY_NIL)
	{
		char		service[128];

		rexp_printable(service, sizeof(service), options->sentinel_service,
					   strlen(options->sentinel_service));
		rexp_error_set(error, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
					   "the sentinel of Redis server \"%s\" at \"%s\", port %d knows no master named \"%s\"",
					   options->server, sentinel->host, sentinel->port, service);
		rexp_error_hint(error, "See the option \"sentinel_service\" of the foreign server.");
		return REXP_ANSWER_FATAL;
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		reply->element[0]->type != REDIS_REPLY_STRING ||
		reply->element[1]->type != REDIS_REPLY_STRING ||
		strspn(reply->element[1]->str, "0123456789") != reply->element[1]->len ||
		!rexp_address_told(master, REXP_ADDRESS_BY_SENTINEL, reply->element[0]->str,
						   reply->element[0]->len, atoi(reply->element[1]->str)))
	{
		rexp_error_set(error, ERRCODE_PROTOCOL_VIOLATION,
					   "the sentinel of Redis server \"%s\" at \"%s\", port %d gave no address that can be read",
					   options->server, sentinel->host, sentinel->port);
		return REXP_ANSWER_FATAL;
	}
	return REXP_ANSWER_DONE;
}

/* Replace words wherever they are in a text, as far as there is room. */
static void
replace_words(char *text, size_t size, const char *from, const char *to)
{
	char	   *at = text;

	while ((at = strstr(at, from)) != NULL)
	{
		size_t		rest = strlen(at + strlen(from)) + 1;

		if ((size_t) (at - text) + strlen(to) + rest > size)
			return;
		memmove(at + strlen(to), at + strlen(from), rest);
		memcpy(at, to, strlen(to));
		at += strlen(to);
	}
}

/* The link's errors and hints are of Redis and its options: speak of the sentinel's. */
static void
speak_of_sentinel(RexpError *error)
{
	static const char *const hints[][2] = {
		{"host and port of the foreign server", "the option \"sentinel_hosts\" of the foreign server"},
		{"See that Redis runs", "See that a sentinel runs"},
		{"where Redis speaks TLS", "where the sentinel speaks TLS"},
		{"If Redis speaks TLS", "If the sentinel speaks TLS"},
		{"\"tls", "\"sentinel_tls"},
		{"username and password", "sentinel_username and sentinel_password"},
		{"(username '...', password '...')", "(sentinel_username '...', sentinel_password '...')"}
	};

	replace_words(error->message, sizeof(error->message), " Redis server \"",
				  " the sentinel of Redis server \"");
	for (size_t i = 0; i < lengthof(hints); i++)
		replace_words(error->hint, sizeof(error->hint), hints[i][0], hints[i][1]);
}

/* Ask for the master over a connection that is there. */
static RexpAnswer
ask_over(RexpLink *link, const RexpLinkOptions *options, RexpAddress *master,
		 RexpError *error)
{
	RexpBuffer	request;
	redisReply *reply;
	RexpAnswer	answer;

	rexp_buffer_init(&request, 128);
	rexp_resp_header(&request, '*', 3);
	rexp_resp_word(&request, "SENTINEL");
	rexp_resp_word(&request, "GET-MASTER-ADDR-BY-NAME");
	rexp_resp_word(&request, options->sentinel_service);
	reply = rexp_link_exchange(link, &request, options->connect_timeout, error);
	if (reply == NULL)
		return rexp_link_failure(error);
	answer = read_master(reply, options, rexp_link_address(link), master, error);
	freeReplyObject(reply);
	return answer;
}

/* Ask one sentinel, over a connection for this one question. */
static RexpAnswer
ask_sentinel(const RexpLinkOptions *options, RexpAddress *master, RexpError *error)
{
	RexpLink   *link = rexp_link_create(options, true);
	volatile RexpAnswer answer = REXP_ANSWER_RECONNECT;

	PG_TRY();
	{
		answer = rexp_link_connect(link, error);
		if (answer != REXP_ANSWER_DONE)
			speak_of_sentinel(error);
		else
			answer = ask_over(link, options, master, error);
	}
	PG_FINALLY();
	{
		rexp_link_close(link);
	}
	PG_END_TRY();
	return answer;
}

/*
 * Ask the sentinels one after the other.  A refusal is one only if none of them
 * can be asked later with another result.
 */
static RexpAnswer
find_master(const RexpLinkOptions *options, RexpAddress *master, RexpError *error)
{
	const char *at = options->sentinel_hosts;
	RexpAnswer	worst = REXP_ANSWER_FATAL;

	do
	{
		RexpLinkOptions sentinel = *options;
		RexpAddress address;
		RexpAnswer	answer;

		if (!rexp_address_listed(&address, &at, SENTINEL_PORT))
		{
			rexp_error_set(error, ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE,
						   "could not connect to the sentinels of Redis server \"%s\": the option \"sentinel_hosts\" is not valid",
						   options->server);
			return REXP_ANSWER_FATAL;
		}
		sentinel.lead_to = &address;
		sentinel.db = 0;
		sentinel.username = options->sentinel_username;
		sentinel.password = options->sentinel_password;
		sentinel.tls = options->sentinel_tls;
		sentinel.renew = NULL;
		sentinel.client_name = "";
		answer = ask_sentinel(&sentinel, master, error);
		if (answer == REXP_ANSWER_DONE)
			return answer;
		if (answer != REXP_ANSWER_FATAL)
			worst = REXP_ANSWER_RECONNECT;
	} while (*at != '\0');
	return worst;
}

/*
 * rexp_connect
 *	  rexp_link_connect() to where Redis is now.
 *
 * With sentinels, the link is led to the master that they tell.  Waits, and serves
 * interrupts.  What is needed meanwhile is palloc'd in a context of its own.
 */
RexpAnswer
rexp_connect(RexpLink *link, RexpError *error)
{
	const RexpLinkOptions *options = rexp_link_options_of(link);
	MemoryContext scratch;
	MemoryContext old;
	RexpAddress master;
	RexpAnswer	answer;

	if (options->sentinel_hosts == NULL)
		return rexp_link_connect(link, error);

	scratch = AllocSetContextCreate(CurrentMemoryContext, "redis_export sentinel",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(scratch);
	rexp_link_renew(link);
	answer = find_master(options, &master, error);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
	if (answer != REXP_ANSWER_DONE)
		return answer;

	rexp_link_close(link);
	rexp_link_set_address(link, &master);
	answer = rexp_link_connect(link, error);
	if (answer == REXP_ANSWER_DONE && rexp_link_server_info(link)->is_replica)
	{
		rexp_error_set(error, ERRCODE_READ_ONLY_SQL_TRANSACTION,
					   "the Redis at \"%s\", port %d, which sentinels call the master, is a replica",
					   master.host, master.port);
		rexp_link_close(link);
		answer = REXP_ANSWER_RECONNECT;
	}

	/* it may be another one the next time */
	if (answer == REXP_ANSWER_FATAL &&
		error->sqlstate == ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION)
		answer = REXP_ANSWER_RECONNECT;
	return answer;
}
