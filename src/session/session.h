/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The session that a query has: who it is and how it is set, which is taken
 *	  over to the worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SESSION_H
#define REDIS_EXPORT_SESSION_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

/* A setting, and by whose rights it was set. */
typedef struct RexpSetting
{
	const char *name;
	const char *value;
	bool		by_user;		/* not by a superuser or the configuration */
	Oid			role;			/* that set it */
} RexpSetting;

typedef struct RexpSession
{
	Oid			database;
	Oid			session_user;
	Oid			current_user;	/* of the query: the caller, or an owner */
	int			sec_context;
	int			statement_timeout;	/* milliseconds */
	const char *role;			/* of SET ROLE, or "none" */
	int			nsettings;
	RexpSetting *settings;
} RexpSession;

/* in the caller */
extern void rexp_session_describe(RexpSession *session, Oid owner, List *settings);
extern void rexp_session_capture(RexpSession *session, Oid owner, List *settings);
extern void rexp_session_enter(const RexpSession *session);
extern List *rexp_session_meaning(void);

/* in the worker */
extern void rexp_session_connect(const RexpSession *session);
extern void rexp_session_assume(const RexpSession *session);

#endif							/* REDIS_EXPORT_SESSION_H */
