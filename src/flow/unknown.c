/*-------------------------------------------------------------------------
 *
 * unknown.c
 *	  Error replies that no rule of error_reply.c knows.
 *
 * Proxies and managed services tell outages and quotas in words of their own, and
 * modules what is wrong with a row.  Which of both it is, is told by how it comes:
 *
 * - The first row that gets such a reply is sent again after a pause in which a short
 *	 outage passes, it first and alone.  If it goes well then, nothing has failed.
 * - If it gets one again, the row fails.  Once others have gone well beside it, the
 *	 text is known to be about rows, and further rows that get it fail at once: to stop
 *	 for each of them would be slow.  So does every text after so many different ones.
 * - If REXP_UNKNOWN_ROWS different rows in succession got one, none went well in
 *	 between, and the first or a later one was sent again in vain, it is the state of the
 *	 server, and the job fails.
 * - What may not be sent twice is not: Redis may have carried out a part of it.
 *
 * Texts are compared without their numbers and quoted parts, which differ from row to
 * row.  Nothing here sends or waits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "common/hashfn.h"
#include "flow/unknown.h"

/* A text without its numbers and quoted parts, in a number that is not 0. */
static uint64
fold(const char *text)
{
	char		folded[REXP_MESSAGE_SIZE];
	size_t		len = 0;
	uint64		hash;

	while (*text != '\0' && len < sizeof(folded) - 1)
	{
		const char *end;

		if (strchr("'`\"", *text) != NULL && (end = strchr(text + 1, *text)) != NULL)
			text = end;
		else if (!isdigit((unsigned char) *text))
			folded[len++] = *text;
		text++;
	}
	hash = hash_bytes_extended((const unsigned char *) folded, (int) len, 0);
	return hash == 0 ? 1 : hash;
}

static bool
is_own(const RexpUnknown *unknown, uint64 text)
{
	if (unknown->nown == REXP_UNKNOWN_TEXTS)
		return true;
	for (int i = 0; i < unknown->nown; i++)
	{
		if (unknown->own[i] == text)
			return true;
	}
	return false;
}

/* Rows went well beside one that got it twice: it is about rows. */
static void
learn(RexpUnknown *unknown, uint64 text)
{
	unknown->blamed = 0;
	if (!is_own(unknown, text))
		unknown->own[unknown->nown++] = text;
}

/*
 * rexp_unknown_judge
 *	  A command of this kind, for this row, got a reply that no rule knows.
 *
 * again: the row was sent again for such a reply.  may_repeat: it may be.  *error tells
 * the reply, and is added to if the job fails.  Returns ROW if the row has failed,
 * UNKNOWN if it is to be sent again after a pause, FATAL if the job has failed.
 */
RexpAnswer
rexp_unknown_judge(RexpUnknown *unknown, int kind, int64 row, bool again,
				   bool may_repeat, RexpError *error)
{
	uint64		text = fold(error->message);
	bool		many;

	if (!unknown->active || unknown->kind != kind)
	{
		unknown->active = true;
		unknown->kind = kind;
		unknown->last_row = 0;
		unknown->rows = 0;
		unknown->passed = false;
		unknown->blamed = 0;
	}
	if (row > unknown->last_row)
	{
		unknown->last_row = row;
		unknown->rows++;
	}
	many = unknown->rows >= REXP_UNKNOWN_ROWS;
	if (!many && is_own(unknown, text))
		return REXP_ANSWER_ROW;
	if (may_repeat && !again && unknown->blamed == 0)
		return REXP_ANSWER_UNKNOWN;
	if (many)
	{
		rexp_error_detail(error, "%d rows in succession got such an answer, and no other row succeeded meanwhile.",
						  unknown->rows);
		rexp_error_hint(error, "The cause seems to be Redis, or a proxy in front of it, and not the rows.");
		return REXP_ANSWER_FATAL;
	}
	if (again && unknown->passed)
		learn(unknown, text);
	else
		unknown->blamed = text;
	return REXP_ANSWER_ROW;
}

/*
 * rexp_unknown_went_well
 *	  A command was carried out.  again: as above.
 *
 * Call it only while there is something to be looked into, and for commands of that
 * kind: that a row is written does not say that expiries are.
 */
void
rexp_unknown_went_well(RexpUnknown *unknown, bool again)
{
	if (again)
	{
		/* it has passed */
		unknown->active = false;
		return;
	}
	if (unknown->blamed != 0)
		learn(unknown, unknown->blamed);
	unknown->passed = true;
	unknown->rows = 0;
}
