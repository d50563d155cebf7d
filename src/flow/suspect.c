/*-------------------------------------------------------------------------
 *
 * suspect.c
 *	  Which row breaks the connection, if it is a row at all.
 *
 * A value that is larger than Redis takes has the connection cut, and so has one at
 * which the server crashes; but so has any row, by a balancer that flaps or a Redis
 * that is started anew again and again.  A row that was first in line when the
 * connection was cut is a suspect.  It is sent first and alone on the next one, which
 * it has to itself.  If that is cut, too, another row, or if there is none a command of
 * ours as large, has a connection to itself; and only if this goes through, and the
 * suspect breaks one once more, it has failed.  A server that cuts everybody is no
 * row's fault, nor is one that was restarted meanwhile: then one tries again until
 * retry_timeout.
 *
 * Rows with the same key stay in order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/suspect.h"

/* Connections that a row has broken that it had to itself. */
#define LOSSES_TO_BLAME 2

/* Rows that are looked at, to find one that can take the place of a suspect. */
#define WITNESSES_TRIED 16

/* A command of ours in place of a row is at most so large. */
#define ECHO_MOST ((size_t) 256 * 1024)

/*
 * rexp_suspicion_cut
 *	  The connection was cut, and this row was first in line.  "only": nothing else
 *	  was on its way.  To be called before a rewind.
 */
void
rexp_suspicion_cut(RexpSuspicion *suspicion, RexpWindow *window, RexpBatch *batch,
				   RexpRow *row, bool only, const RexpError *why)
{
	bool		writing = row->state == REXP_ROW_WAITING || row->state == REXP_ROW_SENT;
	bool		first = suspicion->writes == 1 && writing;

	suspicion->active = true;
	row->cuts = Min(row->cuts + 1, 250);
	if (!only || !(first || row->key_len == 0 ||
				   !rexp_window_is_first_of_key(window, batch, row)))
		return;
	if (row->losses > 0 && row->passes == suspicion->passes)
		return;
	row->losses++;
	row->passes = suspicion->passes;
	row->accused = true;
	suspicion->why = *why;
}

/*
 * rexp_suspicion_connected
 *	  There is a new connection, to a server that was restarted or not since the last.
 */
void
rexp_suspicion_connected(RexpSuspicion *suspicion, RexpWindow *window, bool restarted)
{
	RexpBatch  *batch;
	RexpRow    *row;
	int			at_batch = 0;
	int			at_row = 0;

	suspicion->writes = 0;
	suspicion->passed = suspicion->chosen = false;
	if (!suspicion->active)
		return;
	while ((row = rexp_window_next_open(window, &at_batch, &at_row, &batch)) != NULL)
	{
		if (row->accused && restarted)
		{
			row->losses--;
			row->crashes = Min(row->crashes + 1, 250);
		}
		row->accused = false;
	}
}

/*
 * rexp_suspicion_next_to_blame
 *	  The next row that has failed since it breaks the connection, and with what
 *	  error; NULL if there is none.
 */
RexpRow *
rexp_suspicion_next_to_blame(const RexpSuspicion *suspicion, RexpWindow *window,
							 RexpBatch **batch, RexpError *error)
{
	RexpRow    *row;
	int			at_batch = 0;
	int			at_row = 0;

	if (!suspicion->active)
		return NULL;
	while ((row = rexp_window_next_open(window, &at_batch, &at_row, batch)) != NULL)
	{
		if (row->losses < LOSSES_TO_BLAME)
			continue;
		*error = suspicion->why;
		rexp_error_prefix(error, "the connection broke %d times at this row: ", row->cuts);
		rexp_error_hint(error, "Is its value larger than Redis' proto-max-bulk-len, or than maxmemory-clients or client-query-buffer-limit let a connection hold?");
		return row;
	}
	return NULL;
}

/*
 * rexp_suspicion_tell_crashes
 *	  The job gives up.  If Redis was restarted whenever a certain row was sent to it,
 *	  the error says so.
 */
void
rexp_suspicion_tell_crashes(const RexpSuspicion *suspicion, RexpWindow *window,
							RexpError *error)
{
	RexpBatch  *batch;
	RexpRow    *row;
	int			at_batch = 0;
	int			at_row = 0;
	char		key[64];

	if (!suspicion->active)
		return;
	while ((row = rexp_window_next_open(window, &at_batch, &at_row, &batch)) != NULL)
	{
		if (row->crashes < 2)
			continue;
		rexp_printable(key, sizeof(key), batch->data.data + row->key_start, row->key_len);
		rexp_error_prefix(error, "Redis was restarted each of %d times when row " INT64_FORMAT " with key \"%s\" was sent to it: ",
						  row->crashes, row->number, key);
		return;
	}
}

/* A write was answered: the first on its connection shows that others pass. */
void
rexp_suspicion_write_answered(RexpSuspicion *suspicion)
{
	if (!suspicion->passed)
		suspicion->passes++;
	suspicion->passed = true;
}

/* Have a command of ours, of so many bytes, go through.  False if the connection broke. */
static bool
echo_goes_through(RexpLink *link, size_t size, RexpError *error)
{
	RexpBuffer	request;
	char	   *filler = palloc(size);
	redisReply *reply;

	memset(filler, 'x', size);
	rexp_buffer_init(&request, size + 64);
	rexp_resp_header(&request, '*', 2);
	rexp_resp_word(&request, "ECHO");
	rexp_resp_bulk(&request, filler, size);
	pfree(filler);
	reply = rexp_link_ask(link, &request, rexp_link_timeout(link), error);
	rexp_buffer_free(&request);

	/* who may not have it answered has had it read */
	if (reply != NULL)
		freeReplyObject(reply);
	return reply != NULL;
}

/*
 * rexp_suspicion_choose_first
 *	  Nothing was written on this connection yet: which row has it to itself?  False
 *	  if the connection broke meanwhile.
 */
bool
rexp_suspicion_choose_first(RexpSuspicion *suspicion, RexpWindow *window, RexpLink *link,
							RexpError *error)
{
	RexpPlace	place = {0, -1};
	RexpPlace	suspect_at = {0, 0};
	RexpPlace	witness_at = {0, 0};
	RexpRow    *suspect = NULL;
	RexpRow    *row;
	size_t		size = 0;
	int			candidates = 0;

	suspicion->chosen = true;
	while ((row = rexp_window_next_waiting(window, &place)) != NULL)
	{
		RexpBatch  *batch = window->flights[place.flight].batch;

		if (row->cuts > 0)
		{
			if (suspect == NULL)
			{
				suspect = row;
				suspect_at = place;
			}
		}
		else if (candidates < WITNESSES_TRIED && row->key_len > 0 &&
				 rexp_window_is_first_of_key(window, batch, row))
		{
			size_t		its_size = rexp_window_row_size(batch, row);

			/* a small one is the least likely to be too large itself */
			if (candidates++ == 0 || its_size < size)
			{
				size = its_size;
				witness_at = place;
			}
		}
	}
	if (suspect == NULL)
		return true;
	if (suspect->losses > 0 && suspect->passes == suspicion->passes)
	{
		if (candidates > 0)
		{
			rexp_window_put_first(window, &witness_at);
			return true;
		}
		size = rexp_window_row_size(window->flights[suspect_at.flight].batch, suspect);
		if (!echo_goes_through(link, Min(size, ECHO_MOST), error))
			return false;
		suspicion->passes++;
	}
	if (suspect->key_len > 0 &&
		rexp_window_is_first_of_key(window, window->flights[suspect_at.flight].batch, suspect))
		rexp_window_put_first(window, &suspect_at);
	return true;
}
