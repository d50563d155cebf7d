/*-------------------------------------------------------------------------
 *
 * lane.h
 *	  The rows of a job on their way to one node of Redis.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_LANE_H
#define REDIS_EXPORT_LANE_H

#include "flow/lease.h"
#include "flow/pipeline_options.h"
#include "flow/server_watch.h"
#include "flow/suspect.h"
#include "flow/unknown.h"
#include "flow/window.h"
#include "nodes/pg_list.h"
#include "redis/link.h"
#include "status/ledger.h"

typedef enum RexpFlow
{
	REXP_FLOW_IDLE,				/* no connection, and no rows that need one */
	REXP_FLOW_CONNECT,
	REXP_FLOW_OPEN,
	REXP_FLOW_DRAIN,
	REXP_FLOW_BACKOFF,
	REXP_FLOW_ROUTE,			/* its rows may belong to other nodes by now */
	REXP_FLOW_STOP,
	REXP_FLOW_CLOSED
} RexpFlow;

typedef struct RexpLane RexpLane;

/* What the lanes of a job have in common. */
typedef struct RexpTraffic
{
	RexpPipelineOptions options;
	RexpLedger	ledger;
	int			outstanding;	/* blocks with Redis, as last shown */
	int			retrying;		/* lanes that are in trouble */
	RexpState	state;			/* of the job, when it is not in trouble */
	bool		asking;			/* something is asked for by itself */
	TimestampTz ask_until;		/* on which the job does not depend: not longer
								 * than that; 0: as long as for rows */
	RexpCompleteValue complete; /* of arguments that were put off */
	void	   *complete_arg;
	MemoryContext row_context;	/* for that */
	RexpBuffer	failed_keys;	/* whose entries in the books may be wrong: the length
								 * of each, and the key */
	bool		uncorrected;	/* such an entry will stay */
	RexpLease  *lease;			/* without which no row is sent, or NULL */
	bool		lease_is_out;	/* it has run out */
	bool		lost;			/* a connection was, in a cluster */
	int			moves;			/* DRAINs for slots that moved, since a row was
								 * written anywhere */
	bool		may_wait;		/* the query has no rows to be read meanwhile */
	TimestampTz stop_at;		/* end of STOP, or 0 */
	double		tokens;			/* rows that the rate allows now */
	TimestampTz tokens_at;
	List	   *histories;		/* of char *: whose data we have written to */

	/*
	 * In a cluster, else NULL: a node says that a key is elsewhere.  Returns
	 * false if that cannot be read.  With ASK the row, which is not settled, is
	 * handed over.
	 */
	bool		(*redirect) (void *arg, RexpLane *lane, RexpAnswer answer,
							 const char *text, RexpBatch *batch, RexpRow *row);
	void	   *arg;
} RexpTraffic;

struct RexpLane
{
	RexpTraffic *traffic;
	RexpLink   *link;			/* NULL: for slots that no node has */
	int			timeout;		/* of the link, milliseconds */
	RexpWindow	window;
	bool		due;			/* the batch being filled is to be queued */
	TimestampTz batch_started;

	RexpFlow	flow;
	RexpError	why;			/* rows must be sent again */
	RexpError	block_error;	/* of the block being answered; sqlstate 0:
								 * none so far */
	RexpAnswer	block_answer;	/* what that error calls for */
	char		block_text[320];	/* and its first words */
	RexpSuspicion suspicion;	/* which row breaks the connection? */
	RexpUnknown unknown;		/* answers that no rule knows */
	bool		reconnect;		/* after DRAIN */
	bool		pause;			/* after DRAIN, for such an answer */
	bool		moved;			/* a slot has: no back-off after DRAIN */
	bool		at_once;		/* there is nothing to be waited for: the same */
	bool		held;			/* nothing new is sent, so that something can be asked */
	bool		alone;			/* one block at a time, until one goes well */
	bool		retrying;		/* counted in traffic->retrying */
	bool		to_blame;		/* the job has failed here, for "why" */
	bool		unsent_dropped; /* in STOP */
	bool		went_on;		/* a row, or key to be deleted, was settled */
	int			shown;			/* outstanding, counted in traffic->outstanding */
	int			delay;			/* of the last BACKOFF, milliseconds */
	TimestampTz resume_at;		/* end of the BACKOFF */
	TimestampTz waiting_since;	/* for an acknowledgement */
	TimestampTz last_byte;		/* that went either way */

	RexpServerWatch watch;		/* is it the same server, with the same data? */

	int64		rows_written;
	int64		bytes_sent;
	int64		reconnects;
};

extern RexpLane *rexp_lane_create(RexpTraffic *traffic, RexpLink *link);
extern bool rexp_lane_work(RexpLane *lane);
extern long rexp_lane_wait_time(RexpLane *lane, TimestampTz now);
extern bool rexp_lane_wants_to_send(RexpLane *lane);
extern bool rexp_lane_queue(RexpLane *lane);
extern bool rexp_lane_has_rows(const RexpLane *lane);
extern void rexp_lane_go_on(RexpLane *lane);
extern void rexp_lane_wait_for_node(RexpLane *lane, const RexpError *why,
									bool reconnect);
extern void rexp_lane_lost(RexpLane *lane, const RexpError *why);
extern void rexp_lane_halt(RexpLane *lane);
extern void rexp_lane_hurry(RexpLane *lane);
extern void rexp_lane_settled(RexpLane *lane);
extern bool rexp_lane_note_server(RexpLane *lane);

/* judge.c */
extern RexpAnswer rexp_lane_judge_error(const RexpLane *lane, const char *text,
										size_t len, RexpError *error);
extern RexpAnswer rexp_lane_judge(RexpLane *lane, const RexpFlight *flight,
								  const RexpReply *reply, RexpError *error);

#endif							/* REDIS_EXPORT_LANE_H */
