/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  What Redis' error replies mean: one table.
 *
 * A reply begins with a word in capitals for the classes that a client should
 * know (Redis manual, "Redis serialization protocol specification"), the rest
 * is told apart by its text, as tried with Redis 7.0 and 8.2 and RedisJSON 2.8.
 * A text that is not in the table is the row's own fault.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "answer.h"

typedef struct AnswerRule
{
	const char *prefix;			/* the reply begins with it ... */
	const char *part;			/* ... and holds this, or NULL */
	RexpAnswer	answer;
	int			sqlstate;
	const char *hint;			/* or NULL */
} AnswerRule;

#define PASSWORD_HINT "Give username and password in a user mapping: CREATE USER MAPPING FOR CURRENT_USER SERVER ... OPTIONS (username '...', password '...')."
#define CLUSTER_HINT "This Redis is a node of a Redis Cluster. Set the option \"cluster\" of the foreign server to true."

/* The first rule that fits counts. */
static const AnswerRule rules[] = {
	/* refused for the moment */
	{"OOM ", NULL, REXP_ANSWER_LATER, ERRCODE_OUT_OF_MEMORY,
	"Redis has reached its maxmemory. Raise it, or choose an eviction policy."},
	{"MISCONF ", NULL, REXP_ANSWER_LATER, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
	"Redis cannot save its data to disk and refuses writes. See its log."},
	{"BUSY ", NULL, REXP_ANSWER_LATER, ERRCODE_OBJECT_IN_USE,
	"A script has been running in Redis for long. SCRIPT KILL ends it."},
	{"NOREPLICAS ", NULL, REXP_ANSWER_LATER, ERRCODE_CANNOT_CONNECT_NOW,
	"Redis has fewer good replicas than its min-replicas-to-write."},

	/* this connection is of no use */
	{"LOADING ", NULL, REXP_ANSWER_RECONNECT, ERRCODE_CANNOT_CONNECT_NOW, NULL},
	{"ERR max number of clients", NULL, REXP_ANSWER_RECONNECT,
	ERRCODE_TOO_MANY_CONNECTIONS, "Raise maxclients in Redis."},
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

	/* the job cannot go on */
	{"NOAUTH ", NULL, REXP_ANSWER_FATAL,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, PASSWORD_HINT},
	{"ERR operation not permitted", NULL, REXP_ANSWER_FATAL,
	ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, PASSWORD_HINT},
	{"WRONGPASS ", NULL, REXP_ANSWER_FATAL, ERRCODE_INVALID_PASSWORD,
	"See the username and password of the user mapping."},
	{"ERR invalid password", NULL, REXP_ANSWER_FATAL, ERRCODE_INVALID_PASSWORD,
	"See the username and password of the user mapping."},
	{"DENIED ", NULL, REXP_ANSWER_FATAL, ERRCODE_INSUFFICIENT_PRIVILEGE,
	"Redis is in protected mode. Set a password or the address that it binds to."},
	{"ERR unknown command", "JSON.", REXP_ANSWER_FATAL,
	ERRCODE_UNDEFINED_FUNCTION,
	"This Redis has no JSON. Use Redis 8, or load the RedisJSON module."},
	{"ERR unknown command", "FT.", REXP_ANSWER_FATAL,
	ERRCODE_UNDEFINED_FUNCTION,
	"This Redis has no search. Use Redis 8, or load the RediSearch module."},
	{"ERR unknown command", NULL, REXP_ANSWER_FATAL, ERRCODE_UNDEFINED_FUNCTION, NULL},
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
	{NULL, NULL, REXP_ANSWER_ROW, ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, NULL}
};

static const char discarded[] = "EXECABORT Transaction discarded because of: ";
static const char arguments_follow[] = ", with args beginning with:";

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
	if (rule->hint)
		rexp_error_hint(error, "%s", rule->hint);
	return rule->answer;
}
