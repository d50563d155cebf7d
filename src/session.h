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
	Oid			current_user;
	int			sec_context;
	int			statement_timeout;	/* milliseconds */
	const char *role;			/* of SET ROLE, or "none" */
	int			nsettings;
	RexpSetting *settings;
} RexpSession;

extern void rexp_session_capture(RexpSession *session);
extern void rexp_session_connect(const RexpSession *session);
extern void rexp_session_assume(const RexpSession *session);

#endif							/* REDIS_EXPORT_SESSION_H */
