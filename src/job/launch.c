/*-------------------------------------------------------------------------
 *
 * launch.c
 *	  An export as its caller sees it: check, launch, wait, cancel.
 *
 * What the worker does is in worker.c; the two meet in the job's slot
 * (progress.c) and in the segment that holds the arguments until the worker
 * has copied them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <signal.h>

#include "base/compat.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "export/watermark.h"
#include "encode/encode.h"
#include "job/launch.h"
#include "job/payload.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "session/server_options.h"
#include "session/source.h"
#include "status/ledger.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* While waiting, look at the job at least that often (ms). */
#define LOOK_INTERVAL 1000
#define POLL_INTERVAL 100

/* When no worker is free, look again so often and for so long (ms). */
#define SLOT_INTERVAL 10
#define SLOT_WAIT 1000

int			rexp_notice_interval = 10;

/* A job that we have started and, until it ends, answer for. */
typedef struct Launch
{
	int64		job;
	BackgroundWorkerHandle *handle; /* NULL: not registered */
	bool		let_go;			/* it may go on without us */
	RexpError	reason;			/* why we leave it; sqlstate 0: unknown */
} Launch;

/* We leave by an error, or for good: take the job with us. */
static void
give_up(int code, Datum arg)
{
	Launch	   *launch = (Launch *) DatumGetPointer(arg);

	if (!launch->let_go)
	{
		if (launch->reason.sqlstate == 0)
			rexp_error_set(&launch->reason, ERRCODE_QUERY_CANCELED,
						   "the session that waited for the export has ended");
		if (launch->handle == NULL)
			rexp_progress_abandon(launch->job, &launch->reason);
		else
			(void) rexp_progress_signal(launch->job, SIGINT, &launch->reason);
	}
	rexp_progress_release(launch->job);
}

/* The arguments, where the worker finds them. */
static dsm_segment *
share_arguments(const RexpJob *job, const RexpSession *session)
{
	StringInfoData bytes;
	dsm_segment *segment;

	initStringInfo(&bytes);
	rexp_payload_write(&bytes, job, session);
	segment = dsm_create(bytes.len, 0);
	memcpy(dsm_segment_address(segment), bytes.data, bytes.len);
	pfree(bytes.data);
	return segment;
}

/* Wait for a signal of the worker or of the postmaster, or for a while. */
static void
sleep_a_while(long milliseconds)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 milliseconds, rexp_wait_event());
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Register a worker, if need be after a moment: others that end, parallel workers
 * too, let go of their slot only when the postmaster has seen to them.
 */
static bool
register_worker(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	TimestampTz until = GetCurrentTimestamp() + SLOT_WAIT * INT64CONST(1000);

	while (!RegisterDynamicBackgroundWorker(worker, handle))
	{
		*handle = NULL;
		if (GetCurrentTimestamp() >= until)
			return false;
		sleep_a_while(SLOT_INTERVAL);
	}
	return true;
}

static void
start_worker(Launch *launch, int slot, dsm_segment *arguments)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;

	/* on a replica recovery never finishes, and RecoveryFinished never comes */
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(arguments));
	strlcpy(worker.bgw_library_name, "redis_export", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "rexp_worker_main",
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_type, "redis_export worker", sizeof(worker.bgw_type));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name),
			 "redis_export job " INT64_FORMAT, launch->job);
	memcpy(worker.bgw_extra, &slot, sizeof(slot));
	memcpy(worker.bgw_extra + sizeof(slot), &launch->job, sizeof(launch->job));

	if (!register_worker(&worker, &launch->handle))
	{
		rexp_error_set(&launch->reason, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
					   "no background worker is free for the export");
		rexp_error_detail(&launch->reason,
						  "All %d background workers of max_worker_processes are in use.",
						  max_worker_processes);
		rexp_error_hint(&launch->reason,
						"Wait until other exports or parallel queries end, or raise max_worker_processes.");
		rexp_error_raise(&launch->reason);
	}
}

/*
 * check_worker
 *	  Has the worker ended without a word?  Then say so in the job's slot.
 */
static void
check_worker(Launch *launch)
{
	pid_t		pid;
	RexpError	error;

	switch (GetBackgroundWorkerPid(launch->handle, &pid))
	{
		case BGWH_STOPPED:
			rexp_error_set(&error, ERRCODE_INTERNAL_ERROR,
						   "the worker of the export could not start or ended unexpectedly");
			rexp_error_hint(&error, "See the server's log.");
			/* no effect if the job has ended in order */
			rexp_progress_abandon(launch->job, &error);
			break;
		case BGWH_POSTMASTER_DIED:
			ereport(FATAL,
					(errcode(ERRCODE_ADMIN_SHUTDOWN),
					 errmsg("postmaster exited while an export was waited for")));
			break;
		default:
			break;
	}
}

static void
look(Launch *launch, RexpJobStatus *status)
{
	check_worker(launch);
	if (!rexp_progress_look(launch->job, status))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("export job " INT64_FORMAT " is no longer known",
						launch->job)));
}

/*
 * waits_for_us
 *	  Does the worker wait for a lock that this session holds, perhaps in a
 *	  queue behind others who do?
 *
 * PostgreSQL's own deadlock check does not know that we wait for the worker.
 * An ALTER TABLE that came in between is what the worker waits for, and it is
 * the ALTER TABLE that waits for us: so we follow who blocks whom, breadth
 * first.
 */
static bool
waits_for_us(int worker)
{
	int			queue[256];
	int			count = 1;

	queue[0] = worker;
	for (int next = 0; next < count; next++)
	{
		Datum		blockers = DirectFunctionCall1(pg_blocking_pids,
												   Int32GetDatum(queue[next]));
		Datum	   *pids;
		int			npids;

		deconstruct_array(DatumGetArrayTypeP(blockers), INT4OID, sizeof(int32), true,
						  TYPALIGN_INT, &pids, NULL, &npids);
		for (int i = 0; i < npids; i++)
		{
			int			pid = DatumGetInt32(pids[i]);
			bool		known = false;

			if (pid == MyProcPid)
				return true;
			for (int j = 0; j < count; j++)
				known |= queue[j] == pid;
			if (!known && pid != 0 && count < (int) lengthof(queue))
				queue[count++] = pid;
		}
	}
	return false;
}

/* Raise an error if the job cannot go on as long as we wait for it. */
static void
check_deadlock(const RexpJobStatus *status)
{
	PGPROC	   *proc = status->pid != 0 ? BackendPidGetProc(status->pid) : NULL;
	uint32		class = proc ? proc->wait_event_info & 0xFF000000 : 0;

	/* a leader waits for its parallel workers by IPC */
	if (class != PG_WAIT_LOCK && class != PG_WAIT_IPC)
		return;
	if (waits_for_us(status->pid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("the export waits for a lock that this transaction holds"),
				 errdetail("Export job " INT64_FORMAT " would wait for this transaction, which waits for the job.",
						   status->job),
				 errhint("Commit first, or export with wait => false and commit then.")));
}

/* A client that has gone would be noticed only when something is sent to it. */
static void
check_client(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
		ereport(FATAL,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("connection to client lost")));
}

/* Tell the client how far the job is. */
static void
report(const RexpJobStatus *status)
{
	double		percent = rexp_progress_percent(status);
	double		left = rexp_progress_seconds_left(status);
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "export job " INT64_FORMAT ": " INT64_FORMAT,
					 status->job, rexp_rows_held(&status->counters));
	if (status->rows_estimated > 0)
		appendStringInfo(&text, " of about " INT64_FORMAT, status->rows_estimated);
	appendStringInfoString(&text, " rows");
	if (!isnan(percent))
		appendStringInfo(&text, " (%.1f%%)", percent);
	appendStringInfo(&text, ", %.0f rows/s", status->rate);
	if (!isnan(left) && left < 1e8)
		appendStringInfo(&text, ", about %d:%02d:%02d left", (int) (left / 3600),
						 (int) (left / 60) % 60, (int) left % 60);
	if (status->counters.rows_failed > 0)
		appendStringInfo(&text, ", " INT64_FORMAT " failed",
						 status->counters.rows_failed);
	ereport(NOTICE, (errmsg_internal("%s", text.data)));
	pfree(text.data);
}

/* Wait until the worker has its arguments, or has ended. */
static void
wait_for_start(Launch *launch, RexpJobStatus *status, MemoryContext scratch)
{
	for (;;)
	{
		MemoryContextReset(scratch);
		look(launch, status);
		if (status->taken || rexp_state_is_final(status->state))
			return;
		sleep_a_while(LOOK_INTERVAL);
	}
}

/* Wait until the job has ended, and tell the client of its progress. */
static void
wait_for_end(Launch *launch, RexpJobStatus *status, MemoryContext scratch)
{
	TimestampTz told_at = GetCurrentTimestamp();
	TimestampTz checked_at = told_at;
	bool		told_of_trouble = false;

	for (;;)
	{
		TimestampTz now;

		MemoryContextReset(scratch);
		look(launch, status);
		if (rexp_state_is_final(status->state))
			return;

		if (status->state != REXP_STATE_RETRYING)
			told_of_trouble = false;
		else if (!told_of_trouble)
		{
			ereport(WARNING,
					(errcode(status->error.sqlstate),
					 errmsg("export job " INT64_FORMAT " tries again: %s",
							status->job, status->error.message),
					 status->error.hint[0] ? errhint("%s", status->error.hint) : 0));
			told_of_trouble = true;
		}

		now = GetCurrentTimestamp();
		if (now - checked_at >= LOOK_INTERVAL * 1000)
		{
			checked_at = now;
			check_client();
			check_deadlock(status);
		}
		if (rexp_notice_interval > 0 &&
			now - told_at >= rexp_notice_interval * USECS_PER_SEC)
		{
			told_at = now;
			report(status);
		}
		sleep_a_while(LOOK_INTERVAL);
	}
}

/* The job has ended: its error is ours, its warnings are told. */
static void
tell_end(const RexpJobStatus *status)
{
	const RexpCounters *counters = &status->counters;

	if (status->state != REXP_STATE_DONE)
	{
		RexpError	error = status->error;
		char	   *ledger = psprintf("Export job " INT64_FORMAT ": " INT64_FORMAT " rows read, %s.",
									  status->job, counters->rows_read,
									  rexp_ledger_text(counters, "written"));

		if (error.detail[0] != '\0')
		{
			char		detail[REXP_DETAIL_SIZE];

			strlcpy(detail, error.detail, sizeof(detail));
			rexp_error_detail(&error, "%s\n%s", detail, ledger);
		}
		else
			rexp_error_detail(&error, "%s", ledger);
		rexp_error_raise(&error);
	}
	if (counters->info_refused)
		ereport(NOTICE,
				(errmsg("export job " INT64_FORMAT " went on without INFO, which Redis refused",
						status->job),
				 errdetail("Restarts of Redis, other masters and evicted keys were not noticed, nor whether it is a cluster."),
				 errhint("If Redis has users with limited rights: ACL SETUSER ... +info.")));
	if (counters->client_refused)
		ereport(NOTICE,
				(errmsg("export job " INT64_FORMAT " went on without CLIENT ID and CLIENT KILL, which Redis refused",
						status->job),
				 errdetail("What was on its way over a connection that was lost may have been carried out later."),
				 errhint("If Redis has users with limited rights: ACL SETUSER ... +client|id +client|kill.")));
	if (counters->redis_takeovers > 0 && !counters->held_by_replicas)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("another Redis took over as the master after " INT64_FORMAT " rows of export job " INT64_FORMAT " were acknowledged",
						counters->written_at_restart, status->job),
				 errdetail("Redis replicates asynchronously: what the one before had not passed on is lost."),
				 errhint("Export again, or let rows count only when replicas have them (wait_replicas).")));
	if (counters->redis_restarts > counters->redis_takeovers)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("Redis was restarted after " INT64_FORMAT " rows of export job " INT64_FORMAT " were acknowledged",
						counters->written_at_restart, status->job),
				 errdetail("What it had not saved before is lost."),
				 errhint("Export again unless Redis saves each write (appendonly yes).")));
	if (counters->evicted_keys > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("Redis evicted " INT64_FORMAT " keys during export job " INT64_FORMAT,
						counters->evicted_keys, status->job),
				 errhint("Raise maxmemory in Redis.")));
	if (counters->rows_failed > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg(INT64_FORMAT " rows of export job " INT64_FORMAT " failed and were left out",
						counters->rows_failed, status->job),
				 errhint("See redis_export_failures(" INT64_FORMAT ").", status->job)));
	if (counters->not_pruned)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("nothing was pruned by export job " INT64_FORMAT ", since rows have failed",
						status->job),
				 errhint("Mend the rows, and export again with prune.")));
	rexp_watermark_warn_of_writer(status->job, counters);
	rexp_watermark_warn_of_mark(status->job, counters);
	if (counters->index_misfit)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 counters->index_failures == 0 && status->error.sqlstate == ERRCODE_WARNING ?
				 errmsg("%s", status->error.message) :
				 errmsg("an index of Redis does not take all that export job " INT64_FORMAT " has written",
						status->job),
				 errdetail("Searches do not find what the index does not take, and Redis reports no error for it."),
				 errhint("Compare prefixes, key type and schema of the index (FT.INFO) with the keys and the columns of the export.")));
	if (counters->index_failures > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("an index of Redis refused documents " INT64_FORMAT " times during export job " INT64_FORMAT,
						counters->index_failures, status->job),
				 status->error.sqlstate != 0 ?
				 errdetail("The last time: %s.", status->error.message) : 0,
				 errhint("Searches do not find them. Mend the rows, or the index' schema, and export again.")));
}

/*
 * Commit, so that who waits holds no snapshot, and holds back no vacuum; on a replica,
 * so that recovery need not cancel it.  What the transaction has checked is done.
 */
static void
commit_before_waiting(void)
{
	SPI_commit();
}

/* Start the worker and stay with it; an error of ours becomes the job's. */
static void
launch_and_wait(Launch *launch, bool wait, bool may_commit, int slot,
				dsm_segment *arguments, RexpJobStatus *status)
{
	MemoryContext context = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(context, "redis_export wait",
												  ALLOCSET_DEFAULT_SIZES);

	PG_TRY();
	{
		start_worker(launch, slot, arguments);
		MemoryContextSwitchTo(scratch);
		wait_for_start(launch, status, scratch);
		dsm_detach(arguments);
		if (wait && may_commit)
			InvalidateCatalogSnapshot();
		if (wait)
			wait_for_end(launch, status, scratch);

		/* its slot is free for the next export then */
		if (rexp_state_is_final(status->state))
			(void) WaitForBackgroundWorkerShutdown(launch->handle);
		launch->let_go = true;
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		/* the job shall say why it was cancelled */
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		if (launch->reason.sqlstate == 0)
			rexp_error_from_edata(&launch->reason, edata);
		PG_RE_THROW();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	MemoryContextDelete(scratch);
}

/*
 * rexp_job_check
 *	  Raise an error for what can be known to be wrong with an export before there is a
 *	  worker.  Returns the columns of its query, palloc'd; NULL if it will not run.
 */
TupleDesc
rexp_job_check(const RexpJob *job)
{
	TupleDesc	desc;

	(void) rexp_link_options(job->server, OidIsValid(job->owner) ? job->owner : GetUserId(),
							 NULL);
	/* what it reads may be gone */
	if (job->rows == REXP_ROWS_NONE)
		return NULL;
	desc = rexp_source_check(job->query, rexp_job_session(job));
	(void) rexp_encoder_create(&job->encoding, desc);
	if (job->watermark_column != NULL)
		rexp_watermark_check(job, desc);
	return desc;
}

/*
 * rexp_job_run
 *	  Check an export, start it and, if asked for, wait for its end.
 *
 * What can be known to be wrong is an error before there is a worker.  *status
 * is filled, in the current memory context, with the job as it then stands.
 * If this session is cancelled or ends while it waits, so does the job.
 *
 * With may_commit, for which SPI must be connected and not be atomic, the transaction
 * is committed before the worker starts; the current memory context, and what the job points
 * to, must outlive it.
 */
void
rexp_job_run(const RexpJob *job, bool may_commit, RexpJobStatus *status)
{
	RexpSession session;
	RexpJobInfo info;
	Launch		launch = {0};
	dsm_segment *arguments;
	int			slot;

	rexp_session_capture(&session, job->owner, job->settings);
	(void) rexp_job_check(job);

	/* before the worker takes its snapshot, which then has what this session has written */
	if (job->wait && may_commit)
		commit_before_waiting();

	info.database = session.database;
	info.session_user = session.session_user;
	info.current_user = session.current_user;
	info.name = job->name;
	info.server = job->server;
	info.command = rexp_encoding_command(&job->encoding);
	info.key_template = rexp_encoding_template(&job->encoding);
	info.query = job->query;
	info.rate = job->pipeline.rate;

	arguments = share_arguments(job, &session);
	launch.job = rexp_progress_reserve(&info, &slot);

	PG_ENSURE_ERROR_CLEANUP(give_up, PointerGetDatum(&launch));
	{
		launch_and_wait(&launch, job->wait, may_commit, slot, arguments, status);
		if (!rexp_progress_look(launch.job, status))
			elog(ERROR, "export job " INT64_FORMAT " is no longer known", launch.job);
	}
	PG_END_ENSURE_ERROR_CLEANUP(give_up, PointerGetDatum(&launch));
	rexp_progress_release(launch.job);
	if (job->wait || !status->taken)
		tell_end(status);
}

/*
 * rexp_job_wait
 *	  Wait for the end of any job, for timeout milliseconds at most (-1: as long
 *	  as it takes), and fill *status.
 */
void
rexp_job_wait(int64 job, int64 timeout, RexpJobStatus *status)
{
	TimestampTz checked_at = GetCurrentTimestamp();
	TimestampTz until = checked_at + timeout * 1000;
	MemoryContext context = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(context, "redis_export wait",
												  ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		bool		over;

		MemoryContextReset(scratch);
		MemoryContextSwitchTo(scratch);
		if (!rexp_progress_look(job, status))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("export job " INT64_FORMAT " does not exist", job),
					 errhint("See redis_export_progress. Old jobs go when their slot is needed.")));
		over = rexp_state_is_final(status->state) || (timeout >= 0 && now >= until);
		if (!over && now - checked_at >= LOOK_INTERVAL * 1000)
		{
			checked_at = now;
			check_client();
			check_deadlock(status);
		}
		MemoryContextSwitchTo(context);

		/* scratch goes with the caller's context */
		if (over)
			return;
		sleep_a_while(timeout < 0 ? POLL_INTERVAL :
					  Min(POLL_INTERVAL, (long) ((until - now) / 1000) + 1));
	}
}

/*
 * may_control
 *	  May the current user cancel the job, or change it?  An error if not; false
 *	  if there is no such job.
 */
static bool
may_control(int64 job)
{
	RexpJobStatus status;
	Oid			owner;

	if (!rexp_progress_look(job, &status))
		return false;
	owner = status.info.session_user;
	if ((superuser_arg(owner) && !superuser()) ||
		(!has_privs_of_role(GetUserId(), owner) &&
		 !has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to control export job " INT64_FORMAT, job),
				 errdetail("It takes the rights of pg_cancel_backend() over the role that started the job.")));
	return true;
}

static void
warn_not_running(int64 job)
{
	ereport(WARNING,
			(errmsg("export job " INT64_FORMAT " is not running", job)));
}

/*
 * rexp_job_cancel
 *	  Cancel a job.  False, with a warning, if it does not run.
 *
 * Who may is who may cancel the session user's backends: see
 * pg_cancel_backend() in the PostgreSQL manual.
 */
bool
rexp_job_cancel(int64 job)
{
	RexpError	reason;

	if (may_control(job))
	{
		rexp_error_set(&reason, ERRCODE_QUERY_CANCELED,
					   "the export was canceled by role \"%s\"",
					   GetUserNameFromId(GetUserId(), false));
		if (rexp_progress_signal(job, SIGINT, &reason))
			return true;
	}
	warn_not_running(job);
	return false;
}

/*
 * rexp_job_set_rate
 *	  Let a job send so many rows a second from now on, 0 for no limit.  Rights
 *	  and result are as with rexp_job_cancel().
 */
bool
rexp_job_set_rate(int64 job, int rate)
{
	if (may_control(job) && rexp_progress_set_rate(job, rate))
		return true;
	warn_not_running(job);
	return false;
}
