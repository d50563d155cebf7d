/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  The jobs of this server, in shared memory.
 *
 * One segment, made when it is first needed, holds a fixed number of slots.  A
 * slot belongs to one job at a time, which its number tells: whoever comes
 * later with the number of a job that is gone finds another number there.
 *
 * Three locks, each for what changes at its own pace: the segment's, for the
 * choice of a slot; a slot's, for its state and texts; a slot's spinlock, for
 * the counters, which the worker sets at every turn and readers copy, so that
 * a reader never holds up an export.
 *
 * The databases of a server may have different encodings, so all texts here are
 * UTF-8.  They are converted before a lock is taken and after it is released.
 *
 * Nothing here knows how a job is done.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <signal.h>

#include "access/htup_details.h"
#include "base/compat.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "status/progress.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* Another layout of the segment is another name. */
#define SEGMENT_NAME "redis_export 8"
#define SLOTS 128

#define QUERY_SIZE 4096
#define TEMPLATE_SIZE 1024
#define COMMAND_SIZE 32

/* A character of one byte becomes three at most. */
#define SERVER_SIZE (NAMEDATALEN * 3)

/* The rate of late: over the last so many samples, taken a second apart. */
#define SAMPLES 6

typedef struct Sample
{
	TimestampTz at;
	int64		held;			/* rows that Redis had */
} Sample;

/* All that readers of a slot want to have in their own encoding. */
typedef struct SlotTexts
{
	char		name[SERVER_SIZE];	/* empty: it has none */
	char		server[SERVER_SIZE];
	char		command[COMMAND_SIZE];
	char		key_template[TEMPLATE_SIZE];
	char		query[QUERY_SIZE];
	RexpError	error;			/* the last one */
} SlotTexts;

typedef struct Slot
{
	LWLock		lock;			/* over all but the counters */
	int64		job;			/* 0: never used */
	RexpState	state;
	int			pid;			/* of the worker, while it may be signalled */
	int			launcher;		/* pid of who started it */
	bool		awaited;		/* the launcher has yet to read how it ends */
	bool		taken;
	RexpError	cancel_reason;	/* of who cancels; sqlstate 0: none given */
	Oid			database;
	Oid			session_user;
	Oid			current_user;
	SlotTexts	texts;
	pg_atomic_uint32 rate;		/* rows a second, 0: no limit */
	int64		rows_estimated;
	TimestampTz started_at;
	TimestampTz finished_at;
	int			nfailures;
	RexpFailure failures[REXP_FAILURES_KEPT];
	int			nnodes;
	RexpNodeStatus nodes[REXP_NODES_SHOWN];

	slock_t		mutex;			/* over what follows */
	RexpCounters counters;
	Sample		samples[SAMPLES];	/* the oldest first */
} Slot;

typedef struct Segment
{
	LWLock		lock;			/* over the choice of slots */
	int			tranche;
	uint64		instance;		/* of this server, from one start to the next */
	int64		last_job;
	Slot		slots[SLOTS];
} Segment;

struct RexpProgress
{
	Slot	   *slot;
	int64		job;
};

static Segment *segment = NULL;

static void
init_segment(void *address)
{
	Segment    *new = address;

	memset(new, 0, sizeof(Segment));
	new->tranche = rexp_new_tranche();
	if (!pg_strong_random(&new->instance, sizeof(new->instance)))
		new->instance = (uint64) GetCurrentTimestamp();
	LWLockInitialize(&new->lock, new->tranche);
	for (int i = 0; i < SLOTS; i++)
	{
		LWLockInitialize(&new->slots[i].lock, new->tranche);
		SpinLockInit(&new->slots[i].mutex);
		pg_atomic_init_u32(&new->slots[i].rate, 0);
	}
}

static void
find_segment(void)
{
	if (segment != NULL)
		return;
	segment = rexp_named_segment(SEGMENT_NAME, sizeof(Segment), init_segment);
	rexp_name_tranche(segment->tranche);
}

const char *
rexp_state_name(RexpState state)
{
	static const char *const names[] = {
		"starting", "running", "retrying", "finishing", "pruning", "indexing", "done", "failed", "canceled"
	};

	return names[state];
}

/* The slot of a job, locked; or NULL. */
static Slot *
lock_slot(int64 job, LWLockMode mode)
{
	find_segment();
	for (int i = 0; job > 0 && i < SLOTS; i++)
	{
		Slot	   *slot = &segment->slots[i];

		if (slot->job != job)
			continue;
		LWLockAcquire(&slot->lock, mode);
		if (slot->job == job)
			return slot;
		LWLockRelease(&slot->lock);
	}
	return NULL;
}

static void
wake(int pid)
{
	PGPROC	   *proc = pid != 0 ? BackendPidGetProc(pid) : NULL;

	if (proc != NULL)
		SetLatch(&proc->procLatch);
}

/*
 * rexp_progress_reserve
 *	  A slot for a new job, of which the number is returned.
 *
 * Takes a slot that was never used or else the one whose job ended first.  The slot stays
 * the job's at least until rexp_progress_release().
 */
int64
rexp_progress_reserve(const RexpJobInfo *info, int *number)
{
	int			best = -1;
	int64		job;
	Slot	   *slot;
	SlotTexts	texts;

	memset(&texts, 0, sizeof(texts));
	if (info->name != NULL)
		rexp_text_to_utf8(texts.name, sizeof(texts.name), info->name);
	rexp_text_to_utf8(texts.server, sizeof(texts.server), info->server);
	rexp_text_to_utf8(texts.command, sizeof(texts.command), info->command);
	rexp_text_to_utf8(texts.key_template, sizeof(texts.key_template), info->key_template);
	rexp_text_to_utf8(texts.query, sizeof(texts.query), info->query);

	find_segment();
	LWLockAcquire(&segment->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SLOTS; i++)
	{
		slot = &segment->slots[i];
		if (slot->job == 0)
		{
			best = i;
			break;
		}
		LWLockAcquire(&slot->lock, LW_SHARED);
		if (rexp_state_is_final(slot->state) && slot->pid == 0 && !slot->awaited &&
			(best < 0 || slot->finished_at < segment->slots[best].finished_at))
			best = i;
		LWLockRelease(&slot->lock);
	}
	if (best < 0)
	{
		LWLockRelease(&segment->lock);
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many exports at once"),
				 errdetail("%d exports are running.", SLOTS)));
	}

	slot = &segment->slots[best];
	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	job = ++segment->last_job;
	slot->job = job;
	slot->state = REXP_STATE_STARTING;
	slot->pid = 0;
	slot->launcher = MyProcPid;
	slot->awaited = true;
	slot->taken = false;
	slot->cancel_reason.sqlstate = 0;
	slot->database = info->database;
	slot->session_user = info->session_user;
	slot->current_user = info->current_user;
	slot->texts = texts;
	pg_atomic_write_u32(&slot->rate, info->rate);
	slot->rows_estimated = -1;
	slot->started_at = GetCurrentTimestamp();
	slot->finished_at = 0;
	slot->nfailures = 0;
	slot->nnodes = 0;
	SpinLockAcquire(&slot->mutex);
	memset(&slot->counters, 0, sizeof(slot->counters));
	memset(slot->samples, 0, sizeof(slot->samples));
	SpinLockRelease(&slot->mutex);
	LWLockRelease(&slot->lock);
	LWLockRelease(&segment->lock);
	*number = best;
	return job;
}

/* The slot is locked; error is in UTF-8, or NULL to keep the last one. */
static void
set_final(Slot *slot, RexpState state, const RexpError *error)
{
	slot->state = state;
	slot->pid = 0;
	slot->finished_at = GetCurrentTimestamp();
	if (error != NULL)
		slot->texts.error = *error;
}

/* No worker will ever finish this job: do it for it. */
void
rexp_progress_abandon(int64 job, const RexpError *error)
{
	RexpError	utf8;
	Slot	   *slot;

	rexp_error_to_utf8(error, &utf8);
	slot = lock_slot(job, LW_EXCLUSIVE);
	if (slot == NULL)
		return;
	if (!rexp_state_is_final(slot->state))
		set_final(slot, rexp_state_after(error), &utf8);
	LWLockRelease(&slot->lock);
}

/*
 * rexp_progress_attach
 *	  The worker takes its slot.  NULL if the job has been given up meanwhile.
 *
 * The result stays for the life of the process.
 */
RexpProgress *
rexp_progress_attach(int number, int64 job)
{
	RexpProgress *progress = MemoryContextAlloc(TopMemoryContext,
												sizeof(RexpProgress));
	Slot	   *slot;
	bool		ours;

	find_segment();
	progress->slot = slot = &segment->slots[number];
	progress->job = job;
	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	ours = slot->job == job && !rexp_state_is_final(slot->state);
	if (ours)
		slot->pid = MyProcPid;
	LWLockRelease(&slot->lock);
	return ours ? progress : NULL;
}

/*
 * rexp_progress_release
 *	  The launcher has read all that it wants to know of its job: the slot may go to
 *	  another job once this one has ended.  Until then it does not.
 */
void
rexp_progress_release(int64 job)
{
	Slot	   *slot = lock_slot(job, LW_EXCLUSIVE);

	if (slot == NULL)
		return;
	slot->awaited = false;
	LWLockRelease(&slot->lock);
}

/* The worker has its arguments: the launcher may let go of them. */
void
rexp_progress_taken(RexpProgress *progress)
{
	Slot	   *slot = progress->slot;

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	slot->taken = true;
	LWLockRelease(&slot->lock);
	wake(slot->launcher);
}

void
rexp_progress_estimate(RexpProgress *progress, double rows)
{
	Slot	   *slot = progress->slot;

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	slot->rows_estimated = rows < 9e18 ? (int64) rows : -1;
	LWLockRelease(&slot->lock);
}

/* Enter a state that is not final; error may be NULL to keep the last one. */
void
rexp_progress_state(RexpProgress *progress, RexpState state, const RexpError *error)
{
	Slot	   *slot = progress->slot;
	RexpError	utf8;

	if (error != NULL)
		rexp_error_to_utf8(error, &utf8);
	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	slot->state = state;
	if (error != NULL)
		slot->texts.error = utf8;
	LWLockRelease(&slot->lock);
	if (error != NULL)
		wake(slot->launcher);
}

/* Show the nodes of Redis, REXP_NODES_SHOWN at most; their texts become UTF-8. */
void
rexp_progress_nodes(RexpProgress *progress, RexpNodeStatus *nodes, int nnodes)
{
	Slot	   *slot = progress->slot;

	for (int i = 0; i < nnodes; i++)
	{
		RexpNodeStatus text = nodes[i];

		rexp_text_to_utf8(nodes[i].host, sizeof(nodes[i].host), text.host);
		rexp_text_to_utf8(nodes[i].trouble, sizeof(nodes[i].trouble), text.trouble);
	}
	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	slot->nnodes = nnodes;
	memcpy(slot->nodes, nodes, sizeof(RexpNodeStatus) * nnodes);
	LWLockRelease(&slot->lock);
}

/* Show the ledger. */
void
rexp_progress_counters(RexpProgress *progress, const RexpCounters *counters)
{
	Slot	   *slot = progress->slot;
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&slot->mutex);
	slot->counters = *counters;
	if (now - slot->samples[SAMPLES - 1].at >= USECS_PER_SEC)
	{
		memmove(slot->samples, slot->samples + 1, sizeof(Sample) * (SAMPLES - 1));
		slot->samples[SAMPLES - 1].at = now;
		slot->samples[SAMPLES - 1].held = rexp_rows_held(counters);
	}
	SpinLockRelease(&slot->mutex);
}

/* Keep one of the first failed rows. */
void
rexp_progress_failure(RexpProgress *progress, int64 row, const char *key,
					  const RexpError *error)
{
	Slot	   *slot = progress->slot;
	RexpFailure failure;
	RexpError	utf8;

	failure.row = row;
	failure.sqlstate = error->sqlstate;
	rexp_key_to_utf8(failure.key, sizeof(failure.key), key);
	rexp_text_to_utf8(failure.message, sizeof(failure.message), error->message);
	rexp_error_to_utf8(error, &utf8);

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	if (slot->nfailures < REXP_FAILURES_KEPT)
		slot->failures[slot->nfailures++] = failure;
	slot->texts.error = utf8;
	LWLockRelease(&slot->lock);
}

/* Rows a second that the worker may send now; 0 for no limit. */
int
rexp_progress_rate(RexpProgress *progress)
{
	return (int) pg_atomic_read_u32(&progress->slot->rate);
}

/* Did who cancelled the job say why?  Then that is the job's error. */
bool
rexp_progress_cancel_reason(RexpProgress *progress, RexpError *reason)
{
	Slot	   *slot = progress->slot;
	RexpError	utf8;

	LWLockAcquire(&slot->lock, LW_SHARED);
	utf8 = slot->cancel_reason;
	LWLockRelease(&slot->lock);
	if (utf8.sqlstate == 0)
		return false;
	rexp_error_from_utf8(&utf8, reason);
	return true;
}

/* The job has ended, and the worker can no longer be signalled. */
void
rexp_progress_finish(RexpProgress *progress, RexpState state,
					 const RexpError *error, const RexpCounters *counters)
{
	Slot	   *slot = progress->slot;
	RexpError	utf8;

	if (error != NULL)
		rexp_error_to_utf8(error, &utf8);
	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	if (slot->job == progress->job && !rexp_state_is_final(slot->state))
	{
		if (counters != NULL)
		{
			SpinLockAcquire(&slot->mutex);
			slot->counters = *counters;
			SpinLockRelease(&slot->mutex);
		}
		set_final(slot, state, error != NULL ? &utf8 : NULL);
	}
	LWLockRelease(&slot->lock);
	wake(slot->launcher);
}

/* The slot is locked: copy it, but for what its texts become. */
static void
copy_slot(Slot *slot, RexpJobStatus *status, SlotTexts *texts)
{
	Sample		oldest = {0, 0};
	TimestampTz until;

	status->job = slot->job;
	status->pid = slot->pid;
	status->state = slot->state;
	status->taken = slot->taken;
	status->info.database = slot->database;
	status->info.session_user = slot->session_user;
	status->info.current_user = slot->current_user;
	*texts = slot->texts;
	status->rows_estimated = slot->rows_estimated;
	status->started_at = slot->started_at;
	status->finished_at = slot->finished_at;
	status->nnodes = slot->nnodes;

	SpinLockAcquire(&slot->mutex);
	status->counters = slot->counters;
	for (int i = SAMPLES - 1; i >= 0 && slot->samples[i].at != 0; i--)
		oldest = slot->samples[i];
	SpinLockRelease(&slot->mutex);

	/*
	 * Against the clock and not against the last sample, so that the rate of
	 * a job that stands still falls.
	 */
	if (oldest.at == 0 || rexp_state_is_final(status->state))
	{
		oldest.at = status->started_at;
		oldest.held = 0;
	}
	until = rexp_state_is_final(status->state) ? status->finished_at :
		GetCurrentTimestamp();
	status->rate = until > oldest.at ?
		(rexp_rows_held(&status->counters) - oldest.held) * 1e6 / (until - oldest.at) : 0;
}

/* The texts of the copy, in the encoding of this database, palloc'd. */
static void
copy_texts(const SlotTexts *texts, RexpJobStatus *status)
{
	status->info.name = texts->name[0] != '\0' ? rexp_text_shown(texts->name) : NULL;
	status->info.server = rexp_text_shown(texts->server);
	status->info.command = rexp_text_shown(texts->command);
	status->info.key_template = rexp_text_shown(texts->key_template);
	status->info.query = rexp_text_shown(texts->query);
	rexp_error_from_utf8(&texts->error, &status->error);
}

/* A number of this server's, which it has from one start to the next. */
uint64
rexp_progress_instance(void)
{
	find_segment();
	return segment->instance;
}

/* Is it a job of this server that has not ended? */
bool
rexp_progress_is_running(int64 job)
{
	Slot	   *slot = lock_slot(job, LW_SHARED);
	bool		running;

	if (slot == NULL)
		return false;
	running = !rexp_state_is_final(slot->state);
	LWLockRelease(&slot->lock);
	return running;
}

/* Copy the slot of a job, texts palloc'd; false if there is none any more. */
bool
rexp_progress_look(int64 job, RexpJobStatus *status)
{
	Slot	   *slot = lock_slot(job, LW_SHARED);
	SlotTexts	texts;

	if (slot == NULL)
		return false;
	copy_slot(slot, status, &texts);
	LWLockRelease(&slot->lock);
	copy_texts(&texts, status);
	return true;
}

/*
 * rexp_progress_signal
 *	  Signal the worker of a job; false if the job has ended.
 *
 * A job whose worker has not come up yet ends here and now, since it may never
 * come; one that does come finds the slot final, and goes.  reason is what the
 * job's error shall be.  Under the lock, so that the process number cannot have
 * become somebody else's.
 */
bool
rexp_progress_signal(int64 job, int signal, const RexpError *reason)
{
	RexpError	utf8;
	Slot	   *slot;
	bool		running;
	int			launcher = 0;

	rexp_error_to_utf8(reason, &utf8);
	slot = lock_slot(job, LW_EXCLUSIVE);
	if (slot == NULL)
		return false;
	running = !rexp_state_is_final(slot->state);
	if (running && slot->pid == 0)
	{
		set_final(slot, rexp_state_after(reason), &utf8);
		launcher = slot->launcher;
	}
	else if (running)
	{
		slot->cancel_reason = utf8;
		kill(slot->pid, signal);
	}
	LWLockRelease(&slot->lock);
	wake(launcher);
	return running;
}

/* Let a job send so many rows a second from now on; false if it has ended. */
bool
rexp_progress_set_rate(int64 job, int rate)
{
	Slot	   *slot = lock_slot(job, LW_EXCLUSIVE);
	bool		running;
	int			pid;

	if (slot == NULL)
		return false;
	running = !rexp_state_is_final(slot->state);
	if (running)
		pg_atomic_write_u32(&slot->rate, rate);
	pid = slot->pid;
	LWLockRelease(&slot->lock);
	wake(pid);
	return running;
}

/* Rows of which nothing more is to come. */
static int64
rows_settled(const RexpCounters *counters)
{
	return rexp_rows_held(counters) + counters->rows_failed + counters->rows_skipped;
}

/* How far, in per cent; NaN if unknown. */
double
rexp_progress_percent(const RexpJobStatus *status)
{
	int64		settled = rows_settled(&status->counters);

	if (status->state == REXP_STATE_DONE)
		return 100.0;
	if (status->rows_estimated <= 0)
		return get_float8_nan();
	return Min(99.9, settled * 100.0 / status->rows_estimated);
}

/* Seconds until the estimated number of rows is there; NaN if unknown. */
double
rexp_progress_seconds_left(const RexpJobStatus *status)
{
	int64		settled = rows_settled(&status->counters);

	if (rexp_state_is_final(status->state) || status->rate <= 0 ||
		settled >= status->rows_estimated)
		return get_float8_nan();
	return (status->rows_estimated - settled) / status->rate;
}

/* May the current user see query, keys and errors of this user's jobs? */
static bool
may_see(Oid owner)
{
	return has_privs_of_role(GetUserId(), owner) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/*
 * A name for a column of that type.  Those of databases and roles are shared by all
 * databases, in the encoding of the one where each was given, which nobody knows.
 */
static Name
copy_name(const char *text)
{
	Name		name = palloc0(sizeof(NameData));
	int			len = (int) strlen(text);

	if (pg_verifymbstr(text, len, true))
		rexp_clip(NameStr(*name), NAMEDATALEN, text, len);
	else
		rexp_printable(NameStr(*name), NAMEDATALEN, text, len);
	return name;
}

#define COLUMNS 30

/*
 * The SQL objects may be of another version than this library, before ALTER
 * EXTENSION ... UPDATE, or after it in a session that has loaded the library
 * before.  An upgrade adds columns at the end, so the library fills as many as
 * the SQL objects know.  Raises an error if these are more than it has.
 */
static void
check_columns(TupleDesc desc, int columns)
{
	if (desc->natts > columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the loaded library of redis_export is older than the extension"),
				 errhint("Connect again, or install the version that ALTER EXTENSION has updated to.")));
}

/* A line of the view. */
static void
fill_row(const RexpJobStatus *status, Datum *values, bool *nulls)
{
	const RexpCounters *counters = &status->counters;
	char	   *database = get_database_name(status->info.database);
	char	   *user = GetUserNameFromId(status->info.current_user, true);
	bool		visible = may_see(status->info.current_user);
	double		percent = rexp_progress_percent(status);
	double		left = rexp_progress_seconds_left(status);
	int			i = 0;

	memset(nulls, 0, sizeof(bool) * COLUMNS);
#define SET(value)		(values[i++] = (value))
#define SET_IF(condition, value) \
	do { \
		if (condition) \
			values[i] = (value); \
		else \
			nulls[i] = true; \
		i++; \
	} while (0)
#define SET_NAME(text) \
	SET_IF((text) != NULL, NameGetDatum(copy_name(text)))

	SET(Int64GetDatum(status->job));
	SET_IF(status->pid != 0, Int32GetDatum(status->pid));
	SET(ObjectIdGetDatum(status->info.database));
	SET_NAME(database);
	SET_NAME(user);
	SET_IF(status->info.name != NULL, CStringGetTextDatum(status->info.name));
	SET_NAME(status->info.server);
	SET(CStringGetTextDatum(status->info.command));
	SET_IF(visible, CStringGetTextDatum(status->info.key_template));
	SET_IF(visible, CStringGetTextDatum(status->info.query));
	SET(CStringGetTextDatum(rexp_state_name(status->state)));
	SET(Int32GetDatum(status->nnodes));
	SET_IF(status->rows_estimated >= 0, Int64GetDatum(status->rows_estimated));
	SET(Int64GetDatum(counters->rows_read));
	SET(Int64GetDatum(counters->rows_written));
	SET(Int64GetDatum(counters->rows_unchanged));
	SET(Int64GetDatum(counters->rows_failed));
	SET(Int64GetDatum(counters->rows_skipped));
	SET(Int64GetDatum(counters->rows_in_doubt));
	SET(Int64GetDatum(counters->keys_deleted));
	SET(Int64GetDatum(counters->bytes_sent));
	SET(Int64GetDatum(counters->reconnects));
	SET(Int64GetDatum(counters->redis_restarts));
	SET_IF(counters->has_index, Int64GetDatum(counters->index_failures));
	SET(Float8GetDatum(rint(status->rate * 10) / 10));
	SET_IF(!isnan(percent), Float8GetDatum(rint(percent * 10) / 10));
	if (!isnan(left))
	{
		Interval   *interval = palloc0(sizeof(Interval));

		interval->time = (TimeOffset) Min(rint(left), 1e9) * USECS_PER_SEC;
		SET(IntervalPGetDatum(interval));
	}
	else
		SET_IF(false, 0);
	SET(TimestampTzGetDatum(status->started_at));
	SET_IF(status->finished_at != 0, TimestampTzGetDatum(status->finished_at));
	SET_IF(visible && status->error.sqlstate != 0,
		   CStringGetTextDatum(status->error.message));
	Assert(i == COLUMNS);
#undef SET
#undef SET_IF
#undef SET_NAME
}

/* A job's line of the view, as the result of a function that returns redis_export_job. */
Datum
rexp_progress_row(const RexpJobStatus *status, FunctionCallInfo fcinfo)
{
	TupleDesc	desc;
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "redis_export: the result type is not composite");
	check_columns(desc, COLUMNS);
	fill_row(status, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* What a job came to, as the result of a procedure: its INOUT arguments. */
Datum
rexp_progress_outcome(const RexpJobStatus *status, FunctionCallInfo fcinfo)
{
	const RexpCounters *counters = &status->counters;
	TupleDesc	desc;
	Datum		values[8];
	bool		nulls[8] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "redis_export: the result type is not composite");
	check_columns(desc, lengthof(values));
	values[0] = Int64GetDatum(status->job);
	values[1] = CStringGetTextDatum(rexp_state_name(status->state));
	values[2] = Int64GetDatum(counters->rows_read);
	values[3] = Int64GetDatum(counters->rows_written);
	values[4] = Int64GetDatum(counters->rows_unchanged);
	values[5] = Int64GetDatum(counters->rows_failed);
	values[6] = Int64GetDatum(counters->keys_deleted);
	nulls[7] = status->error.sqlstate == 0;
	values[7] = nulls[7] ? (Datum) 0 : CStringGetTextDatum(status->error.message);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

static int
by_job(const void *a, const void *b)
{
	int64		left = ((const RexpJobStatus *) a)->job;
	int64		right = ((const RexpJobStatus *) b)->job;

	return left < right ? -1 : left > right;
}

/* All jobs, the oldest first, as the result of a set-returning function. */
void
rexp_progress_rows(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	RexpJobStatus *jobs = palloc(sizeof(RexpJobStatus) * SLOTS);
	int			njobs = 0;

	InitMaterializedSRF(fcinfo, 0);
	check_columns(result->setDesc, COLUMNS);
	find_segment();
	for (int i = 0; i < SLOTS; i++)
	{
		Slot	   *slot = &segment->slots[i];

		SlotTexts	texts;
		bool		used;

		LWLockAcquire(&slot->lock, LW_SHARED);
		used = slot->job != 0;
		if (used)
			copy_slot(slot, &jobs[njobs], &texts);
		LWLockRelease(&slot->lock);
		if (used)
			copy_texts(&texts, &jobs[njobs++]);
	}
	qsort(jobs, njobs, sizeof(RexpJobStatus), by_job);
	for (int i = 0; i < njobs; i++)
	{
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS];

		fill_row(&jobs[i], values, nulls);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

#define NODE_COLUMNS 10

/* A line of the view redis_export_nodes. */
static void
put_node(ReturnSetInfo *result, int64 job, bool visible, const RexpNodeStatus *node)
{
	Datum		values[NODE_COLUMNS];
	bool		nulls[NODE_COLUMNS] = {false};

	values[0] = Int64GetDatum(job);
	values[1] = CStringGetTextDatum(rexp_text_shown(node->host));
	values[2] = Int32GetDatum(node->port);
	values[3] = Int32GetDatum(node->slots);
	values[4] = CStringGetTextDatum(node->state);
	values[5] = Int64GetDatum(node->rows_written);
	values[6] = Int64GetDatum(node->rows_with_redis);
	values[7] = Int64GetDatum(node->bytes_sent);
	values[8] = Int64GetDatum(node->reconnects);
	values[9] = CStringGetTextDatum(rexp_text_shown(node->trouble));
	nulls[1] = nulls[2] = !visible;
	nulls[9] = !visible || node->trouble[0] == '\0';
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* The nodes of all jobs, as the result of a set-returning function. */
void
rexp_progress_node_rows(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	RexpNodeStatus *nodes = palloc(sizeof(RexpNodeStatus) * REXP_NODES_SHOWN);

	InitMaterializedSRF(fcinfo, 0);
	check_columns(result->setDesc, NODE_COLUMNS);
	find_segment();
	for (int i = 0; i < SLOTS; i++)
	{
		Slot	   *slot = &segment->slots[i];
		int64		job;
		Oid			owner;
		int			nnodes;

		LWLockAcquire(&slot->lock, LW_SHARED);
		job = slot->job;
		owner = slot->current_user;
		nnodes = job != 0 ? slot->nnodes : 0;
		memcpy(nodes, slot->nodes, sizeof(RexpNodeStatus) * nnodes);
		LWLockRelease(&slot->lock);
		for (int j = 0; j < nnodes; j++)
			put_node(result, job, may_see(owner), &nodes[j]);
	}
}

/* The failed rows that were kept, as the result of a set-returning function. */
void
rexp_progress_failures(int64 job, FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	RexpFailure *failures = palloc(sizeof(RexpFailure) * REXP_FAILURES_KEPT);
	int			nfailures;
	Oid			owner;
	Slot	   *slot;

	InitMaterializedSRF(fcinfo, 0);
	slot = lock_slot(job, LW_SHARED);
	if (slot == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("export job " INT64_FORMAT " does not exist", job),
				 errhint("See redis_export_progress. Old jobs go when their slot is needed.")));
	owner = slot->current_user;
	nfailures = slot->nfailures;
	memcpy(failures, slot->failures, sizeof(RexpFailure) * nfailures);
	LWLockRelease(&slot->lock);

	if (!may_see(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to see the failed rows of export job " INT64_FORMAT, job),
				 errhint("Only its own role and those with the privileges of pg_read_all_stats see them.")));
	for (int i = 0; i < nfailures; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {false, false, false, false};

		values[0] = Int64GetDatum(failures[i].row);
		values[1] = CStringGetTextDatum(rexp_text_shown(failures[i].key));
		values[2] = CStringGetTextDatum(unpack_sql_state(failures[i].sqlstate));
		values[3] = CStringGetTextDatum(rexp_text_shown(failures[i].message));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}
