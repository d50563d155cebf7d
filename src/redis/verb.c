/*-------------------------------------------------------------------------
 *
 * verb.c
 *	  What we know of Redis' commands: which word is the key, which may be
 *	  repeated, which answer says that nothing was written, which must not be
 *	  sent over a connection that is ours.
 *
 * From the Redis manual ("Commands", and "Key specifications") and that of its
 * modules, and from trials where the manual is silent.  A command that is not in
 * the tables has its key as second word, and is not repeated.
 *
 * This is the only place that decides about a command, and it decides with the
 * words that are sent.  An export looks its command up before there is a row.  If
 * all words are known that have a say, what it is told holds for all rows.
 * Otherwise it comes here again with the words of each row.  So each rule below
 * says at which words it looks: the value of a SET, for one, is none of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "redis/resp.h"
#include "redis/verb.h"
#include "utils/memutils.h"

/* One look at a command. */
typedef struct Look
{
	int			nwords;
	const RexpWord *words;
	RexpSender	sender;
	int			placed;			/* so many words are where they will be sent */
	bool		unsure;			/* a word that is not known has a say */
} Look;

/* Is there a word at this place?  Places are counted from 1. */
static bool
has_word(Look *look, int at)
{
	if (at > look->placed)
	{
		look->unsure = true;
		return false;
	}
	return at <= look->nwords;
}

/*
 * Is this option, or subcommand, the word at this place?  Redis takes a word for an
 * option up to its first zero byte, whatever comes behind.
 */
static bool
word_is(Look *look, int at, const char *option)
{
	const RexpWord *word;
	size_t		len = strlen(option);

	if (!has_word(look, at))
		return false;
	word = &look->words[at - 1];
	if (word->bytes == NULL)
	{
		look->unsure |= !word->is_number;
		return false;
	}
	return word->len >= len && pg_strncasecmp(word->bytes, option, len) == 0 &&
		(word->len == len || word->bytes[len] == '\0');
}

/* Is it one of these? */
static bool
word_is_among(Look *look, int at, const char *const *options)
{
	for (; *options != NULL; options++)
	{
		if (word_is(look, at, *options))
			return true;
	}
	return false;
}

/* Is the option among the words from there on, up to one that ends the options? */
static bool
has_option(Look *look, int from, const char *option, const char *end)
{
	for (int at = from; has_word(look, at); at++)
	{
		if (end != NULL && word_is(look, at, end))
			return false;
		if (word_is(look, at, option))
			return true;
	}
	return false;
}

/*
 * Commands that are not sent
 */

typedef struct Refused
{
	const char *word;
	const char *second;			/* or NULL: whatever comes second */
} Refused;

/*
 * Those that change what the connection is, so that the next command, or its
 * answer, would be another than its sender thinks.
 */
static const Refused stateful[] = {
	{"SELECT", NULL}, {"AUTH", NULL}, {"HELLO", NULL}, {"RESET", NULL},
	{"QUIT", NULL}, {"MULTI", NULL}, {"EXEC", NULL}, {"DISCARD", NULL},
	{"WATCH", NULL}, {"UNWATCH", NULL}, {"SUBSCRIBE", NULL},
	{"PSUBSCRIBE", NULL}, {"SSUBSCRIBE", NULL}, {"UNSUBSCRIBE", NULL},
	{"PUNSUBSCRIBE", NULL}, {"SUNSUBSCRIBE", NULL}, {"MONITOR", NULL},
	{"SYNC", NULL}, {"PSYNC", NULL}, {"REPLCONF", NULL}, {"READONLY", NULL},
	{"READWRITE", NULL}, {"ASKING", NULL}, {"SCRIPT", "DEBUG"}
};

/* Of CLIENT those that change nothing here; each version of Redis has others. */
static const char *const client_harmless[] = {
	"GETNAME", "GETREDIR", "HELP", "ID", "INFO", "KILL", "LIST", "PAUSE",
	"TRACKINGINFO", "UNBLOCK", "UNPAUSE", NULL
};

/* Those after which the rows behind would wait, or find no master there. */
static const Refused holding[] = {
	{"BLPOP", NULL}, {"BRPOP", NULL}, {"BLMOVE", NULL}, {"BRPOPLPUSH", NULL},
	{"BLMPOP", NULL}, {"BZPOPMIN", NULL}, {"BZPOPMAX", NULL}, {"BZMPOP", NULL},
	{"WAIT", NULL}, {"WAITAOF", NULL}, {"CLIENT", "PAUSE"}, {"DEBUG", "SLEEP"},
	{"SHUTDOWN", NULL}, {"FAILOVER", NULL}, {"REPLICAOF", NULL}, {"SLAVEOF", NULL}
};

static const Refused *
find_refused(Look *look, const Refused *table, size_t size)
{
	for (size_t i = 0; i < size; i++)
	{
		if (word_is(look, 1, table[i].word) &&
			(table[i].second == NULL || word_is(look, 2, table[i].second)))
			return &table[i];
	}
	return NULL;
}

/* Is it a subcommand of CLIENT that may do anything? */
static bool
is_odd_client(Look *look)
{
	return word_is(look, 1, "CLIENT") && has_word(look, 2) &&
		!word_is_among(look, 2, client_harmless) && !look->unsure;
}

/*
 * Is it a read that waits?  The option comes before the streams; group and consumer may
 * have any name.
 */
static bool
reads_and_waits(Look *look)
{
	if (!word_is(look, 1, "XREAD") && !word_is(look, 1, "XREADGROUP"))
		return false;
	for (int at = 2; has_word(look, at) && !word_is(look, at, "STREAMS"); at++)
	{
		if (word_is(look, at, "BLOCK"))
			return true;
		if (word_is(look, at, "GROUP"))
			at += 2;
	}
	return false;
}

static const char *
sender_name(const Look *look)
{
	return look->sender == REXP_SENDER_COMMAND ? "redis_command" : "redis_command_export";
}

static bool
refuse_stateful(Look *look, RexpError *error)
{
	const Refused *found = find_refused(look, stateful, lengthof(stateful));
	bool		client = found == NULL && is_odd_client(look);
	char		second[64] = "";

	if (found == NULL && !client)
		return false;
	if (client && look->words[1].bytes != NULL)
		rexp_printable(second, sizeof(second), look->words[1].bytes,
					   strnlen(look->words[1].bytes, look->words[1].len));
	else if (found != NULL && found->second != NULL)
		strlcpy(second, found->second, sizeof(second));
	for (char *c = second; *c != '\0'; c++)
		*c = pg_ascii_toupper((unsigned char) *c);
	rexp_error_set(error, ERRCODE_FEATURE_NOT_SUPPORTED, "cannot send %s%s%s with %s",
				   client ? "CLIENT" : found->word, second[0] != '\0' ? " " : "", second,
				   sender_name(look));
	rexp_error_detail(error, "It would change the connection, which other commands use too.");
	if (word_is(look, 1, "SELECT") || word_is(look, 1, "AUTH"))
		rexp_error_hint(error, "The database is an option of the foreign server, username and password are options of its user mapping.");
	return true;
}

static bool
refuse_holding(Look *look, RexpError *error)
{
	const Refused *found = find_refused(look, holding, lengthof(holding));
	bool		reads = found == NULL && reads_and_waits(look);
	char		name[64];

	if (found == NULL && !reads)
		return false;
	if (found != NULL)
		snprintf(name, sizeof(name), "%s%s%s", found->word,
				 found->second != NULL ? " " : "", found->second != NULL ? found->second : "");
	else
		snprintf(name, sizeof(name), "%s BLOCK",
				 word_is(look, 1, "XREAD") ? "XREAD" : "XREADGROUP");
	rexp_error_set(error, ERRCODE_FEATURE_NOT_SUPPORTED, "cannot export with %s", name);
	rexp_error_detail(error, "It would hold up the rows behind it.");
	return true;
}

/* Several words in one are no command. */
static bool
refuse_blank(Look *look, RexpError *error)
{
	const RexpWord *first = &look->words[0];
	size_t		len = 0;
	char		name[64];

	while (len < first->len && !isspace((unsigned char) first->bytes[len]))
		len++;
	if (len == first->len)
		return false;

	/* what follows may be a secret */
	rexp_printable(name, sizeof(name), first->bytes, len);
	rexp_error_set(error, ERRCODE_INVALID_PARAMETER_VALUE,
				   "the name of a command holds no blank");
	rexp_error_detail(error, "The first word of the command begins with \"%s\" and a blank.", name);
	if (look->sender == REXP_SENDER_COMMAND)
		rexp_error_hint(error, "Give each word of the command as an argument of its own, as in redis_command('redis', 'GET', 'key').");
	else
		rexp_error_hint(error, "Give each word as an element of the array, as in ARRAY['SET','key:#{id}','#{value}'].");
	return true;
}

/*
 * Commands that may be repeated: what they leave behind is the same, and their answer
 * is not taken for another.
 *
 * That holds for a run of rows, too, which is sent again from some row on.  Conditions
 * that are the same for all rows do no harm to it, but NX in one row and XX in the
 * next do: the first time over, the one finds nothing and the other writes, the
 * second time the one overwrites what the other wrote.
 */

static const char *const presence[] = {"NX", "XX", NULL};

/* A condition that each row has for itself. */
static bool
differs_by_row(const Look *look, bool condition)
{
	return look->sender == REXP_SENDER_ROW && condition;
}

/* SET key value [option ...] */
static void
look_at_set(Look *look, RexpVerb *verb)
{
	static const char *const with_time[] = {"EX", "PX", "EXAT", "PXAT", NULL};
	static const char *const with_value[] = {"IFEQ", "IFNE", "IFDEQ", "IFDNE", NULL};
	bool		there = false;
	bool		gone = false;
	bool		get = false;
	bool		value = false;

	for (int at = 4; has_word(look, at); at++)
	{
		if (word_is(look, at, "NX"))
			there = true;
		else if (word_is(look, at, "XX"))
			gone = true;
		else if (word_is(look, at, "GET"))
			get = true;
		else if (word_is_among(look, at, with_time))
			at++;
		else if (word_is_among(look, at, with_value))
		{
			value = true;
			at++;
		}
	}
	verb->repeatable = !there && !gone && !get && !value;
	if (there)
		verb->refusal = get ? REXP_REFUSAL_OLD_VALUE : REXP_REFUSAL_KEY_THERE;
	else if (gone)
		verb->refusal = REXP_REFUSAL_KEY_GONE;
	else if (value && get)
		verb->refusal = REXP_REFUSAL_UNTOLD;
	else
		verb->refusal = get ? REXP_REFUSAL_NONE : REXP_REFUSAL_CONDITION;
}

/* ZADD and GEOADD key [option ...] number ...: the first that is none ends them. */
static void
look_at_scores(Look *look, RexpVerb *verb)
{
	static const char *const others[] = {"GT", "LT", "CH", NULL};
	bool		adds = false;
	bool		condition = false;

	for (int at = 3; has_word(look, at); at++)
	{
		if (word_is(look, at, "INCR"))
			adds = true;
		else if (word_is_among(look, at, presence))
			condition = true;
		else if (!word_is_among(look, at, others))
			break;
	}
	verb->repeatable = !adds && !differs_by_row(look, condition);
	if (adds)
		verb->refusal = REXP_REFUSAL_CONDITION;
}

/* EXPIRE key seconds [option ...], HEXPIRE key seconds [option ...] FIELDS ... */
static void
look_at_expiry(Look *look, RexpVerb *verb)
{
	verb->repeatable = !differs_by_row(look, has_option(look, 4, "NX", "FIELDS") ||
									   has_option(look, 4, "XX", "FIELDS"));
}

/* FT.SUGADD key string score [INCR] [PAYLOAD payload] */
static void
look_at_suggestion(Look *look, RexpVerb *verb)
{
	for (int at = 5; has_word(look, at); at++)
	{
		if (word_is(look, at, "INCR"))
			verb->repeatable = false;
		else if (word_is(look, at, "PAYLOAD"))
			at++;
	}
}

/* XADD key [NOMKSTREAM] ... id field value ... */
static void
look_at_stream(Look *look, RexpVerb *verb)
{
	static const char *const with_value[] = {"MAXLEN", "MINID", "LIMIT", NULL};
	static const char *const alone[] = {"KEEPREF", "DELREF", "ACKED", NULL};

	verb->repeatable = false;
	for (int at = 3; has_word(look, at); at++)
	{
		if (word_is(look, at, "NOMKSTREAM"))
			verb->refusal = REXP_REFUSAL_STREAM_GONE;
		else if (word_is_among(look, at, with_value))
			at += word_is(look, at + 1, "=") || word_is(look, at + 1, "~") ? 2 : 1;
		else if (!word_is_among(look, at, alone))
			break;
	}
}

/*
 * names_the_same
 *	  Does a path of RedisJSON name the same place again, after what it names was
 *	  written, or, with "deletes", deleted?
 *
 * Not so a search at all levels, which finds what was written, nor a filter; and if
 * an element of an array is deleted, its number is the next one's.
 */
static bool
names_the_same(const RexpWord *path, bool deletes)
{
	const char *bytes = path->bytes;

	for (size_t i = 0; i < path->len; i++)
	{
		char		c = bytes[i];

		if (c == '"' || c == '\'')
		{
			for (i++; i < path->len && bytes[i] != c; i++)
			{
				if (bytes[i] == '\\')
					i++;
			}
			continue;
		}
		if (c == '?' || (c == '.' && i + 1 < path->len && bytes[i + 1] == '.'))
			return false;
		if (!deletes)
			continue;
		if (c == '*' || c == ',' || c == ':')
			return false;
		if (c == '[')
		{
			while (i + 1 < path->len && bytes[i + 1] == ' ')
				i++;
			if (i + 1 >= path->len || (bytes[i + 1] != '"' && bytes[i + 1] != '\''))
				return false;
		}
	}
	return true;
}

/* The word at this place is such a path, or there is none. */
static bool
path_names_the_same(Look *look, int at, bool deletes)
{
	if (!has_word(look, at))
		return true;
	if (look->words[at - 1].bytes == NULL)
	{
		look->unsure = true;
		return false;
	}
	return names_the_same(&look->words[at - 1], deletes);
}

/* JSON.SET key path value [option ...], JSON.MERGE key path value */
static void
look_at_document(Look *look, RexpVerb *verb)
{
	bool		root = word_is(look, 3, "$") || word_is(look, 3, ".");

	verb->repeatable = path_names_the_same(look, 3, false);
	verb->refusal = REXP_REFUSAL_NO_PLACE;
	if (has_option(look, 5, "NX", NULL))
		verb->refusal = root ? REXP_REFUSAL_KEY_THERE : REXP_REFUSAL_PATH_THERE;
	else if (has_option(look, 5, "XX", NULL))
		verb->refusal = root ? REXP_REFUSAL_KEY_GONE : REXP_REFUSAL_PATH_GONE;
	if (verb->refusal != REXP_REFUSAL_NO_PLACE)
		verb->repeatable = false;
}

/* JSON.DEL key [path] */
static void
look_at_deletion(Look *look, RexpVerb *verb)
{
	verb->repeatable = path_names_the_same(look, 3, true);
}

/* JSON.MSET key path value [key path value ...] */
static void
look_at_documents(Look *look, RexpVerb *verb)
{
	for (int at = 3; has_word(look, at); at += 3)
		verb->repeatable &= path_names_the_same(look, at, false);
}

static const struct
{
	const char *word;
	void		(*look_at) (Look *look, RexpVerb *verb);	/* NULL: whatever comes
															 * behind */
}			repeatable[] = {
	{"SET", look_at_set}, {"SETEX", NULL}, {"PSETEX", NULL}, {"SETNX", NULL},
	{"MSET", NULL}, {"SETBIT", NULL}, {"SETRANGE", NULL}, {"DEL", NULL},
	{"UNLINK", NULL}, {"EXPIRE", look_at_expiry}, {"PEXPIRE", look_at_expiry},
	{"EXPIREAT", look_at_expiry}, {"PEXPIREAT", look_at_expiry}, {"PERSIST", NULL},
	{"TOUCH", NULL}, {"HSET", NULL}, {"HMSET", NULL}, {"HSETNX", NULL},
	{"HDEL", NULL}, {"HEXPIRE", look_at_expiry}, {"HPEXPIRE", look_at_expiry},
	{"HPERSIST", NULL}, {"SADD", NULL}, {"SREM", NULL}, {"ZADD", look_at_scores},
	{"ZREM", NULL}, {"GEOADD", look_at_scores}, {"PFADD", NULL}, {"LSET", NULL},
	{"XADD", look_at_stream},
	{"JSON.SET", look_at_document}, {"JSON.MERGE", look_at_document},
	{"JSON.MSET", look_at_documents}, {"JSON.DEL", look_at_deletion},
	{"FT.SUGADD", look_at_suggestion}, {"FT.SUGDEL", NULL}, {"VADD", NULL},
	{"VREM", NULL}, {"BF.ADD", NULL}, {"BF.MADD", NULL}, {"PING", NULL}, {"GET", NULL}
};

static void
look_at_options(Look *look, RexpVerb *verb)
{
	verb->repeatable = false;
	verb->refusal = REXP_REFUSAL_NONE;
	for (size_t i = 0; i < lengthof(repeatable); i++)
	{
		if (!word_is(look, 1, repeatable[i].word))
			continue;
		verb->repeatable = true;
		if (repeatable[i].look_at != NULL)
			repeatable[i].look_at(look, verb);
		break;
	}
}

/* Where the key is, if it is not the second word. */
static const struct
{
	const char *word;
	int			key_word;		/* from 1, 0: none; -n: the word n counts the keys,
								 * which follow it */
}			keys[] = {
	{"EVAL", -3}, {"EVALSHA", -3}, {"FCALL", -3}, {"EVAL_RO", -3},
	{"EVALSHA_RO", -3}, {"FCALL_RO", -3},
	{"MSETEX", -2}, {"LMPOP", -2}, {"ZMPOP", -2}, {"SINTERCARD", -2},
	{"ZINTERCARD", -2}, {"ZUNION", -2}, {"ZINTER", -2}, {"ZDIFF", -2}, {"MIGRATE", 4},
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

/* A number of keys that is not known yet is taken for one or more, for the moment. */
static int
key_after_count(Look *look, int at)
{
	if (has_word(look, at) && look->words[at - 1].bytes == NULL)
		look->unsure = true;
	return look->nwords > at && !word_is(look, at, "0") ? at + 1 : 0;
}

static int
key_word(Look *look)
{
	for (size_t i = 0; i < lengthof(keys); i++)
	{
		if (!word_is(look, 1, keys[i].word))
			continue;
		if (keys[i].key_word < 0)
			return key_after_count(look, -keys[i].key_word);
		return look->nwords >= keys[i].key_word ? keys[i].key_word : 0;
	}
	return look->nwords >= 2 ? 2 : 0;
}

/*
 * rexp_verb_look_up
 *	  Tell in *verb what is known of a command.  False if it is one that must not be
 *	  sent, which *error then tells.
 *
 * The first word must be known.  With verb->by_row some words are not known that may
 * change what is told: then it is to be looked up again for each row, with all.
 */
bool
rexp_verb_look_up(int nwords, const RexpWord *words, RexpSender sender,
				  RexpVerb *verb, RexpError *error)
{
	Look		look = {nwords, words, sender, PG_INT32_MAX, false};

	for (int i = nwords - 1; i >= 0; i--)
	{
		if (words[i].bytes == NULL && words[i].is_many)
			look.placed = i;
	}
	if (refuse_blank(&look, error) || refuse_stateful(&look, error) ||
		(sender != REXP_SENDER_COMMAND && refuse_holding(&look, error)))
		return false;
	look_at_options(&look, verb);
	if (sender != REXP_SENDER_COMMAND && verb->refusal == REXP_REFUSAL_UNTOLD)
	{
		rexp_error_set(error, ERRCODE_FEATURE_NOT_SUPPORTED,
					   "cannot export with a condition on the value and GET");
		rexp_error_detail(error, "The answer would not tell whether the row was written.");
		rexp_error_hint(error, "Leave out GET.");
		return false;
	}
	verb->key_word = key_word(&look);
	verb->by_row = look.unsure;
	return true;
}

/*
 * rexp_command_words
 *	  The words of a command that we have written ourselves, in RESP.  The array is
 *	  palloc'd, the words lie in the command.
 */
RexpWord *
rexp_command_words(const char *command, int *nwords)
{
	RexpWord   *words;

	*nwords = (int) rexp_resp_take_header(&command);
	words = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(RexpWord) * *nwords);
	for (int i = 0; i < *nwords; i++)
	{
		words[i].len = rexp_resp_take_header(&command);
		words[i].bytes = command;
		command += words[i].len + 2;
	}
	return words;
}

/* What a refusal is told as. */
const char *
rexp_refusal_text(RexpRefusal refusal)
{
	switch (refusal)
	{
		case REXP_REFUSAL_KEY_THERE:
			return "Redis answered nil: the command has NX, and the key exists";
		case REXP_REFUSAL_KEY_GONE:
			return "Redis answered nil: the command has XX, and the key does not exist";
		case REXP_REFUSAL_PATH_THERE:
			return "Redis answered nil: the command has NX, and the path is there already, or the document has no place for it";
		case REXP_REFUSAL_PATH_GONE:
			return "Redis answered nil: the command has XX, and the path is not there";
		case REXP_REFUSAL_CONDITION:
			return "Redis answered nil: the condition of the command did not hold";
		case REXP_REFUSAL_STREAM_GONE:
			return "Redis answered nil: the command has NOMKSTREAM, and the stream does not exist";
		case REXP_REFUSAL_OLD_VALUE:
			return "Redis answered with a value: the command has NX, and the key exists";
		default:
			return "Redis answered nil: the document has no place for the path";
	}
}
