/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The caller's session: who it is and how it is set, taken over to the
 *	  worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SESSION_H
#define REDIS_EXPORT_SESSION_H

#include "lib/stringinfo.h"

typedef struct RexpSession
{
	Oid			database;
	Oid			session_user;
	Oid			current_user;
	int			sec_context;
	int			statement_timeout;	/* milliseconds */
	const char *role;			/* of SET ROLE, or "none" */
	int			nsettings;
	const char **names;
	const char **values;
} RexpSession;

/* Who we were before we took the rights of the query. */
typedef struct RexpIdentity
{
	Oid			user;
	int			sec_context;
} RexpIdentity;

extern void rexp_session_capture(RexpSession *session);
extern void rexp_session_connect(const RexpSession *session);
extern void rexp_session_assume(const RexpSession *session);
extern void rexp_session_enter(const RexpSession *session, RexpIdentity *saved);
extern void rexp_session_leave(const RexpIdentity *saved);

#endif							/* REDIS_EXPORT_SESSION_H */
