/*-------------------------------------------------------------------------
 *
 * verb.c
 *	  What we know of Redis' commands: which word is the key, which may be
 *	  repeated, which must not be sent over a connection that is ours.
 *
 * From the Redis manual ("Commands", and "Key specifications") and that of its
 * modules.  A command that is not in the tables has its key as second word, and
 * is not repeated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "verb.h"

/*
 * Commands that change what the connection is, so that the next command, or
 * its answer, would be another than its sender thinks.
 */
static const struct
{
	const char *word;
	const char *second;			/* or NULL: all of them */
}			stateful[] = {
	{"SELECT", NULL}, {"AUTH", NULL}, {"HELLO", NULL}, {"RESET", NULL},
	{"QUIT", NULL}, {"MULTI", NULL}, {"EXEC", NULL}, {"DISCARD", NULL},
	{"WATCH", NULL}, {"UNWATCH", NULL}, {"SUBSCRIBE", NULL},
	{"PSUBSCRIBE", NULL}, {"SSUBSCRIBE", NULL}, {"UNSUBSCRIBE", NULL},
	{"PUNSUBSCRIBE", NULL}, {"SUNSUBSCRIBE", NULL}, {"MONITOR", NULL},
	{"SYNC", NULL}, {"PSYNC", NULL}, {"REPLCONF", NULL}, {"READONLY", NULL},
	{"READWRITE", NULL}, {"ASKING", NULL}, {"CLIENT", "REPLY"},
	{"CLIENT", "TRACKING"}, {"CLIENT", "SETNAME"}, {"CLIENT", "NO-EVICT"},
	{"CLIENT", "NO-TOUCH"}, {"CLIENT", "CACHING"}
};

/* Commands that wait for something, and with them all that come behind. */
static const char *const blocking[] = {
	"BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX",
	"BZMPOP", "WAIT", "WAITAOF"
};

/* Words that change what is told below of a command. */
typedef enum Unless
{
	UNLESS_NOTHING,
	UNLESS_INCR,				/* it adds up then */
	UNLESS_CONDITION			/* the answer tells of what was there then */
} Unless;

/* Commands that may be repeated: what they leave behind is the same. */
static const struct
{
	const char *word;
	Unless		unless;
}			repeatable[] = {
	{"SET", UNLESS_CONDITION}, {"SETEX", UNLESS_NOTHING}, {"PSETEX", UNLESS_NOTHING},
	{"SETNX", UNLESS_NOTHING}, {"MSET", UNLESS_NOTHING}, {"SETBIT", UNLESS_NOTHING},
	{"SETRANGE", UNLESS_NOTHING}, {"DEL", UNLESS_NOTHING}, {"UNLINK", UNLESS_NOTHING},
	{"EXPIRE", UNLESS_NOTHING}, {"PEXPIRE", UNLESS_NOTHING},
	{"EXPIREAT", UNLESS_NOTHING}, {"PEXPIREAT", UNLESS_NOTHING},
	{"PERSIST", UNLESS_NOTHING}, {"TOUCH", UNLESS_NOTHING},
	{"HSET", UNLESS_NOTHING}, {"HMSET", UNLESS_NOTHING}, {"HSETNX", UNLESS_NOTHING},
	{"HDEL", UNLESS_NOTHING}, {"HEXPIRE", UNLESS_NOTHING},
	{"HPEXPIRE", UNLESS_NOTHING}, {"HPERSIST", UNLESS_NOTHING},
	{"SADD", UNLESS_NOTHING}, {"SREM", UNLESS_NOTHING},
	{"ZADD", UNLESS_INCR}, {"ZREM", UNLESS_NOTHING}, {"GEOADD", UNLESS_NOTHING},
	{"PFADD", UNLESS_NOTHING}, {"LSET", UNLESS_NOTHING},
	{"JSON.SET", UNLESS_CONDITION}, {"JSON.MERGE", UNLESS_NOTHING},
	{"JSON.MSET", UNLESS_NOTHING}, {"JSON.DEL", UNLESS_NOTHING},
	{"FT.SUGADD", UNLESS_INCR}, {"FT.SUGDEL", UNLESS_NOTHING},
	{"VADD", UNLESS_NOTHING}, {"VREM", UNLESS_NOTHING}, {"BF.ADD", UNLESS_NOTHING},
	{"BF.MADD", UNLESS_NOTHING}, {"PING", UNLESS_NOTHING}, {"GET", UNLESS_NOTHING}
};

/* Where the key is, if it is not the second word. */
static const struct
{
	const char *word;
	int			key_word;		/* from 1, 0: none; -1: the third word counts the
								 * keys, which follow it */
}			keys[] = {
	{"EVAL", -1}, {"EVALSHA", -1}, {"FCALL", -1}, {"EVAL_RO", -1},
	{"EVALSHA_RO", -1}, {"FCALL_RO", -1},
	{"PUBLISH", 0}, {"PING", 0}, {"ECHO", 0}, {"TIME", 0}, {"INFO", 0},
	{"DBSIZE", 0}, {"FLUSHALL", 0}, {"FLUSHDB", 0}, {"SCRIPT", 0},
	{"FUNCTION", 0}, {"CONFIG", 0}, {"CLIENT", 0}, {"ACL", 0}, {"COMMAND", 0},
	{"LATENCY", 0}, {"SLOWLOG", 0}, {"MODULE", 0}, {"CLUSTER", 0},
	{"FT.CREATE", 0}, {"FT.ALTER", 0}, {"FT.DROPINDEX", 0}, {"FT.SEARCH", 0},
	{"FT.AGGREGATE", 0}, {"FT.ALIASADD", 0}, {"FT.ALIASUPDATE", 0},
	{"FT.ALIASDEL", 0}, {"FT.DICTADD", 0}, {"FT.DICTDEL", 0},
	{"FT.SYNUPDATE", 0}, {"FT.INFO", 0}, {"FT.CONFIG", 0},
	{"XGROUP", 3}, {"XINFO", 3}, {"OBJECT", 3}, {"MEMORY", 3}, {"BITOP", 3},
	{"DEBUG", 3}
};

static bool
same_word(const char *a, const char *b)
{
	return a != NULL && pg_strcasecmp(a, b) == 0;
}

/* Is this word among those from the third on? */
static bool
has_option(int nwords, const char *const *words, const char *option)
{
	for (int i = 2; i < nwords; i++)
	{
		if (same_word(words[i], option))
			return true;
	}
	return false;
}

/* Does the command hold a word that makes it depend on what was there? */
static bool
has_condition(int nwords, const char *const *words)
{
	return has_option(nwords, words, "NX") || has_option(nwords, words, "XX") ||
		has_option(nwords, words, "GET") || has_option(nwords, words, "IFEQ") ||
		has_option(nwords, words, "IFNE") || has_option(nwords, words, "IFDEQ") ||
		has_option(nwords, words, "IFDNE");
}

static bool
is_repeatable(int nwords, const char *const *words)
{
	for (size_t i = 0; i < lengthof(repeatable); i++)
	{
		if (!same_word(words[0], repeatable[i].word))
			continue;
		switch (repeatable[i].unless)
		{
			case UNLESS_INCR:
				return !has_option(nwords, words, "INCR");
			case UNLESS_CONDITION:
				return !has_condition(nwords, words);
			default:
				return true;
		}
	}
	return false;
}

static int
key_word(int nwords, const char *const *words)
{
	for (size_t i = 0; i < lengthof(keys); i++)
	{
		if (!same_word(words[0], keys[i].word))
			continue;
		if (keys[i].key_word >= 0)
			return nwords >= keys[i].key_word ? keys[i].key_word : 0;

		/* a number of keys that differs by row is taken for one or more */
		return nwords >= 4 && !same_word(words[2], "0") ? 4 : 0;
	}
	return nwords >= 2 ? 2 : 0;
}

/*
 * rexp_verb_look_up
 *	  What is known of a command.  A word that is not known yet is NULL, but for
 *	  the first.
 */
RexpVerb
rexp_verb_look_up(int nwords, const char *const *words)
{
	RexpVerb	verb;

	verb.key_word = key_word(nwords, words);
	verb.repeatable = is_repeatable(nwords, words);
	verb.nil = REXP_NIL_IS_FINE;
	if (same_word(words[0], "JSON.SET") || same_word(words[0], "JSON.MERGE"))
		verb.nil = REXP_NIL_NO_PLACE;
	else if (same_word(words[0], "SET") && !has_option(nwords, words, "GET"))
		verb.nil = REXP_NIL_NOT_SET;
	return verb;
}

/*
 * rexp_verb_refuse_stateful
 *	  Raise an error for a command that changes the connection.  second may be
 *	  NULL; by is the name of the function that would send it.
 */
void
rexp_verb_refuse_stateful(const char *first, const char *second, const char *by)
{
	for (size_t i = 0; i < lengthof(stateful); i++)
	{
		if (!same_word(first, stateful[i].word) ||
			(stateful[i].second != NULL && !same_word(second, stateful[i].second)))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot send %s%s%s with %s", stateful[i].word,
						stateful[i].second ? " " : "",
						stateful[i].second ? stateful[i].second : "", by),
				 errdetail("It would change the connection, which other commands use too."),
				 same_word(first, "SELECT") || same_word(first, "AUTH") ?
				 errhint("The database is an option of the foreign server, username and password are options of its user mapping.") : 0));
	}
}

/* Raise an error for a command that would hold up an export. */
void
rexp_verb_refuse_blocking(int nwords, const char *const *words)
{
	bool		blocks = same_word(words[0], "XREAD") || same_word(words[0], "XREADGROUP");

	/* the option comes anywhere before the streams, as second word too */
	blocks = blocks && ((nwords > 1 && same_word(words[1], "BLOCK")) ||
						has_option(nwords, words, "BLOCK"));
	for (size_t i = 0; i < lengthof(blocking); i++)
		blocks |= same_word(words[0], blocking[i]);
	if (blocks)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot export with %s", words[0]),
				 errdetail("It waits, and the rows behind it would wait with it.")));
}
