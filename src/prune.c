/*-------------------------------------------------------------------------
 *
 * prune.c
 *	  Delete keys of Redis that no row has any more.
 *
 *	   keys of the rows, as they are exported	(seen)
 *	   keys of Redis, which the template can make and which are of the export's
 *	   type, that are not among these			(candidates)
 *	   keys of the rows now, which the query is run for once more	(present)
 *	   candidates that are not among these		(doomed)
 *
 * The second look is for rows that came after the export's snapshot, which somebody
 * else may have written to Redis.  Nothing is deleted before it is known how many
 * that are.  What deletes them goes through the pipeline, as rows do.
 *
 * All of it happens in the transaction of the query, which holds no snapshot between
 * its two runs, but the locks on what it reads.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fill.h"
#include "key_set.h"
#include "key_shape.h"
#include "miscadmin.h"
#include "prune.h"
#include "scan.h"
#include "source.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "value.h"

/* Sets at a time, which share work_mem. */
#define SETS 3

struct RexpPrune
{
	const RexpJob *job;
	MemoryContext row_context;
	RexpKeyShape *shape;
	RexpKeySet *seen;
	int64		there;			/* keys of the shape in Redis */
	RexpKeySet *candidates;
	int64		ncandidates;
	RexpKeySet *present;
	RexpKeySet *doomed;
	int64		ndoomed;

	/* for the second look: */
	RexpFill   *fill;
	RexpBuffer	key;
};

/*
 * rexp_prune_check
 *	  If this export is one that prunes, raise an error unless it can be known which
 *	  keys are its own.
 */
void
rexp_prune_check(const RexpJob *job, TupleDesc desc)
{
	int			attno = job->prune ?
		rexp_key_shape_unknown(rexp_key_shape_create(job->encoding.key_template, desc)) : 0;

	if (attno > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("prune cannot be used with a key template that has column \"%s\"",
						NameStr(TupleDescAttr(desc, attno - 1)->attname)),
				 errdetail("Values of type %s can look like a part of the keys of others, which would be deleted.",
						   format_type_be(TupleDescAttr(desc, attno - 1)->atttypid)),
				 errhint("It takes columns of type smallint, integer, bigint, uuid, boolean or date. Or delete the keys yourself: redis_scan() finds those that are there, and redis_command() deletes.")));
}

/*
 * rexp_prune_create
 *	  Get ready to learn the keys of an export's rows, in the current memory context.
 *
 * The current transaction must be that of the query, and go on to the end.  Raises
 * what rexp_prune_check() does.
 */
RexpPrune *
rexp_prune_create(const RexpJob *job, TupleDesc desc)
{
	RexpPrune  *prune = palloc0(sizeof(RexpPrune));

	rexp_prune_check(job, desc);
	prune->job = job;
	prune->row_context = AllocSetContextCreate(CurrentMemoryContext, "redis_export prune row",
											   ALLOCSET_DEFAULT_SIZES);
	prune->shape = rexp_key_shape_create(job->encoding.key_template, desc);
	prune->seen = rexp_key_set_create(work_mem / SETS);
	return prune;
}

/* A row of this key is exported. */
void
rexp_prune_take(RexpPrune *prune, const char *key, size_t key_len)
{
	rexp_key_set_add(prune->seen, key, key_len);
}

/* Which keys are in Redis, and not those of rows that were exported? */
static void
find_candidates(RexpPrune *prune, const RexpLinkOptions *link_options)
{
	RexpScanOptions options = {
		.kind = REXP_SCAN_KEYS,
		.server = prune->job->server,
		.link_options = link_options,
		.pattern = rexp_key_shape_pattern(prune->shape),
		.type = rexp_encoding_type(&prune->job->encoding),
		.memory = work_mem / SETS,
		.failing = "could not search Redis for keys to be pruned"
	};
	RexpScan   *scan = rexp_scan_begin(&options);
	const bytea *key;
	const redisReply *none;

	prune->candidates = rexp_key_set_create(work_mem / SETS);
	rexp_key_set_sort(prune->seen);
	while ((key = rexp_scan_next(scan, &none)) != NULL)
	{
		if (!rexp_key_shape_fits(prune->shape, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)))
			continue;
		prune->there++;
		if (rexp_key_set_has(prune->seen, key))
			continue;
		prune->ncandidates++;
		rexp_key_set_add(prune->candidates, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	}
	rexp_scan_end(scan);
	rexp_key_set_end(prune->seen);
	rexp_key_set_sort(prune->candidates);
}

/* One row of the second look: what counts is that its key can be made. */
static bool
take_present(TupleTableSlot *slot, void *arg)
{
	RexpPrune  *prune = arg;
	MemoryContext old = MemoryContextSwitchTo(prune->row_context);
	RexpOutputSettings saved;
	RexpError	ignored;

	slot_getallattrs(slot);
	prune->key.len = 0;
	rexp_output_settings_enter(&saved);
	if (rexp_fill_append(prune->fill, slot, &prune->key, &ignored))
		rexp_key_set_add(prune->present, prune->key.data, prune->key.len);
	rexp_output_settings_leave(&saved);
	MemoryContextSwitchTo(old);
	MemoryContextReset(prune->row_context);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* Run the query once more, under a snapshot of its own. */
static void
look_again(RexpPrune *prune)
{
	MemoryContext context = CurrentMemoryContext;
	RexpSource *source = rexp_source_open(prune->job->query);
	MemoryContext old = MemoryContextSwitchTo(context);

	prune->present = rexp_key_set_create(work_mem / SETS);
	prune->fill = rexp_fill_create(prune->job->encoding.key_template, "key template",
								   "part of the key",
								   CreateTupleDescCopy(rexp_source_columns(source)));
	rexp_buffer_init(&prune->key, 256);
	MemoryContextSwitchTo(old);
	rexp_source_run(source, take_present, prune);
	rexp_source_close(source);
	MemoryContextSwitchTo(context);
	rexp_key_set_sort(prune->present);
}

/* Which of the candidates no row has by now? */
static void
find_doomed(RexpPrune *prune)
{
	const bytea *key;

	prune->doomed = rexp_key_set_create(work_mem / SETS);
	while ((key = rexp_key_set_next(prune->candidates)) != NULL)
	{
		if (rexp_key_set_has(prune->present, key))
			continue;
		prune->ndoomed++;
		rexp_key_set_add(prune->doomed, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	}
	rexp_key_set_end(prune->candidates);
	rexp_key_set_end(prune->present);
	rexp_key_set_sort(prune->doomed);
}

/* Raise an error if that is more than is allowed. */
static void
check_limit(const RexpPrune *prune)
{
	if (prune->ndoomed <= prune->job->prune_limit * prune->there)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("prune would delete " INT64_FORMAT " of " INT64_FORMAT " keys, more than prune_limit %g allows",
					prune->ndoomed, prune->there, prune->job->prune_limit),
			 errdetail("All rows are written, and nothing is deleted."),
			 errhint("See which keys these are with redis_export_verify(), where they are extra. If they may go, export with a larger prune_limit.")));
}

/* Delete them.  False if the job has failed. */
static bool
delete_doomed(RexpPrune *prune, RexpPipeline *pipeline)
{
	const bytea *key;
	bool		good = true;

	while (good && (key = rexp_key_set_next(prune->doomed)) != NULL)
		good = rexp_pipeline_delete(pipeline, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	rexp_key_set_end(prune->doomed);
	return good;
}

/*
 * rexp_prune_run
 *	  Find out which keys are to go, and send off what deletes them.
 *
 * All rows must have been acknowledged.  False if the job has failed.  Raises an error
 * if too many would go, or if Redis cannot be scanned.
 */
bool
rexp_prune_run(RexpPrune *prune, RexpPipeline *pipeline)
{
	find_candidates(prune, rexp_pipeline_link_options(pipeline));
	if (prune->ncandidates == 0)
	{
		rexp_key_set_end(prune->candidates);
		return true;
	}
	look_again(prune);
	find_doomed(prune);
	check_limit(prune);

	/* what the second look has asked the catalogs holds back vacuum, too */
	InvalidateCatalogSnapshot();
	return delete_doomed(prune, pipeline);
}
