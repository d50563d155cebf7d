/*-------------------------------------------------------------------------
 *
 * job.c
 *	  What follows from the arguments of an export: the session of its query, and the
 *	  books that it is kept in.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/encoding.h"
#include "export/job.h"
#include "mb/pg_wchar.h"

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
