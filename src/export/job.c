/*-------------------------------------------------------------------------
 *
 * job.c
 *	  What follows from the arguments of an export: the session of its query, and the
 *	  books that it is kept in.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "base/compat.h"
#include "base/encoding.h"
#include "common/hashfn.h"
#include "export/job.h"
#include "mb/pg_wchar.h"
#include "session/server_options.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

/*
 * rexp_job_session
 *	  The session that the query of a named export has, palloc'd; NULL if the export has
 *	  no name, and the session is the caller's.
 */
const RexpSession *
rexp_job_session(const RexpJob *job)
{
	RexpSession *session;

	if (!OidIsValid(job->owner))
		return NULL;
	session = palloc(sizeof(RexpSession));
	rexp_session_describe(session, job->owner, job->settings);
	return session;
}

/*
 * rexp_definitions_scan
 *	  Begin to read the table of definitions: all of them, or the one of this name unless
 *	  that is NULL.  No operator is looked up for it, and no code of users runs.
 */
SysScanDesc
rexp_definitions_scan(Relation table, const char *name)
{
	ScanKeyData key;

	if (name != NULL)
		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	return systable_beginscan(table, rexp_primary_key_index(table), name != NULL, NULL,
							  name != NULL ? 1 : 0, &key);
}

/*
 * rexp_definition_fingerprint
 *	  What tells the row of a definition from what it is after a change.
 */
uint64
rexp_definition_fingerprint(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;

	return hash_bytes_extended((const unsigned char *) header + header->t_hoff,
							   tuple->t_len - header->t_hoff, 0);
}

/*
 * rexp_job_check_definition
 *	  Raise an error unless the definition of the export is still what it was when the job
 *	  was started, and its owner may still use the server.  Needs a transaction.
 *
 * Waits for a transaction that is about to change a definition.  A job that reads no
 * rows deletes the keys of an export which may be gone.
 */
void
rexp_job_check_definition(const RexpJob *job)
{
	Relation	table;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		same;

	if (job->rows == REXP_ROWS_NONE)
		return;
	table = table_open(job->definitions, RowExclusiveLock);
	scan = rexp_definitions_scan(table, job->name);
	tuple = systable_getnext(scan);
	same = HeapTupleIsValid(tuple) && rexp_definition_fingerprint(tuple) == job->fingerprint;
	systable_endscan(scan);
	table_close(table, NoLock);
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("export \"%s\" was changed or dropped after this run was started",
						job->name),
				 errhint("Run it again.")));
	(void) rexp_find_server(job->server, job->owner);
}

/*
 * rexp_job_books
 *	  The books of an export, which has this name, in the current memory context.  asked is
 *	  whether Redis is asked for each row if it has it.
 */
RexpBooks *
rexp_job_books(const RexpJob *job, const char *name, bool asked)
{
	const RexpEncoding *encoding = &job->encoding;
	char	   *meaning = psprintf("%s %s %d %s", job->id != NULL ? job->id : "",
								   rexp_encoding_type(encoding), encoding->replace,
								   GetDatabaseEncodingName());

	return rexp_books_create(rexp_literal_utf8(name, strlen(name)), meaning,
							 rexp_encoding_type(encoding), asked);
}
