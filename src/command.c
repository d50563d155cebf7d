/*-------------------------------------------------------------------------
 *
 * command.c
 *	  One command to Redis in the calling session.
 *
 * The session keeps a connection for each server and user, until the options
 * that it was made with change.  A connection that an error has left between
 * command and answer is given up at its next use.
 *
 * Nothing here knows exports.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "answer.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "command.h"
#include "compat.h"
#include "document.h"
#include "link.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "server_options.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

typedef struct ConnectionKey
{
	Oid			server;
	Oid			user;
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

static HTAB *connections = NULL;

/*
 * Commands that change what the connection is, so that the next command, or
 * its answer, would be another than its caller thinks.
 */
static const struct
{
	const char *word;
	const char *second;			/* or NULL: all of them */
}			refused[] = {
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

static void
refuse_stateful(const char *first, const char *second)
{
	for (size_t i = 0; i < lengthof(refused); i++)
	{
		if (pg_strcasecmp(refused[i].word, first) == 0 &&
			(refused[i].second == NULL ||
			 (second != NULL && pg_strcasecmp(refused[i].second, second) == 0)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot send %s%s%s with redis_command", refused[i].word,
							refused[i].second ? " " : "",
							refused[i].second ? refused[i].second : ""),
					 errdetail("It would change the connection, which is kept for the session."),
					 pg_strcasecmp(first, "SELECT") == 0 || pg_strcasecmp(first, "AUTH") == 0 ?
					 errhint("The database is an option of the foreign server, username and password are options of its user mapping.") : 0));
	}
}

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

/* A connection that is open, as far as can be told. */
static Connection *
get_connection(const char *server)
{
	ConnectionKey key;
	Connection *connection;
	bool		found;
	RexpError	error;

	if (connections == NULL)
		init_connections();
	memset(&key, 0, sizeof(key));
	key.user = GetUserId();
	key.server = rexp_find_server(server, key.user);
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
		rexp_link_connect(connection->link, &error) != REXP_ANSWER_DONE)
		rexp_error_raise(&error);
	return connection;
}

/* real[] as the blob of little-endian 32-bit floats that vector fields hold. */
static void
append_floats(RexpBuffer *out, Datum value, int word)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(value), FLOAT4OID, sizeof(float4), true,
					  TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		float4		number = DatumGetFloat4(elements[i]);
		uint32		bits;
		char		bytes[4];

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d of the command is an array that contains a null",
							word)));
		memcpy(&bits, &number, sizeof(bits));
		bytes[0] = (char) (bits & 0xff);
		bytes[1] = (char) ((bits >> 8) & 0xff);
		bytes[2] = (char) ((bits >> 16) & 0xff);
		bytes[3] = (char) ((bits >> 24) & 0xff);
		rexp_buffer_append(out, bytes, 4);
	}
}

/* Any other value, as text under our fixed settings. */
static void
append_text(RexpBuffer *out, Datum value, Oid type)
{
	RexpText   *text = rexp_text_create_for_type(type, "argument");
	RexpOutputSettings saved;
	RexpError	error;

	error.sqlstate = 0;
	rexp_output_settings_enter(&saved);
	PG_TRY();
	{
		(void) rexp_text_append(text, value, out, &error);
	}
	PG_FINALLY();
	{
		rexp_output_settings_leave(&saved);
	}
	PG_END_TRY();
	if (error.sqlstate != 0)
		rexp_error_raise(&error);
}

/* The command in RESP, palloc'd. */
static void
build_request(RexpBuffer *request, int nwords, const Datum *words,
			  const Oid *types, const bool *nulls)
{
	RexpBuffer	word;
	char	   *first = NULL;

	rexp_buffer_init(request, 256);
	rexp_buffer_init(&word, 256);
	rexp_resp_header(request, '*', nwords);
	for (int i = 0; i < nwords; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d of the command is null", i + 1)));
		word.len = 0;
		if (types[i] == FLOAT4ARRAYOID)
			append_floats(&word, words[i], i + 1);
		else
			append_text(&word, words[i], types[i]);
		if (i == 0)
		{
			first = pnstrdup(word.data, word.len);
			refuse_stateful(first, NULL);
		}
		else if (i == 1)
			refuse_stateful(first, pnstrdup(word.data, word.len));
		rexp_resp_bulk(request, word.data, word.len);
	}
	rexp_buffer_free(&word);
}

/* Bytes of Redis as a JSON string: as text if they are one, as \x hex if not. */
static void
append_string(StringInfo out, const char *bytes, size_t len)
{
	char	   *text = NULL;

	if (memchr(bytes, '\0', len) == NULL &&
		pg_verify_mbstr(PG_UTF8, bytes, (int) len, true))
	{
		text = pnstrdup(bytes, len);
		if (GetDatabaseEncoding() != PG_UTF8 && GetDatabaseEncoding() != PG_SQL_ASCII)
		{
			/* what the database's encoding lacks is shown as hex, too */
			Oid			proc = FindDefaultConversionProc(PG_UTF8, GetDatabaseEncoding());
			int			room = (int) len * MAX_CONVERSION_GROWTH + 1;
			char	   *converted = palloc(room);

			if (OidIsValid(proc) &&
				pg_do_encoding_conversion_buf(proc, PG_UTF8, GetDatabaseEncoding(),
											  (unsigned char *) text, (int) len,
											  (unsigned char *) converted, room,
											  true) == (int) len)
				text = converted;
			else
				text = NULL;
		}
	}
	if (text == NULL)
	{
		text = palloc(len * 2 + 3);
		memcpy(text, "\\x", 2);
		text[2 + hex_encode(bytes, len, text + 2)] = '\0';
	}
	escape_json(out, text);
	pfree(text);
}

/* A reply as JSON text.  An error reply raises that error. */
static void
append_reply(StringInfo out, const redisReply *reply)
{
	RexpError	error;

	switch (reply->type)
	{
		case REDIS_REPLY_ERROR:
			(void) rexp_answer_to(reply->str, reply->len, &error);
			rexp_error_raise(&error);
			break;
		case REDIS_REPLY_INTEGER:
			appendStringInfo(out, INT64_FORMAT, (int64) reply->integer);
			break;
		case REDIS_REPLY_NIL:
			appendStringInfoString(out, "null");
			break;
		case REDIS_REPLY_ARRAY:
			check_stack_depth();
			appendStringInfoChar(out, '[');
			for (size_t i = 0; i < reply->elements; i++)
			{
				if (i > 0)
					appendStringInfoChar(out, ',');
				append_reply(out, reply->element[i]);
			}
			appendStringInfoChar(out, ']');
			break;
		default:
			append_string(out, reply->str, reply->len);
			break;
	}
}

/*
 * rexp_command
 *	  Send a command and return what Redis answers, as jsonb.
 *
 * Raises an error for an error reply, and when the connection fails or Redis is
 * silent for the server's timeout.  Serves interrupts while it waits.
 */
Datum
rexp_command(const char *server, int nwords, const Datum *words,
			 const Oid *types, const bool *nulls)
{
	Connection *connection;
	RexpBuffer	request;
	RexpError	error;
	redisReply *volatile reply;
	StringInfoData json;

	(void) rexp_find_server(server, GetUserId());
	build_request(&request, nwords, words, types, nulls);
	connection = get_connection(server);
	reply = rexp_link_exchange(connection->link, &request, connection->timeout,
							   &error);
	if (reply == NULL)
		rexp_error_raise(&error);
	connection->busy = false;

	initStringInfo(&json);
	PG_TRY();
	{
		append_reply(&json, reply);
	}
	PG_FINALLY();
	{
		freeReplyObject(reply);
	}
	PG_END_TRY();
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}
