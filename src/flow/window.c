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
 * the value of somebody else.  If only changes are to be written, there is one
 * before the writes that finds out which rows these are.
 *
 * Which of them comes next follows from the states of the batch's rows, whatever
 * came before (queue_next): so a batch with a row for which something is due has a
 * flight.  Only rows that were refused have none until they are sent again.
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
#include "flow/window.h"
#include "utils/memutils.h"

#define RING (REXP_WINDOW_BATCHES + 1)

/*
 * Before a command whose slot is on its way to the node (Redis manual, "Redis
 * cluster specification").  Before MULTI it holds until EXEC.
 */
static const char asking_command[] = "*1\r\n$6\r\nASKING\r\n";
#define ASKING_SIZE (sizeof(asking_command) - 1)

/*
 * rexp_window_init
 *	  An empty window, with its memory in the current context.
 *
 * batch is the usual number of rows in one.
 */
void
rexp_window_init(RexpWindow *window, int batch, const RexpSequel *sequel)
{
	memset(window, 0, sizeof(RexpWindow));
	window->sequel = *sequel;
	window->bytes_most = REXP_WINDOW_BYTES;
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
	return row->state == REXP_ROW_DONE || row->state == REXP_ROW_FAILED ||
		row->state == REXP_ROW_HANDED_OVER;
}

/* Is this row's data with Redis, and the row not settled? */
static bool
row_is_with_redis(const RexpRow *row)
{
	return row->state == REXP_ROW_SENT || row->state == REXP_ROW_WRITTEN ||
		row->state == REXP_ROW_EXPIRING || row->state == REXP_ROW_UNEXPIRED ||
		row->state == REXP_ROW_HELD;
}

/* The row is, or is no longer, one of those of its slot that are not settled. */
static void
count_pending(RexpWindow *window, const RexpRow *row, int change)
{
	if (window->pending != NULL && !row->asking)
		window->pending[row->slot] += change;
}

/* The row is done, has failed, or has been handed over. */
void
rexp_window_settle(RexpWindow *window, RexpBatch *batch, RexpRow *row,
				   RexpRowState state)
{
	row->state = state;
	batch->open--;
	count_pending(window, row, -1);
}

/*
 * Keys of the rows in the window
 *
 * A row's expiry is sent some time after its write, and meets whatever the key
 * then holds.  If expiries differ, a later row with the same key must not be
 * written before that; nor must Redis be asked for a key of which a row is on its
 * way.  So the keys are remembered, as hashes: two that are taken for one cost time,
 * and do no harm.
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
rexp_window_has_key(RexpWindow *window, const char *key, size_t len)
{
	uint64		hash = hash_key(key, len);

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
		batch->data.len = batch->weight = 0;
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

/* The row's block is complete.  slot is that of its key in a cluster, else 0. */
RexpRow *
rexp_window_row_end(RexpWindow *window, const RexpBlock *block, int slot)
{
	RexpBatch  *batch = rexp_window_filling(window);
	RexpRow    *row = &batch->rows[batch->nrows++];

	batch->open++;
	row->slot = (uint16) slot;
	count_pending(window, row, 1);

	row->key_start = block->key_start;
	row->key_len = block->key_len;
	row->expiry = block->expiry;
	row->commands = block->commands;
	row->repeatable = block->repeatable;
	row->refusal = block->refusal;
	row->booked = window->sequel.books != NULL && !block->corrects;
	row->deletes = block->deletes;
	row->corrects = block->corrects;
	row->watched = block->watched;
	row->digest = block->digest;
	row->end = batch->data.len;
	row->stored_start = block->stored_start;
	row->stored_len = block->stored_len;
	batch->weight += row->end - row->start + block->size_to_come;
	row->state = block->watched ? REXP_ROW_UNCHECKED : REXP_ROW_WAITING;
	if (window->sequel.keys_apart)
		remember_key(window, batch, row);
	return row;
}

/*
 * rexp_window_complete
 *	  An argument of a row that was put off has these bytes: the row gets another block
 *	  with them, behind all others of its batch.
 */
void
rexp_window_complete(RexpWindow *window, RexpBatch *batch, RexpRow *row,
					 const char *bytes, size_t len)
{
	RexpBuffer *out = &batch->data;
	size_t		start = out->len;
	const char *old;
	const char *value;

	/* the old block must not move while it is copied */
	rexp_buffer_reserve(out, row->end - row->start + len + 2 * REXP_HEADER_SIZE);
	old = out->data + row->start;
	value = out->data + row->stored_start;
	rexp_buffer_append(out, old, value - old);
	(void) rexp_resp_take_header(&value);
	value += row->stored_len + 2;
	rexp_resp_bulk(out, bytes, len);
	rexp_buffer_append(out, value, out->data + row->end - value);
	row->key_start += start - row->start;
	row->start = start;
	row->end = out->len;
	row->stored_len = 0;
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
	rexp_block_moved(block, -(ssize_t) start);
	batch->data.len = start;
}

bool
rexp_window_is_full(const RexpWindow *window)
{
	return window->queued >= REXP_WINDOW_BATCHES ||
		window->queued_bytes >= window->bytes_most;
}

static void
add_flight(RexpWindow *window, RexpBatch *batch, RexpFlightKind kind)
{
	Assert(window->nflights < (int) lengthof(window->flights));
	window->flights[window->nflights].batch = batch;
	window->flights[window->nflights].kind = kind;
	window->flights[window->nflights].single = -1;
	window->nflights++;
}

static bool
has_flight(const RexpWindow *window, const RexpBatch *batch)
{
	for (int i = 0; i < window->nflights; i++)
	{
		if (window->flights[i].batch == batch)
			return true;
	}
	return false;
}

/*
 * Batches all of whose rows are settled leave the window.  Rows can be handed over
 * while a flight of theirs waits behind others; were the batch filled anew before
 * that is through, the flight would take the new rows for its own.
 */
static void
retire_batches(RexpWindow *window)
{
	while (window->queued > 0)
	{
		RexpBatch  *batch = &window->ring[window->head];

		if (batch->open > 0 || has_flight(window, batch))
			return;
		window->queued_bytes -= batch->weight;
		batch->data.len = batch->sequel.len = batch->weight = 0;
		batch->nrows = batch->open = 0;
		batch->wait = REXP_WAIT_NONE;
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

/* The states of a row whose command in such a flight is to be sent, and is. */
static const struct
{
	RexpRowState due;
	RexpRowState sent;
}			stages[] = {
	[REXP_FLIGHT_CHECKS] = {REXP_ROW_UNCHECKED, REXP_ROW_CHECKING},
	[REXP_FLIGHT_WRITES] = {REXP_ROW_WAITING, REXP_ROW_SENT},
	[REXP_FLIGHT_EXPIRIES] = {REXP_ROW_WRITTEN, REXP_ROW_EXPIRING}
};

static int
command_count(const RexpFlight *flight)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		return 1;
	return flight->single >= 0 ? flight->single + 1 : flight->batch->nrows;
}

/* Is it this command's turn, for the sender? */
static bool
command_is_due(const RexpFlight *flight, int at)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		return flight->batch->wait == REXP_WAIT_DUE;
	return flight->batch->rows[at].state == stages[flight->kind].due;
}

/* Is the answer to this command still to come? */
static bool
command_is_open(const RexpFlight *flight, int at)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		return flight->batch->wait == REXP_WAIT_DUE || flight->batch->wait == REXP_WAIT_SENT;
	return command_is_due(flight, at) ||
		flight->batch->rows[at].state == stages[flight->kind].sent;
}

/* The command is with Redis. */
static void
command_sent(const RexpFlight *flight, int at)
{
	if (flight->kind == REXP_FLIGHT_REPLICAS)
		flight->batch->wait = REXP_WAIT_SENT;
	else
	{
		flight->batch->rows[at].state = stages[flight->kind].sent;
		flight->batch->rows[at].tried |= flight->kind == REXP_FLIGHT_WRITES;
	}
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
	if (at >= (flight->kind == REXP_FLIGHT_REPLICAS ? 1 : flight->batch->nrows))
		return command_buffer(flight)->len;
	switch (flight->kind)
	{
		case REXP_FLIGHT_WRITES:
			return flight->batch->rows[at].start;
		case REXP_FLIGHT_CHECKS:
		case REXP_FLIGHT_EXPIRIES:
			return flight->batch->rows[at].sequel_start;
		default:
			return 0;
	}
}

/* Where it ends. */
static size_t
command_end(const RexpFlight *flight, int at)
{
	return flight->kind == REXP_FLIGHT_WRITES ? flight->batch->rows[at].end :
		command_start(flight, at + 1);
}

/*
 * What comes before a write, and after it
 */

/* Append the command of a row in a flight that goes with its write. */
static void
append_sequel(const RexpWindow *window, const RexpBatch *batch, const RexpRow *row,
			  RexpFlightKind kind, RexpBuffer *out)
{
	const char *key = batch->data.data + row->key_start;

	if (row->asking)
		rexp_buffer_append(out, asking_command, ASKING_SIZE);
	if (kind == REXP_FLIGHT_CHECKS)
		rexp_books_check(window->sequel.books, key, row->key_len, out);
	else
		rexp_expiry_command(&row->expiry, key, row->key_len, out);
}

/* Build the commands of the rows of a batch for which it is time. */
static void
build_sequel(RexpWindow *window, RexpBatch *batch, RexpFlightKind kind)
{
	batch->sequel.len = 0;
	for (int i = 0; i < batch->nrows; i++)
	{
		RexpRow    *row = &batch->rows[i];

		row->sequel_start = batch->sequel.len;
		if (row->state == stages[kind].due)
			append_sequel(window, batch, row, kind, &batch->sequel);
	}
}

/* The same of what asks whether the replicas have the rows that the master has. */
static void
build_wait(RexpWindow *window, RexpBatch *batch)
{
	RexpBuffer *out = &batch->sequel;
	char		number[32];

	out->len = 0;

	/*
	 * WAIT waits for the last write of its own connection that had an effect.  One
	 * that is sent again may have none (SADD), and after a reconnect there may be no
	 * other: so let there be one that has, and leaves nothing behind.
	 */
	batch->fenced = window->rewound;
	if (batch->fenced)
	{
		rexp_resp_header(out, '*', 3);
		rexp_resp_word(out, "PUBLISH");
		rexp_resp_word(out, "redis_export");
		rexp_resp_word(out, "");
	}
	rexp_resp_header(out, '*', 3);
	rexp_resp_word(out, "WAIT");
	snprintf(number, sizeof(number), "%d", window->sequel.wait_replicas);
	rexp_resp_word(out, number);
	snprintf(number, sizeof(number), "%d", window->sequel.wait_time);
	rexp_resp_word(out, number);
	batch->wait = REXP_WAIT_DUE;
}

/*
 * queue_next
 *	  Give a batch the flight that its rows call for, unless it has one.
 *
 * This is the one place that decides what comes next.
 */
static void
queue_next(RexpWindow *window, RexpBatch *batch)
{
	uint32		states = 0;

	if (batch->open == 0 || has_flight(window, batch))
		return;
	for (int i = 0; i < batch->nrows; i++)
		states |= 1 << batch->rows[i].state;
	for (RexpFlightKind kind = REXP_FLIGHT_CHECKS; kind < REXP_FLIGHT_REPLICAS; kind++)
	{
		if ((states & 1 << stages[kind].due) == 0)
			continue;
		if (kind != REXP_FLIGHT_WRITES)
			build_sequel(window, batch, kind);
		add_flight(window, batch, kind);
		return;
	}
	if ((states & 1 << REXP_ROW_HELD) != 0 && batch->wait == REXP_WAIT_NONE)
	{
		build_wait(window, batch);
		add_flight(window, batch, REXP_FLIGHT_REPLICAS);
	}
}

/* The batch that was being filled joins the window, unless it is empty. */
void
rexp_window_queue(RexpWindow *window)
{
	RexpBatch  *batch = rexp_window_filling(window);

	if (batch->nrows == 0)
		return;
	window->queued++;
	window->queued_bytes += batch->weight;
	queue_next(window, batch);

	/* its first rows, or all, may have been handed over */
	rexp_window_advance_receiver(window);
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

		window->send_at = Max(window->send_at, flight->single);
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
		 commands > 0 && command_is_due(flight, at) &&
		 (at == window->send_at || command_start(flight, at) == to); at++, commands--)
		to = command_end(flight, at);
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
		size_t		end = command_end(flight, window->send_at);

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
 *	  through, whose batches get the next that they call for, or leave the window.
 */
void
rexp_window_advance_receiver(RexpWindow *window)
{
	while (window->nflights > 0)
	{
		RexpFlight	flight = window->flights[0];

		window->receive_at = Max(window->receive_at, flight.single);
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
		queue_next(window, flight.batch);
		retire_batches(window);
	}
	retire_batches(window);
}

/*
 * rexp_window_is_stuck
 *	  Are there batches, and nothing is with Redis, and nothing is due?  Then this
 *	  window can only go on by a rewind.
 */
bool
rexp_window_is_stuck(RexpWindow *window)
{
	return window->queued > 0 && window->outstanding == 0 && window->send_offset == 0 &&
		!rexp_window_advance_sender(window);
}

/* The first row that is not settled, in words, for an error. */
void
rexp_window_describe_open(RexpWindow *window, char *text, size_t size)
{
	static const char *const names[] = {
		[REXP_ROW_UNCHECKED] = "unchecked",
		[REXP_ROW_CHECKING] = "checking",
		[REXP_ROW_WAITING] = "waiting",
		[REXP_ROW_SENT] = "sent",
		[REXP_ROW_REFUSED] = "refused",
		[REXP_ROW_WRITTEN] = "written",
		[REXP_ROW_EXPIRING] = "expiring",
		[REXP_ROW_UNEXPIRED] = "unexpired",
		[REXP_ROW_HELD] = "held"
	};

	snprintf(text, size, "%d batches, %d flights", window->queued, window->nflights);
	for (int i = 0; i <= window->queued; i++)
	{
		const RexpBatch *batch = &window->ring[(window->head + i) % RING];

		for (int j = 0; j < batch->nrows; j++)
		{
			const RexpRow *row = &batch->rows[j];

			if (row_is_settled(row))
				continue;
			snprintf(text, size, "row " INT64_FORMAT " is %s, %d batches, %d flights",
					 row->number, names[row->state], window->queued, window->nflights);
			return;
		}
	}
}

/* Commands in the block whose answers are received now. */
int
rexp_window_commands(const RexpWindow *window)
{
	const RexpFlight *flight = &window->flights[0];

	switch (flight->kind)
	{
		case REXP_FLIGHT_WRITES:
			return flight->batch->rows[window->receive_at].commands;
		case REXP_FLIGHT_CHECKS:
			return 2;
		case REXP_FLIGHT_EXPIRIES:
			return flight->batch->rows[window->receive_at].asking ? 2 : 1;
		default:
			return flight->batch->fenced ? 2 : 1;
	}
}

/*
 * rexp_window_takes_reply
 *	  May there be an answer?  Of a block of several commands the first are answered
 *	  while the last are still being sent.
 */
bool
rexp_window_takes_reply(const RexpWindow *window)
{
	return window->outstanding > 0 ||
		(window->send_offset > 0 && window->send_flight == 0 &&
		 window->send_at == window->receive_at &&
		 window->receive_part + 1 < rexp_window_commands(window));
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
 * Rows that belong to another node
 */

/*
 * rexp_window_next_homeless
 *	  The next row, from this place on, that is not settled and not with Redis; NULL
 *	  if there is none.  The batch that is being filled is looked at too.
 *
 * Begin with 0 and 0.  Nothing must be with Redis.
 */
RexpRow *
rexp_window_next_homeless(RexpWindow *window, int *at_batch, int *at_row,
						  RexpBatch **batch)
{
	for (; *at_batch <= window->queued; (*at_batch)++, *at_row = 0)
	{
		*batch = &window->ring[(window->head + *at_batch) % RING];
		while (*at_row < (*batch)->nrows)
		{
			RexpRow    *row = &(*batch)->rows[(*at_row)++];

			if (!row_is_settled(row) && row->state != REXP_ROW_HELD)
				return row;
		}
	}
	return NULL;
}

/*
 * rexp_window_adopt
 *	  Hand a row over from one window to the end of another, to be sent there after
 *	  ASKING or not.  Rows of one key must be handed over in their order.
 */
void
rexp_window_adopt(RexpWindow *to, RexpWindow *from, RexpBatch *batch, RexpRow *row,
				  bool asking)
{
	size_t		start = row->start + (row->asking ? ASKING_SIZE : 0);
	RexpBuffer *out = rexp_window_row_begin(to);
	RexpBlock	block;
	RexpRow    *new;

	block.key_start = row->key_start;
	block.key_len = row->key_len;
	block.stored_start = row->stored_start;
	block.stored_len = row->stored_len;
	block.size_to_come = 0;
	block.expiry = row->expiry;
	block.commands = row->commands + asking - row->asking;
	block.repeatable = row->repeatable;
	block.refusal = row->refusal;
	block.deletes = row->deletes;
	block.corrects = row->corrects;
	block.watched = row->watched;
	block.digest = row->digest;
	if (asking)
		rexp_buffer_append(out, asking_command, ASKING_SIZE);
	rexp_block_moved(&block, (ssize_t) out->len - (ssize_t) start);
	rexp_buffer_append(out, batch->data.data + start, row->end - start);

	/* whether it counts as pending is known before it is counted */
	rexp_window_filling(to)->rows[rexp_window_filling(to)->nrows].asking = asking;
	new = rexp_window_row_end(to, &block, row->slot);
	new->number = row->number;
	new->counted = row->counted;
	new->in_doubt = row->in_doubt;
	new->misses = row->misses;
	new->puzzled = row->puzzled;
	new->hops = (uint8) Min(row->hops + asking, 250);
	new->echo = row->echo;
	new->tried = row->tried;
	if (row->tried)
		new->state = REXP_ROW_WAITING;
	if (row->state == REXP_ROW_WRITTEN)
	{
		new->state = REXP_ROW_WRITTEN;
		new->only_expiry = true;
	}
	row->asked_away = asking;
	row->counted = false;
	row->in_doubt = false;
	rexp_window_settle(from, batch, row, REXP_ROW_HANDED_OVER);
}

/*
 * A row to which a connection is left
 */

/*
 * rexp_window_next_open
 *	  The next row of the window, from this place on, that is not settled; NULL if
 *	  there is none.  Begin with 0 and 0.
 */
RexpRow *
rexp_window_next_open(RexpWindow *window, int *at_batch, int *at_row, RexpBatch **batch)
{
	for (; *at_batch < window->queued; (*at_batch)++, *at_row = 0)
	{
		*batch = &window->ring[(window->head + *at_batch) % RING];
		while (*at_row < (*batch)->nrows)
		{
			RexpRow    *row = &(*batch)->rows[(*at_row)++];

			if (!row_is_settled(row))
				return row;
		}
	}
	return NULL;
}

/*
 * rexp_window_next_waiting
 *	  The next row, after this place, whose write is queued and was not sent; NULL if
 *	  there is none.  Begin before the first: with flight 0, row -1.
 */
RexpRow *
rexp_window_next_waiting(RexpWindow *window, RexpPlace *place)
{
	for (; place->flight < window->nflights; place->flight++, place->at = -1)
	{
		const RexpFlight *flight = &window->flights[place->flight];

		if (flight->kind != REXP_FLIGHT_WRITES)
			continue;
		while (++place->at < command_count(flight))
		{
			if (command_is_due(flight, place->at))
				return &flight->batch->rows[place->at];
		}
	}
	return NULL;
}

/* Are all rows before it that have the same key settled? */
bool
rexp_window_is_first_of_key(RexpWindow *window, const RexpBatch *its_batch,
							const RexpRow *row)
{
	int			at_batch = 0;
	int			at_row = 0;
	RexpBatch  *batch;
	const RexpRow *other;

	while ((other = rexp_window_next_open(window, &at_batch, &at_row, &batch)) != NULL &&
		   other != row)
	{
		if (other->key_len == row->key_len &&
			memcmp(batch->data.data + other->key_start,
				   its_batch->data.data + row->key_start, row->key_len) == 0)
			return false;
	}
	return true;
}

/* The bytes of its block. */
size_t
rexp_window_row_size(const RexpBatch *batch, const RexpRow *row)
{
	return row->end - row->start;
}

/*
 * rexp_window_put_first
 *	  Let the write of one row, which must be due, go before all that is queued.
 *	  Nothing must be with Redis.
 */
void
rexp_window_put_first(RexpWindow *window, const RexpPlace *place)
{
	RexpFlight	single = window->flights[place->flight];

	if (window->nflights >= (int) lengthof(window->flights))
		return;
	single.single = place->at;
	memmove(window->flights + 1, window->flights, sizeof(RexpFlight) * window->nflights);
	window->flights[0] = single;
	window->nflights++;
	window->send_flight = window->send_at = 0;
	window->receive_at = window->receive_part = 0;
	rexp_window_advance_receiver(window);
}

/*
 * When things go wrong
 */

/* Is the row's write answered, and what follows it still to come? */
bool
rexp_row_is_answered(const RexpRow *row)
{
	return row->state == REXP_ROW_WRITTEN || row->state == REXP_ROW_EXPIRING ||
		row->state == REXP_ROW_UNEXPIRED || row->state == REXP_ROW_HELD;
}

/*
 * bind_rows
 *	  A row must not be written again if a later one was carried out that cannot be:
 *	  it would undo what that has added.
 */
static void
bind_rows(RexpWindow *window)
{
	bool		bound = false;

	for (int i = window->queued - 1; i >= 0; i--)
	{
		RexpBatch  *batch = &window->ring[(window->head + i) % RING];

		for (int j = batch->nrows - 1; j >= 0; j--)
		{
			RexpRow    *row = &batch->rows[j];

			if (!rexp_row_is_answered(row) && row->state != REXP_ROW_DONE &&
				row->state != REXP_ROW_HANDED_OVER)
				continue;
			bound |= !row->repeatable;
			row->repeatable &= !bound;
		}
	}
}

/*
 * Is data of a row with Redis that we cannot ask for, and that must not be sent again?
 * What was written may not be known to have been, or not be known to be with the
 * replicas.
 */
bool
rexp_window_is_in_doubt(RexpWindow *window)
{
	bind_rows(window);
	for (int i = 0; i < window->queued; i++)
	{
		const RexpBatch *batch = &window->ring[(window->head + i) % RING];

		for (int j = 0; j < batch->nrows; j++)
		{
			const RexpRow *row = &batch->rows[j];

			if (!row->repeatable &&
				(row->state == REXP_ROW_SENT || row->state == REXP_ROW_HELD))
				return true;
		}
	}
	return false;
}

/* Slots of which a row is to be sent again; without a cluster there is slot 0. */
typedef struct SlotSet
{
	uint8		bits[16384 / 8];
	bool		any;
} SlotSet;

static bool
slot_is_in(const SlotSet *set, int slot)
{
	return (set->bits[slot / 8] & (1 << slot % 8)) != 0;
}

/*
 * Prepare one row, after those of its slot that are in again, and add it to these
 * if it is to be sent.
 */
static void
rewind_row(RexpWindow *window, RexpBatch *batch, RexpRow *row, bool kept, SlotSet *again)
{
	bool		answered = rexp_row_is_answered(row);
	bool		settled = row->state == REXP_ROW_DONE || row->state == REXP_ROW_HANDED_OVER;

	if (row->state == REXP_ROW_FAILED ||
		(row->state == REXP_ROW_HANDED_OVER && !row->asked_away) ||
		(settled && (!row->repeatable || row->only_expiry || row->unchanged ||
					 !slot_is_in(again, row->slot))))
		return;
	if (kept && answered && !slot_is_in(again, row->slot))
	{
		if (row->state == REXP_ROW_UNEXPIRED)
			row->state = REXP_ROW_WRITTEN;
		return;
	}
	if (settled)
	{
		batch->open++;
		count_pending(window, row, 1);
		row->echo |= row->state == REXP_ROW_HANDED_OVER;
	}
	if (row_is_with_redis(row) && !row->unchanged)
		row->in_doubt = true;
	if (row->watched && !row->tried)
	{
		/* what was found out may not be so any more */
		row->unchanged = false;
		row->state = REXP_ROW_UNCHECKED;
		return;
	}
	if ((!row->repeatable || row->only_expiry) && answered)
	{
		/* only what follows its write is asked for again */
		if (row->state != REXP_ROW_HELD)
			row->state = REXP_ROW_WRITTEN;
		return;
	}
	row->state = REXP_ROW_WAITING;
	again->bits[row->slot / 8] |= 1 << row->slot % 8;
	again->any = true;
}

/*
 * rexp_window_rewind
 *	  Prepare to send everything again from the first row that is not settled.
 *
 * Failed rows after it stay settled: their failure has been counted.  So do, in a
 * cluster, those of other slots; but rows of the same that were handed over after
 * ASK are sent once more, since they must come after those.  Of rows whose command is
 * not repeatable, and of those before them, only those are sent again that were
 * refused.
 *
 * If the connection is kept, and all on it was answered, what was written before the
 * first row that is to be sent again stays written: only what follows is asked for.
 *
 * A row of which Redis may know something is in doubt until it is settled.
 */
void
rexp_window_rewind(RexpWindow *window, bool kept)
{
	SlotSet		again;

	memset(&again, 0, sizeof(again));
	bind_rows(window);
	window->nflights = 0;
	window->receive_at = window->receive_part = 0;
	window->send_flight = window->send_at = 0;
	window->send_offset = 0;
	window->outstanding = 0;
	for (int i = 0; i < window->queued; i++)
	{
		RexpBatch  *batch = &window->ring[(window->head + i) % RING];

		for (int j = 0; j < batch->nrows; j++)
			rewind_row(window, batch, &batch->rows[j], kept, &again);
		batch->wait = REXP_WAIT_NONE;
	}
	window->rewound |= !kept || again.any;
	for (int i = 0; i < window->queued; i++)
		queue_next(window, &window->ring[(window->head + i) % RING]);

	/* not each row of the first flight is one of those that it is for */
	rexp_window_advance_receiver(window);
}

/*
 * rexp_window_drop_unsent
 *	  Rows that were not sent will not be, for the job has failed.  One that was
 *	  begun is sent to its end if something may have to follow.
 */
void
rexp_window_drop_unsent(RexpWindow *window)
{
	const RexpRow *begun = NULL;

	if (window->send_offset > 0 && rexp_window_has_sequel(window) &&
		window->flights[window->send_flight].kind <= REXP_FLIGHT_WRITES)
		begun = &window->flights[window->send_flight].batch->rows[window->send_at];
	for (int i = 0; i < window->queued; i++)
	{
		RexpBatch  *batch = &window->ring[(window->head + i) % RING];

		for (int j = 0; j < batch->nrows; j++)
		{
			RexpRow    *row = &batch->rows[j];

			if ((row->state == REXP_ROW_UNCHECKED || row->state == REXP_ROW_WAITING) &&
				row != begun)
				row->state = REXP_ROW_REFUSED;
		}
	}
	rexp_window_advance_receiver(window);
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

			if (row->counted || row->echo || row->deletes || row->corrects ||
				row_is_settled(row))
				continue;
			if (row->in_doubt || (row_is_with_redis(row) && !row->unchanged))
				(*in_doubt)++;
			else
				(*unsent)++;
		}
	}
}
