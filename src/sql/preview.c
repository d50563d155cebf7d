/*-------------------------------------------------------------------------
 *
 * preview.c
 *	  What an export would do with its first rows, and nothing of it done.
 *
 * If it has a name, Redis is asked which of the rows it has, as a run would ask (books.c),
 * and which keys a run would prune; else nothing reaches Redis.
 *
 * The query runs in the caller's own session, fenced in as in a worker, and in a
 * subtransaction that is then rolled back, so that nothing is left of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "encode/document_column.h"
#include "encode/encode.h"
#include "export/book_list.h"
#include "export/prune.h"
#include "funcapi.h"
#include "job/launch.h"
#include "miscadmin.h"
#include "session/fence.h"
#include "session/server_options.h"
#include "session/source.h"
#include "sql/preview.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

typedef struct Preview
{
	const RexpJob *job;
	RexpEncoder *encoder;
	ReturnSetInfo *result;
	MemoryContext row_context;
	RexpBuffer	out;
	int64		rows;			/* at most */
	int64		row;
	bool		fails;			/* a row does */

	/* of an export that has a name: */
	RexpNodes  *nodes;			/* or NULL */
	RexpBooks  *books;
	RexpDocumentColumn column;
	RexpPrune  *prune;			/* or NULL */
} Preview;

/* What is done with a key that no row has. */
#define PRUNE "prune"

/* Can redis-cli take this word as it is? */
static bool
is_plain(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) bytes[i];

		if (c <= ' ' || c >= 0x7f || c == '"' || c == '\'' || c == '\\')
			return false;
	}
	return len > 0;
}

/* Append a word as redis-cli reads it: in double quotes if need be. */
static void
append_word(StringInfo text, const char *bytes, size_t len)
{
	if (is_plain(bytes, len))
		appendBinaryStringInfo(text, bytes, (int) len);
	else
		rexp_append_quoted(text, bytes, len);
}

static void
put_row(Preview *preview, const char *action, const char *command, const char *error)
{
	Datum		values[4];
	bool		nulls[4] = {false, false, command == NULL, error == NULL};

	nulls[0] = strcmp(action, PRUNE) == 0;
	values[0] = Int64GetDatum(preview->row);
	values[1] = CStringGetTextDatum(action);
	values[2] = command ? CStringGetTextDatum(command) : (Datum) 0;
	values[3] = error ? CStringGetTextDatum(error) : (Datum) 0;
	tuplestore_putvalues(preview->result->setResult, preview->result->setDesc,
						 values, nulls);
}

/* Each command in the buffer becomes a row of the result. */
static void
put_commands(Preview *preview, const char *action)
{
	const char *at = preview->out.data;
	const char *end = at + preview->out.len;

	while (at < end)
	{
		StringInfoData text;
		size_t		nwords = rexp_resp_take_header(&at);

		initStringInfo(&text);
		for (size_t i = 0; i < nwords; i++)
		{
			size_t		len = rexp_resp_take_header(&at);

			if (i > 0)
				appendStringInfoChar(&text, ' ');
			append_word(&text, at, len);
			at += len + 2;
		}
		put_row(preview, action, text.data, NULL);
	}
}

/* The answer of the node that has a key, to what is in its request. */
static redisReply *
receive(Preview *preview, const char *key, size_t key_len)
{
	return rexp_nodes_receive(preview->nodes, rexp_nodes_of_key(preview->nodes, key, key_len));
}

/* Has Redis the row that is in the buffer, and do the books say so? */
static bool
is_unchanged(Preview *preview, RexpBlock *block)
{
	const char *key = preview->out.data + block->key_start;
	int			node = rexp_nodes_of_key(preview->nodes, key, block->key_len);
	redisReply *reply;
	bool		found;
	bool		same;

	rexp_books_digest(preview->books, preview->out.data, preview->out.len, block);
	rexp_books_check(preview->books, key, block->key_len,
					 rexp_nodes_request(preview->nodes, node));
	reply = receive(preview, key, block->key_len);
	if (reply->type != REDIS_REPLY_STATUS)
		rexp_nodes_fail_reply(preview->nodes, reply, "TYPE");
	found = rexp_books_has_type(preview->books, reply->str, reply->len);
	freeReplyObject(reply);
	reply = receive(preview, key, block->key_len);
	if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL)
		rexp_nodes_fail_reply(preview->nodes, reply, "HGET");
	same = found && reply->type == REDIS_REPLY_STRING &&
		rexp_books_same(preview->books, block->digest, reply->str, reply->len);
	freeReplyObject(reply);
	return same;
}

/* The row is in the buffer: show what is done with it. */
static void
put_encoded(Preview *preview, RexpBlock *block)
{
	const char *action = block->erases ? "delete" : "write";
	char	   *key = palloc(block->key_len + 1);

	/* the key lies in the buffer that may be moved */
	memcpy(key, preview->out.data + block->key_start, block->key_len);
	if (preview->books != NULL && !block->erases && is_unchanged(preview, block))
	{
		action = "unchanged";
		preview->out.len = 0;
	}
	if (block->expiry.kind != REXP_EXPIRY_NONE)
		rexp_expiry_command(&block->expiry, key, block->key_len, &preview->out);
	if (preview->out.len > 0)
		put_commands(preview, action);
	else
		put_row(preview, action, NULL, NULL);
}

static bool
take_row(TupleTableSlot *slot, void *arg)
{
	Preview    *preview = arg;
	MemoryContext old = MemoryContextSwitchTo(preview->row_context);
	bool		shown = ++preview->row <= preview->rows;
	RexpBlock	block;
	RexpError	error;

	preview->out.len = 0;
	switch (rexp_encoder_encode(preview->encoder, slot, &preview->out, &block, &error))
	{
		case REXP_ENCODED:
			if (preview->prune != NULL)
				rexp_prune_take(preview->prune, preview->out.data + block.key_start,
								block.key_len, block.erases);
			if (shown)
				put_encoded(preview, &block);
			break;
		case REXP_ENCODE_SKIPPED:
			if (shown)
				put_row(preview, "skip", NULL, NULL);
			break;
		case REXP_ENCODE_FAILED:
			preview->fails = true;
			if (shown)
				put_row(preview, "fail", NULL, error.message);
			break;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(preview->row_context);
	CHECK_FOR_INTERRUPTS();
	return preview->row < preview->rows || preview->prune != NULL;
}

/* Is a key that no row has still there? */
static bool
is_there(Preview *preview, const char *key, size_t key_len)
{
	int			node = rexp_nodes_of_key(preview->nodes, key, key_len);
	RexpBuffer *request = rexp_nodes_request(preview->nodes, node);
	redisReply *reply;
	bool		there;

	rexp_resp_header(request, '*', 2);
	rexp_resp_word(request, "EXISTS");
	rexp_resp_bulk(request, key, key_len);
	reply = receive(preview, key, key_len);
	if (reply->type != REDIS_REPLY_INTEGER)
		rexp_nodes_fail_reply(preview->nodes, reply, "EXISTS");
	there = reply->integer > 0;
	freeReplyObject(reply);
	return there;
}

/* Show the first keys that a run with prune would delete; with rows that fail, it deletes none. */
static void
put_pruned(Preview *preview)
{
	RexpKeySet *doomed = rexp_prune_find(preview->prune, preview->nodes, preview->books,
										 false);
	const bytea *key;
	int64		shown = 0;

	while (doomed != NULL && !preview->fails && shown < preview->rows &&
		   (key = rexp_key_set_next(doomed)) != NULL)
	{
		if (!is_there(preview, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)))
			continue;
		preview->out.len = 0;
		rexp_resp_header(&preview->out, '*', 2);
		rexp_resp_word(&preview->out, "UNLINK");
		rexp_resp_bulk(&preview->out, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
		put_commands(preview, PRUNE);
		shown++;
	}
	if (doomed != NULL)
		rexp_key_set_end(doomed);
}

/* Get ready to ask Redis what it has of the export. */
static void
open_books(Preview *preview)
{
	const RexpJob *job = preview->job;

	preview->nodes = rexp_nodes_open(rexp_link_options(job->server, GetUserId(), NULL),
									 REXP_BOOK_LIST_FAILING);
	preview->books = rexp_job_books(job, job->name, false);
	if (rexp_nodes_are_cluster(preview->nodes))
		rexp_books_spread(preview->books);
	rexp_book_list_learn(preview->nodes, preview->books, job->name);
	if (job->prune)
		preview->prune = rexp_prune_create();
}

/* Run the query for its first rows. */
static void
run_query(void *arg)
{
	Preview    *preview = arg;
	const RexpJob *job = preview->job;
	RexpSource *source;

	if (job->name != NULL)
		open_books(preview);
	source = rexp_source_open(job->query);
	preview->encoder = rexp_encoder_create(&job->encoding,
										   rexp_source_columns(source));
	if (preview->books != NULL)
		rexp_encoder_use_books(preview->encoder, preview->books, &preview->column);
	rexp_source_run(source, take_row, preview);
	rexp_source_close(source);
	if (preview->prune != NULL)
		put_pruned(preview);
	if (preview->nodes != NULL)
		rexp_nodes_close(preview->nodes);
}

/*
 * rexp_preview
 *	  Return what an export would do with so many rows at most as the result of a
 *	  set-returning function: row_number, action, command, error.
 *
 * What is an error of the export before it starts is one here.
 */
void
rexp_preview(const RexpJob *job, int64 rows, FunctionCallInfo fcinfo)
{
	Preview		preview = {0};

	InitMaterializedSRF(fcinfo, 0);
	(void) rexp_job_check(job);

	preview.result = (ReturnSetInfo *) fcinfo->resultinfo;
	preview.job = job;
	preview.rows = rows;
	preview.row_context = AllocSetContextCreate(CurrentMemoryContext,
												"redis_export preview",
												ALLOCSET_DEFAULT_SIZES);
	rexp_buffer_init(&preview.out, 8192);

	rexp_fence_and_roll_back(rexp_job_session(job), run_query, &preview);
	MemoryContextDelete(preview.row_context);
}
