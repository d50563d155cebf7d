/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Does Redis hold what an export would write?
 *
 * Both sides come in the order of their keys, and are compared as they come: the
 * rows of the query, encoded as an export does it and sorted, and what Redis holds
 * (scan.c).  Of each value there is a digest (digest.c), so that memory and disk hold
 * no more of documents than their doubles; the sorts take work_mem and spill to disk.
 *
 * The query runs in the caller's own session, fenced in as in a worker, and in a
 * subtransaction that is then rolled back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "digest.h"
#include "encode.h"
#include "executor/executor.h"
#include "fence.h"
#include "funcapi.h"
#include "key_set.h"
#include "key_shape.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "reply.h"
#include "scan.h"
#include "server_options.h"
#include "source.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplesort.h"
#include "verify.h"

/* Columns of the sort of the query's rows. */
#define ROW_KEY 1
#define ROW_NUMBER 2			/* below zero if it cannot be written: those come first */
#define ROW_DIGEST 3			/* null: the key must not be there */
#define ROW_FIELDS 4			/* hashes of the names of fields */
#define ROW_COLUMNS 4

/* Sorts at a time, which share work_mem: the rows, and the keys of Redis. */
#define SORTS 2

/* What is found, by kind. */
typedef enum Finding
{
	MISSING,
	DIFFERENT,
	EXTRA,
	UNWRITABLE,
	FINDINGS
} Finding;

typedef struct Verify
{
	const RexpJob *job;
	RexpEncoder *encoder;
	RexpKeyShape *shape;
	RexpBuffer	out;
	int64		row;

	Tuplesortstate *sort;
	TupleDesc	desc;			/* of the sort */
	TupleTableSlot *in;
	TupleTableSlot *next;		/* one row ahead: the first of another key ... */
	TupleTableSlot *current;	/* ... than this, the last row of its key */
	bool		next_is_there;

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
	text = rexp_reply_text(key, len);
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
	RexpSource *source;
	MemoryContext old;

	source = rexp_source_open(verify->job->query);
	verify->encoder = rexp_encoder_create(&verify->job->encoding,
										  rexp_source_columns(source));
	old = MemoryContextSwitchTo(verify->scratch);
	verify->shape = rexp_key_shape_create(verify->job->encoding.key_template,
										  rexp_source_columns(source));
	MemoryContextSwitchTo(old);
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

/* Is the value of Redis that of the row in verify->current? */
static bool
same_value(Verify *verify, const redisReply *reply)
{
	const bytea *expected = slot_bytea(verify->current, ROW_DIGEST);

	if (expected == NULL)
		return false;
	if (verify->job->encoding.kind == REXP_EXPORT_HASH)
		return same_fields(expected, slot_bytea(verify->current, ROW_FIELDS), reply,
						   verify->job->encoding.replace);
	return rexp_digest_json_equal(expected, rexp_digest_json(reply->str, reply->len));
}

/* Is there a value at all?  A key may be gone since it was found. */
static bool
has_value(const redisReply *reply)
{
	RexpError	error;

	if (reply->type == REDIS_REPLY_ERROR)
	{
		(void) rexp_answer_to(reply->str, reply->len, &error);
		if (error.sqlstate != ERRCODE_WRONG_OBJECT_TYPE)
			rexp_error_raise(&error);
		return false;
	}
	return reply->type == REDIS_REPLY_STRING ||
		(reply->type == REDIS_REPLY_ARRAY && reply->elements > 0);
}

/* Compare one key of Redis with the row that is due; advance past it if it is. */
static void
compare_one(Verify *verify, const bytea *key, const redisReply *reply, bytea **expected)
{
	int			order;

	if (!has_value(reply))
		return;
	while (*expected != NULL && (order = rexp_key_compare(*expected, key)) <= 0)
	{
		if (order == 0)
		{
			if (is_writable(verify) && !same_value(verify, reply))
				note(verify, DIFFERENT, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
			*expected = next_expected(verify);
			return;
		}
		if (is_due(verify))
			note(verify, MISSING, VARDATA_ANY(*expected), VARSIZE_ANY_EXHDR(*expected));
		*expected = next_expected(verify);
	}
	if (rexp_key_shape_fits(verify->shape, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)))
		note(verify, EXTRA, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
}

/* Go through both sides. */
static void
compare(Verify *verify)
{
	RexpScanOptions options = {
		.kind = verify->job->encoding.kind == REXP_EXPORT_HASH ?
		REXP_SCAN_HASH : REXP_SCAN_JSON,
		.server = verify->job->server,
		.pattern = rexp_key_shape_pattern(verify->shape),
		.type = rexp_encoding_type(&verify->job->encoding),
		.path = ".",
		.memory = work_mem / SORTS
	};
	RexpScan   *scan = rexp_scan_begin(&options);
	bytea	   *expected = next_expected(verify);
	const bytea *key;
	const redisReply *reply;

	while ((key = rexp_scan_next(scan, &reply)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(verify->row_context);

		compare_one(verify, key, reply, &expected);
		MemoryContextSwitchTo(old);
		MemoryContextReset(verify->row_context);
	}
	for (; expected != NULL; expected = next_expected(verify))
	{
		if (is_due(verify))
			note(verify, MISSING, VARDATA_ANY(expected), VARSIZE_ANY_EXHDR(expected));
	}
	rexp_scan_end(scan);
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
 *	  Compare, and return one row: keys expected, missing, different, extra and
 *	  unwritable, and examples of the four.
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
	MemoryContextDelete(scratch);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
