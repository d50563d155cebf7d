/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  The keys that Redis holds, and their values, as rows.
 *
 * SCAN gives each key at least once that is there all along (Redis manual, "SCAN"),
 * in no order, and some twice.  So all keys are read first, from each master of a
 * cluster, into a sort that takes no more than work_mem and spills to disk; then
 * they come out in order, each once.  Values are asked for as the keys come out, in
 * pipelines: while one lot of rows is handed out, the next is on its way.
 *
 * If only keys are asked for, and in any order, they are handed out as they come.
 * Those that have been are remembered (key_filter.c) as long as that fits into
 * memory; from then on others go into the sort, and come last.
 *
 * A key that is gone meanwhile, or holds another type by then, is left out.
 *
 * Keys in which exports keep books are nobody's business: they are left out, unless it
 * is them that the pattern asks for.  Nothing else here knows exports.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/compat.h"
#include "base/key_filter.h"
#include "base/key_set.h"
#include "base/text.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "redis/nodes.h"
#include "redis/own_keys.h"
#include "redis/reply_json.h"
#include "session/server_options.h"
#include "sql/scan.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

/* Keys that SCAN looks at for one answer; Redis does nothing else meanwhile. */
#define SCAN_COUNT "2000"

/* Keys whose values are asked for at a time. */
#define LOT 500

/* Keys that are on their way to become rows. */
typedef struct Lot
{
	int			nkeys;
	bytea	   *keys[LOT];
	int16		nodes[LOT];		/* who has it */
	int			used;
} Lot;

struct RexpScan
{
	RexpScanOptions options;
	MemoryContext context;		/* of all that lives as long as the scan */
	MemoryContextCallback callback;
	RexpNodes  *nodes;
	bool		own_keys;		/* are they asked for? */
	RexpKeySet *keys;			/* or NULL as long as none are kept */
	int			node;			/* whose keys are read; -1: all are */
	char		cursor[32];		/* of its next page, "0": there is none */
	redisReply *page;			/* its last one, or NULL */
	size_t		at;				/* the next key of the page */
	RexpKeyFilter *filter;		/* or NULL: all keys are read first */
	bool		sorted;			/* the keys that it did not remember */
	RexpBuffer	key;			/* handed out, as a bytea */
	Lot		   *lot;			/* whose rows are handed out */
	Lot		   *next;			/* whose values are on their way */
	redisReply *value;			/* that was handed out last, or NULL */
};


/* The end of the scan, however it comes: by the reset of its context. */
static void
close_scan(void *arg)
{
	RexpScan   *scan = arg;

	if (scan->value != NULL)
		freeReplyObject(scan->value);
	if (scan->page != NULL)
		freeReplyObject(scan->page);
}

/*
 * Keys
 */

/* Ask for a page, for Redis to be at it meanwhile. */
static void
request_page(RexpScan *scan)
{
	RexpBuffer *request = rexp_nodes_request(scan->nodes, scan->node);
	const char *type = scan->options.type;

	rexp_resp_header(request, '*', type != NULL ? 8 : 6);
	rexp_resp_word(request, "SCAN");
	rexp_resp_word(request, scan->cursor);
	rexp_resp_word(request, "MATCH");
	rexp_resp_word(request, scan->options.pattern);
	rexp_resp_word(request, "COUNT");
	rexp_resp_word(request, SCAN_COUNT);
	if (type != NULL)
	{
		rexp_resp_word(request, "TYPE");
		rexp_resp_word(request, type);
	}
	rexp_nodes_push(scan->nodes);
}

/* Begin with the keys of the next node that has any. */
static void
next_node(RexpScan *scan)
{
	scan->node = rexp_nodes_next(scan->nodes, scan->node);
	strlcpy(scan->cursor, "0", sizeof(scan->cursor));
	if (scan->node >= 0)
		request_page(scan);
}

/* Wait for the page that was asked for, and ask for the next one. */
static void
next_page(RexpScan *scan)
{
	if (scan->page != NULL)
		freeReplyObject(scan->page);
	scan->page = NULL;
	scan->page = rexp_nodes_receive_page(scan->nodes, scan->node, "SCAN");
	scan->at = 0;
	strlcpy(scan->cursor, scan->page->element[0]->str, sizeof(scan->cursor));
	if (strcmp(scan->cursor, "0") != 0)
		request_page(scan);
}

/* The next key as it comes; NULL if there are no more. */
static const redisReply *
next_of_pages(RexpScan *scan)
{
	const redisReply *key;

	do
	{
		CHECK_FOR_INTERRUPTS();
		while (scan->page == NULL || scan->at == scan->page->element[1]->elements)
		{
			if (scan->page != NULL && strcmp(scan->cursor, "0") == 0)
			{
				freeReplyObject(scan->page);
				scan->page = NULL;
				next_node(scan);
				if (scan->node < 0)
					rexp_nodes_check_whole(scan->nodes);
			}
			if (scan->node < 0)
				return NULL;
			next_page(scan);
		}
		key = scan->page->element[1]->element[scan->at++];
	} while (!scan->own_keys && rexp_is_own_key(key->str, key->len));
	return key;
}

/* Read all keys, for them to come out in order. */
static void
read_all(RexpScan *scan)
{
	const redisReply *key;

	scan->keys = rexp_key_set_create(scan->options.memory);
	while ((key = next_of_pages(scan)) != NULL)
		rexp_key_set_add(scan->keys, key->str, key->len);
	rexp_key_set_sort(scan->keys);
}

/* The key that is handed out next, in a buffer of ours. */
static const bytea *
hand_out(RexpScan *scan, const redisReply *key)
{
	scan->key.len = 0;
	rexp_buffer_reserve(&scan->key, VARHDRSZ + key->len);
	SET_VARSIZE(scan->key.data, VARHDRSZ + key->len);
	memcpy(VARDATA(scan->key.data), key->str, key->len);
	return (const bytea *) scan->key.data;
}

/*
 * next_unordered
 *	  The next key that has not been handed out, as it comes; NULL at the end.
 */
static const bytea *
next_unordered(RexpScan *scan)
{
	const redisReply *key;

	while ((key = next_of_pages(scan)) != NULL)
	{
		switch (rexp_key_filter_look(scan->filter, key->str, key->len))
		{
			case REXP_SEEN_NEVER:
				return hand_out(scan, key);
			case REXP_SEEN_BEFORE:
				break;
			case REXP_SEEN_UNKNOWN:
				if (scan->keys == NULL)
					scan->keys = rexp_key_set_create(scan->options.memory / 4);
				rexp_key_set_add(scan->keys, key->str, key->len);
				break;
		}
	}
	if (scan->keys == NULL)
		return NULL;
	if (!scan->sorted)
		rexp_key_set_sort(scan->keys);
	scan->sorted = true;
	return rexp_key_set_next(scan->keys);
}

/*
 * Values
 */

static void
request_value(RexpScan *scan, int node, const bytea *key)
{
	RexpBuffer *request = rexp_nodes_request(scan->nodes, node);
	bool		json = scan->options.kind == REXP_SCAN_JSON;

	rexp_resp_header(request, '*', json ? 3 : 2);
	rexp_resp_word(request, json ? "JSON.GET" : "HGETALL");
	rexp_resp_bulk(request, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	if (json)
		rexp_resp_word(request, scan->options.path);
}

/* Fill a lot with the next keys, and ask for their values. */
static void
fill_lot(RexpScan *scan, Lot *lot)
{
	lot->nkeys = lot->used = 0;
	while (lot->nkeys < LOT)
	{
		const bytea *key = rexp_key_set_next(scan->keys);

		if (key == NULL)
			break;
		lot->keys[lot->nkeys] = palloc(VARSIZE_ANY(key));
		memcpy(lot->keys[lot->nkeys], key, VARSIZE_ANY(key));
		lot->nodes[lot->nkeys] = (int16) rexp_nodes_of_key(scan->nodes, VARDATA_ANY(key),
														   VARSIZE_ANY_EXHDR(key));
		lot->nkeys++;
	}
	if (scan->options.kind == REXP_SCAN_KEYS)
		return;
	for (int i = 0; i < lot->nkeys; i++)
		request_value(scan, lot->nodes[i], lot->keys[i]);
	rexp_nodes_push(scan->nodes);
}

/* The lot is through: the next one takes its place. */
static void
turn_lots(RexpScan *scan)
{
	Lot		   *done = scan->lot;

	for (int i = 0; i < done->nkeys; i++)
		pfree(done->keys[i]);
	done->nkeys = 0;
	scan->lot = scan->next;
	scan->next = done;
	fill_lot(scan, scan->next);
}

/*
 * Rows
 */

/* What is no text is an error that says so of its key, unless it is to be left out. */
static void
refuse_invalid(const RexpScan *scan, const bytea *key, const char *message,
			   const char *detail)
{
	char		shown[128];

	if (scan->options.skip_invalid)
		return;
	rexp_printable(shown, sizeof(shown), VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	ereport(ERROR,
			(errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
			 errmsg(message, shown),
			 detail != NULL ? errdetail("%s", detail) : 0,
			 errhint("With skip_invalid => true such keys are left out.")));
}

/* A key as text; NULL if it is to be left out. */
static text *
key_text(const RexpScan *scan, const bytea *key)
{
	const char *bytes = VARDATA_ANY(key);
	int			len = (int) VARSIZE_ANY_EXHDR(key);
	char	   *string;

	/* as rexp_text_exact() has it, with one copy */
	if (GetDatabaseEncoding() == PG_UTF8 && pg_verify_mbstr(PG_UTF8, bytes, len, true))
		return cstring_to_text_with_len(bytes, len);
	string = rexp_text_exact(bytes, len);
	if (string != NULL)
		return cstring_to_text(string);
	refuse_invalid(scan, key, "key \"%s\" is no text in the encoding of this database", NULL);
	return NULL;
}

/* Bytes of Redis as a string of jsonb: as text if they are one, as \x hex if not. */
static JsonbValue
string_value(const redisReply *reply)
{
	JsonbValue	value = {.type = jbvString};
	char	   *string = NULL;

	if (GetDatabaseEncoding() == PG_UTF8 &&
		pg_verify_mbstr(PG_UTF8, reply->str, (int) reply->len, true))
	{
		value.val.string.val = reply->str;
		value.val.string.len = (int) reply->len;
		return value;
	}
	string = rexp_reply_shown(reply->str, reply->len);
	value.val.string.val = string;
	value.val.string.len = (int) strlen(string);
	return value;
}

/* The fields of a hash as an object, or false if there are none. */
static bool
hash_value(const redisReply *reply, Datum *value)
{
	RexpJsonbState state = {0};

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0)
		return false;
	rexp_jsonb_push(&state, WJB_BEGIN_OBJECT, NULL);
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		JsonbValue	name = string_value(reply->element[i]);
		JsonbValue	field = string_value(reply->element[i + 1]);

		CHECK_FOR_INTERRUPTS();
		rexp_jsonb_push(&state, WJB_KEY, &name);
		rexp_jsonb_push(&state, WJB_VALUE, &field);
	}
	rexp_jsonb_push(&state, WJB_END_OBJECT, NULL);
	*value = JsonbPGetDatum(JsonbValueToJsonb(state.result));
	return true;
}

/* The number after \u, or -1. */
static int
escaped_unit(const char *at)
{
	unsigned int unit;

	return at[0] == '\\' && at[1] == 'u' && sscanf(at + 2, "%4x", &unit) == 1 ? (int) unit : -1;
}

/*
 * Does JSON hold an escape that jsonb does not take?  That is \u0000, half of a pair
 * of surrogates, and in databases of other encodings than UTF8 what these may lack.
 */
static bool
has_foreign_escape(const char *json)
{
	for (const char *at = json; (at = strchr(at, '\\')) != NULL && at[1] != '\0'; at += 2)
	{
		int			unit = escaped_unit(at);
		int			second;

		if (unit == 0 || (unit >= 0x80 && GetDatabaseEncoding() != PG_UTF8))
			return true;
		if (unit < 0xd800 || unit > 0xdfff)
			continue;
		second = unit < 0xdc00 ? escaped_unit(at + 6) : -1;
		if (second < 0xdc00 || second > 0xdfff)
			return true;
		at += 6;
	}
	return false;
}

/* The document, or false if there is none, or it is to be left out. */
static bool
json_value(const RexpScan *scan, const bytea *key, const redisReply *reply, Datum *value)
{
	char	   *text;

	if (reply->type != REDIS_REPLY_STRING)
		return false;
	text = rexp_text_exact(reply->str, reply->len);
	if (text == NULL || has_foreign_escape(text))
	{
		refuse_invalid(scan, key, "the document of key \"%s\" cannot be read as jsonb",
					   text == NULL ?
					   "It holds what is no text in the encoding of this database." :
					   "It holds \\u0000, or another escape that jsonb does not take.");
		return false;
	}
	*value = DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
	return true;
}

/*
 * rexp_scan_next
 *	  The next key, and its value as Redis answers; NULL at the end, and *value is
 *	  NULL if only keys are asked for.
 *
 * Both are good until the next call.
 */
const bytea *
rexp_scan_next(RexpScan *scan, const redisReply **value)
{
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	Lot		   *lot;

	CHECK_FOR_INTERRUPTS();
	*value = NULL;
	if (scan->filter != NULL)
	{
		const bytea *key = next_unordered(scan);

		MemoryContextSwitchTo(old);
		return key;
	}
	if (scan->lot->used == scan->lot->nkeys)
		turn_lots(scan);
	lot = scan->lot;
	if (scan->value != NULL)
		freeReplyObject(scan->value);
	scan->value = NULL;
	if (lot->nkeys > 0 && scan->options.kind != REXP_SCAN_KEYS)
		scan->value = rexp_nodes_receive(scan->nodes, lot->nodes[lot->used]);
	*value = scan->value;
	MemoryContextSwitchTo(old);
	return lot->nkeys > 0 ? lot->keys[lot->used++] : NULL;
}

/* Let go of the sort; the rest goes with the memory context. */
void
rexp_scan_end(RexpScan *scan)
{
	if (scan->keys != NULL)
		rexp_key_set_end(scan->keys);
	scan->keys = NULL;
}

/*
 * rexp_scan_begin
 *	  Connect, read the keys unless any order will do, and be ready to hand them out,
 *	  with all that it takes in the current memory context: its reset closes the
 *	  connections.
 */
RexpScan *
rexp_scan_begin(const RexpScanOptions *options)
{
	RexpScan   *scan = palloc0(sizeof(RexpScan));

	scan->options = *options;
	scan->context = CurrentMemoryContext;
	scan->callback.func = close_scan;
	scan->callback.arg = scan;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &scan->callback);

	scan->own_keys = rexp_is_own_key(options->pattern, strlen(options->pattern));
	scan->nodes = options->nodes != NULL ? options->nodes :
		rexp_nodes_open(rexp_link_options(options->server, GetUserId(), NULL), NULL);
	scan->node = -1;
	next_node(scan);
	if (options->any_order)
	{
		scan->filter = rexp_key_filter_create(scan->options.memory / 4 * 3);
		rexp_buffer_init(&scan->key, 256);
		return scan;
	}
	read_all(scan);
	scan->lot = palloc0(sizeof(Lot));
	scan->next = palloc0(sizeof(Lot));
	fill_lot(scan, scan->next);
	return scan;
}

/*
 * The value of a key as jsonb, or false if it is not there any more, or is to be left
 * out.  Errors that are no matter of this key are raised.
 */
static bool
read_value(const RexpScan *scan, const bytea *key, const redisReply *reply, Datum *value)
{
	RexpError	error;

	if (reply->type == REDIS_REPLY_ERROR)
	{
		/* another type by now is as good as gone */
		(void) rexp_answer_to(reply->str, reply->len, &error);
		if (error.sqlstate != ERRCODE_WRONG_OBJECT_TYPE)
			rexp_nodes_fail(scan->nodes, &error);
		return false;
	}
	return scan->options.kind == REXP_SCAN_JSON ?
		json_value(scan, key, reply, value) : hash_value(reply, value);
}

/* Go to the next row, in the current memory context.  False at the end. */
static bool
next_row(RexpScan *scan, text **key, Datum *value)
{
	const bytea *bytes;
	const redisReply *reply;

	while ((bytes = rexp_scan_next(scan, &reply)) != NULL)
	{
		if (reply != NULL && !read_value(scan, bytes, reply, value))
			continue;
		*key = key_text(scan, bytes);
		if (*key != NULL)
			return true;
	}
	return false;
}

/*
 * The query wants no more rows, as with a LIMIT.  The memory context goes by itself,
 * but not the files of the sort.
 */
static void
end_early(Datum scan)
{
	rexp_scan_end((RexpScan *) DatumGetPointer(scan));
}

/*
 * rexp_scan
 *	  A row for each call, as functions that return sets do it: (key), or (key,
 *	  value).  The options are those of the first call, and lie in the current
 *	  context; later ones need none.
 */
Datum
rexp_scan(FunctionCallInfo fcinfo, const RexpScanOptions *options)
{
	ExprContext *context = ((ReturnSetInfo *) fcinfo->resultinfo)->econtext;
	FuncCallContext *call;
	RexpScan   *scan;
	text	   *key;
	Datum		value;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		RexpScanOptions copy = *options;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		copy.server = pstrdup(options->server);
		copy.pattern = pstrdup(options->pattern);
		copy.type = options->type ? pstrdup(options->type) : NULL;
		copy.path = options->path ? pstrdup(options->path) : NULL;
		if (options->kind != REXP_SCAN_KEYS)
		{
			(void) get_call_result_type(fcinfo, NULL, &call->tuple_desc);
			call->tuple_desc = BlessTupleDesc(call->tuple_desc);
		}
		call->user_fctx = rexp_scan_begin(&copy);
		MemoryContextSwitchTo(old);

		/* called before that by which the memory context goes */
		RegisterExprContextCallback(context, end_early, PointerGetDatum(call->user_fctx));
	}
	call = SRF_PERCALL_SETUP();
	scan = call->user_fctx;
	if (!next_row(scan, &key, &value))
	{
		UnregisterExprContextCallback(context, end_early, PointerGetDatum(scan));
		rexp_scan_end(scan);
		SRF_RETURN_DONE(call);
	}
	if (scan->options.kind == REXP_SCAN_KEYS)
		SRF_RETURN_NEXT(call, PointerGetDatum(key));
	else
	{
		Datum		values[2] = {PointerGetDatum(key), value};
		bool		nulls[2] = {false, false};

		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values,
																 nulls)));
	}
}
