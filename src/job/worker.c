/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker of an export: query, encoder and pipeline put
 *	  together, and whatever ends them written down.
 *
 * However the worker ends, its job ends with a state, an error and a ledger: an
 * error comes by PG_CATCH, a FATAL (terminated, shut down, a recovery conflict)
 * by before_shmem_exit, with its text caught on its way to the server's log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/compat.h"
#include "encode/encode.h"
#include "encode/index_fit.h"
#include "export/job.h"
#include "export/prune.h"
#include "export/record.h"
#include "export/watermark.h"
#include "job/launch.h"
#include "job/payload.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "session/fence.h"
#include "session/server_options.h"
#include "session/source.h"
#include "status/ledger.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* How long a job that was sent away waits for answers on their way (ms). */
#define CANCEL_DRAIN 200

typedef struct Worker
{
	int64		number;			/* of the job */
	RexpProgress *progress;
	RexpJob		job;
	RexpSession session;
	RexpLinkOptions *link_options;
	RexpPipeline *pipeline;		/* NULL until there is one */
	RexpEncoder *encoder;
	RexpDocumentColumn column;	/* whose values are completed late */
	RexpPrune  *prune;			/* or NULL */
	RexpRecord *record;			/* NULL: the export has no name */
	RexpWatermark *watermark;	/* or NULL */
	const char *shown;			/* of the query */
	TimestampTz started_at;
	RexpError	fatal;			/* sqlstate 0: none seen */
	bool		connected;
	bool		finished;
} Worker;

/* For the two callbacks below, which PostgreSQL gives no argument of ours. */
static Worker *this_worker = NULL;
static emit_log_hook_type next_log_hook = NULL;

/*
 * Catch the text of what ends this process.  While it connects, before we can
 * catch anything, an error does so too: to be cancelled then is one.
 */
static void
note_fatal(ErrorData *edata)
{
	if (this_worker != NULL &&
		(edata->elevel >= FATAL ||
		 (edata->elevel == ERROR && !this_worker->connected)))
		rexp_error_from_edata(&this_worker->fatal, edata);
	if (next_log_hook != NULL)
		next_log_hook(edata);
}

/* The line in the server's log. */
static void
log_end(const Worker *worker, RexpState state, const RexpError *error,
		const RexpCounters *counters)
{
	double		seconds = (GetCurrentTimestamp() - worker->started_at) / 1e6;

	/* the SQLSTATE is for %e in log_line_prefix, and for csvlog */
	ereport(LOG,
			(errcode(error ? error->sqlstate : ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg("export job " INT64_FORMAT " to server \"%s\" %s: %s, %.1f s, %.0f rows/s",
					worker->number, worker->job.server,
					state == REXP_STATE_DONE ? "is done" :
					state == REXP_STATE_CANCELED ? "was canceled" : "failed",
					rexp_ledger_text(counters, "rows written"), seconds,
					seconds > 0 ? rexp_rows_held(counters) / seconds : 0),
			 error ? errdetail_log("%s", error->message) : 0,
			 errhidestmt(true)));
}

/*
 * Report the end of the job, once: first in its slot, which must not look alive when
 * this process is gone, then in the log.  Interrupts are held off, because ereport()
 * may process a cancel request, whose error would end the job again.
 */
static void
finish_job(Worker *worker, RexpState state, const RexpError *error)
{
	RexpCounters counters = {0};

	HOLD_INTERRUPTS();
	if (worker->pipeline != NULL)
	{
		rexp_pipeline_close(worker->pipeline);
		counters = *rexp_pipeline_counters(worker->pipeline);
	}
	rexp_watermark_count(worker->watermark, &counters);
	counters.mark_stays = rexp_record_mark_stays(worker->record);
	rexp_progress_finish(worker->progress, state, error, &counters);
	worker->finished = true;
	log_end(worker, state, error, &counters);
	RESUME_INTERRUPTS();
}

/*
 * Is this error the end of a job that failed, or of one that was cancelled?  Who
 * cancelled it may have said why, which then is the error.
 */
static RexpState
state_after(Worker *worker, RexpError *error)
{
	if (error->sqlstate == ERRCODE_QUERY_CANCELED)
		(void) rexp_progress_cancel_reason(worker->progress, error);
	return rexp_state_after(error);
}

/* The process ends: if the job has not, it does now. */
static void
on_exit_of_worker(int code, Datum arg)
{
	Worker	   *worker = (Worker *) DatumGetPointer(arg);

	if (worker->finished)
		return;
	if (worker->fatal.sqlstate == 0)
		rexp_error_set(&worker->fatal, ERRCODE_INTERNAL_ERROR,
					   "the worker of the export ended unexpectedly");
	if (worker->pipeline != NULL)
		rexp_pipeline_drain(worker->pipeline, 0);
	finish_job(worker, state_after(worker, &worker->fatal), &worker->fatal);
}

/* One row through the door between query and pipeline. */
static bool
take_row(TupleTableSlot *slot, void *arg)
{
	Worker	   *worker = arg;
	RexpBuffer *out = rexp_pipeline_row_begin(worker->pipeline);
	RexpBlock	block;
	RexpError	error;

	error.sqlstate = 0;
	error.detail[0] = error.hint[0] = '\0';
	rexp_watermark_note(worker->watermark, slot);
	switch (rexp_encoder_encode(worker->encoder, slot, out, &block, &error))
	{
		case REXP_ENCODED:
			if (worker->prune != NULL)
				rexp_prune_take(worker->prune, out->data + block.key_start, block.key_len,
								block.erases);
			return rexp_pipeline_row_end(worker->pipeline, &block);
		case REXP_ENCODE_SKIPPED:
			return rexp_pipeline_row_skip(worker->pipeline);
		case REXP_ENCODE_FAILED:
			break;
	}
	return rexp_pipeline_row_reject(worker->pipeline, &block, &error);
}

/* The job has failed in the pipeline: that is our error. */
static void
raise_pipeline_error(Worker *worker)
{
	rexp_error_raise(rexp_pipeline_error(worker->pipeline));
}

/* The books in which Redis keeps what the export has written, if it has a name. */
static void
prepare_books(Worker *worker)
{
	const RexpJob *job = &worker->job;

	if (job->name != NULL)
		worker->job.pipeline.books = rexp_job_books(job, job->name,
													job->rows != REXP_ROWS_ALL);
}

/* Take over the caller's session, and learn where Redis is. */
static void
prepare_session(Worker *worker)
{
	MemoryContext old;

	StartTransactionCommand();
	rexp_text_prepare();
	rexp_session_assume(&worker->session);
	old = MemoryContextSwitchTo(TopMemoryContext);
	worker->link_options = rexp_link_options(worker->job.server,
											 worker->session.current_user, NULL);
	worker->record = rexp_record_create(worker->number, &worker->job,
										&worker->session);
	worker->watermark = rexp_watermark_create(worker->number, &worker->job);
	worker->shown = rexp_source_shown(worker->job.query, worker->session.current_user);
	prepare_books(worker);
	MemoryContextSwitchTo(old);
	CommitTransactionCommand();
}

/* Read the rows of the query, and send them. */
static void
read_rows(Worker *worker)
{
	RexpSource *source =
		rexp_source_open(rexp_watermark_query(worker->watermark, worker->job.query,
											  rexp_record_mark(worker->record)));
	RexpError	misfit;

	worker->encoder = rexp_encoder_create(&worker->job.encoding,
										  rexp_source_columns(source));
	if (worker->job.pipeline.books != NULL)
	{
		rexp_encoder_use_books(worker->encoder, worker->job.pipeline.books,
							   &worker->column);
		rexp_pipeline_complete_with(worker->pipeline, rexp_column_complete, &worker->column);
	}
	if (worker->job.wait_index != NULL &&
		!rexp_index_fits(worker->job.wait_index,
						 rexp_pipeline_index_schema(worker->pipeline),
						 worker->job.encoding.kind, rexp_encoder_gives(worker->encoder),
						 &misfit))
		rexp_pipeline_index_misfit(worker->pipeline, &misfit);
	rexp_progress_estimate(worker->progress, rexp_source_estimate(source));
	rexp_progress_state(worker->progress, REXP_STATE_RUNNING, NULL);
	rexp_source_run(source, take_row, worker);
	if (rexp_pipeline_error(worker->pipeline) != NULL)
		raise_pipeline_error(worker);
	rexp_watermark_seal(worker->watermark);
	rexp_source_close(source);
}

/* Keys of the rows are to be learned, in the transaction of the query. */
static void
begin_prune(Worker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	worker->prune = rexp_prune_create();
	MemoryContextSwitchTo(old);
}

/* Redis has all rows: keys that none of them has are to go. */
static void
prune(Worker *worker)
{
	MemoryContext old;

	/* what the query has asked the catalogs holds back vacuum, too */
	InvalidateCatalogSnapshot();
	if (!rexp_pipeline_finish(worker->pipeline))
		raise_pipeline_error(worker);
	if (rexp_pipeline_counters(worker->pipeline)->rows_failed > 0)
	{
		rexp_pipeline_not_pruned(worker->pipeline);
		return;
	}
	if (!rexp_record_settle(worker->record, worker->pipeline))
		raise_pipeline_error(worker);
	rexp_pipeline_enter(worker->pipeline, REXP_STATE_PRUNING);
	old = MemoryContextSwitchTo(TopTransactionContext);
	if (!rexp_prune_run(worker->prune, worker->pipeline, worker->job.pipeline.books,
						worker->job.prune_limit) ||
		!rexp_pipeline_finish(worker->pipeline))
		raise_pipeline_error(worker);
	MemoryContextSwitchTo(old);
}

/* Does somebody, or recovery on a replica, wait for us to be gone? */
static bool
is_sent_away(int sqlstate)
{
	return sqlstate == ERRCODE_QUERY_CANCELED ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK;
}

/*
 * All rows were read, and Redis has them: the books shall have no keys that are gone by
 * themselves.  Pruning has seen to that.  If the books cannot be read, since slots move,
 * say, a later run will: what was to be exported is.
 */
static void
sweep(Worker *worker)
{
	MemoryContext old = CurrentMemoryContext;

	if (worker->job.name == NULL || worker->job.prune ||
		worker->job.rows == REXP_ROWS_NEW)
		return;
	PG_TRY();
	{
		StartTransactionCommand();
		MemoryContextSwitchTo(TopTransactionContext);
		if (!rexp_prune_sweep(worker->pipeline, worker->job.pipeline.books))
			raise_pipeline_error(worker);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(TopMemoryContext);
		edata = CopyErrorData();
		if (is_sent_away(edata->sqlerrcode) || rexp_pipeline_error(worker->pipeline) != NULL)
			PG_RE_THROW();
		FlushErrorState();
		AbortCurrentTransaction();
		ereport(LOG,
				(errcode(edata->sqlerrcode),
				 errmsg("keys that are gone stay in the books of export \"%s\": %s",
						worker->job.name, edata->message),
				 errhidestmt(true)));
		FreeErrorData(edata);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
}

/* All that is done in the transaction of the query. */
static void
run_query(Worker *worker)
{
	const RexpSession *session = &worker->session;
	RexpFence	fence;

	rexp_fence_begin(&fence, session->current_user, session->sec_context);

	/*
	 * While the caller waits its own statement_timeout rules, which ends us
	 * too; otherwise nobody but we can go by it.  What it took to find Redis is no
	 * time of the query's.
	 */
	if (!worker->job.wait && session->statement_timeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, session->statement_timeout);

	if (worker->job.prune)
		begin_prune(worker);
	if (worker->job.rows != REXP_ROWS_NONE)
		read_rows(worker);
	if (worker->job.prune)
		prune(worker);

	/*
	 * The last answers are awaited without a snapshot: a slow Redis shall not
	 * hold back vacuum longer than the query did.
	 */
	rexp_fence_commit(&fence);
	pgstat_report_stat(true);
}

/* For the server's log; who waits is told, too. */
static void
warn_of_mark(Worker *worker)
{
	RexpCounters counters = *rexp_pipeline_counters(worker->pipeline);

	counters.mark_stays = rexp_record_mark_stays(worker->record);
	rexp_watermark_warn_of_mark(worker->number, &counters);
}

static void
run(Worker *worker)
{
	const char *index = worker->job.wait_index;
	MemoryContext old;

	prepare_session(worker);

	pgstat_report_activity(STATE_RUNNING, worker->shown);

	old = MemoryContextSwitchTo(TopMemoryContext);
	worker->pipeline = rexp_pipeline_create(&worker->job.pipeline,
											worker->link_options, worker->progress);
	MemoryContextSwitchTo(old);

	if (!rexp_pipeline_open(worker->pipeline) ||
		!rexp_record_begin(worker->record, worker->pipeline) ||
		(index != NULL && !rexp_pipeline_watch_index(worker->pipeline, index)))
		raise_pipeline_error(worker);
	run_query(worker);
	if (!rexp_pipeline_finish(worker->pipeline))
		raise_pipeline_error(worker);
	sweep(worker);
	if (!rexp_record_end(worker->record, worker->pipeline,
						 rexp_watermark_next(worker->watermark)) ||
		(index != NULL && !rexp_pipeline_wait_index(worker->pipeline)))
		raise_pipeline_error(worker);
	warn_of_mark(worker);

	disable_timeout(STATEMENT_TIMEOUT, false);
	finish_job(worker, REXP_STATE_DONE, NULL);
}

/* Receive answers for a while, whatever comes. */
static void
drain(Worker *worker, int milliseconds)
{
	PG_TRY();
	{
		rexp_pipeline_drain(worker->pipeline, milliseconds);
	}
	PG_CATCH();
	{
		/* cancelled once more, while waiting: the first error counts */
		FlushErrorState();
	}
	PG_END_TRY();
}

/*
 * An error has ended the job.  Answers that are still on their way are counted:
 * all of them after an error of the job, those that come at once if we have
 * been sent away.
 */
static void
end_after_error(Worker *worker, ErrorData *edata)
{
	RexpError	error;

	rexp_error_from_edata(&error, edata);
	disable_timeout(STATEMENT_TIMEOUT, false);
	rexp_progress_state(worker->progress, REXP_STATE_FINISHING, &error);
	if (worker->pipeline != NULL)
		drain(worker, is_sent_away(edata->sqlerrcode) ? CANCEL_DRAIN :
			  worker->link_options->timeout);
	finish_job(worker, state_after(worker, &error), &error);
}

/*
 * Copy the arguments from the caller's segment, which it then lets go of.  False, with the
 * error in worker->fatal, if there are none that this library can read.
 */
static bool
take_arguments(Worker *worker, dsm_handle handle)
{
	dsm_segment *segment = dsm_attach(handle);
	bool		good;

	if (segment == NULL)
	{
		rexp_error_set(&worker->fatal, ERRCODE_QUERY_CANCELED,
					   "the session that started the export has gone");
		return false;
	}
	good = rexp_payload_read(dsm_segment_address(segment), &worker->job, &worker->session);
	dsm_detach(segment);
	if (!good)
	{
		rexp_error_set(&worker->fatal, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					   "the session that started the export has loaded another version of redis_export");
		rexp_error_hint(&worker->fatal, "Connect again.");
	}
	return good;
}

/*
 * rexp_worker_main
 *	  The worker's life.  bgw_main_arg is the handle of the segment with the
 *	  arguments, bgw_extra the number of the slot and of the job.
 */
void
rexp_worker_main(Datum arg)
{
	Worker	   *worker;
	int			slot;
	MemoryContext old;

	/*
	 * The order matters: what is FATAL once the slot is ours is written down
	 * there.  Without die() a SIGTERM would be served in the handler itself.
	 */
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	old = MemoryContextSwitchTo(TopMemoryContext);
	worker = palloc0(sizeof(Worker));
	worker->started_at = GetCurrentTimestamp();
	memcpy(&slot, MyBgworkerEntry->bgw_extra, sizeof(slot));
	memcpy(&worker->number, MyBgworkerEntry->bgw_extra + sizeof(slot),
		   sizeof(worker->number));
	worker->progress = rexp_progress_attach(slot, worker->number);
	if (worker->progress == NULL)
		proc_exit(0);
	worker->job.server = "";
	this_worker = worker;
	next_log_hook = emit_log_hook;
	emit_log_hook = note_fatal;
	before_shmem_exit(on_exit_of_worker, PointerGetDatum(worker));
	if (!take_arguments(worker, DatumGetUInt32(arg)))
		proc_exit(0);
	rexp_progress_taken(worker->progress);
	MemoryContextSwitchTo(old);

	rexp_session_connect(&worker->session);
	worker->connected = true;

	PG_TRY();
	{
		CHECK_FOR_INTERRUPTS();
		run(worker);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(TopMemoryContext);
		edata = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		end_after_error(worker, edata);
	}
	PG_END_TRY();

	/* the job's end has been told; no "exited with exit code" on top of it */
	proc_exit(0);
}
