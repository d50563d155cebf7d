/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  The jobs of this server, in shared memory: who runs what, how far it is,
 *	  how it ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PROGRESS_H
#define REDIS_EXPORT_PROGRESS_H

#include "postgres.h"

#include "base/error.h"
#include "datatype/timestamp.h"
#include "fmgr.h"

/* The failed rows of a job that are kept, and told in the log. */
#define REXP_FAILURES_KEPT 100

typedef enum RexpState
{
	REXP_STATE_STARTING,
	REXP_STATE_RUNNING,
	REXP_STATE_RETRYING,		/* Redis is away, or refuses for the moment */
	REXP_STATE_FINISHING,		/* all rows are read, answers are awaited */
	REXP_STATE_PRUNING,			/* Redis has all rows, and keys too many */
	REXP_STATE_INDEXING,		/* Redis has all rows, its index not yet */
	REXP_STATE_DONE,
	REXP_STATE_FAILED,
	REXP_STATE_CANCELED
} RexpState;

static inline bool
rexp_state_is_final(RexpState state)
{
	return state >= REXP_STATE_DONE;
}

/* How a job has ended that ended with this error. */
static inline RexpState
rexp_state_after(const RexpError *error)
{
	return error->sqlstate == ERRCODE_QUERY_CANCELED ?
		REXP_STATE_CANCELED : REXP_STATE_FAILED;
}

/*
 * The ledger.  When a job has ended, rows_read = rows_written + rows_unchanged +
 * rows_failed + rows_skipped + rows_in_doubt.
 */
typedef struct RexpCounters
{
	int64		rows_read;
	int64		rows_written;	/* acknowledged, each row once */
	int64		rows_unchanged; /* not written, since Redis has them */
	int64		rows_failed;
	int64		rows_skipped;	/* left out for a null, as asked for */
	int64		rows_in_doubt;	/* sent and not answered */
	int64		keys_deleted;	/* keys deleted that no row has */
	int64		bytes_sent;
	int64		reconnects;
	int64		redis_restarts;
	int64		redis_takeovers;	/* those of them that were by another server */
	bool		held_by_replicas;	/* rows count when replicas have them */
	int64		written_at_restart; /* rows_written at the first of them */
	int64		evicted_keys;	/* by Redis, since the job began */
	bool		info_refused;	/* Redis does not tell about itself ... */
	bool		client_refused; /* ... or will not end a connection that is lost */
	bool		not_pruned;		/* since rows have failed */
	bool		has_index;		/* an index is looked at: */
	int64		index_failures; /* attempts to index that it refused since */
	bool		index_misfit;	/* it cannot take what is written */
	int64		writer_age;		/* of a transaction that is older than the overlap
								 * of a watermark: milliseconds, 0: there is none */
	bool		mark_stays;		/* it was not moved, though all rows were read */
} RexpCounters;

/* Rows that Redis has: those that it had already included. */
static inline int64
rexp_rows_held(const RexpCounters *counters)
{
	return counters->rows_written + counters->rows_unchanged;
}

/* May Redis lack rows that it has acknowledged?  Not those that replicas had to have. */
static inline bool
rexp_may_have_lost(const RexpCounters *counters)
{
	return counters->redis_restarts >
		(counters->held_by_replicas ? counters->redis_takeovers : 0);
}

/* What does not change while a job runs. */
typedef struct RexpJobInfo
{
	Oid			database;
	Oid			session_user;	/* whose worker it is: who may cancel it */
	Oid			current_user;	/* whose rights the query has */
	const char *name;			/* of the export, or NULL */
	const char *server;
	const char *command;
	const char *key_template;
	const char *query;
	int			rate;			/* rows a second at the start, 0: no limit */
} RexpJobInfo;

/* A copy of a job's slot, with texts palloc'd. */
typedef struct RexpJobStatus
{
	int64		job;
	int			pid;			/* 0 before and after */
	RexpState	state;
	bool		taken;			/* the worker has its arguments */
	RexpJobInfo info;
	int64		rows_estimated; /* or -1 */
	RexpCounters counters;
	int			nnodes;
	double		rate;			/* rows acknowledged a second, of late */
	TimestampTz started_at;
	TimestampTz finished_at;	/* or 0 */
	RexpError	error;			/* last error; sqlstate 0: none */
} RexpJobStatus;

/* A node of Redis, as a job sees it. */
#define REXP_NODES_SHOWN 64

typedef struct RexpNodeStatus
{
	char		host[64];		/* cut, if need be, as is the text below */
	int			port;
	int			slots;			/* 0 without a cluster */
	char		state[16];
	int64		rows_written;
	int64		rows_with_redis;	/* sent and not answered yet */
	int64		bytes_sent;
	int64		reconnects;
	char		trouble[160];	/* empty: none now */
} RexpNodeStatus;

typedef struct RexpFailure
{
	int64		row;			/* of the query, from 1 */
	int			sqlstate;
	char		key[128];
	char		message[256];
} RexpFailure;

/* This process' hold on a slot. */
typedef struct RexpProgress RexpProgress;

/* for the backend that starts a job */
extern int64 rexp_progress_reserve(const RexpJobInfo *info, int *slot);
extern void rexp_progress_abandon(int64 job, const RexpError *error);

/* for the worker */
extern RexpProgress *rexp_progress_attach(int slot, int64 job);
extern void rexp_progress_release(int64 job);
extern void rexp_progress_taken(RexpProgress *progress);
extern void rexp_progress_estimate(RexpProgress *progress, double rows);
extern void rexp_progress_state(RexpProgress *progress, RexpState state,
								const RexpError *error);
extern void rexp_progress_counters(RexpProgress *progress,
								   const RexpCounters *counters);
extern void rexp_progress_failure(RexpProgress *progress, int64 row,
								  const char *key, const RexpError *error);
extern void rexp_progress_nodes(RexpProgress *progress,
								RexpNodeStatus *nodes, int nnodes);
extern int	rexp_progress_rate(RexpProgress *progress);
extern bool rexp_progress_cancel_reason(RexpProgress *progress,
										RexpError *reason);
extern void rexp_progress_finish(RexpProgress *progress, RexpState state,
								 const RexpError *error,
								 const RexpCounters *counters);

/* for everyone */
extern uint64 rexp_progress_instance(void);
extern bool rexp_progress_is_running(int64 job);
extern bool rexp_progress_look(int64 job, RexpJobStatus *status);
extern bool rexp_progress_signal(int64 job, int signal, const RexpError *reason);
extern bool rexp_progress_set_rate(int64 job, int rate);
extern Datum rexp_progress_row(const RexpJobStatus *status,
							   FunctionCallInfo fcinfo);
extern Datum rexp_progress_outcome(const RexpJobStatus *status,
								   FunctionCallInfo fcinfo);
extern void rexp_progress_rows(FunctionCallInfo fcinfo);
extern void rexp_progress_failures(int64 job, FunctionCallInfo fcinfo);
extern void rexp_progress_node_rows(FunctionCallInfo fcinfo);
extern double rexp_progress_percent(const RexpJobStatus *status);
extern double rexp_progress_seconds_left(const RexpJobStatus *status);
extern const char *rexp_state_name(RexpState state);

#endif							/* REDIS_EXPORT_PROGRESS_H */
