/*-------------------------------------------------------------------------
 *
 * server_watch.c
 *	  Is it the same Redis, with the same data, as before?
 *
 * Looked at whenever a lane has connected, and at the end.  What Redis has forgotten
 * since it acknowledged it, by a restart, by taking over another's data, by a replica
 * that took over, or by evicting keys, is counted and told.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/server_watch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * Was this server, the same process as before, a replica meanwhile that threw its
 * data away for another master's?  One that only was to be keeps its history as
 * the one before its present one; one that forgets it for its age has none before.
 */
static bool
has_other_data(const RexpServerWatch *watch, const RexpServerInfo *info)
{
	return watch->history[0] != '\0' && info->history[0] != '\0' &&
		strcmp(info->history, watch->history) != 0 &&
		strcmp(info->history_before, watch->history) != 0 &&
		strspn(info->history_before, "0") != strlen(info->history_before);
}

/* What Redis has acknowledged may be gone. */
static void
note_loss(RexpCounters *counters, bool takeover)
{
	if (counters->redis_restarts++ == 0)
		counters->written_at_restart = counters->rows_written;
	if (takeover)
		counters->redis_takeovers++;
}

/* Have we written to the master whose data this one has taken over? */
static bool
is_known_history(const List *histories, const char *history)
{
	ListCell   *cell;

	foreach(cell, histories)
	{
		if (strcmp(lfirst(cell), history) == 0)
			return true;
	}
	return false;
}

/* Remember whose data it is that we write to. */
static void
keep_history(List **histories, const char *history)
{
	MemoryContext old;

	if (history[0] == '\0' || is_known_history(*histories, history))
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	*histories = lappend(*histories, pstrdup(history));
	MemoryContextSwitchTo(old);
}

/*
 * Is this master one that was the replica of another to which we have written?
 * Replication does not wait: it may lack what that one has acknowledged.
 */
static bool
took_over(const RexpServerWatch *watch, const RexpServerInfo *info, const List *histories,
		  TimestampTz last_byte)
{
	bool		older = info->uptime >= 0 && info->uptime >
		(GetCurrentTimestamp() - last_byte) / 1000000 + 1;

	if (info->is_replica || info->run_id[0] == '\0' || strcmp(info->run_id, watch->run_id) == 0)
		return false;
	/* one that was started since is the one before, started anew */
	if (watch->known && watch->run_id[0] != '\0')
		return older;
	return info->history_before[0] != '\0' &&
		is_known_history(histories, info->history_before);
}

static void
warn_of_loss(const char *what, int64 rows, const char *detail)
{
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("%s after " INT64_FORMAT " rows were acknowledged", what, rows),
			 errdetail("%s", detail)));
}

/* What Redis does not tell is told once: in the log here, and at the end to who waits. */
static void
note_refusals(const RexpLink *link, RexpCounters *counters)
{
	const char *info = rexp_link_server_info(link)->refused;
	const char *client = rexp_link_client_refused(link);

	if (info[0] != '\0' && !counters->info_refused)
		ereport(LOG,
				(errmsg("the export goes on without INFO, which Redis refused"),
				 errdetail("%s", info)));
	if (client[0] != '\0' && !counters->client_refused)
		ereport(LOG,
				(errmsg("the export goes on without CLIENT ID and CLIENT KILL, which Redis refused"),
				 errdetail("%s", client)));
	counters->info_refused |= info[0] != '\0';
	counters->client_refused |= client[0] != '\0';
}

/*
 * rexp_server_watch_note
 *	  Look whether it is the same server, with the same data, as before, and count what
 *	  it has lost since.
 *
 * last_byte is when something last went either way over a connection to it.  histories
 * are those of the servers that the job has written to; the list is in TopMemoryContext.
 * With held_by_replicas, rows count only when replicas have them, and a replica that
 * takes over has lost none.  Returns true if Redis was restarted, or is another one.
 */
bool
rexp_server_watch_note(RexpServerWatch *watch, const RexpLink *link,
					   RexpCounters *counters, List **histories, TimestampTz last_byte,
					   bool held_by_replicas)
{
	const RexpServerInfo *info = rexp_link_server_info(link);
	int64		rows = counters->rows_written;
	bool		first = !watch->known;
	bool		another = info->run_id[0] != '\0' && watch->run_id[0] != '\0' &&
		strcmp(info->run_id, watch->run_id) != 0;

	note_refusals(link, counters);
	if (took_over(watch, info, *histories, last_byte))
	{
		note_loss(counters, true);
		if (!held_by_replicas)
			warn_of_loss("Another Redis took over as the master", rows,
						 "What the one before had not passed on to it is lost.");
		watch->evicted_base = info->evicted_keys;
		watch->history[0] = '\0';
	}
	else if (!first && another)
	{
		note_loss(counters, false);
		warn_of_loss("Redis was restarted", rows,
					 "What it had not saved before is lost.");
		watch->evicted_base = 0;
		watch->history[0] = '\0';
	}
	else if (!first && !info->is_replica && has_other_data(watch, info))
	{
		note_loss(counters, false);
		warn_of_loss("Redis took over the data of another master", rows,
					 "What it held before, and the other did not, is lost.");
	}
	if (!info->is_replica)
	{
		strlcpy(watch->history, info->history, sizeof(watch->history));
		keep_history(histories, info->history);
	}
	if (first)
		watch->evicted_base = info->evicted_keys;
	strlcpy(watch->run_id, info->run_id, sizeof(watch->run_id));
	counters->evicted_keys += Max(info->evicted_keys - watch->evicted_base, 0);
	watch->evicted_base = info->evicted_keys;
	watch->known = true;
	return another;
}
