/*-------------------------------------------------------------------------
 *
 * mark.c
 *	  The marks in Redis: how far exports with a watermark got.
 *
 * They are in Redis, and not in a table, so that exports on a replica have them
 * too, and so that a Redis that has lost its data has lost its marks with it.
 * Each is a hash with the key redis_export:{name}, braces included, in which all is
 * UTF-8.
 *
 * An export reads and writes its mark through its pipeline, which waits for a Redis
 * that is away; the functions for marks do it in the calling session.  What a mark
 * means for an export is in watermark.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "command.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "funcapi.h"
#include "mark.h"
#include "miscadmin.h"
#include "own_keys.h"
#include "reply.h"
#include "scan.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "value.h"

#define KEY_BEGIN REXP_OWN_PREFIX "{"
#define KEY_END "}"

static const char *const field_names[REXP_MARK_FIELDS] = {
	[REXP_MARK_VALUE] = "value",
	[REXP_MARK_TYPE] = "type",
	[REXP_MARK_COLUMN] = "column",
	[REXP_MARK_KEY_TEMPLATE] = "key_template",
	[REXP_MARK_ROWS] = "rows",
	[REXP_MARK_ROLE] = "role",
	[REXP_MARK_DATABASE] = "database",
	[REXP_MARK_MOVED_AT] = "moved_at"
};

/* The field of a note; it stays when the mark is set. */
static const char note_name[] = "begun";

/* The key of a mark, palloc'd.  In a transaction, as its name is converted. */
char *
rexp_mark_key(const char *name)
{
	char	   *key = psprintf(KEY_BEGIN "%s" KEY_END, name);

	return rexp_literal_utf8(key, strlen(key));
}

/*
 * Types and values
 */

/*
 * rexp_mark_type_name
 *	  The name of a type that means the same whatever the search path, palloc'd.
 *
 * Without pg_catalog, which goes without saying.
 */
char *
rexp_mark_type_name(Oid type)
{
	/* as with a modifier, since char without one is char(1) */
	char	   *name = format_type_extended(type, -1, FORMAT_TYPE_TYPEMOD_GIVEN |
											FORMAT_TYPE_FORCE_QUALIFY);

	return strncmp(name, "pg_catalog.", 11) == 0 ? name + 11 : name;
}

/*
 * built_in_type
 *	  The type of such a name, if it is one of those below, or InvalidOid.
 *
 * The name is what Redis says, and must not choose what is run: any other type may
 * have functions of anybody's, which would be called with our rights.  These are
 * PostgreSQL's own, and call nobody else's.
 */
static Oid
built_in_type(const char *name)
{
	static const Oid types[] = {
		TIMESTAMPTZOID, TIMESTAMPOID, DATEOID, TIMEOID, TIMETZOID, INTERVALOID,
		INT8OID, INT4OID, INT2OID, NUMERICOID, FLOAT8OID, FLOAT4OID, MONEYOID,
		TEXTOID, VARCHAROID, BPCHAROID, NAMEOID, UUIDOID, BYTEAOID, BOOLOID, OIDOID,
		XID8OID, PG_LSNOID, INETOID, CIDROID, MACADDROID, MACADDR8OID, BITOID, VARBITOID,
		REXP_NEW_TYPES JSONBOID
	};

	for (size_t i = 0; i < lengthof(types); i++)
	{
		if (strcmp(name, rexp_mark_type_name(types[i])) == 0)
			return types[i];
	}
	return InvalidOid;
}

/*
 * A field that is to be used, in the database's encoding, palloc'd; an error if it has no
 * such text.
 */
char *
rexp_mark_text(const char *field)
{
	char	   *text = rexp_reply_text(field, strlen(field));

	if (text == NULL)
	{
		char		shown[128];

		rexp_printable(shown, sizeof(shown), field, strlen(field));
		ereport(ERROR,
				(errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
				 errmsg("a mark in Redis is no text in the encoding of this database"),
				 errdetail("It holds \"%s\".", shown)));
	}
	return text;
}

/* The value of a text in the database's encoding, under the settings as they are. */
Datum
rexp_mark_value(Oid type, const char *text)
{
	Oid			function;
	Oid			parameter;

	getTypeInputInfo(type, &function, &parameter);
	return OidInputFunctionCall(function, unconstify(char *, text), parameter, -1);
}

/* A value, and its text. */
typedef struct Output
{
	Oid			type;
	Datum		value;
	char	   *text;
} Output;

static void
write_text(void *arg)
{
	Output	   *output = arg;
	Oid			function;
	bool		is_varlena;

	getTypeOutputInfo(output->type, &function, &is_varlena);
	output->text = OidOutputFunctionCall(function, output->value);
}

/* A value as text in the database's encoding, under our fixed settings, palloc'd. */
char *
rexp_mark_output(Oid type, Datum value)
{
	Output		output = {type, value, NULL};

	rexp_under_output_settings(write_text, &output);
	return output.text;
}

/* This moment, as ISO 8601 has it, in UTC. */
static char *
now_text(void)
{
	char	   *text = palloc(MAXDATELEN + 1);
	int			utc = 0;

	JsonEncodeDateTime(text, TimestampTzGetDatum(GetCurrentTimestamp()), TIMESTAMPTZOID,
					   &utc);
	return text;
}

/*
 * Requests and replies
 */

/* HSET with those fields that there are, and the present moment. */
static void
request_write(RexpBuffer *request, const char *key, const RexpMark *mark)
{
	RexpMark	all = *mark;
	int			nfields = 0;

	all.fields[REXP_MARK_MOVED_AT] = now_text();
	for (int i = 0; i < REXP_MARK_FIELDS; i++)
		nfields += all.fields[i] != NULL;

	rexp_buffer_init(request, 512);
	rexp_resp_header(request, '*', 2 + 2 * nfields);
	rexp_resp_word(request, "HSET");
	rexp_resp_word(request, key);
	for (int i = 0; i < REXP_MARK_FIELDS; i++)
	{
		if (all.fields[i] == NULL)
			continue;
		rexp_resp_word(request, field_names[i]);
		rexp_resp_word(request, all.fields[i]);
	}
}

static void
request_read(RexpBuffer *request, const char *key)
{
	rexp_buffer_init(request, 256);
	rexp_resp_header(request, '*', 2 + REXP_MARK_FIELDS + 1);
	rexp_resp_word(request, "HMGET");
	rexp_resp_word(request, key);
	for (int i = 0; i < REXP_MARK_FIELDS; i++)
		rexp_resp_word(request, field_names[i]);
	rexp_resp_word(request, note_name);
}

/* The fields of an answer to HMGET, palloc'd. */
static void
take_fields(const redisReply *reply, RexpMark *mark)
{
	memset(mark, 0, sizeof(RexpMark));
	for (int i = 0; i <= REXP_MARK_FIELDS && (size_t) i < reply->elements; i++)
	{
		const redisReply *element = reply->element[i];
		const char **field = i < REXP_MARK_FIELDS ? &mark->fields[i] : &mark->begun;

		if (element->type == REDIS_REPLY_STRING)
			*field = pnstrdup(element->str, element->len);
	}
}

/* Free a reply that is none of this type, and raise the error that it is. */
static void
need_reply(redisReply *reply, int type, const char *failing)
{
	RexpError	error;

	if (reply->type == type)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		(void) rexp_answer_to(reply->str, reply->len, &error);
	else
		rexp_error_set(&error, ERRCODE_PROTOCOL_VIOLATION,
					   "Redis gave an answer that is none to this command");
	freeReplyObject(reply);
	rexp_error_prefix(&error, "%s: ", failing);
	rexp_error_raise(&error);
}

static char *
failing_to(const char *what, const char *key)
{
	char		shown[128];

	rexp_printable(shown, sizeof(shown), key, strlen(key));
	return psprintf("could not %s mark \"%s\"", what, shown);
}

/*
 * For an export
 */

/*
 * rexp_mark_read
 *	  Ask for a mark; fields that it does not have are NULL, all of one that is not
 *	  there.  They lie in the current context.  Returns false if the job has failed.
 */
bool
rexp_mark_read(RexpPipeline *pipeline, const char *key, RexpMark *mark)
{
	char	   *failing = failing_to("read", key);
	RexpBuffer	request;
	redisReply *reply;

	request_read(&request, key);
	reply = rexp_pipeline_ask(pipeline, &request, key, strlen(key), failing);
	rexp_buffer_free(&request);
	if (reply == NULL)
		return false;
	need_reply(reply, REDIS_REPLY_ARRAY, failing);
	take_fields(reply, mark);
	freeReplyObject(reply);
	pfree(failing);
	return true;
}

/*
 * rexp_mark_note
 *	  A first run begins, for there is no mark: leave a note in its hash, by which is
 *	  seen at the end whether what was written meanwhile may have been flushed.
 *	  Returns the note, palloc'd; NULL if the job has failed.
 *
 * A run that does not get to its end leaves it there, and others take it over: all
 * that counts is that it is the same as before.
 */
const char *
rexp_mark_note(RexpPipeline *pipeline, const char *key)
{
	char	   *failing = failing_to("write", key);
	RexpBuffer	request;
	redisReply *reply;
	uint64		number;
	char	   *note;

	if (!pg_strong_random(&number, sizeof(number)))
		number = (uint64) GetCurrentTimestamp();
	note = psprintf(UINT64_FORMAT, number);
	rexp_buffer_init(&request, 256);
	rexp_resp_header(&request, '*', 4);
	rexp_resp_word(&request, "HSET");
	rexp_resp_word(&request, key);
	rexp_resp_word(&request, note_name);
	rexp_resp_word(&request, note);
	reply = rexp_pipeline_ask(pipeline, &request, key, strlen(key), failing);
	rexp_buffer_free(&request);
	if (reply == NULL)
		return NULL;
	need_reply(reply, REDIS_REPLY_INTEGER, failing);
	freeReplyObject(reply);
	pfree(failing);
	return note;
}

/*
 * rexp_mark_write
 *	  Write a mark, unless Redis may have lost what it says to hold.  Returns false
 *	  if it is not written, for that or since the job has failed.
 */
bool
rexp_mark_write(RexpPipeline *pipeline, const char *key, const RexpMark *mark)
{
	char	   *failing = failing_to("write", key);
	RexpBuffer	request;
	redisReply *reply;

	request_write(&request, key, mark);
	reply = rexp_pipeline_ask_unless_lost(pipeline, &request, key, strlen(key), failing);
	rexp_buffer_free(&request);
	if (reply == NULL)
		return false;
	need_reply(reply, REDIS_REPLY_INTEGER, failing);
	freeReplyObject(reply);
	pfree(failing);
	return true;
}

/*
 * In the calling session
 */

/* A mark as it comes out of the scan. */
typedef struct Listed
{
	char	   *name;
	RexpMark	mark;
} Listed;

static int
compare_names(const ListCell *one, const ListCell *other)
{
	return strcmp(((Listed *) lfirst(one))->name, ((Listed *) lfirst(other))->name);
}

/* The fields of an answer to HGETALL, palloc'd. */
static void
take_pairs(const redisReply *reply, RexpMark *mark)
{
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		const redisReply *name = reply->element[i];
		const redisReply *value = reply->element[i + 1];

		if (name->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING)
			continue;
		for (int field = 0; field < REXP_MARK_FIELDS; field++)
		{
			if (strcmp(name->str, field_names[field]) == 0)
				mark->fields[field] = pnstrdup(value->str, value->len);
		}
		if (strcmp(name->str, note_name) == 0)
			mark->begun = pnstrdup(value->str, value->len);
	}
}

/* Read all marks of this Redis, in order of their names. */
static List *
read_marks(const char *server)
{
	RexpScanOptions options = {
		.kind = REXP_SCAN_HASH,
		.server = server,
		.pattern = KEY_BEGIN "*" KEY_END,
		.type = "hash"
	};
	RexpScan   *scan = rexp_scan_begin(&options);
	List	   *marks = NIL;
	const bytea *key;
	const redisReply *reply;

	while ((key = rexp_scan_next(scan, &reply)) != NULL)
	{
		size_t		around = strlen(KEY_BEGIN) + strlen(KEY_END);
		Listed	   *listed;
		RexpError	error;

		/* a user of Redis who may not read marks shall not think that there are none */
		if (reply->type == REDIS_REPLY_ERROR)
		{
			(void) rexp_answer_to(reply->str, reply->len, &error);
			if (error.sqlstate != ERRCODE_WRONG_OBJECT_TYPE)
				rexp_error_raise(&error);
		}

		/* gone meanwhile, or of another type, or none that was asked for */
		if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
			VARSIZE_ANY_EXHDR(key) < around)
			continue;
		listed = palloc0(sizeof(Listed));
		listed->name = rexp_text_shown(pnstrdup(VARDATA_ANY(key) + strlen(KEY_BEGIN),
												VARSIZE_ANY_EXHDR(key) - around));
		take_pairs(reply, &listed->mark);

		/* a first run has begun, and there is no mark yet */
		if (listed->mark.fields[REXP_MARK_VALUE] == NULL && listed->mark.begun != NULL)
			continue;
		marks = lappend(marks, listed);
	}
	rexp_scan_end(scan);
	list_sort(marks, compare_names);
	return marks;
}

/*
 * What anybody may have written into Redis is no reason for not listing the others: what
 * is no number of rows, or no moment, is not there.
 */
static bool
read_rows(const char *text, Datum *value)
{
	char	   *end;
	int64		rows;

	errno = 0;
	rows = strtoi64(text, &end, 10);
	*value = Int64GetDatum(rows);
	return end != text && *end == '\0' && errno == 0;
}

static bool
read_moment(const char *text, Datum *value)
{
	char		scratch[MAXDATELEN + MAXDATEFIELDS];
	char	   *fields[MAXDATEFIELDS];
	int			kinds[MAXDATEFIELDS];
	int			nfields;
	int			kind;
	struct pg_tm tm;
	fsec_t		fraction;
	int			zone;
	TimestampTz moment;

	if (ParseDateTime(text, scratch, sizeof(scratch), fields, kinds, MAXDATEFIELDS, &nfields) != 0 ||
		rexp_decode_datetime(fields, kinds, nfields, &kind, &tm, &fraction, &zone) != 0 ||
		kind != DTK_DATE || tm2timestamp(&tm, fraction, &zone, &moment) != 0)
		return false;
	*value = TimestampTzGetDatum(moment);
	return true;
}

/* Put a mark into the result. */
static void
put_mark(ReturnSetInfo *result, const Listed *listed)
{
	Datum		values[1 + REXP_MARK_FIELDS];
	bool		nulls[1 + REXP_MARK_FIELDS] = {false};

	values[0] = CStringGetTextDatum(listed->name);
	for (int i = 0; i < REXP_MARK_FIELDS; i++)
	{
		char	   *text;

		nulls[1 + i] = listed->mark.fields[i] == NULL;
		if (nulls[1 + i])
			continue;
		text = rexp_text_shown(listed->mark.fields[i]);
		if (i == REXP_MARK_ROWS)
			nulls[1 + i] = !read_rows(text, &values[1 + i]);
		else if (i == REXP_MARK_MOVED_AT)
			nulls[1 + i] = !read_moment(text, &values[1 + i]);
		else
			values[1 + i] = CStringGetTextDatum(text);
	}
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * rexp_marks
 *	  Return all marks as the result of a set-returning function.
 */
void
rexp_marks(const char *server, FunctionCallInfo fcinfo)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "redis_export marks",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	old = MemoryContextSwitchTo(scratch);
	foreach(cell, read_marks(server))
		put_mark((ReturnSetInfo *) fcinfo->resultinfo, lfirst(cell));
	MemoryContextSwitchTo(old);

	/* which hangs up */
	MemoryContextDelete(scratch);
}

/*
 * Delete a mark, and the note of a first run, which then leaves none.  False if there
 * is only the note, or nothing.
 */
static bool
forget(const char *server, const char *key)
{
	RexpBuffer	request;
	redisReply *reply;
	RexpMark	mark = {.begun = NULL};
	bool		was_there;

	request_read(&request, key);
	reply = rexp_send_command(server, &request);
	if (reply->type == REDIS_REPLY_ARRAY)
		take_fields(reply, &mark);
	freeReplyObject(reply);

	rexp_buffer_init(&request, 128);
	rexp_resp_header(&request, '*', 2);
	rexp_resp_word(&request, "DEL");
	rexp_resp_word(&request, key);
	reply = rexp_send_command(server, &request);
	need_reply(reply, REDIS_REPLY_INTEGER, failing_to("reset", key));
	was_there = reply->integer > 0 &&
		(mark.fields[REXP_MARK_VALUE] != NULL || mark.begun == NULL);
	freeReplyObject(reply);
	return was_there;
}

/*
 * A value of the mark's type, given in the session's settings, in ours and in UTF-8.
 * Of a type that is not built in it stays as it is given: the next run reads it, by
 * the type of the column.
 */
static char *
value_of_type(const char *type_name, const char *value)
{
	Oid			type = built_in_type(type_name);

	if (OidIsValid(type))
		value = rexp_mark_output(type, rexp_mark_value(type, value));
	return rexp_literal_utf8(value, strlen(value));
}

/*
 * rexp_mark_reset
 *	  Forget a mark, or let it have this value, which must be one of its type if that
 *	  is built in.  Returns false if there is no such mark.
 */
bool
rexp_mark_reset(const char *server, const char *name, const char *value)
{
	char	   *key = rexp_mark_key(name);
	const char *role = GetUserNameFromId(GetUserId(), false);
	RexpMark	mark;
	RexpMark	changed = {.begun = NULL};
	RexpBuffer	request;
	redisReply *reply;

	if (value == NULL)
		return forget(server, key);

	request_read(&request, key);
	reply = rexp_send_command(server, &request);
	need_reply(reply, REDIS_REPLY_ARRAY, failing_to("read", key));
	take_fields(reply, &mark);
	freeReplyObject(reply);
	if (mark.fields[REXP_MARK_TYPE] == NULL)
		return false;

	changed.fields[REXP_MARK_VALUE] = value_of_type(mark.fields[REXP_MARK_TYPE], value);
	changed.fields[REXP_MARK_ROLE] = rexp_literal_utf8(role, strlen(role));
	request_write(&request, key, &changed);
	reply = rexp_send_command(server, &request);
	need_reply(reply, REDIS_REPLY_INTEGER, failing_to("reset", key));
	freeReplyObject(reply);
	return true;
}
