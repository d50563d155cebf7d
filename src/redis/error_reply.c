/*-------------------------------------------------------------------------
 *
 * error_reply.c
 *	  What Redis' error replies mean: one table.
 *
 * A reply begins with a word in capitals for the classes that a client should
 * know (Redis manual, "Redis serialization protocol specification"), the rest
 * is told apart by its text, as tried with Redis 6.2 to 8.6, Valkey 8.1 and 9.1,
 * and RedisJSON 2.8, and as valkey-json, proxies (Envoy, twemproxy) and managed
 * services say it.  A text that is not in the table may be a row's own fault or an
 * outage: see unknown.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "redis/error_reply.h"

typedef struct AnswerRule
{
	const char *prefix;			/* the reply begins with it ... */
	const char *part;			/* ... and holds this, or NULL */
	RexpAnswer	answer;
	int			sqlstate;
	const char *hint;			/* or NULL */
} AnswerRule;

#define PASSWORD_HINT "Give username and password in a user mapping: CREATE USER MAPPING FOR CURRENT_USER SERVER ... OPTIONS (username '...', password '...')."
#define NO_PASSWORD_HINT "Redis wants no password. Take it out of the user mapping: ALTER USER MAPPING ... OPTIONS (DROP password)."
#define JSON_HINT "This Redis has no JSON. Load the module RedisJSON or valkey-json, which not every build of Redis 8 has: MODULE LIST, or INFO modules, tells what is loaded."
#define SEARCH_HINT "This Redis has no search. Load the module RediSearch, which not every build of Redis 8 has: MODULE LIST, or INFO modules, tells what is loaded."
#define PROXY_HINT "A proxy in front of Redis says that it could not reach Redis."
#define QUOTA_HINT "It is a limit of the service that runs this Redis."
#define CLUSTER_HINT "This Redis is a node of a Redis Cluster. Set the option \"cluster\" of the foreign server to true."

/* What is surely about a row, and needs no hint. */
#define OF_ROW(prefix) \
	{prefix, NULL, REXP_ANSWER_ROW, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL}

/* The command is none that this Redis knows: what it is needed for is looked up below. */
#define NO_COMMAND(prefix) \
	{prefix, NULL, REXP_ANSWER_FATAL, ERRCODE_UNDEFINED_FUNCTION, NULL}

/* The first rule that fits counts. */
static const AnswerRule rules[] = {
	/* refused for the moment */
	{"OOM ", NULL, REXP_ANSWER_LATER, ERRCODE_OUT_OF_MEMORY,
	"Redis has reached its maxmemory. Raise it, or choose an eviction policy."},
	{"MISCONF ", NULL, REXP_ANSWER_LATER, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
	"Redis cannot save its data to disk and refuses writes. See its log."},
	{"BUSY ", NULL, REXP_ANSWER_LATER, ERRCODE_OBJECT_IN_USE,
	"A script, function or command has been running in Redis for long. SCRIPT KILL or FUNCTION KILL ends it."},
	{"NOREPLICAS ", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW,
	"Redis has fewer good replicas than its min-replicas-to-write."},
	{"upstream failure", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},
	{"upstream protocol error", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW,
	PROXY_HINT},
	{"no upstream host", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},
	{"ERR Connection ", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},
	{"ERR Host is ", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},
	{"ERR No route to host", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},
	{"ERR Network is ", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},
	{"ERR Broken pipe", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW, PROXY_HINT},

	/* this connection is of no use */
	{"LOADING ", NULL, REXP_ANSWER_RECONNECT, ERRCODE_CANNOT_CONNECT_NOW, NULL},
	{"ERR max number of clients", NULL, REXP_ANSWER_RECONNECT,
	ERRCODE_TOO_MANY_CONNECTIONS, "Raise maxclients in Redis."},
	{"ERR max concurrent connections exceeded", NULL, REXP_ANSWER_RECONNECT,
	ERRCODE_TOO_MANY_CONNECTIONS, QUOTA_HINT},
	{"UNBLOCKED ", NULL, REXP_ANSWER_RECONNECT, ERRCODE_CANNOT_CONNECT_NOW, NULL},
	{"READONLY ", NULL, REXP_ANSWER_RECONNECT,
	ERRCODE_READ_ONLY_SQL_TRANSACTION,
	"The server's options lead to a Redis replica. Point them to the master."},
	{"MASTERDOWN ", NULL, REXP_ANSWER_RECONNECT, ERRCODE_CANNOT_CONNECT_NOW,
	"The server's options lead to a Redis replica. Point them to the master."},

	/* of a cluster */
	{"CLUSTERDOWN ", NULL, REXP_ANSWER_CLUSTER_DOWN, ERRCODE_CANNOT_CONNECT_NOW, NULL},
	{"MOVED ", NULL, REXP_ANSWER_MOVED, ERRCODE_FEATURE_NOT_SUPPORTED, CLUSTER_HINT},
	{"ASK ", NULL, REXP_ANSWER_ASK, ERRCODE_FEATURE_NOT_SUPPORTED, CLUSTER_HINT},
	{"TRYAGAIN ", NULL, REXP_ANSWER_TRY_AGAIN, ERRCODE_FEATURE_NOT_SUPPORTED, CLUSTER_HINT},
	{"ERR This instance has cluster support disabled", NULL, REXP_ANSWER_FATAL,
		ERRCODE_FEATURE_NOT_SUPPORTED,
	"This Redis is no node of a cluster. Set the option \"cluster\" of the foreign server to false or auto."},

	/* the job cannot go on */
	{"NOAUTH ", NULL, REXP_ANSWER_FATAL,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, PASSWORD_HINT},
	{"ERR operation not permitted", NULL, REXP_ANSWER_FATAL,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, PASSWORD_HINT},
	{"WRONGPASS ", NULL, REXP_ANSWER_FATAL, ERRCODE_INVALID_PASSWORD,
	"See the username and password of the user mapping."},
	{"ERR invalid password", NULL, REXP_ANSWER_FATAL, ERRCODE_INVALID_PASSWORD,
	"See the username and password of the user mapping."},
	{"ERR Client sent AUTH, but no password is set", NULL, REXP_ANSWER_FATAL,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, NO_PASSWORD_HINT},
	{"ERR AUTH <password> called without any password", NULL, REXP_ANSWER_FATAL,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, NO_PASSWORD_HINT},
	{"DENIED ", NULL, REXP_ANSWER_FATAL, ERRCODE_INSUFFICIENT_PRIVILEGE,
	"Redis is in protected mode. Set a password or the address that it binds to."},
	NO_COMMAND("ERR unknown command"),
	NO_COMMAND("ERR unknown subcommand"),
	NO_COMMAND("unknown command"),
	NO_COMMAND("ERR unsupported command"),
	NO_COMMAND("unsupported command"),
	NO_COMMAND("ERR Command is not available"),
	{"ERR unknown type name", "ReJSON", REXP_ANSWER_FATAL, ERRCODE_UNDEFINED_OBJECT,
	JSON_HINT},
	{"NOSCRIPT ", NULL, REXP_ANSWER_FATAL, ERRCODE_UNDEFINED_FUNCTION,
	"Load the script into Redis with SCRIPT LOAD, or send it whole with EVAL."},
	{"ERR max request size exceeded", NULL, REXP_ANSWER_ROW,
	ERRCODE_PROGRAM_LIMIT_EXCEEDED, QUOTA_HINT},
	{"ERR max ", "exceeded", REXP_ANSWER_FATAL, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
	QUOTA_HINT},
	{"NOPERM ", "'cluster", REXP_ANSWER_FATAL, ERRCODE_INSUFFICIENT_PRIVILEGE,
	"Grant the Redis user the command: ACL SETUSER ... +cluster|slots."},
	{"NOPERM ", "to run", REXP_ANSWER_FATAL, ERRCODE_INSUFFICIENT_PRIVILEGE,
	"Grant the Redis user the command: ACL SETUSER ... +command."},

	/* the row's own fault */
	{"NOPERM ", NULL, REXP_ANSWER_ROW, ERRCODE_INSUFFICIENT_PRIVILEGE,
	"Grant the Redis user the key: ACL SETUSER ... ~pattern."},
	{"WRONGTYPE ", NULL, REXP_ANSWER_ROW, ERRCODE_WRONG_OBJECT_TYPE,
	"The key holds a value of another type. Delete it, or choose another key."},
	{"Existing key has wrong Redis type", NULL, REXP_ANSWER_ROW,
		ERRCODE_WRONG_OBJECT_TYPE,
	"The key holds a value of another type. Delete it, or choose another key."},

	/* of RedisJSON: of the document, and of the path */
	{"", " at line ", REXP_ANSWER_ROW, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL},
	OF_ROW("Error occurred on position"),
	OF_ROW("Err wrong static path"),
	OF_ROW("ERR Path "),
	OF_ROW("ERR path "),
	OF_ROW("ERR new objects must be created at the root"),
	OF_ROW("ERR could not perform this operation on a key"),
	OF_ROW("ERR array index "),
	OF_ROW("ERR wrong type of path value"),

	/* of search: there is no such index */
	{"", "unknown index name", REXP_ANSWER_ROW, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL},
	{"", "no such index", REXP_ANSWER_ROW, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL},
	{"", "index not found", REXP_ANSWER_ROW, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL},

	/* of valkey-json */
	OF_ROW("NONEXISTENT "),
	OF_ROW("SYNTAXERR "),
	OF_ROW("OUTOFBOUNDARIES "),
	OF_ROW("LIMIT "),

	/* of Redis: of arguments, and of what the key holds */
	OF_ROW("ERR Protocol error"),
	OF_ROW("ERR syntax error"),
	OF_ROW("ERR wrong number of arguments"),
	OF_ROW("ERR value is "),
	OF_ROW("ERR hash value is not "),
	OF_ROW("ERR min or max is not "),
	OF_ROW("ERR weight value is not "),
	OF_ROW("ERR bit "),
	OF_ROW("ERR offset is out of range"),
	OF_ROW("ERR index out of range"),
	OF_ROW("ERR invalid expire time"),
	OF_ROW("ERR invalid longitude,latitude pair"),
	OF_ROW("ERR Invalid stream ID"),
	OF_ROW("ERR The ID specified in XADD"),
	OF_ROW("ERR The stream has exhausted"),
	OF_ROW("ERR increment "),
	OF_ROW("ERR resulting score is not a number"),
	OF_ROW("ERR string exceeds maximum allowed size"),
	OF_ROW("ERR no such key"),
	OF_ROW("ERR source and destination objects are the same"),
	OF_ROW("ERR Vector dimension mismatch"),
	OF_ROW("ERR invalid vector "),
	OF_ROW("BUSYKEY "),
	OF_ROW("BUSYGROUP "),
	OF_ROW("NOGROUP "),
	OF_ROW("CROSSSLOT "),
	OF_ROW("INVALIDOBJ "),
	{NULL, NULL, REXP_ANSWER_UNKNOWN, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL}
};

/*
 * What we need a command for that this Redis does not know, by what its name begins
 * with.
 */
static const struct
{
	const char *name;
	const char *hint;
}			needs[] = {
	{"JSON.MERGE", "JSON.MERGE came with RedisJSON 2.6, and valkey-json has none: MODULE LIST, or INFO modules, tells what is loaded. Export without merge."},
	{"JSON.", JSON_HINT},
	{"FT.", SEARCH_HINT},
	{"MULTI", "It is needed by redis_export_run, and for hashes by replace."},
	{"EXEC", "It is needed by redis_export_run, and for hashes by replace."},
	{"HDEL", "It is needed by redis_export_run, where it deletes keys."},
	{"HGETALL", "It is needed by redis_hash_scan, redis_export_verify and redis_export_run."},
	{"HGET", "It is needed by redis_export_run."},
	{"HLEN", "It is needed by redis_export_run."},
	{"HSET", "It is needed by redis_hash_export and redis_export_run."},
	{"HSCAN", "It is needed by prune, and by redis_export_verify for an export by name."},
	{"SCAN", "It is needed by redis_export_verify, and the functions that scan."},
	{"TYPE", "It is needed by redis_export_run."},
	{"UNLINK", "It is needed by prune."},
	{"WAIT", "It is needed by wait_replicas."},
	{"PEXPIREAT", "It is needed by ttl_column."},
	{"PEXPIRE", "It is needed by ttl and ttl_column."},
	{"PERSIST", "It is needed by ttl_column."},
	{"CLUSTER", "It is needed for a cluster. If this is none, set the option \"cluster\" of the foreign server to false."},
	{"SLOTS", "It is needed for a cluster. If this is none, set the option \"cluster\" of the foreign server to false."},
	{"SELECT", "It is needed for the option \"db\" of the foreign server."}
};

static const char discarded[] = "EXECABORT Transaction discarded because of: ";
static const char arguments_follow[] = ", with args beginning with:";

/*
 * What the command is needed for that the reply names, in quotes of some kind;
 * NULL if that is not known.
 */
static const char *
find_need(const char *text)
{
	const char *name = strpbrk(text, "'`\"");

	if (name == NULL)
		return NULL;
	name++;
	for (int i = 0; i < (int) lengthof(needs); i++)
	{
		if (pg_strncasecmp(name, needs[i].name, strlen(needs[i].name)) == 0)
			return needs[i].hint;
	}
	return NULL;
}

/*
 * rexp_answer_to
 *	  Find what an error reply means, and tell it in *error.
 *
 * The message is "Redis answered: " and the reply, as text that can be shown.
 * Redis repeats the arguments of a command that it does not know, documents and
 * passwords too: they are cut off.
 */
RexpAnswer
rexp_answer_to(const char *reply, size_t len, RexpError *error)
{
	char		text[REXP_MESSAGE_SIZE - 32];
	const AnswerRule *rule;
	const char *arguments = memmem(reply, len, arguments_follow,
								   strlen(arguments_follow));

	const char *reason;
	const char *hint;

	if (arguments != NULL)
		len = arguments - reply;
	rexp_printable(text, sizeof(text), reply, len);

	/* of a transaction, what counts is why it was discarded */
	reason = text;
	if (strncmp(text, discarded, strlen(discarded)) == 0)
		reason += strlen(discarded);
	for (rule = rules; rule->prefix != NULL; rule++)
	{
		if (strncmp(reason, rule->prefix, strlen(rule->prefix)) == 0 &&
			(rule->part == NULL || strcasestr(reason, rule->part) != NULL))
			break;
	}
	rexp_error_set(error, rule->sqlstate, "Redis answered: %s", text);
	hint = rule->hint;
	if (hint == NULL && rule->sqlstate == ERRCODE_UNDEFINED_FUNCTION)
		hint = find_need(reason);
	if (hint != NULL)
		rexp_error_hint(error, "%s", hint);
	return rule->answer;
}
