/*-------------------------------------------------------------------------
 *
 * ledger.c
 *	  What has become of a job's rows: counted, failed ones told, and the job
 *	  stopped when there are more of them than it bears.
 *
 * It knows neither connections nor commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "status/ledger.h"

/* The job has failed; the first error counts. */
void
rexp_ledger_stop(RexpLedger *ledger, const RexpError *error)
{
	if (!rexp_ledger_has_failed(ledger))
		ledger->error = *error;
}

/* Count a failed row, keep what is wrong with it, and see whether to go on. */
void
rexp_ledger_failed_row(RexpLedger *ledger, int64 number, const char *key,
					   size_t key_len, const RexpError *reason)
{
	RexpCounters *counters = &ledger->counters;
	RexpError	error = *reason;
	char		text[sizeof(((RexpFailure *) NULL)->key)];

	rexp_printable(text, sizeof(text), key, key_len);
	counters->rows_failed++;
	rexp_progress_failure(ledger->progress, number, text, &error);

	if (counters->rows_failed <= REXP_FAILURES_KEPT)
	{
		/* a warning serves interrupts, and we are in the midst of a reply */
		HOLD_INTERRUPTS();
		ereport(WARNING,
				(errcode(error.sqlstate),
				 errmsg("row " INT64_FORMAT " with key \"%s\" failed: %s",
						number, text, error.message)));
		RESUME_INTERRUPTS();
	}

	if (!ledger->ignore_errors)
	{
		rexp_error_prefix(&error, "row " INT64_FORMAT " with key \"%s\" failed: ",
						  number, text);
		rexp_ledger_stop(ledger, &error);
	}
	else if (ledger->reject_limit >= 0 &&
			 counters->rows_failed > ledger->reject_limit)
	{
		rexp_error_prefix(&error, "more rows failed than the reject_limit of " INT64_FORMAT " allows, the last with key \"%s\": ",
						  ledger->reject_limit, text);
		rexp_ledger_stop(ledger, &error);
	}
}

/*
 * Show the ledger as it stands.  What is with Redis is in doubt for now, but for
 * what is there once more.
 */
void
rexp_ledger_publish(RexpLedger *ledger, int with_redis)
{
	RexpCounters *counters = &ledger->counters;

	counters->rows_in_doubt = Min(with_redis, counters->rows_read -
								  rexp_rows_held(counters) - counters->rows_failed -
								  counters->rows_skipped);
	rexp_progress_counters(ledger->progress, counters);
}

/* One part of the text below, if it is of interest. */
static void
append_part(StringInfo out, int64 rows, const char *what, bool always)
{
	if (rows > 0 || always)
		appendStringInfo(out, "%s" INT64_FORMAT " %s", out->len > 0 ? ", " : "", rows, what);
}

/*
 * rexp_ledger_text
 *	  What has become of the rows, in words; palloc'd.  "written" is what the first
 *	  of them is called.
 */
char *
rexp_ledger_text(const RexpCounters *counters, const char *written)
{
	StringInfoData text;

	initStringInfo(&text);
	append_part(&text, counters->rows_written, written, true);
	append_part(&text, counters->rows_unchanged, "unchanged", false);
	append_part(&text, counters->rows_failed, "failed", true);
	append_part(&text, counters->rows_skipped, "skipped", false);
	append_part(&text, counters->rows_in_doubt, "in doubt", true);
	append_part(&text, counters->keys_deleted, "pruned", false);
	return text.data;
}
