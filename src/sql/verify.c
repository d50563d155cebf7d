/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Does Redis hold what an export would write, and what else does it hold?
 *
 * Three lists come in the order of their keys, and are gone through side by side:
 *
 *	   the rows of the query, encoded as an export does it
 *	   the keys that the books of the export have	(book_list.c; if it has a name)
 *	   the keys of Redis that begin as those of the export do		(scan.c)
 *
 * and for each key, lot by lot, Redis is asked what is still to be known of it: its value,
 * whether it is there, or whether it is in the books of any export.  Of each value of a
 * row there is a digest (digest.c), so that memory and disk hold no more of documents than
 * their doubles; the sorts take work_mem and spill to disk.
 *
 * The query runs in the caller's own session, fenced in as in a worker, and in a
 * subtransaction that is then rolled back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/compat.h"
#include "base/digest.h"
#include "base/encoding.h"
#include "base/key_set.h"
#include "base/text.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "encode/encode.h"
#include "executor/executor.h"
#include "export/book_list.h"
#include "funcapi.h"
#include "job/launch.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "redis/own_keys.h"
#include "session/fence.h"
#include "session/server_options.h"
#include "session/source.h"
#include "sql/scan.h"
#include "sql/verify.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplesort.h"

/* Columns of the sort of the query's rows. */
#define ROW_KEY 1
#define ROW_NUMBER 2			/* below zero if it cannot be written: those come first */
#define ROW_DIGEST 3			/* null: the key must not be there */
#define ROW_FIELDS 4			/* hashes of the names of fields */
#define ROW_COLUMNS 4

/* Sorts at a time, which share work_mem: one for each list. */
#define SORTS 3

/* Keys that Redis is asked about at a time. */
#define LOT 500

/* What is found, by kind. */
typedef enum Finding
{
	MISSING,
	DIFFERENT,
	EXTRA,
	UNKNOWN,
	UNWRITABLE,
	FINDINGS
} Finding;

/* What Redis is asked about a key. */
typedef enum Question
{
	WHAT_VALUE,					/* does it have that of the row? */
	IS_THERE,					/* though no row has it */
	WHOSE						/* in whose books is it? */
} Question;

typedef struct Asked
{
	Question	question;
	bytea	   *key;
	int			node;			/* of Redis, which is asked */
	bytea	   *digest;			/* of the row's value; NULL: there must be none */
	bytea	   *fields;			/* of a hash */
} Asked;

typedef struct Lot
{
	MemoryContext context;
	int			count;
	Asked		items[LOT];
} Lot;

typedef struct Verify
{
	const RexpJob *job;
	RexpEncoder *encoder;
	const char *key_begin;		/* of all keys of the export */
	RexpBuffer	out;
	int64		row;

	Tuplesortstate *sort;
	TupleDesc	desc;			/* of the sort */
	TupleTableSlot *in;
	TupleTableSlot *next;		/* one row ahead: the first of another key ... */
	TupleTableSlot *current;	/* ... than this, the last row of its key */
	bool		next_is_there;

	RexpNodes  *nodes;
	RexpBooks  *own;			/* books of the export, or NULL: it has no name */
	List	   *others;			/* of RexpBooks: those of all others */
	bytea	   *row_key;		/* of the row in "current", or NULL: no more rows */
	RexpKeySet *entries;		/* of the own books, or NULL */
	const bytea *entry;			/* of these, the next one, or NULL */
	RexpScan   *scan;
	const bytea *found;			/* by that, the next key, or NULL */

	MemoryContext row_context;
	MemoryContext scratch;		/* of all else that it takes */
	ResourceOwner owner;		/* of the subtransaction */
	MemoryContext context;		/* of what is returned */
	int64		expected;
	int64		counts[FINDINGS];
	int			examples;		/* at most, of each kind */
	List	   *keys[FINDINGS]; /* of text Datums */
} Verify;

/* Count it, and keep the key as an example while there is room. */
static void
note(Verify *verify, Finding finding, const char *key, size_t len)
{
	MemoryContext old;
	char		shown[512];
	char	   *text;

	verify->counts[finding]++;
	if (list_length(verify->keys[finding]) >= verify->examples)
		return;
	old = MemoryContextSwitchTo(verify->context);
	text = rexp_text_exact(key, len);
	if (text == NULL)
	{
		rexp_printable(shown, sizeof(shown), key, len);
		text = shown;
	}
	verify->keys[finding] = lappend(verify->keys[finding],
									DatumGetPointer(CStringGetTextDatum(text)));
	MemoryContextSwitchTo(old);
}

/*
 * What the query says
 */

/* A word of a command, and go past it. */
static const char *
take_word(const char **at, size_t *len)
{
	const char *word;

	*len = rexp_resp_take_header(at);
	word = *at;
	*at += *len + 2;
	return word;
}

/* One field of a hash: its digest, and the hash of its name. */
static RexpDigest
field_digest(const char *name, size_t name_len, const char *value, size_t value_len,
			 uint32 *name_hash)
{
	RexpDigest	name_digest = rexp_digest_bytes(name, name_len);
	RexpDigest	value_digest = rexp_digest_bytes(value, value_len);
	RexpDigest	both[2] = {name_digest, value_digest};

	*name_hash = (uint32) name_digest.halves[0];
	return rexp_digest_bytes((const char *) both, sizeof(both));
}

/* Find the command that writes; NULL if there is only one that deletes. */
static const char *
find_write(const Verify *verify, size_t *nwords)
{
	const char *at = verify->out.data;
	const char *end = at + verify->out.len;

	while (at < end)
	{
		size_t		len;
		const char *word;

		*nwords = rexp_resp_take_header(&at);
		word = take_word(&at, &len);
		if ((len == 4 && memcmp(word, "HSET", 4) == 0) ||
			(len == 8 && memcmp(word, "JSON.SET", 8) == 0))
			return at;
		for (size_t i = 1; i < *nwords; i++)
			(void) take_word(&at, &len);
	}
	return NULL;
}

static bytea *
bytes_of(const void *data, size_t len)
{
	bytea	   *result = palloc(VARHDRSZ + len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), data, len);
	return result;
}

/* Digest of the fields of a command, nwords of which are left. */
static RexpDigest
digest_fields(const char *at, size_t nwords, bytea **fields)
{
	RexpDigest	sum = {{0, 0}};
	uint32	   *names = palloc(sizeof(uint32) * (nwords / 2 + 1));
	size_t		nfields = 0;

	for (size_t i = 0; i + 1 < nwords; i += 2)
	{
		size_t		name_len;
		const char *name = take_word(&at, &name_len);
		size_t		value_len;
		const char *value = take_word(&at, &value_len);
		RexpDigest	digest = field_digest(name, name_len, value, value_len,
										  &names[nfields++]);

		rexp_digest_add(&sum, &digest);
	}
	*fields = bytes_of(names, sizeof(uint32) * nfields);
	return sum;
}

/* Put a row into the sort: an encoded one, or one of which there is only the key. */
static void
put_row(Verify *verify, const RexpBlock *block, bool writable)
{
	TupleTableSlot *slot = verify->in;
	size_t		nwords = 0;
	const char *at = writable ? find_write(verify, &nwords) : NULL;
	bytea	   *digest = NULL;
	bytea	   *fields = NULL;
	ResourceOwner portal_owner = CurrentResourceOwner;

	ExecClearTuple(slot);
	if (at != NULL)
	{
		size_t		len;

		(void) take_word(&at, &len);	/* the key */
		if (verify->job->encoding.kind == REXP_EXPORT_HASH)
		{
			RexpDigest	sum = digest_fields(at, nwords - 2, &fields);

			digest = bytes_of(&sum, sizeof(sum));
		}
		else
		{
			(void) take_word(&at, &len);	/* the path */
			at = take_word(&at, &len);
			digest = rexp_digest_json(at, len);
		}
	}
	slot->tts_values[ROW_KEY - 1] =
		PointerGetDatum(bytes_of(verify->out.data + block->key_start, block->key_len));
	slot->tts_values[ROW_NUMBER - 1] = Int64GetDatum(writable ? verify->row : -verify->row);
	slot->tts_isnull[ROW_KEY - 1] = slot->tts_isnull[ROW_NUMBER - 1] = false;
	slot->tts_isnull[ROW_DIGEST - 1] = digest == NULL;
	slot->tts_isnull[ROW_FIELDS - 1] = fields == NULL;
	if (digest != NULL)
		slot->tts_values[ROW_DIGEST - 1] = PointerGetDatum(digest);
	if (fields != NULL)
		slot->tts_values[ROW_FIELDS - 1] = PointerGetDatum(fields);
	ExecStoreVirtualTuple(slot);

	/* its files must not be those of the query's portal, which is closed first */
	CurrentResourceOwner = verify->owner;
	tuplesort_puttupleslot(verify->sort, slot);
	CurrentResourceOwner = portal_owner;
}

/*
 * One row.  Of one that an export could not write it is not known what Redis holds;
 * without a key all that can be done is to count it.
 */
static bool
take_row(TupleTableSlot *slot, void *arg)
{
	Verify	   *verify = arg;
	MemoryContext old = MemoryContextSwitchTo(verify->row_context);
	RexpBlock	block;
	RexpError	ignored;

	verify->row++;
	verify->out.len = 0;
	if (rexp_encoder_encode(verify->encoder, slot, &verify->out, &block, &ignored) == REXP_ENCODED)
		put_row(verify, &block, true);
	else if (block.key_is_whole)
		put_row(verify, &block, false);
	else
		verify->counts[UNWRITABLE]++;
	MemoryContextSwitchTo(old);
	MemoryContextReset(verify->row_context);
	CHECK_FOR_INTERRUPTS();
	return true;
}

static void
begin_sort(Verify *verify)
{
	AttrNumber	columns[2] = {ROW_KEY, ROW_NUMBER};
	Oid			operators[2] = {ByteaLessOperator, Int8LessOperator};
	Oid			collations[2] = {InvalidOid, InvalidOid};
	bool		nulls_first[2] = {false, false};

	verify->desc = CreateTemplateTupleDesc(ROW_COLUMNS);
	TupleDescInitEntry(verify->desc, ROW_KEY, "key", BYTEAOID, -1, 0);
	TupleDescInitEntry(verify->desc, ROW_NUMBER, "number", INT8OID, -1, 0);
	TupleDescInitEntry(verify->desc, ROW_DIGEST, "digest", BYTEAOID, -1, 0);
	TupleDescInitEntry(verify->desc, ROW_FIELDS, "fields", BYTEAOID, -1, 0);
	rexp_finalize_tuple_desc(verify->desc);
	verify->in = MakeSingleTupleTableSlot(verify->desc, &TTSOpsVirtual);
	verify->next = MakeSingleTupleTableSlot(verify->desc, &TTSOpsMinimalTuple);
	verify->current = MakeSingleTupleTableSlot(verify->desc, &TTSOpsMinimalTuple);
	verify->sort = tuplesort_begin_heap(verify->desc, 2, columns, operators, collations,
										nulls_first, Max(work_mem / SORTS, 64), NULL,
										TUPLESORT_NONE);
}

/* One row of the sort, which is palloc'd where the caller is. */
static void
fetch_next(Verify *verify)
{
	MemoryContext old = MemoryContextSwitchTo(verify->scratch);

	verify->next_is_there = tuplesort_gettupleslot(verify->sort, true, true,
												   verify->next, NULL);
	MemoryContextSwitchTo(old);
}

/* Run the query, and have its rows in order. */
static void
read_rows(Verify *verify)
{
	RexpSource *source = rexp_source_open(verify->job->query);
	verify->encoder = rexp_encoder_create(&verify->job->encoding,
										  rexp_source_columns(source));
	verify->key_begin = MemoryContextStrdup(verify->scratch,
											rexp_encoder_gives(verify->encoder)->key_begin);
	rexp_source_run(source, take_row, verify);
	rexp_source_close(source);
	tuplesort_performsort(verify->sort);
	fetch_next(verify);
}

static bytea *
slot_bytea(TupleTableSlot *slot, int column)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, column, &isnull);

	return isnull ? NULL : DatumGetByteaPP(value);
}

/* Can the row in verify->current be written? */
static bool
is_writable(const Verify *verify)
{
	bool		isnull;

	return DatumGetInt64(slot_getattr(verify->current, ROW_NUMBER, &isnull)) >= 0;
}

/* Should its key be in Redis? */
static bool
is_due(const Verify *verify)
{
	return slot_bytea(verify->current, ROW_DIGEST) != NULL;
}

/*
 * Go to the last row of the next key, which counts, in verify->current: one that can be
 * written, if there is any.  NULL at the end, else its key.
 */
static bytea *
next_expected(Verify *verify)
{
	bytea	   *key;

	if (!verify->next_is_there)
		return NULL;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ExecCopySlot(verify->current, verify->next);
		fetch_next(verify);
		if (!verify->next_is_there ||
			rexp_key_compare(slot_bytea(verify->next, ROW_KEY),
						 slot_bytea(verify->current, ROW_KEY)) != 0)
			break;
	}
	key = slot_bytea(verify->current, ROW_KEY);
	if (!is_writable(verify))
		note(verify, UNWRITABLE, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	else if (is_due(verify))
		verify->expected++;
	return key;
}

/*
 * What Redis says
 */

static bool
is_among(uint32 hash, const uint32 *hashes, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		if (hashes[i] == hash)
			return true;
	}
	return false;
}

/* Does the hash hold the fields of the row, and with "whole" no others? */
static bool
same_fields(const bytea *expected, const bytea *fields, const redisReply *reply,
			bool whole)
{
	size_t		nnames = VARSIZE_ANY_EXHDR(fields) / sizeof(uint32);
	uint32	   *names = palloc(sizeof(uint32) * (nnames + 1));
	RexpDigest	sum = {{0, 0}};
	RexpDigest	digest;

	if (whole && reply->elements / 2 != nnames)
		return false;

	/* in the tuple they may be anywhere */
	memcpy(names, VARDATA_ANY(fields), sizeof(uint32) * nnames);
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		uint32		hash;

		CHECK_FOR_INTERRUPTS();
		digest = field_digest(reply->element[i]->str, reply->element[i]->len,
							  reply->element[i + 1]->str, reply->element[i + 1]->len,
							  &hash);
		if (is_among(hash, names, nnames))
			rexp_digest_add(&sum, &digest);
	}
	memcpy(&digest, VARDATA_ANY(expected), sizeof(digest));
	return rexp_digest_equal(&digest, &sum);
}

/* Is the value of Redis that of the row? */
static bool
same_value(const Verify *verify, const Asked *item, const redisReply *reply)
{
	if (item->digest == NULL)
		return false;
	if (verify->job->encoding.kind == REXP_EXPORT_HASH)
		return same_fields(item->digest, item->fields, reply, verify->job->encoding.replace);
	return rexp_digest_json_equal(item->digest, rexp_digest_json(reply->str, reply->len));
}

/* Is there a value, of the export's type? */
static bool
has_value(const Verify *verify, redisReply *reply)
{
	RexpError	error;

	if (reply->type == REDIS_REPLY_ERROR)
	{
		(void) rexp_answer_to(reply->str, reply->len, &error);
		if (error.sqlstate != ERRCODE_WRONG_OBJECT_TYPE)
			rexp_nodes_fail_reply(verify->nodes, reply, "the value of a key");
		return false;
	}
	return reply->type == REDIS_REPLY_STRING ||
		(reply->type == REDIS_REPLY_ARRAY && reply->elements > 0);
}

/* Append the commands that ask about a key. */
static void
ask(Verify *verify, const Asked *item)
{
	RexpBuffer *request = rexp_nodes_request(verify->nodes, item->node);
	const char *key = VARDATA_ANY(item->key);
	size_t		key_len = VARSIZE_ANY_EXHDR(item->key);
	bool		json = verify->job->encoding.kind == REXP_EXPORT_JSON;
	ListCell   *cell;

	switch (item->question)
	{
		case WHAT_VALUE:
			rexp_resp_header(request, '*', json ? 3 : 2);
			rexp_resp_word(request, json ? "JSON.GET" : "HGETALL");
			rexp_resp_bulk(request, key, key_len);
			if (json)
				rexp_resp_word(request, ".");
			break;
		case IS_THERE:
			rexp_resp_header(request, '*', 2);
			rexp_resp_word(request, "EXISTS");
			rexp_resp_bulk(request, key, key_len);
			break;
		case WHOSE:
			if (verify->own != NULL)
				rexp_books_ask(verify->own, key, key_len, request);
			foreach(cell, verify->others)
				rexp_books_ask(lfirst(cell), key, key_len, request);
			break;
	}
}

/* A number that a node answers. */
static int64
receive_number(Verify *verify, int node, const char *command)
{
	redisReply *reply = rexp_nodes_receive(verify->nodes, node);
	int64		number = reply->integer;

	if (reply->type != REDIS_REPLY_INTEGER)
		rexp_nodes_fail_reply(verify->nodes, reply, command);
	freeReplyObject(reply);
	return number;
}

/*
 * The value of a row's key: none, another, or the same.  A key that must not be there, and is
 * not, is right.
 */
static void
judge_value(Verify *verify, const Asked *item)
{
	redisReply *volatile reply = rexp_nodes_receive(verify->nodes, item->node);
	Finding		finding = FINDINGS;

	if (!has_value(verify, reply))
		finding = item->digest != NULL ? MISSING : FINDINGS;
	else
	{
		/* what is compared is the client's memory, and may be interrupted */
		PG_TRY();
		{
			if (!same_value(verify, item, reply))
				finding = DIFFERENT;
		}
		PG_CATCH();
		{
			freeReplyObject(reply);
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	freeReplyObject(reply);
	if (finding != FINDINGS)
		note(verify, finding, VARDATA_ANY(item->key), VARSIZE_ANY_EXHDR(item->key));
}

/*
 * A key that no row has and that is not in the books as they were read: it may have come into
 * them since.
 */
static void
judge_owner(Verify *verify, const Asked *item)
{
	bool		own = verify->own != NULL &&
		receive_number(verify, item->node, "HEXISTS") > 0;
	bool		of_others = false;

	for (int i = 0; i < list_length(verify->others); i++)
		of_others |= receive_number(verify, item->node, "HEXISTS") > 0;
	if (own || !of_others)
		note(verify, own ? EXTRA : UNKNOWN, VARDATA_ANY(item->key),
			 VARSIZE_ANY_EXHDR(item->key));
}

/* Receive the answers about a lot. */
static void
judge(Verify *verify, Lot *lot)
{
	MemoryContext old = MemoryContextSwitchTo(lot->context);

	for (int i = 0; i < lot->count; i++)
	{
		const Asked *item = &lot->items[i];

		CHECK_FOR_INTERRUPTS();
		switch (item->question)
		{
			case WHAT_VALUE:
				judge_value(verify, item);
				break;
			case IS_THERE:
				if (receive_number(verify, item->node, "EXISTS") > 0)
					note(verify, EXTRA, VARDATA_ANY(item->key),
						 VARSIZE_ANY_EXHDR(item->key));
				break;
			case WHOSE:
				judge_owner(verify, item);
				break;
		}
	}
	lot->count = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(lot->context);
}

/*
 * All three lists
 */

static void
next_entry(Verify *verify)
{
	verify->entry = verify->entries != NULL ? rexp_key_set_next(verify->entries) : NULL;
}

static void
next_found(Verify *verify)
{
	const redisReply *none;

	do
		verify->found = rexp_scan_next(verify->scan, &none);
	while (verify->found != NULL &&
		   rexp_is_own_key(VARDATA_ANY(verify->found), VARSIZE_ANY_EXHDR(verify->found)));
}

static bytea *
copy_bytea(const bytea *bytes)
{
	bytea	   *copy = NULL;

	if (bytes != NULL)
	{
		copy = palloc(VARSIZE_ANY(bytes));
		memcpy(copy, bytes, VARSIZE_ANY(bytes));
	}
	return copy;
}

/* The first key of the lists, or NULL. */
static const bytea *
first_key(const Verify *verify)
{
	const bytea *keys[] = {verify->row_key, verify->entry, verify->found};
	const bytea *first = NULL;

	for (size_t i = 0; i < lengthof(keys); i++)
	{
		if (keys[i] != NULL && (first == NULL || rexp_key_compare(keys[i], first) < 0))
			first = keys[i];
	}
	return first;
}

static bool
is_at(const bytea *head, const bytea *key)
{
	return head != NULL && rexp_key_compare(head, key) == 0;
}

/* Go past the next key of the lists, and tell what is to be asked about it.  False at the end. */
static bool
next_item(Verify *verify, Asked *item, bool *ask)
{
	const bytea *key = first_key(verify);
	bool		in_rows;
	bool		in_entries;

	if (key == NULL)
		return false;
	item->key = copy_bytea(key);
	in_rows = is_at(verify->row_key, item->key);
	in_entries = is_at(verify->entry, item->key);
	*ask = true;
	if (in_rows)
	{
		/* of a row that cannot be written it is not known what Redis is to hold */
		*ask = is_writable(verify);
		item->question = WHAT_VALUE;
		item->digest = copy_bytea(slot_bytea(verify->current, ROW_DIGEST));
		item->fields = copy_bytea(slot_bytea(verify->current, ROW_FIELDS));
		verify->row_key = next_expected(verify);
	}
	else
		item->question = in_entries ? IS_THERE : WHOSE;
	if (in_entries)
		next_entry(verify);
	if (is_at(verify->found, item->key))
		next_found(verify);
	item->node = rexp_nodes_of_key(verify->nodes, VARDATA_ANY(item->key),
								   VARSIZE_ANY_EXHDR(item->key));
	return true;
}

/* Fill a lot with the next keys, and ask about them. */
static void
fill_lot(Verify *verify, Lot *lot)
{
	MemoryContext old = MemoryContextSwitchTo(lot->context);
	bool		asks;

	while (lot->count < LOT && next_item(verify, &lot->items[lot->count], &asks))
	{
		if (asks)
			ask(verify, &lot->items[lot->count++]);
	}
	rexp_nodes_push(verify->nodes);
	MemoryContextSwitchTo(old);
}

static Lot *
make_lot(void)
{
	Lot		   *lot = palloc0(sizeof(Lot));

	lot->context = AllocSetContextCreate(CurrentMemoryContext, "redis_export lot",
										 ALLOCSET_DEFAULT_SIZES);
	return lot;
}

/* The pattern that all keys with this beginning match. */
static char *
pattern_of(const char *begin)
{
	StringInfoData pattern;

	initStringInfo(&pattern);
	for (; *begin != '\0'; begin++)
	{
		if (strchr("*?[]\\^", *begin) != NULL)
			appendStringInfoChar(&pattern, '\\');
		appendStringInfoChar(&pattern, *begin);
	}
	appendStringInfoChar(&pattern, '*');
	return pattern.data;
}

/* The books of an export, to be read. */
static RexpBooks *
books_of(const Verify *verify, const char *name)
{
	RexpBooks  *books = rexp_books_create(name, "", rexp_encoding_type(&verify->job->encoding),
										  false);

	if (rexp_nodes_are_cluster(verify->nodes))
		rexp_books_spread(books);
	return books;
}

/* Learn whose books there are. */
static void
find_books(Verify *verify)
{
	const char *registry = REXP_REGISTRY;
	const char *name = verify->job->name;
	int			node = rexp_nodes_of_key(verify->nodes, registry, strlen(registry));
	RexpBuffer *request = rexp_nodes_request(verify->nodes, node);
	redisReply *reply;

	if (name != NULL)
	{
		name = rexp_literal_utf8(name, strlen(name));
		verify->own = books_of(verify, name);
	}
	rexp_resp_header(request, '*', 2);
	rexp_resp_word(request, "SMEMBERS");
	rexp_resp_word(request, registry);
	reply = rexp_nodes_receive(verify->nodes, node);
	if (reply->type != REDIS_REPLY_ARRAY)
		rexp_nodes_fail_reply(verify->nodes, reply, "SMEMBERS");
	for (size_t i = 0; i < reply->elements; i++)
	{
		const redisReply *member = reply->element[i];

		if (member->type == REDIS_REPLY_STRING && (name == NULL || strcmp(member->str, name) != 0))
			verify->others = lappend(verify->others,
									 books_of(verify, pstrdup(member->str)));
	}
	freeReplyObject(reply);
}

/* Go through all lists: while one lot is judged, Redis is asked about the next. */
static void
compare(Verify *verify)
{
	RexpScanOptions options = {
		.kind = REXP_SCAN_KEYS,
		.pattern = pattern_of(verify->key_begin),
		.memory = work_mem / SORTS
	};
	Lot		   *lot = make_lot();
	Lot		   *next = make_lot();

	verify->nodes = rexp_nodes_open(rexp_link_options(verify->job->server, GetUserId(), NULL), NULL);
	options.nodes = verify->nodes;
	find_books(verify);
	if (verify->own != NULL)
		verify->entries = rexp_book_list_read(rexp_book_list_create(verify->nodes, verify->own),
											  work_mem / SORTS);
	verify->scan = rexp_scan_begin(&options);
	verify->row_key = next_expected(verify);
	next_entry(verify);
	next_found(verify);
	fill_lot(verify, lot);
	while (lot->count > 0)
	{
		Lot		   *judged = lot;

		fill_lot(verify, next);
		judge(verify, lot);
		lot = next;
		next = judged;
	}
	rexp_scan_end(verify->scan);
	if (verify->entries != NULL)
		rexp_key_set_end(verify->entries);
	rexp_nodes_close(verify->nodes);
}

/* Do it all, in a context whose reset lets go of all. */
static void
run(void *arg)
{
	Verify	   *verify = arg;

	verify->owner = CurrentResourceOwner;
	begin_sort(verify);
	read_rows(verify);
	compare(verify);
	tuplesort_end(verify->sort);
	ExecDropSingleTupleTableSlot(verify->in);
	ExecDropSingleTupleTableSlot(verify->next);
	ExecDropSingleTupleTableSlot(verify->current);
}

/* A text[] of the keys that were kept. */
static Datum
keys_array(List *keys)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(list_length(keys), 1));
	int			n = 0;
	ListCell   *cell;

	foreach(cell, keys)
		elements[n++] = PointerGetDatum(lfirst(cell));
	return PointerGetDatum(construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT));
}

/*
 * rexp_verify
 *	  Compare, and return one row: keys expected, missing, different, extra, unknown and
 *	  unwritable, and examples of all but the first.
 *
 * What is an error of the export before it starts is one here.
 */
Datum
rexp_verify(const RexpJob *job, int examples, FunctionCallInfo fcinfo)
{
	MemoryContext context = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(context, "redis_export verify",
												  ALLOCSET_DEFAULT_SIZES);
	Verify	   *verify;
	TupleDesc	desc;
	Datum		values[1 + 2 * FINDINGS];
	bool		nulls[1 + 2 * FINDINGS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "redis_export: the result type is no row");
	(void) rexp_job_check(job);

	MemoryContextSwitchTo(scratch);
	verify = palloc0(sizeof(Verify));
	verify->job = job;
	verify->examples = examples;
	verify->context = context;
	verify->scratch = scratch;
	verify->row_context = AllocSetContextCreate(scratch, "redis_export row",
												ALLOCSET_DEFAULT_SIZES);
	rexp_buffer_init(&verify->out, 8192);

	/* after an error, scratch goes with the context that it is in */
	rexp_fence_and_roll_back(rexp_job_session(job), run, verify);
	MemoryContextSwitchTo(context);

	values[0] = Int64GetDatum(verify->expected);
	for (int i = 0; i < FINDINGS; i++)
	{
		values[1 + i] = Int64GetDatum(verify->counts[i]);
		values[1 + FINDINGS + i] = keys_array(verify->keys[i]);
	}
	if (job->name == NULL)
		nulls[1 + EXTRA] = nulls[1 + FINDINGS + EXTRA] = true;
	MemoryContextDelete(scratch);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
