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

#include "flow/lane.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * Was this server, the same process as before, a replica meanwhile that threw its
 * data away for another master's?  One that only was to be keeps its history as
 * the one before its present one; one that forgets it for its age has none before.
 */
static bool
has_other_data(const RexpLane *lane, const RexpServerInfo *info)
{
	return lane->history[0] != '\0' && info->history[0] != '\0' &&
		strcmp(info->history, lane->history) != 0 &&
		strcmp(info->history_before, lane->history) != 0 &&
		strspn(info->history_before, "0") != strlen(info->history_before);
}

/* What Redis has acknowledged may be gone. */
static void
note_loss(RexpLane *lane, bool takeover)
{
	RexpCounters *counters = &lane->traffic->ledger.counters;

	if (counters->redis_restarts++ == 0)
		counters->written_at_restart = counters->rows_written;
	if (takeover)
		counters->redis_takeovers++;
}

/* Have we written to the master whose data this one has taken over? */
static bool
is_known_history(const RexpTraffic *traffic, const char *history)
{
	ListCell   *cell;

	foreach(cell, traffic->histories)
	{
		if (strcmp(lfirst(cell), history) == 0)
			return true;
	}
	return false;
}

/* Remember whose data it is that we write to. */
static void
keep_history(RexpTraffic *traffic, const char *history)
{
	MemoryContext old;

	if (history[0] == '\0' || is_known_history(traffic, history))
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	traffic->histories = lappend(traffic->histories, pstrdup(history));
	MemoryContextSwitchTo(old);
}

/*
 * Is this master one that was the replica of another to which we have written?
 * Replication does not wait: it may lack what that one has acknowledged.
 */
static bool
took_over(const RexpLane *lane, const RexpServerInfo *info)
{
	bool		older = info->uptime >= 0 && info->uptime >
		(GetCurrentTimestamp() - lane->last_byte) / 1000000 + 1;

	if (info->is_replica || info->run_id[0] == '\0' || strcmp(info->run_id, lane->run_id) == 0)
		return false;
	/* one that was started since is the one before, started anew */
	if (lane->known && lane->run_id[0] != '\0')
		return older;
	return info->history_before[0] != '\0' &&
		is_known_history(lane->traffic, info->history_before);
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
note_refusals(RexpLane *lane)
{
	RexpCounters *counters = &lane->traffic->ledger.counters;
	const char *info = rexp_link_server_info(lane->link)->refused;
	const char *client = rexp_link_client_refused(lane->link);

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
 * rexp_lane_note_server
 *	  Look whether it is the same server, with the same data, as before.
 */
void
rexp_lane_note_server(RexpLane *lane)
{
	const RexpServerInfo *info = rexp_link_server_info(lane->link);
	RexpTraffic *traffic = lane->traffic;
	int64		rows = traffic->ledger.counters.rows_written;
	bool		first = !lane->known;

	note_refusals(lane);
	if (took_over(lane, info))
	{
		note_loss(lane, true);
		if (traffic->options.wait_replicas == 0)
			warn_of_loss("Another Redis took over as the master", rows,
						 "What the one before had not passed on to it is lost.");
		lane->evicted_base = info->evicted_keys;
		lane->history[0] = '\0';
	}
	else if (!first && info->run_id[0] != '\0' && lane->run_id[0] != '\0' &&
			 strcmp(info->run_id, lane->run_id) != 0)
	{
		note_loss(lane, false);
		warn_of_loss("Redis was restarted", rows,
					 "What it had not saved before is lost.");
		lane->evicted_base = 0;
		lane->history[0] = '\0';
	}
	else if (!first && !info->is_replica && has_other_data(lane, info))
	{
		note_loss(lane, false);
		warn_of_loss("Redis took over the data of another master", rows,
					 "What it held before, and the other did not, is lost.");
	}
	if (!info->is_replica)
	{
		strlcpy(lane->history, info->history, sizeof(lane->history));
		keep_history(traffic, info->history);
	}
	if (first)
		lane->evicted_base = info->evicted_keys;
	strlcpy(lane->run_id, info->run_id, sizeof(lane->run_id));
	traffic->ledger.counters.evicted_keys += Max(info->evicted_keys - lane->evicted_base, 0);
	lane->evicted_base = info->evicted_keys;
	lane->known = true;
}
