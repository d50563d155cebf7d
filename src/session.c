/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The caller's session, taken over to the worker.
 *
 * The worker connects as the session user, sets the role that the caller had
 * set, and runs the query as the caller's current user, which in a SECURITY
 * DEFINER function is its owner; fence.c sees to it that nothing in the query gets
 * back to the session user's rights.
 *
 * Settings go along, so that the query means the same: search_path, TimeZone,
 * row_security, the planner's and all that have a dot in their name, by which
 * row-level security policies know tenants.  That goes for those, too, that the
 * caller's session has not set: a setting of its role or its database that is
 * younger than the session, or was not its own before SET SESSION
 * AUTHORIZATION, is in force in the worker and not in the session.
 *
 * Each is set by the rights by which it was set in the caller's session.  A user
 * can give any value to a setting of a module that is not loaded yet; when it is
 * loaded and turns out to be for superusers, the value is thrown away, and so
 * it must be in the worker.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "miscadmin.h"
#include "session.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/syscache.h"

/*
 * Settings that are not taken over: who we are (done otherwise), what belongs
 * to the one transaction or connection, and timeouts that the caller keeps.
 */
static const char *const left_behind[] = {
	"application_name",
	"client_encoding",
	"idle_in_transaction_session_timeout",
	"idle_session_timeout",
	"is_superuser",
	"role",
	"seed",
	"session_authorization",
	"statement_timeout",
	"transaction_deferrable",
	"transaction_isolation",
	"transaction_read_only",
	"transaction_timeout",
};

static bool
is_taken_over(const struct config_generic *setting)
{
	if (setting->context != PGC_USERSET && setting->context != PGC_SUSET)
		return false;
	/* the worker may not have loaded the module whose default it is */
	if (setting->group == CUSTOM_OPTIONS && setting->source == PGC_S_DEFAULT)
		return false;
	for (size_t i = 0; i < lengthof(left_behind); i++)
	{
		if (strcmp(setting->name, left_behind[i]) == 0)
			return false;
	}
	return true;
}

/*
 * rexp_session_capture
 *	  What this session is and how it is set, palloc'd.
 *
 * Raises an error if a worker could not be its equal.
 */
void
rexp_session_capture(RexpSession *session)
{
	struct config_generic **settings;
	int			count;
	HeapTuple	tuple;
	bool		can_login;

	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot export within a security-restricted operation")));

	session->database = MyDatabaseId;
	session->session_user = GetSessionUserId();
	GetUserIdAndSecContext(&session->current_user, &session->sec_context);
	session->statement_timeout = StatementTimeout;
	session->role = pstrdup(GetConfigOption("role", false, false));

	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(session->session_user));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for role %u", session->session_user);
	can_login = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	ReleaseSysCache(tuple);
	if (!can_login && !REXP_NOLOGIN_WORKER)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("cannot export as session user \"%s\", which is not permitted to log in",
						GetUserNameFromId(session->session_user, false)),
				 errhint("Use SET ROLE in place of SET SESSION AUTHORIZATION, or PostgreSQL 17 or later.")));

	settings = rexp_guc_variables(&count);
	session->nsettings = 0;
	session->settings = palloc0(sizeof(RexpSetting) * count);
	for (int i = 0; i < count; i++)
	{
		RexpSetting *setting = &session->settings[session->nsettings];
		const char *value;

		if (!is_taken_over(settings[i]))
			continue;
		value = GetConfigOption(settings[i]->name, true, false);
		if (value == NULL)
			continue;
		setting->name = pstrdup(settings[i]->name);
		setting->value = pstrdup(value);
		setting->by_user = settings[i]->scontext == PGC_USERSET;
		setting->role = settings[i]->srole;
		session->nsettings++;
	}
}

/* In the worker: connect.  What fails here is FATAL. */
void
rexp_session_connect(const RexpSession *session)
{
	BackgroundWorkerInitializeConnectionByOid(session->database,
											  session->session_user,
											  REXP_BGWORKER_CONNECT_FLAGS);
}

/* Set a setting for the rest of the session, with our own rights or all. */
static void
set(const char *name, const char *value, GucContext context)
{
	(void) set_config_option(name, value, context, PGC_S_SESSION,
							 GUC_ACTION_SET, true, ERROR, false);
}

/* Take over a setting, by the rights by which it was set. */
static void
take_over(const RexpSetting *setting)
{
	if (!setting->by_user)
		set(setting->name, setting->value, PGC_SUSET);
	else
		(void) set_config_option_ext(setting->name, setting->value, PGC_USERSET,
									 PGC_S_SESSION, setting->role,
									 GUC_ACTION_SET, true, ERROR, false);
}

static bool
is_captured(const RexpSession *session, const char *name)
{
	for (int i = 0; i < session->nsettings; i++)
	{
		if (pg_strcasecmp(session->settings[i].name, name) == 0)
			return true;
	}
	return false;
}

/*
 * Settings with a dot in their name that the role or the database gave us and
 * the caller does not have.  There is no way back to none; empty is what comes
 * after a SET LOCAL.
 */
static void
empty_settings_of_role(const RexpSession *session)
{
	int			count;
	struct config_generic **settings = rexp_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		if ((settings[i]->flags & GUC_CUSTOM_PLACEHOLDER) != 0 &&
			settings[i]->source >= PGC_S_GLOBAL &&
			!is_captured(session, settings[i]->name))
			set(settings[i]->name, "", PGC_USERSET);
	}
}

/*
 * rexp_session_assume
 *	  In the worker, in a transaction: take over settings and role.
 *
 * A setting that cannot be taken over is an error: without it the query could
 * mean something else.
 */
void
rexp_session_assume(const RexpSession *session)
{
	empty_settings_of_role(session);
	for (int i = 0; i < session->nsettings; i++)
	{
		const RexpSetting *setting = &session->settings[i];
		const char *value = GetConfigOption(setting->name, true, false);

		if (value == NULL || strcmp(value, setting->value) != 0)
			take_over(setting);
	}

	/* the caller decides how long the whole may take, not a default */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set("transaction_timeout", "0", PGC_SUSET);
	set("application_name", "redis_export", PGC_USERSET);
	if (strcmp(session->role, "none") != 0)
		set("role", session->role, PGC_USERSET);
}
