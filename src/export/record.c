/*-------------------------------------------------------------------------
 *
 * record.c
 *	  What Redis knows of an export as a whole: whose it is, who runs it, how its
 *	  last run ended, and how far it got.
 *
 * The record is a hash, redis_export:{NAME}, in which all is UTF-8:
 *
 *	id, database, role	whose it is: the id is that of the definition
 *	era					in the seed of the digests that count (eight hex digits)
 *	run					the stamp of the latest run (eight hex digits)
 *	holder				who runs it; not there when nobody does
 *	unclean:STAMP		one for each run that has begun and has not ended clean
 *	mark, mark_type, mark_column, mark_at
 *						how far a run with a watermark got
 *	state, ended_at, rows_read and other counts
 *						of the last run that came to its end
 *
 * Names of exports that have books in this Redis are in the set redis_export:exports.
 *
 * It is in Redis, and not in a table, so that exports on a replica have it too, and so
 * that a Redis that has lost its data has lost its record with it.
 *
 * A run writes unclean:STAMP before its first row, and takes it away at its end if each
 * of its rows was acknowledged: entries of the books count only if they are of no unclean
 * run (books.c).  So a run that is killed needs to do nothing for the next one to know.
 * A run that finds no record, or one with more of these fields than the books take, does
 * not know which entries count: it begins a new era, in which none of them does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "base/compat.h"
#include "base/encoding.h"
#include "base/text.h"
#include "commands/dbcommands.h"
#include "export/book_list.h"
#include "export/record.h"
#include "flow/books.h"
#include "flow/lease.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "redis/cluster.h"
#include "redis/nodes.h"
#include "redis/own_keys.h"
#include "session/connection.h"
#include "session/server_options.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#define UNCLEAN "unclean:"

/* While another run is waited for, look so often (ms). */
#define LEASE_INTERVAL 500

/* The digits of a stamp. */
#define STAMP_SIZE 8

struct RexpRecord
{
	const RexpJob *job;
	const char *name;			/* in UTF-8, as all below */
	char	   *key;
	char	   *database;
	char	   *role;
	MemoryContext context;		/* of all that lives as long as this */
	uint32		stamp;			/* of this run */
	char		stamp_text[STAMP_SIZE + 1];
	RexpLease  *lease;
	char	   *run_before;		/* stamp of the run before, or NULL */
	bool		was_lost;		/* Redis has lost it meanwhile, and rows with it */
	char	   *era;			/* NULL: there is no record */
	uint32		unclean[REXP_UNCLEAN_MOST];
	int			nunclean;
	List	   *unclean_fields; /* of char *, all of them */
	RexpMark	mark;			/* as it was at the start */
	bool		mark_stays;		/* it was not moved, though all rows were read */
};

static char *
utf8(const char *text)
{
	return rexp_literal_utf8(text, strlen(text));
}

/* The key of a record, palloc'd.  In a transaction, as the name is converted. */
static char *
record_key(const char *name)
{
	return utf8(psprintf(REXP_OWN_PREFIX "{%s}", name));
}

/*
 * rexp_record_create
 *	  The record of a job, in a transaction, in the current context; NULL if the export
 *	  has no name.  job must live as long.
 */
RexpRecord *
rexp_record_create(int64 number, const RexpJob *job, const RexpSession *session)
{
	RexpRecord *record;

	if (job->name == NULL)
		return NULL;
	record = palloc0(sizeof(RexpRecord));
	record->job = job;
	record->context = CurrentMemoryContext;
	record->name = utf8(job->name);
	record->key = record_key(job->name);
	record->database = utf8(get_database_name(session->database));
	record->role = utf8(GetUserNameFromId(session->current_user, false));
	record->lease = rexp_lease_create(job->name, session->current_user, number);
	return record;
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

static void
append_words(RexpBuffer *request, List *words)
{
	ListCell   *cell;

	rexp_resp_header(request, '*', list_length(words));
	foreach(cell, words)
		rexp_resp_word(request, lfirst(cell));
}

/* Add a field and its value to the words of a HSET. */
static List *
add_field(List *words, const char *field, const char *value)
{
	return lappend(lappend(words, unconstify(char *, field)), unconstify(char *, value));
}

static List *
add_count(List *words, const char *field, int64 count)
{
	return add_field(words, field, psprintf(INT64_FORMAT, count));
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
	rexp_error_hint(&error, "%s", REXP_BOOKS_HINT);
	rexp_error_raise(&error);
}

static char *
failing_to(const char *what, const char *name)
{
	return psprintf("could not %s the record of export \"%s\" in Redis", what, name);
}

/* Ask the node that has the key; NULL if the job has failed. */
static redisReply *
ask(RexpPipeline *pipeline, const char *key, List *words, const char *failing)
{
	RexpBuffer	request;
	redisReply *reply;

	rexp_buffer_init(&request, 512);
	append_words(&request, words);
	reply = rexp_pipeline_ask(pipeline, &request, key, strlen(key), failing);
	rexp_buffer_free(&request);
	return reply;
}

/* The same, with a reply of this type that is not looked at. */
static bool
tell(RexpPipeline *pipeline, const char *key, List *words, int type, const char *failing)
{
	redisReply *reply = ask(pipeline, key, words, failing);

	if (reply == NULL)
		return false;
	need_reply(reply, type, failing);
	freeReplyObject(reply);
	return true;
}

/* The value of a field in an answer to HGETALL, palloc'd; NULL: not there. */
static char *
field_of(const redisReply *reply, const char *field)
{
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		const redisReply *name = reply->element[i];
		const redisReply *value = reply->element[i + 1];

		if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
			name->len == strlen(field) && memcmp(name->str, field, name->len) == 0)
			return pnstrdup(value->str, value->len);
	}
	return NULL;
}

static const char *
shown(const char *field)
{
	return field != NULL ? rexp_text_shown(field) : "?";
}

/* Is the record none, or this definition's? */
static bool
is_own(const RexpJob *job, const redisReply *reply)
{
	const char *id = field_of(reply, "id");

	return id == NULL || strcmp(id, job->id) == 0;
}

/* Raise an error if the record is that of another definition with the same name. */
static void
check_id(const RexpJob *job, const redisReply *reply)
{
	if (is_own(job, reply))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the books of export \"%s\" in Redis are those of another definition",
					job->name),
			 errdetail("They belong to role \"%s\" in database \"%s\".",
					   shown(field_of(reply, "role")), shown(field_of(reply, "database"))),
			 errhint("Give this export another name. Or, if the other is gone for good, take its books over: SELECT redis_export_reset(%s).",
					 quote_literal_cstr(job->name))));
}

/*
 * For a run
 */

/* Learn which runs have not ended clean. */
static void
read_unclean(RexpRecord *record, const redisReply *reply)
{
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		const redisReply *name = reply->element[i];
		char	   *field;

		if (name->type != REDIS_REPLY_STRING ||
			strncmp(name->str, UNCLEAN, strlen(UNCLEAN)) != 0)
			continue;
		field = pnstrdup(name->str, name->len);
		record->unclean_fields = lappend(record->unclean_fields, field);
		if (record->nunclean < REXP_UNCLEAN_MOST)
			record->unclean[record->nunclean++] =
				(uint32) strtoul(field + strlen(UNCLEAN), NULL, 16);
	}
}

/* Read the record as it is.  False if the job has failed. */
static bool
read_record(RexpRecord *record, RexpPipeline *pipeline)
{
	const char *failing = failing_to("read", record->job->name);
	const char *holder;
	RexpError	error;
	RexpError	ignored;
	redisReply *reply = ask(pipeline, record->key, list_make2("HGETALL", record->key),
							failing);

	if (reply == NULL)
		return false;
	need_reply(reply, REDIS_REPLY_ARRAY, failing);
	check_id(record->job, reply);
	record->run_before = field_of(reply, "run");
	record->era = field_of(reply, "era");
	holder = field_of(reply, "holder");
	record->mark.value = field_of(reply, "mark");
	record->mark.type = field_of(reply, "mark_type");
	record->mark.column = field_of(reply, "mark_column");
	read_unclean(record, reply);
	freeReplyObject(reply);

	/* one whose query gives no row for a long time may have let its lease run out */
	if (holder != NULL && rexp_lease_is_alive(holder))
	{
		rexp_lease_refuse(record->job->name, holder, &error);
		(void) rexp_lease_give_back(record->lease, rexp_pipeline_ask_for_lease, pipeline, &ignored);
		rexp_error_raise(&error);
	}
	return true;
}

static uint32
random_number(void)
{
	uint32		number;

	if (!pg_strong_random(&number, sizeof(number)))
		number = (uint32) GetCurrentTimestamp();
	return number;
}

/* A stamp that is none of those which are not clean. */
static void
choose_stamp(RexpRecord *record)
{
	bool		taken;

	do
	{
		taken = false;
		record->stamp = random_number();
		for (int i = 0; i < record->nunclean; i++)
			taken |= record->unclean[i] == record->stamp;
	} while (taken);
	snprintf(record->stamp_text, sizeof(record->stamp_text), "%08x", record->stamp);
}

/* Raise an error if this Redis has no transactions, without which books cannot be kept. */
static bool
need_transactions(RexpRecord *record, RexpPipeline *pipeline)
{
	redisReply *reply;

	if (!tell(pipeline, record->key, list_make1("MULTI"), REDIS_REPLY_STATUS,
			  "could not begin a transaction in Redis"))
		return false;
	reply = ask(pipeline, record->key, list_make1("DISCARD"), NULL);
	if (reply == NULL)
		return false;

	/* after a new connection there is none to discard */
	if (reply->type != REDIS_REPLY_ERROR || strstr(reply->str, "without MULTI") == NULL)
		need_reply(reply, REDIS_REPLY_STATUS, "could not end a transaction in Redis");
	freeReplyObject(reply);
	return true;
}

/* The words that write whose record it is, and the stamp of this run. */
static List *
identity(const RexpRecord *record)
{
	List	   *words = list_make2("HSET", record->key);

	words = add_field(words, "id", record->job->id);
	words = add_field(words, "database", record->database);
	words = add_field(words, "role", record->role);
	words = add_field(words, "era", record->era);
	return add_field(words, "run", record->stamp_text);
}

/* The words that write that the run has begun, and which runs have not ended clean. */
static List *
beginning(const RexpRecord *record)
{
	List	   *words = add_field(identity(record), "holder", rexp_lease_holder(record->lease));
	ListCell   *cell;

	/* they are there, unless Redis has lost the record meanwhile */
	foreach(cell, record->unclean_fields)
		words = add_field(words, lfirst(cell), now_text());
	return add_field(words, psprintf(UNCLEAN "%s", record->stamp_text), now_text());
}

/*
 * Take the lease, or wait for it if that is asked for.  False if the job has failed.
 */
static bool
take_lease(RexpRecord *record, RexpPipeline *pipeline)
{
	RexpError	error;
	char	   *holder;

	for (;;)
	{
		switch (rexp_lease_take(record->lease, rexp_pipeline_ask_for_lease, pipeline,
								&holder, &error))
		{
			case REXP_LEASE_OURS:
				return true;
			case REXP_LEASE_HELD:
				break;
			case REXP_LEASE_UNKNOWN:
				if (rexp_pipeline_error(pipeline) != NULL)
					return false;
				rexp_error_raise(&error);
		}
		if (!record->job->wait_for_lease)
		{
			rexp_lease_refuse(record->job->name, holder, &error);
			rexp_error_raise(&error);
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LEASE_INTERVAL, rexp_wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * The lease was renewed: is the run that is recorded still this one?  Redis may have lost
 * the record, or gone back to that of the run before; then it is written anew.
 */
static RexpLeaseState
check_run(void *arg, RexpAsk ask_lane, void *ask_arg, RexpError *error)
{
	RexpRecord *record = arg;
	MemoryContext old = MemoryContextSwitchTo(record->context);
	List	   *get = list_make3("HGET", record->key, "run");
	RexpLeaseState state = REXP_LEASE_OURS;
	char	   *run;

	for (int i = 0; i < 2 && state == REXP_LEASE_OURS; i++)
	{
		RexpBuffer	request;
		redisReply *reply;

		rexp_buffer_init(&request, 512);
		append_words(&request, i == 0 ? get : beginning(record));
		reply = ask_lane(ask_arg, &request, error);
		rexp_buffer_free(&request);
		if (reply == NULL)
			state = REXP_LEASE_UNKNOWN;
		else if (reply->type == REDIS_REPLY_ERROR)
		{
			(void) rexp_answer_to(reply->str, reply->len, error);
			state = REXP_LEASE_UNKNOWN;
		}
		run = reply != NULL && reply->type == REDIS_REPLY_STRING ?
			pnstrdup(reply->str, reply->len) : NULL;
		if (reply != NULL)
			freeReplyObject(reply);
		if (i > 0 || state != REXP_LEASE_OURS)
			break;
		if (run != NULL && strcmp(run, record->stamp_text) == 0)
			break;
		if (run != NULL &&
			(record->run_before == NULL || strcmp(run, record->run_before) != 0))
		{
			rexp_error_set(error, ERRCODE_OBJECT_IN_USE, "export \"%s\" lost its lease",
						   record->job->name);
			rexp_error_hint(error, "This job did not renew it for %d seconds, and another run has begun.",
							REXP_LEASE_TIME / 1000);
			state = REXP_LEASE_HELD;
		}
		else
			record->was_lost = true;
	}
	MemoryContextSwitchTo(old);
	return state;
}

/*
 * No entry that is there counts: begin a new era, in which the stamps of runs of the
 * eras before mean nothing.  False if the job has failed.
 */
static bool
begin_era(RexpRecord *record, RexpPipeline *pipeline)
{
	List	   *words = list_make3("HDEL", record->key, "era");
	List	   *fields = record->unclean_fields;

	record->era = psprintf("%08x", random_number());
	record->unclean_fields = NIL;
	record->nunclean = 0;
	rexp_books_write_all(record->job->pipeline.books);
	return tell(pipeline, record->key, list_concat(words, fields), REDIS_REPLY_INTEGER,
				failing_to("write", record->job->name));
}

/*
 * rexp_record_begin
 *	  A run begins: take the lease, read the record, write that the run has begun, and
 *	  tell the books which of their entries count.
 *
 * Returns false if the job has failed.  Raises an error if somebody else runs the export,
 * if the record is another's, or if it cannot be read or written.
 */
bool
rexp_record_begin(RexpRecord *record, RexpPipeline *pipeline)
{
	RexpBooks  *books;
	MemoryContext old;
	const char *failing;

	if (record == NULL)
		return true;
	books = record->job->pipeline.books;
	old = MemoryContextSwitchTo(record->context);
	failing = failing_to("write", record->job->name);
	rexp_pipeline_keep_lease(pipeline, record->lease, check_run, record);
	if (!take_lease(record, pipeline) || !need_transactions(record, pipeline) ||
		!read_record(record, pipeline))
		return false;
	if ((record->era == NULL || record->nunclean >= REXP_UNCLEAN_MOST) &&
		!begin_era(record, pipeline))
		return false;
	choose_stamp(record);
	if (!tell(pipeline, record->key, beginning(record), REDIS_REPLY_INTEGER, failing) ||
		!tell(pipeline, REXP_REGISTRY, list_make3("SADD", REXP_REGISTRY, unconstify(char *, record->name)),
			  REDIS_REPLY_INTEGER, failing))
		return false;

	rexp_books_begin(books, record->era, record->stamp, record->unclean, record->nunclean);
	MemoryContextSwitchTo(old);
	return true;
}

/* How far earlier runs got, as the record had it; it lives as long as the record. */
const RexpMark *
rexp_record_mark(const RexpRecord *record)
{
	return record != NULL ? &record->mark : NULL;
}

/* The words that write how the run has ended. */
static List *
outcome(RexpRecord *record, const RexpCounters *counters, const RexpMark *mark,
		bool clean)
{
	List	   *words = identity(record);

	words = add_field(words, "state", "done");
	words = add_field(words, "ended_at", now_text());
	words = add_count(words, "rows_read", counters->rows_read);
	words = add_count(words, "rows_written", counters->rows_written);
	words = add_count(words, "rows_unchanged", counters->rows_unchanged);
	words = add_count(words, "rows_failed", counters->rows_failed);
	words = add_count(words, "rows_skipped", counters->rows_skipped);
	words = add_count(words, "keys_deleted", counters->keys_deleted);
	if (!clean)
		words = add_field(words, psprintf(UNCLEAN "%s", record->stamp_text), now_text());
	if (mark != NULL)
	{
		words = add_field(words, "mark", mark->value);
		words = add_field(words, "mark_type", mark->type);
		words = add_field(words, "mark_column", mark->column);
		words = add_field(words, "mark_at", now_text());
	}
	return words;
}

/* The words that take away what says that this run is not clean, or not through. */
static List *
words_of_end(const RexpRecord *record, bool clean, bool through)
{
	List	   *words = list_make2("HDEL", record->key);

	if (through)
		words = lappend(words, "holder");
	if (clean)
		words = lappend(words, psprintf(UNCLEAN "%s", record->stamp_text));
	return words;
}

/* Is the record still that of this run?  False, too, if the job has failed. */
static bool
is_ours(RexpRecord *record, RexpPipeline *pipeline)
{
	const char *failing = failing_to("read", record->job->name);
	redisReply *reply = ask(pipeline, record->key,
							list_make3("HGET", record->key, "run"), failing);
	bool		ours;

	if (reply == NULL)
		return false;
	ours = reply->type == REDIS_REPLY_STRING && reply->len == STAMP_SIZE &&
		memcmp(reply->str, record->stamp_text, STAMP_SIZE) == 0;
	freeReplyObject(reply);
	return ours;
}

/*
 * Write how the run has ended, with the mark unless that is NULL.  The mark says that
 * Redis has all rows below it, so it must not reach one that was restarted meanwhile.
 */
static bool
write_outcome(RexpRecord *record, RexpPipeline *pipeline, const RexpMark *mark, bool clean)
{
	const char *failing = failing_to("write", record->job->name);
	const RexpCounters *counters = rexp_pipeline_counters(pipeline);
	RexpBuffer	request;
	redisReply *reply;

	if (mark == NULL)
		return tell(pipeline, record->key, outcome(record, counters, NULL, clean),
					REDIS_REPLY_INTEGER, failing);
	rexp_buffer_init(&request, 512);
	append_words(&request, outcome(record, counters, mark, clean));
	reply = rexp_pipeline_ask_unless_lost(pipeline, &request, record->key,
										  strlen(record->key), failing);
	rexp_buffer_free(&request);
	if (reply == NULL)
	{
		if (rexp_pipeline_error(pipeline) != NULL)
			return false;
		record->mark_stays = true;
		return write_outcome(record, pipeline, NULL, clean);
	}
	need_reply(reply, REDIS_REPLY_INTEGER, failing);
	freeReplyObject(reply);
	return true;
}

/*
 * rexp_record_settle
 *	  All rows are acknowledged, and what is still to come writes none: the entries of this
 *	  run hold from now on, however it ends.  Returns false if the job has failed.
 */
bool
rexp_record_settle(RexpRecord *record, RexpPipeline *pipeline)
{
	MemoryContext old;
	bool		good;

	if (record == NULL || !rexp_pipeline_is_clean(pipeline))
		return true;
	old = MemoryContextSwitchTo(record->context);
	good = tell(pipeline, record->key, words_of_end(record, true, false),
				REDIS_REPLY_INTEGER, failing_to("write", record->job->name));
	MemoryContextSwitchTo(old);
	return good;
}

/*
 * rexp_record_end
 *	  All rows are settled: write how the run has ended, and move the mark to next,
 *	  unless that is NULL.
 *
 * The mark stays where it was if it is not certain that Redis has each row.  Returns false
 * if the job has failed.
 */
bool
rexp_record_end(RexpRecord *record, RexpPipeline *pipeline, const RexpMark *next)
{
	const RexpCounters *counters;
	const char *failing;
	MemoryContext old;
	RexpError	error;
	bool		clean;

	if (record == NULL)
		return true;
	counters = rexp_pipeline_counters(pipeline);
	old = MemoryContextSwitchTo(record->context);
	failing = failing_to("write", record->job->name);
	clean = rexp_pipeline_is_clean(pipeline);
	record->mark_stays = next != NULL &&
		(record->was_lost || counters->rows_failed > 0 || rexp_may_have_lost(counters) ||
		 counters->evicted_keys > 0);
	if (!is_ours(record, pipeline))
	{
		if (rexp_pipeline_error(pipeline) != NULL)
			return false;

		/* it was lost meanwhile, and rows with it; those that are there have entries */
		record->mark_stays = next != NULL;
		if (!tell(pipeline, record->key, beginning(record), REDIS_REPLY_INTEGER, failing))
			return false;
	}
	if (!write_outcome(record, pipeline, record->mark_stays ? NULL : next, clean) ||
		!tell(pipeline, record->key,
			  words_of_end(record, clean, true), REDIS_REPLY_INTEGER, failing))
		return false;
	if (!rexp_lease_give_back(record->lease, rexp_pipeline_ask_for_lease, pipeline, &error))
	{
		if (rexp_pipeline_error(pipeline) != NULL)
			return false;
		rexp_error_raise(&error);
	}
	rexp_pipeline_keep_lease(pipeline, NULL, NULL, NULL);
	MemoryContextSwitchTo(old);
	return true;
}

/* Is the mark where it was, though all rows were read and have one above it? */
bool
rexp_record_mark_stays(const RexpRecord *record)
{
	return record != NULL && record->mark_stays;
}

/*
 * In a session
 */

static redisReply *
send_words(const RexpJob *job, List *words)
{
	RexpBuffer	request;

	rexp_buffer_init(&request, 256);
	append_words(&request, words);
	return rexp_send_command(job->server, job->owner, &request);
}

/* Raise an error unless the record, if there is one, is this definition's. */
static void
check_whose(const RexpJob *job, const char *key)
{
	redisReply *reply = send_words(job, list_make2("HGETALL", unconstify(char *, key)));

	need_reply(reply, REDIS_REPLY_ARRAY, failing_to("read", job->name));
	PG_TRY();
	{
		check_id(job, reply);
	}
	PG_FINALLY();
	{
		freeReplyObject(reply);
	}
	PG_END_TRY();
}

static bool
is_own_record(const RexpJob *job, const char *key)
{
	redisReply *reply = send_words(job, list_make2("HGETALL", unconstify(char *, key)));
	bool		own;

	need_reply(reply, REDIS_REPLY_ARRAY, failing_to("read", job->name));
	own = is_own(job, reply);
	freeReplyObject(reply);
	return own;
}

/* As RexpAsk, in a session: an error is raised. */
static redisReply *
ask_in_session(void *arg, const RexpBuffer *request, RexpError *error)
{
	const RexpJob *job = arg;

	return rexp_send_command(job->server, job->owner, request);
}

/* Take the lease for a moment; an error if somebody else has it. */
static RexpLease *
take_lease_in_session(const RexpJob *job)
{
	RexpLease  *lease = rexp_lease_create(job->name, job->owner, 0);
	RexpError	error;
	char	   *holder;

	switch (rexp_lease_take(lease, ask_in_session, unconstify(RexpJob *, job), &holder, &error))
	{
		case REXP_LEASE_OURS:
			break;
		case REXP_LEASE_HELD:
			rexp_lease_refuse(job->name, holder, &error);
			pg_fallthrough;
		case REXP_LEASE_UNKNOWN:
			rexp_error_raise(&error);
	}
	return lease;
}

static void
give_lease_back_in_session(const RexpJob *job, RexpLease *lease)
{
	RexpError	error;

	if (!rexp_lease_give_back(lease, ask_in_session, unconstify(RexpJob *, job), &error))
		rexp_error_raise(&error);
}

/*
 * rexp_record_set_mark
 *	  Let the next run begin above this mark; with value NULL, let it read all rows.
 *	  Raises an error while a run has the lease.
 */
void
rexp_record_set_mark(const RexpJob *job, const RexpMark *mark)
{
	char	   *key = record_key(job->name);
	RexpLease  *lease;
	List	   *words;
	redisReply *reply;

	/* first, since nobody gives the lease back after an error */
	check_whose(job, key);
	lease = take_lease_in_session(job);
	if (mark->value != NULL)
	{
		words = list_make2("HSET", key);
		words = add_field(words, "id", job->id);
		words = add_field(words, "mark", mark->value);
		words = add_field(words, "mark_type", mark->type);
		words = add_field(words, "mark_column", mark->column);
		words = add_field(words, "mark_at", now_text());
	}
	else
	{
		words = list_make5("HDEL", key, "mark", "mark_type", "mark_column");
		words = lappend(words, "mark_at");
	}
	reply = send_words(job, words);
	need_reply(reply, REDIS_REPLY_INTEGER, failing_to("write", job->name));
	freeReplyObject(reply);
	give_lease_back_in_session(job, lease);
}

/* Delete a key; it need not be there. */
static void
delete_key(const RexpJob *job, const char *key, size_t len)
{
	redisReply *reply = send_words(job, list_make2("UNLINK", pnstrdup(key, len)));

	need_reply(reply, REDIS_REPLY_INTEGER, failing_to("delete", job->name));
	freeReplyObject(reply);
}

/*
 * rexp_record_forget
 *	  Delete all that Redis has of an export but its keys: books, record, its name in
 *	  the registry.  Raises an error while a run has the lease.
 *
 * Those of another definition with the same name are deleted only if anybodys is set:
 * that is how a definition takes over a name.
 */
void
rexp_record_forget(const RexpJob *job, bool anybodys)
{
	const char *name = utf8(job->name);
	char	   *key = record_key(job->name);
	RexpBooks  *books = rexp_books_create(name, "", "", false);
	RexpLease  *lease = take_lease_in_session(job);
	redisReply *reply;
	const char *books_key;
	size_t		len;

	if (!anybodys && !is_own_record(job, key))
	{
		give_lease_back_in_session(job, lease);
		return;
	}
	books_key = rexp_books_key(books, 0, &len);
	delete_key(job, books_key, len);
	if (rexp_server_is_cluster(job->server, job->owner))
	{
		rexp_books_spread(books);
		for (int slot = 0; slot < REXP_SLOTS; slot++)
		{
			books_key = rexp_books_key(books, slot, &len);
			delete_key(job, books_key, len);
		}
	}
	reply = send_words(job, list_make3("SREM", REXP_REGISTRY, unconstify(char *, name)));
	need_reply(reply, REDIS_REPLY_INTEGER, failing_to("delete", job->name));
	freeReplyObject(reply);
	delete_key(job, key, strlen(key));
	give_lease_back_in_session(job, lease);
}

/*
 * Shown
 */

/* What is shown of a record, in the order of the columns. */
#define SHOWN_COUNTS 6
#define SHOWN_COLUMNS (3 + SHOWN_COUNTS + 4)

/* A moment as Redis has it. */
static bool
read_moment(const char *text, Datum *value)
{
	if (text != NULL)
		*value = DirectFunctionCall3(timestamptz_in, CStringGetDatum(text),
									 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	return text != NULL;
}

/* Fill the columns but that of the error; raises errors. */
static void
read_shown(const RexpJob *job, Datum *values, bool *nulls)
{
	static const char *const counts[SHOWN_COUNTS] = {
		"rows_read", "rows_written", "rows_unchanged", "rows_failed", "rows_skipped", "keys_deleted"
	};
	char	   *key = record_key(job->name);
	redisReply *reply = send_words(job, list_make2("HGETALL", key));
	const char *holder;
	const char *text;
	RexpNodes  *nodes;
	RexpBooks  *books;
	int			i = 0;

	need_reply(reply, REDIS_REPLY_ARRAY, failing_to("read", job->name));
	holder = field_of(reply, "holder");
	if (holder != NULL && (text = rexp_lease_people_text(holder)) != NULL)
	{
		values[i] = CStringGetTextDatum(rexp_text_shown(text));
		nulls[i] = false;
	}
	i++;
	nulls[i] = !read_moment(field_of(reply, "ended_at"), &values[i]);
	i++;
	text = field_of(reply, "state");
	nulls[i] = text == NULL;
	values[i++] = text != NULL ? CStringGetTextDatum(rexp_text_shown(text)) : (Datum) 0;
	for (int n = 0; n < SHOWN_COUNTS; n++, i++)
	{
		text = field_of(reply, counts[n]);
		nulls[i] = text == NULL;
		values[i] = Int64GetDatum(text != NULL ? strtoi64(text, NULL, 10) : 0);
	}
	text = field_of(reply, "mark");
	nulls[i] = text == NULL;
	values[i++] = text != NULL ? CStringGetTextDatum(rexp_text_shown(text)) : (Datum) 0;
	nulls[i] = !read_moment(field_of(reply, "mark_at"), &values[i]);
	i++;
	freeReplyObject(reply);

	nodes = rexp_nodes_open(rexp_link_options(job->server, job->owner, NULL),
							REXP_BOOK_LIST_FAILING);
	books = rexp_books_create(utf8(job->name), "", "", false);
	values[i] = Int64GetDatum(rexp_book_list_count(rexp_book_list_create(nodes, books)));
	nulls[i++] = false;
	rexp_nodes_close(nodes);
}

/*
 * rexp_record_show
 *	  What Redis has of an export, as the result of a function; NULL for a job that may
 *	  not be seen.  If Redis cannot be asked, there is an error text instead.
 */
Datum
rexp_record_show(const RexpJob *job, FunctionCallInfo fcinfo)
{
	TupleDesc	desc;
	Datum		values[SHOWN_COLUMNS] = {0};
	bool		nulls[SHOWN_COLUMNS];
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "redis_export: the result type is not composite");
	memset(nulls, true, sizeof(nulls));
	if (job != NULL)
	{
		BeginInternalSubTransaction(NULL);
		MemoryContextSwitchTo(context);
		PG_TRY();
		{
			read_shown(job, values, nulls);
			ReleaseCurrentSubTransaction();
		}
		PG_CATCH();
		{
			ErrorData  *edata;

			MemoryContextSwitchTo(context);
			edata = CopyErrorData();
			FlushErrorState();
			RollbackAndReleaseCurrentSubTransaction();
			if (edata->sqlerrcode == ERRCODE_QUERY_CANCELED)
				ReThrowError(edata);
			memset(nulls, true, sizeof(nulls));
			values[SHOWN_COLUMNS - 1] = CStringGetTextDatum(edata->message);
			nulls[SHOWN_COLUMNS - 1] = false;
		}
		PG_END_TRY();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
