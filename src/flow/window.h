/*-------------------------------------------------------------------------
 *
 * window.h
 *	  The rows on their way: gathered in batches, sent, and kept until they are
 *	  settled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_WINDOW_H
#define REDIS_EXPORT_WINDOW_H

#include "flow/books.h"

/* The window: batches and bytes.  One batch more is being filled. */
#define REXP_WINDOW_BATCHES 4
#define REXP_WINDOW_BYTES ((size_t) 16 * 1024 * 1024)
#define REXP_BATCH_BYTES (REXP_WINDOW_BYTES / REXP_WINDOW_BATCHES)

typedef enum RexpRowState
{
	REXP_ROW_UNCHECKED,			/* Redis is to be asked whether it has it */
	REXP_ROW_CHECKING,			/* and is asked */
	REXP_ROW_WAITING,			/* to be sent */
	REXP_ROW_SENT,				/* its write is with Redis */
	REXP_ROW_REFUSED,			/* to be sent again */
	REXP_ROW_WRITTEN,			/* the expiry is to be sent */
	REXP_ROW_EXPIRING,			/* the expiry is with Redis */
	REXP_ROW_UNEXPIRED,			/* the expiry was refused, and is to be sent again */
	REXP_ROW_HELD,				/* the replicas are to answer */
	REXP_ROW_DONE,
	REXP_ROW_FAILED,
	REXP_ROW_HANDED_OVER		/* to the window of another node */
} RexpRowState;

typedef struct RexpRow
{
	int64		number;			/* of the query's row, from 1 */
	size_t		start;			/* of its block of commands in the batch */
	size_t		end;
	size_t		sequel_start;	/* of its command in the batch's sequel */
	size_t		key_start;		/* in the batch */
	size_t		key_len;
	RexpExpiry	expiry;
	uint64		digest;			/* if it is watched */
	size_t		stored_start;	/* of an argument in the batch that is to be completed
								 * before it is written ... */
	uint32		stored_len;		/* ... and its bytes, 0 for none */
	int			commands;		/* in the block */
	uint16		slot;			/* of its key, in a cluster */
	uint8		state;			/* a RexpRowState */
	uint8		refusal;		/* a RexpRefusal */
	bool		repeatable;		/* what was written may be sent again */
	bool		asking;			/* its node does not own the slot yet */
	bool		asked_away;		/* handed over to such a node */
	bool		echo;			/* sent once more for the order; it is counted
								 * where it was handed over to */
	bool		only_expiry;	/* its write was answered elsewhere */
	bool		watched;		/* it is written only if Redis has it not */
	bool		found;			/* its key is there, and of its type, ... */
	bool		unchanged;		/* ... and Redis has it: it is not written */
	bool		tried;			/* its write was sent once */
	uint8		cuts;			/* of the connection, while it was first in line */
	uint8		losses;			/* of these such as speak against it (suspect.c) */
	uint8		crashes;		/* and such after which Redis was restarted */
	bool		accused;		/* the last cut is one of them */
	uint32		passes;			/* of others, at the last of them */
	uint8		misses;			/* its expiry has not found its key */
	bool		puzzled;		/* it is sent again, since it got an answer that no
								 * rule knows */
	uint8		hops;			/* from node to node by ASK */
	bool		booked;			/* its block makes the entry in the books */
	bool		deletes;		/* no row of the query, but a key to be deleted, ... */
	bool		corrects;		/* ... or one whose entry in the books is wrong */
	bool		counted;		/* in rows_written */
	bool		in_doubt;		/* may be in Redis from an earlier attempt */
} RexpRow;

/* The WAIT of a batch. */
typedef enum RexpWaitState
{
	REXP_WAIT_NONE,
	REXP_WAIT_DUE,
	REXP_WAIT_SENT,
	REXP_WAIT_REFUSED			/* to be asked again */
} RexpWaitState;

typedef struct RexpBatch
{
	RexpBuffer	data;			/* the blocks of commands */
	RexpBuffer	sequel;			/* the checks, later the expiries, and so on */
	RexpWaitState wait;
	bool		fenced;			/* a write goes before the WAIT */
	RexpRow    *rows;
	int			nrows;
	int			row_capacity;
	int			open;			/* rows that are not settled */
	size_t		weight;			/* bytes, with those that are to come when rows are
								 * completed */
	uint64	   *keys;			/* hashes of the rows' keys, 0: free; or NULL */
	int			key_slots;		/* a power of two */
} RexpBatch;

/* In the order in which a batch has them. */
typedef enum RexpFlightKind
{
	REXP_FLIGHT_CHECKS,			/* two for each row that is watched */
	REXP_FLIGHT_WRITES,			/* a block for each row */
	REXP_FLIGHT_EXPIRIES,		/* one for each row that is written */
	REXP_FLIGHT_REPLICAS		/* one for the whole batch */
} RexpFlightKind;

/* Commands of one batch on the wire. */
typedef struct RexpFlight
{
	RexpBatch  *batch;
	RexpFlightKind kind;
	int			single;			/* of this row alone, by its place in the batch; -1:
								 * of all */
} RexpFlight;

/* A row in a flight. */
typedef struct RexpPlace
{
	int			flight;
	int			at;
} RexpPlace;

/* What goes with a row's write. */
typedef struct RexpSequel
{
	bool		expire;			/* rows may have an expiry */
	bool		keys_apart;		/* of rows with the same key, one at a time */
	const RexpBooks *books;		/* that rows are kept in, or NULL */
	int			wait_replicas;	/* 0: none are asked */
	int			wait_time;		/* milliseconds that a WAIT takes at most */
} RexpSequel;

typedef struct RexpWindow
{
	RexpSequel	sequel;
	size_t		bytes_most;		/* that are queued; may be exceeded by a row */
	bool		rewound;		/* writes may have no effect, since they had one */
	uint32	   *pending;		/* in a cluster: rows by slot that are not
								 * settled, but for those asking; else NULL */
	MemoryContext context;

	RexpBatch	ring[REXP_WINDOW_BATCHES + 1];
	int			head;			/* the oldest batch of the window */
	int			queued;			/* batches in the window */
	size_t		queued_bytes;

	/* a batch has one flight at a time, but for that of a single row */
	RexpFlight	flights[2 * REXP_WINDOW_BATCHES];
	int			nflights;		/* the first is the one that is received */
	int			receive_at;		/* row, or the one command of a WAIT */
	int			receive_part;	/* of its block: the next command's answer */
	int			send_flight;
	int			send_at;		/* as receive_at */
	size_t		send_offset;	/* bytes of it handed to the kernel */
	int			outstanding;	/* blocks with Redis, not answered to their end */
} RexpWindow;

extern void rexp_window_init(RexpWindow *window, int batch,
							 const RexpSequel *sequel);
extern RexpBatch *rexp_window_filling(RexpWindow *window);
extern RexpBuffer *rexp_window_row_begin(RexpWindow *window);
extern RexpRow *rexp_window_row_end(RexpWindow *window, const RexpBlock *block,
									int slot);
extern void rexp_window_complete(RexpWindow *window, RexpBatch *batch, RexpRow *row,
								 const char *bytes, size_t len);
extern bool rexp_window_has_key(RexpWindow *window, const char *key, size_t len);
extern void rexp_window_set_apart(RexpWindow *window, RexpBlock *block,
								  RexpBuffer *aside);
extern void rexp_window_queue(RexpWindow *window);
extern void rexp_window_adopt(RexpWindow *to, RexpWindow *from, RexpBatch *batch,
							  RexpRow *row, bool asking);
extern RexpRow *rexp_window_next_homeless(RexpWindow *window, int *at_batch,
										  int *at_row, RexpBatch **batch);
extern bool rexp_window_is_full(const RexpWindow *window);
extern bool rexp_window_has_sequel(const RexpWindow *window);

extern bool rexp_window_advance_sender(RexpWindow *window);
extern size_t rexp_window_piece(const RexpWindow *window, int commands,
								size_t most, const char **bytes);
extern int	rexp_window_sent(RexpWindow *window, size_t bytes);

extern void rexp_window_advance_receiver(RexpWindow *window);
extern bool rexp_window_is_stuck(RexpWindow *window);
extern void rexp_window_describe_open(RexpWindow *window, char *text, size_t size);
extern int	rexp_window_commands(const RexpWindow *window);
extern bool rexp_window_takes_reply(const RexpWindow *window);
extern RexpRow *rexp_window_first_in_line(RexpWindow *window, RexpBatch **batch);
extern void rexp_window_settle(RexpWindow *window, RexpBatch *batch,
							   RexpRow *row, RexpRowState state);

extern RexpRow *rexp_window_next_open(RexpWindow *window, int *at_batch,
									  int *at_row, RexpBatch **batch);
extern RexpRow *rexp_window_next_waiting(RexpWindow *window, RexpPlace *place);
extern bool rexp_window_is_first_of_key(RexpWindow *window, const RexpBatch *batch,
										const RexpRow *row);
extern size_t rexp_window_row_size(const RexpBatch *batch, const RexpRow *row);
extern void rexp_window_put_first(RexpWindow *window, const RexpPlace *place);

extern bool rexp_row_is_answered(const RexpRow *row);
extern void rexp_window_rewind(RexpWindow *window, bool kept);
extern bool rexp_window_is_in_doubt(RexpWindow *window);
extern void rexp_window_drop_unsent(RexpWindow *window);
extern void rexp_window_reckon(const RexpWindow *window, int64 *in_doubt,
							   int64 *unsent);

#endif							/* REDIS_EXPORT_WINDOW_H */
