/*-------------------------------------------------------------------------
 *
 * window.c
 *	  The rows on their way.
 *
 * Rows are gathered in a batch.  A full batch joins the window: a queue of
 * batches that are sent, or wait to be, and whose answers are awaited.  While
 * the window has room, the next batch is filled.  A batch leaves the window
 * when each of its rows is settled, done or failed.
 *
 *	   filling  ->  [ batch | batch | batch | batch ]  ->  gone
 *						 ^ sender			^ receiver
 *
 * The order of commands on the wire is that of the flights.  A batch has one for
 * its writes, then, if rows have an expiry, one for the expiries, and then, if
 * replicas are to have them, one WAIT.  Each is queued only when the one before
 * is answered: after a write that was refused, an expiry sent along would hit
 * the value of somebody else.
 *
 * A row is a block of commands, most often of one.
 *
 * This is bookkeeping only: nothing here sends, waits or knows what an answer
 * means, nor what the commands are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/memutils.h"
#include "window.h"

#define RING (REXP_WINDOW_BATCHES + 1)

/*
 * rexp_window_init
 *	  An empty window, with its memory in the current context.
 *
 * batch is the usual number of rows in one.  repeatable says whether rows that
 * were written may be written again.
 */
void
rexp_window_init(RexpWindow *window, int batch, const RexpSequel *sequel,
				 bool repeatable)
{
	memset(window, 0, sizeof(RexpWindow));
	window->sequel = *sequel;
	window->repeatable = repeatable;
	window->context = CurrentMemoryContext;
	for (int i = 0; i < RING; i++)
	{
		RexpBatch  *each = &window->ring[i];

		rexp_buffer_init(&each->data, 64 * 1024);
		rexp_buffer_init(&each->sequel, 64);
		each->row_capacity = Min(batch, 500);
		each->rows = palloc(sizeof(RexpRow) * each->row_capacity);
	}
}

/* Does anything follow a row's write? */
bool
rexp_window_has_sequel(const RexpWindow *window)
{
	return window->sequel.expire || window->sequel.wait_replicas > 0;
}

/*
 * Rows
 */

static bool
row_is_settled(const RexpRow *row)
{
	return row->state == REXP_ROW_DONE || row->state == REXP_ROW_FAILED;
}

/* Is this row's data with Redis, and the row not settled? */
static bool
row_is_with_redis(const RexpRow *row)
{
	return row->state == REXP_ROW_SENT || row->state == REXP_ROW_WRITTEN ||
		row->state == REXP_ROW_EXPIRING || row->state == REXP_ROW_HELD;
}

/* The row is done, or has failed. */
void
rexp_window_settle(RexpBatch *batch, RexpRow *row, RexpRowState state)
{
	row->state = state;
	batch->open--;
}

/*
 * Keys of the rows in the window
 *
 * A row's expiry is sent some time after its write, and meets whatever the key
 * then holds.  If expiries differ, a later row with the same key must not be
 * written before that.  So the keys are remembered, as hashes: two that are
 * taken for one cost time, and do no harm.
 */

static uint64
hash_key(const char *key, size_t len)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) key, (int) len, 0);

	return hash == 0 ? 1 : hash;
}

/* Add a hash to the keys of a batch, which have room for it. */
static void
add_hash(RexpBatch *batch, uint64 hash)
{
	int			at = (int) (hash & (batch->key_slots - 1));

	while (batch->keys[at] != 0 && batch->keys[at] != hash)
		at = (at + 1) & (batch->key_slots - 1);
	batch->keys[at] = hash;
}

static void
remember_key(RexpWindow *window, RexpBatch *batch, const RexpRow *row)
{
	if (batch->nrows * 2 > batch->key_slots)
	{
		int			slots = Max(1024, batch->key_slots * 2);
		uint64	   *old = batch->keys;
		int			old_slots = batch->key_slots;

		batch->keys = MemoryContextAllocZero(window->context, sizeof(uint64) * slots);
		batch->key_slots = slots;
		for (int i = 0; i < old_slots; i++)
		{
			if (old[i] != 0)
				add_hash(batch, old[i]);
		}
		if (old != NULL)
			pfree(old);
	}
	add_hash(batch, hash_key(batch->data.data + row->key_start, row->key_len));
}

static void
forget_keys(RexpBatch *batch)
{
	if (batch->keys != NULL)
		memset(batch->keys, 0, sizeof(uint64) * batch->key_slots);
}

/* Does an earlier row, in the window or about to join it, have this key? */
bool
rexp_window_has_key(RexpWindow *window, const RexpBlock *block)
{
	uint64		hash = hash_key(rexp_window_filling(window)->data.data + block->key_start,
								block->key_len);

	for (int i = 0; i <= window->queued; i++)
	{
		const RexpBatch *batch = &window->ring[(window->head + i) % RING];

		if (batch->nrows == 0 || batch->keys == NULL)
			continue;
		for (int at = (int) (hash & (batch->key_slots - 1)); batch->keys[at] != 0;
			 at = (at + 1) & (batch->key_slots - 1))
		{
			if (batch->keys[at] == hash)
				return true;
		}
	}
	return false;
}

/*
 * Batches
 */

/* The batch that is being filled. */
RexpBatch *
rexp_window_filling(RexpWindow *window)
{
	return &window->ring[(window->head + window->queued) % RING];
}

/*
 * rexp_window_row_begin
 *	  Where the next row's block goes.  The row is there once it is ended.
 */
RexpBuffer *
rexp_window_row_begin(RexpWindow *window)
{
	RexpBatch  *batch = rexp_window_filling(window);

	if (batch->nrows == 0)
		batch->data.len = 0;
	if (batch->nrows == batch->row_capacity)
	{
		batch->row_capacity *= 2;
		batch->rows = repalloc_huge(batch->rows,
									sizeof(RexpRow) * batch->row_capacity);
	}
	memset(&batch->rows[batch->nrows], 0, sizeof(RexpRow));
	batch->rows[batch->nrows].start = batch->data.len;
	return &batch->data;
}

/* The row's block is complete. */
RexpRow *
rexp_window_row_end(RexpWindow *window, const RexpBlock *block)
{
	RexpBatch  *batch = rexp_window_filling(window);
	RexpRow    *row = &batch->rows[batch->nrows++];

	row->key_start = block->key_start;
	row->key_len = block->key_len;
	row->expiry = block->expiry;
	row->commands = block->commands;
	row->state = REXP_ROW_WAITING;
	if (window->sequel.expiries_differ)
		remember_key(window, batch, row);
	return row;
}

/*
 * rexp_window_set_apart
 *	  Take the block of a row that was begun and not ended out of its batch: the
 *	  bytes go to aside, and *block tells of them there.
 */
void
rexp_window_set_apart(RexpWindow *window, RexpBlock *block, RexpBuffer *aside)
{
	RexpBatch  *batch = rexp_window_filling(window);
	size_t		start = batch->rows[batch->nrows].start;

	aside->len = 0;
	rexp_buffer_append(aside, batch->data.data + start, batch->data.len - start);
	block->key_start -= start;
	batch->data.len = start;
}

bool
rexp_window_is_full(const RexpWindow *window)
{
	return window->queued >= REXP_WINDOW_BATCHES ||
		window->queued_bytes >= REXP_WINDOW_BYTES;
}

static void
add_flight(RexpWindow *window, RexpBatch *batch, RexpFlightKind kind)
{
	Assert(window->nflights < (int) lengthof(window->flights));
	window->flights[window->nflights].batch = batch;
	window->flights[window->nflights].kind = kind;
	window->nflights++;
}

/* The batch that was being filled joins the window, unless it is empty. */
void
rexp_window_queue(RexpWindow *window)
{
	RexpBatch  *batch = rexp_window_filling(window);

	if (batch->nrows == 0)
		return;
	batch->open = batch->nrows;
	window->queued++;
	window->queued_bytes += batch->data.len;
	add_flight(window, batch, REXP_FLIGHT_WRITES);
}

/* Batches all of whose rows are settled leave the window. */
static void
retire_batches(RexpWindow *window)
{
	while (window->queued > 0)
	{
		RexpBatch  *batch = &window->ring[window->head];

		if (batch->open > 0 ||
			(window->nflights > 0 && window->flights[0].batch == batch))
			return;
		window->queued_bytes -= batch->data.len;
		batch->data.len = batch->sequel.len = 0;
		batch->nrows = 0;
		forget_keys(batch);
		if (batch->data.capacity > 2 * REXP_BATCH_BYTES)
		{
			MemoryContext old = MemoryContextSwitchTo(window->context);

			rexp_buffer_free(&batch->data);
			rexp_buffer_init(&batch->data, REXP_BATCH_BYTES);
			MemoryContextSwitchTo(old);
		}
		window->head = (window->head + 1) % RING;
		window->queued--;
	}
}

/*
 * Commands of a flight
 */

static int
command_count(const RexpFlight *flight)
{
	return flight->kind == REXP_FLIGHT_REPLICAS ? 1 : flight->batch->nrows;
}

/* Is it this command's turn, for the sender? */
static bool
command_is_due(const RexpFlight *flight, int at)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		return flight->batch->wait == REXP_WAIT_DUE;
	return flight->batch->rows[at].state ==
		(flight->kind == REXP_FLIGHT_EXPIRIES ? REXP_ROW_WRITTEN : REXP_ROW_WAITING);
}

/* Is the answer to this command still to come? */
static bool
command_is_open(const RexpFlight *flight, int at)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		return flight->batch->wait != REXP_WAIT_NONE;
	return command_is_due(flight, at) ||
		flight->batch->rows[at].state ==
		(flight->kind == REXP_FLIGHT_EXPIRIES ? REXP_ROW_EXPIRING : REXP_ROW_SENT);
}

/* The command is with Redis. */
static void
command_sent(const RexpFlight *flight, int at)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		flight->batch->wait = REXP_WAIT_SENT;
	else
		flight->batch->rows[at].state =
			flight->kind == REXP_FLIGHT_EXPIRIES ? REXP_ROW_EXPIRING : REXP_ROW_SENT;
}

static const RexpBuffer *
command_buffer(const RexpFlight *flight)
{
	return flight->kind == REXP_FLIGHT_WRITES ?
		&flight->batch->data : &flight->batch->sequel;
}

/* Where the command begins in that buffer; past the last, where it ends. */
static size_t
command_start(const RexpFlight *flight, int at)
{
	if (at >= command_count(flight))
		return command_buffer(flight)->len;
	switch (flight->kind)
	{
		case REXP_FLIGHT_WRITES:
			return flight->batch->rows[at].start;
		case REXP_FLIGHT_EXPIRIES:
			return flight->batch->rows[at].expiry_start;
		default:
			return 0;
	}
}

/*
 * The sequel of a write
 */

/* Make the expiries of a batch, for the rows that were written. */
static void
queue_expiries(RexpWindow *window, RexpBatch *batch)
{
	RexpBuffer *out = &batch->sequel;
	bool		any = false;

	out->len = 0;
	for (int i = 0; i < batch->nrows; i++)
	{
		RexpRow    *row = &batch->rows[i];

		row->expiry_start = out->len;
		if (row->state != REXP_ROW_WRITTEN)
			continue;
		any = true;
		rexp_expiry_command(&row->expiry, batch->data.data + row->key_start,
							row->key_len, out);
	}
	if (any)
		add_flight(window, batch, REXP_FLIGHT_EXPIRIES);
}

/* Ask whether the replicas have the rows of a batch that the master has. */
static void
queue_wait(RexpWindow *window, RexpBatch *batch)
{
	RexpBuffer *out = &batch->sequel;
	bool		any = false;
	char		number[32];

	for (int i = 0; i < batch->nrows; i++)
		any |= batch->rows[i].state == REXP_ROW_HELD;
	if (!any)
		return;
	out->len = 0;
	rexp_resp_header(out, '*', 3);
	rexp_resp_word(out, "WAIT");
	snprintf(number, sizeof(number), "%d", window->sequel.wait_replicas);
	rexp_resp_word(out, number);
	snprintf(number, sizeof(number), "%d", window->sequel.wait_time);
	rexp_resp_word(out, number);
	batch->wait = REXP_WAIT_DUE;
	add_flight(window, batch, REXP_FLIGHT_REPLICAS);
}

/* A flight is through: what comes next for its batch? */
static void
queue_sequel(RexpWindow *window, const RexpFlight *flight)
{
	int			before = window->nflights;

	if (flight->kind == REXP_FLIGHT_WRITES && window->sequel.expire)
		queue_expiries(window, flight->batch);
	if (window->nflights == before && flight->kind != REXP_FLIGHT_REPLICAS &&
		window->sequel.wait_replicas > 0)
		queue_wait(window, flight->batch);
}

/*
 * The sender
 */

/* Put the sender at the next command that is due.  False if none is. */
bool
rexp_window_advance_sender(RexpWindow *window)
{
	while (window->send_flight < window->nflights)
	{
		const RexpFlight *flight = &window->flights[window->send_flight];

		while (window->send_at < command_count(flight) &&
			   !command_is_due(flight, window->send_at))
			window->send_at++;
		if (window->send_at < command_count(flight))
			return true;
		window->send_flight++;
		window->send_at = 0;
	}
	return false;
}

/*
 * rexp_window_piece
 *	  What is to be sent next: of so many commands at most that lie side by side
 *	  and are all due, so many bytes at most.
 *
 * The sender must be at a command.  Returns the number of bytes.
 */
size_t
rexp_window_piece(const RexpWindow *window, int commands, size_t most,
				  const char **bytes)
{
	const RexpFlight *flight = &window->flights[window->send_flight];
	size_t		from = command_start(flight, window->send_at) + window->send_offset;
	size_t		to = from;

	for (int at = window->send_at; at < command_count(flight) && to - from < most &&
		 commands > 0 && command_is_due(flight, at); at++, commands--)
		to = command_start(flight, at + 1);
	*bytes = command_buffer(flight)->data + from;
	return Min(to - from, most);
}

/*
 * rexp_window_sent
 *	  So many bytes of the piece are with the kernel.  Returns the number of
 *	  commands that were begun with them.
 */
int
rexp_window_sent(RexpWindow *window, size_t bytes)
{
	const RexpFlight *flight = &window->flights[window->send_flight];
	size_t		to = command_start(flight, window->send_at) + window->send_offset + bytes;
	int			begun = window->send_offset == 0;

	for (;;)
	{
		size_t		end = command_start(flight, window->send_at + 1);

		if (to < end)
		{
			window->send_offset = to - command_start(flight, window->send_at);
			return begun;
		}
		command_sent(flight, window->send_at);
		window->outstanding++;
		window->send_at++;
		window->send_offset = 0;
		if (to == end)
			return begun;
		begun++;
	}
}

/*
 * The receiver
 */

/*
 * rexp_window_advance_receiver
 *	  Go to the next command whose answer is to come, past flights that are
 *	  through, and let go of batches that are.
 *
 * With sequels, what follows the flights that are through is queued.
 */
void
rexp_window_advance_receiver(RexpWindow *window, bool sequels)
{
	while (window->nflights > 0)
	{
		RexpFlight	flight = window->flights[0];

		while (window->receive_at < command_count(&flight) &&
			   !command_is_open(&flight, window->receive_at))
			window->receive_at++;
		if (window->receive_at < command_count(&flight))
			break;

		window->nflights--;
		memmove(window->flights, window->flights + 1,
				sizeof(RexpFlight) * window->nflights);
		window->receive_at = window->receive_part = 0;
		if (window->send_flight > 0)
			window->send_flight--;
		else
		{
			window->send_at = 0;
			window->send_offset = 0;
		}
		if (sequels)
			queue_sequel(window, &flight);
		retire_batches(window);
	}
	retire_batches(window);
}

/* Commands in the block whose answers are received now. */
int
rexp_window_commands(const RexpWindow *window)
{
	const RexpFlight *flight = &window->flights[0];

	return flight->kind == REXP_FLIGHT_WRITES ?
		flight->batch->rows[window->receive_at].commands : 1;
}

/*
 * rexp_window_first_in_line
 *	  The row whose command is first in line with Redis, or is being sent while
 *	  none is with it; NULL if there is none, or if it is a WAIT.
 */
RexpRow *
rexp_window_first_in_line(RexpWindow *window, RexpBatch **batch)
{
	const RexpFlight *flight = NULL;
	int			at = 0;

	if (window->outstanding > 0)
	{
		flight = &window->flights[0];
		at = window->receive_at;
	}
	else if (window->send_offset > 0)
	{
		flight = &window->flights[window->send_flight];
		at = window->send_at;
	}
	if (flight == NULL || flight->kind == REXP_FLIGHT_REPLICAS)
		return NULL;
	*batch = flight->batch;
	return &flight->batch->rows[at];
}

/*
 * When things go wrong
 */

/*
 * Is data of a row with Redis that we cannot ask for?  What was written may not be
 * known to have been, or not be known to be with the replicas.
 */
bool
rexp_window_is_in_doubt(const RexpWindow *window)
{
	for (int i = 0; i < window->queued; i++)
	{
		const RexpBatch *batch = &window->ring[(window->head + i) % RING];

		for (int j = 0; j < batch->nrows; j++)
		{
			if (batch->rows[j].state == REXP_ROW_SENT ||
				batch->rows[j].state == REXP_ROW_HELD)
				return true;
		}
	}
	return false;
}

/*
 * Prepare one row, not the first to be sent again if "found", and return whether
 * it is to be sent.
 */
static bool
rewind_row(RexpWindow *window, RexpBatch *batch, RexpRow *row, bool found)
{
	bool		answered = row->state == REXP_ROW_WRITTEN ||
		row->state == REXP_ROW_EXPIRING || row->state == REXP_ROW_HELD;

	if (row->state == REXP_ROW_FAILED ||
		(row->state == REXP_ROW_DONE && (!found || !window->repeatable)))
		return false;
	if (row->state == REXP_ROW_DONE)
		batch->open++;
	if (row_is_with_redis(row))
		row->in_doubt = true;
	if (!window->repeatable && answered)
	{
		/* only what follows its write is asked for again */
		if (row->state == REXP_ROW_EXPIRING)
			row->state = REXP_ROW_WRITTEN;
		return false;
	}
	row->state = REXP_ROW_WAITING;
	return true;
}

/*
 * rexp_window_rewind
 *	  Prepare to send everything again from the first row that is not settled.
 *
 * Only failed rows after it stay settled: their failure has been counted.  Of
 * commands that are not repeatable, only those are sent again that were refused.
 * A row of which Redis may know something is in doubt until it is settled.
 */
void
rexp_window_rewind(RexpWindow *window)
{
	bool		found = false;

	window->nflights = 0;
	window->receive_at = window->receive_part = 0;
	window->send_flight = window->send_at = 0;
	window->send_offset = 0;
	window->outstanding = 0;
	for (int i = 0; i < window->queued; i++)
	{
		RexpBatch  *batch = &window->ring[(window->head + i) % RING];

		if (!found && batch->open == 0)
			continue;
		for (int j = 0; j < batch->nrows; j++)
			found |= rewind_row(window, batch, &batch->rows[j], found);
		batch->wait = REXP_WAIT_NONE;
		add_flight(window, batch, REXP_FLIGHT_WRITES);
	}
	/* rows that are not written again still have what follows before them */
	rexp_window_advance_receiver(window, !window->repeatable);
}

/*
 * rexp_window_drop_unsent
 *	  Rows that were not sent will not be, for the job has failed.  One that was
 *	  begun is sent to its end if something may have to follow.
 */
void
rexp_window_drop_unsent(RexpWindow *window)
{
	for (int i = window->send_flight; i < window->nflights; i++)
	{
		RexpBatch  *batch = window->flights[i].batch;

		if (window->flights[i].kind != REXP_FLIGHT_WRITES)
			continue;
		for (int j = 0; j < batch->nrows; j++)
		{
			bool		begun = i == window->send_flight && j == window->send_at &&
				window->send_offset > 0 && rexp_window_has_sequel(window);

			if (batch->rows[j].state == REXP_ROW_WAITING && !begun)
				batch->rows[j].state = REXP_ROW_REFUSED;
		}
	}
	rexp_window_advance_receiver(window, true);
}

/*
 * rexp_window_reckon
 *	  Of the rows that are not counted anywhere: how many may have reached Redis,
 *	  and how many surely did not?  Those in the batch being filled included.
 */
void
rexp_window_reckon(const RexpWindow *window, int64 *in_doubt, int64 *unsent)
{
	*in_doubt = *unsent = 0;
	for (int i = 0; i <= window->queued; i++)
	{
		const RexpBatch *batch = &window->ring[(window->head + i) % RING];

		for (int j = 0; j < batch->nrows; j++)
		{
			const RexpRow *row = &batch->rows[j];

			if (row->counted || row_is_settled(row))
				continue;
			if (row->in_doubt || row_is_with_redis(row))
				(*in_doubt)++;
			else
				(*unsent)++;
		}
	}
}
