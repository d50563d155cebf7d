/*-------------------------------------------------------------------------
 *
 * command.c
 *	  One command to Redis in the calling session: its words as RESP, its answer as
 *	  jsonb.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/output_settings.h"
#include "encode/value.h"
#include "miscadmin.h"
#include "redis/reply_json.h"
#include "redis/verb.h"
#include "session/connection.h"
#include "session/server_options.h"
#include "sql/command.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

/* An argument of the command, and what becomes of it. */
typedef struct Word
{
	RexpValue  *value;
	Datum		datum;
	char	   *scratch;
	const char **bytes;
	size_t	   *len;
	RexpError	error;
	bool		good;
} Word;

static void
write_word(void *arg)
{
	Word	   *word = arg;

	word->good = rexp_value_bytes(word->value, word->datum, word->scratch, word->bytes,
								  word->len, &word->error);
}

/* A value as the bytes of a field, under our fixed settings. */
static void
word_bytes(int number, Datum datum, Oid type, char *scratch, const char **bytes,
		   size_t *len)
{
	const char *what = psprintf("argument %d of the command", number);
	Word		word = {
		.value = rexp_value_create_for_type(type, what, REXP_VECTOR_AS_BLOB),
		.datum = datum,
		.scratch = scratch,
		.bytes = bytes,
		.len = len
	};

	rexp_under_output_settings(write_word, &word);
	if (!word.good)
		rexp_error_raise(&word.error);
}

/* The command in RESP, palloc'd. */
static void
build_request(RexpBuffer *request, int nwords, const Datum *words,
			  const Oid *types, const bool *nulls)
{
	RexpWord   *sent;
	RexpVerb	verb;
	RexpError	error;

	rexp_buffer_init(request, 256);
	rexp_resp_header(request, '*', nwords);
	for (int i = 0; i < nwords; i++)
	{
		char		scratch[REXP_DIGITS_SIZE];
		const char *bytes;
		size_t		len;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d of the command is null", i + 1)));
		word_bytes(i + 1, words[i], types[i], scratch, &bytes, &len);
		rexp_resp_bulk(request, bytes, len);
	}

	sent = rexp_command_words(request->data, &nwords);
	if (!rexp_verb_look_up(nwords, sent, REXP_SENDER_COMMAND, &verb, &error))
		rexp_error_raise(&error);
}

/*
 * rexp_command
 *	  Send a command and return what Redis answers, as jsonb.
 *
 * Raises an error for an error reply, and as rexp_send_command() does.
 */
Datum
rexp_command(const char *server, int nwords, const Datum *words,
			 const Oid *types, const bool *nulls)
{
	RexpBuffer	request;
	redisReply *volatile reply;
	StringInfoData json;

	(void) rexp_find_server(server, GetUserId());
	build_request(&request, nwords, words, types, nulls);
	reply = rexp_send_command(server, GetUserId(), &request);

	initStringInfo(&json);
	PG_TRY();
	{
		rexp_reply_append(&json, reply);
	}
	PG_FINALLY();
	{
		freeReplyObject(reply);
	}
	PG_END_TRY();
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}
