/*-------------------------------------------------------------------------
 *
 * prune.c
 *	  Delete keys of Redis that an export has written and that no row has any more.
 *
 * Which keys it has written is in its books (books.c), so that nobody else's are looked
 * at.  Those among them that are not keys of rows are doomed.  Nothing is deleted before
 * it is known how many they are.  What deletes them, with their entries, goes through the
 * pipeline, as rows do.
 *
 * A run that does not prune takes out of the books what is gone from Redis by itself, so
 * that they do not grow for ever.
 *
 * Nobody else writes these keys meanwhile: a run has its export for itself (lease.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "export/book_list.h"
#include "export/prune.h"
#include "miscadmin.h"

/* Sets at a time, which share work_mem. */
#define SETS 3

/* Keys that are asked for at a time. */
#define LOT 1000

struct RexpPrune
{
	RexpKeySet *seen;			/* the keys of rows ... */
	int64		nseen;			/* ... and how many of these there are */
	bool		erases;			/* rows have deleted keys */
	int64		kept;			/* entries in the books */
	int64		ndoomed;
};

/*
 * rexp_prune_create
 *	  Get ready to learn the keys of an export's rows, in the current memory context and
 *	  transaction, which must go on to the end.
 */
RexpPrune *
rexp_prune_create(void)
{
	RexpPrune  *prune = palloc0(sizeof(RexpPrune));

	prune->seen = rexp_key_set_create(work_mem / SETS);
	return prune;
}

/* A row of this key is exported; or it deletes the key. */
void
rexp_prune_take(RexpPrune *prune, const char *key, size_t key_len, bool erases)
{
	prune->nseen++;
	prune->erases |= erases;
	rexp_key_set_add(prune->seen, key, key_len);
}

/* Of the keys in the books, which has no row?  This ends the sets that it is made of. */
static RexpKeySet *
find_doomed(RexpPrune *prune, RexpBookList *list)
{
	RexpKeySet *entries = rexp_book_list_read(list, work_mem / SETS);
	RexpKeySet *doomed = rexp_key_set_create(work_mem / SETS);
	const bytea *key;

	while ((key = rexp_key_set_next(entries)) != NULL)
	{
		if (rexp_key_set_has(prune->seen, key))
			continue;
		prune->ndoomed++;
		rexp_key_set_add(doomed, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	}
	rexp_key_set_end(entries);
	rexp_key_set_sort(doomed);
	return doomed;
}

/*
 * rexp_prune_find
 *	  The keys that are to go, in the current memory context, for the caller to end; or
 *	  NULL if there are none.  To be called once, when all rows are known.
 *
 * all_written is whether the books have an entry for each row: then it is enough to compare
 * the numbers if nothing is to go.  Raises an error if the books cannot be read.
 */
RexpKeySet *
rexp_prune_find(RexpPrune *prune, RexpNodes *nodes, RexpBooks *books, bool all_written)
{
	RexpBookList *list = rexp_book_list_create(nodes, books);
	RexpKeySet *doomed = NULL;

	prune->kept = rexp_book_list_count(list);
	rexp_key_set_sort(prune->seen);
	if (prune->kept > 0 &&
		!(all_written && !prune->erases && prune->nseen == prune->kept &&
		  rexp_key_set_count(prune->seen) == prune->kept))
		doomed = find_doomed(prune, list);
	rexp_key_set_end(prune->seen);
	return doomed;
}

/* Raise an error if more are to go than are allowed. */
static void
check_limit(const RexpPrune *prune, double limit)
{
	if (prune->ndoomed <= limit * prune->kept)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("prune would delete " INT64_FORMAT " of " INT64_FORMAT " keys, more than prune_limit %g allows",
					prune->ndoomed, prune->kept, limit),
			 errdetail("All rows are written, and nothing is deleted."),
			 errhint("See which keys these are with redis_export_preview() and prune => true. If they may go, run the export with a larger prune_limit.")));
}

/*
 * rexp_prune_run
 *	  Find out which keys are to go, and send off what deletes them, unless they are more
 *	  than this share of the keys that the books have.
 *
 * All rows must have been acknowledged.  False if the job has failed.  Raises an error
 * if too many would go, or if the books cannot be read.
 */
bool
rexp_prune_run(RexpPrune *prune, RexpPipeline *pipeline, RexpBooks *books, double limit)
{
	RexpNodes  *nodes = rexp_nodes_open(rexp_pipeline_link_options(pipeline),
										REXP_BOOK_LIST_FAILING);
	RexpKeySet *doomed = rexp_prune_find(prune, nodes, books, true);
	const bytea *key;
	bool		good = true;

	rexp_nodes_close(nodes);
	if (doomed == NULL)
		return true;
	check_limit(prune, limit);
	while (good && (key = rexp_key_set_next(doomed)) != NULL)
		good = rexp_pipeline_delete(pipeline, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	rexp_key_set_end(doomed);
	return good;
}

/*
 * Of the next lot of keys, take out of the books what is gone from Redis.  False if there
 * are no more keys; *good is false if the job has failed.
 */
static bool
sweep_lot(RexpKeySet *entries, RexpNodes *nodes, RexpPipeline *pipeline, bool *good)
{
	bytea	   *keys[LOT];
	int			at[LOT];
	int			count = 0;
	const bytea *key;

	while (count < LOT && (key = rexp_key_set_next(entries)) != NULL)
	{
		RexpBuffer *request;

		keys[count] = palloc(VARSIZE_ANY(key));
		memcpy(keys[count], key, VARSIZE_ANY(key));
		at[count] = rexp_nodes_of_key(nodes, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
		request = rexp_nodes_request(nodes, at[count]);
		rexp_resp_header(request, '*', 2);
		rexp_resp_word(request, "EXISTS");
		rexp_resp_bulk(request, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
		count++;
	}
	rexp_nodes_push(nodes);
	for (int i = 0; i < count; i++)
	{
		redisReply *reply = rexp_nodes_receive(nodes, at[i]);

		if (reply->type != REDIS_REPLY_INTEGER)
			rexp_nodes_fail_reply(nodes, reply, "EXISTS");
		if (reply->integer == 0 && *good)
			*good = rexp_pipeline_forget(pipeline, VARDATA_ANY(keys[i]),
										 VARSIZE_ANY_EXHDR(keys[i]));
		freeReplyObject(reply);
		pfree(keys[i]);
	}
	return count == LOT;
}

/*
 * rexp_prune_sweep
 *	  If the books have more keys than this run has had rows, take out of them what is gone
 *	  from Redis.
 *
 * All rows must have been acknowledged.  It needs a transaction.  False if the job has
 * failed.  Raises an error if the books cannot be read.
 */
bool
rexp_prune_sweep(RexpPipeline *pipeline, RexpBooks *books)
{
	RexpNodes  *nodes = rexp_nodes_open(rexp_pipeline_link_options(pipeline),
										REXP_BOOK_LIST_FAILING);
	RexpBookList *list = rexp_book_list_create(nodes, books);
	bool		good = true;

	/* each row that was read has one entry at most, also if it has failed */
	if (rexp_book_list_count(list) > rexp_pipeline_counters(pipeline)->rows_read)
	{
		RexpKeySet *entries = rexp_book_list_read(list, work_mem);

		while (good && sweep_lot(entries, nodes, pipeline, &good))
			CHECK_FOR_INTERRUPTS();
		rexp_key_set_end(entries);
		good = good && rexp_pipeline_finish(pipeline);
	}
	rexp_nodes_close(nodes);
	return good;
}
