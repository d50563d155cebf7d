/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The session that a query has, taken over to the worker.
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
 * An export with a name runs as its owner, and means the same whoever runs it.  So
 * what has a say in the meaning of a query is as it was when the export was defined
 * (rexp_session_meaning), and settings with a dot in their name are those that the
 * owner and the database have by default; only how it runs (work_mem, the planner,
 * timeouts) is up to who runs it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "base/compat.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "session/session.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/rel.h"
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

/* What a query means, or what values look like as text, depends on these. */
static const char *const meaning[] = {
	"array_nulls",
	"backslash_quote",
	"bytea_output",
	"DateStyle",
	"default_text_search_config",
	"extra_float_digits",
	"gin_fuzzy_search_limit",
	"IntervalStyle",
	"lc_monetary",
	"lc_numeric",
	"lc_time",
	"quote_all_identifiers",
	"row_security",
	"search_path",
	"standard_conforming_strings",
	"synchronize_seqscans",
	"TimeZone",
	"timezone_abbreviations",
	"transform_null_equals",
	"xmlbinary",
	"xmloption"
};

static bool
has_dot(const char *name)
{
	return strchr(name, '.') != NULL;
}

/* Is it a setting of the definition's, and none of who runs it? */
static bool
is_of_definition(const char *name)
{
	for (size_t i = 0; i < lengthof(meaning); i++)
	{
		if (pg_strcasecmp(name, meaning[i]) == 0)
			return true;
	}
	return has_dot(name);
}

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
 * rexp_session_meaning
 *	  What in this session has a say in the meaning of a query: a list of palloc'd
 *	  char *, name=value, to be kept with the definition of an export.
 */
List *
rexp_session_meaning(void)
{
	List	   *settings = NIL;

	for (size_t i = 0; i < lengthof(meaning); i++)
	{
		const char *value = GetConfigOption(meaning[i], true, false);

		if (value != NULL)
			settings = lappend(settings, psprintf("%s=%s", meaning[i], value));
	}
	return settings;
}

static void
add_setting(RexpSession *session, const char *name, const char *value, bool by_user,
			Oid role)
{
	RexpSetting *setting;

	session->settings = session->nsettings == 0 ? palloc(sizeof(RexpSetting)) :
		repalloc(session->settings, sizeof(RexpSetting) * (session->nsettings + 1));
	setting = &session->settings[session->nsettings++];
	setting->name = pstrdup(name);
	setting->value = pstrdup(value);
	setting->by_user = by_user;
	setting->role = role;
}

/* The same for a setting as name=value. */
static void
add_pair(RexpSession *session, const char *pair, bool by_user, Oid role)
{
	const char *equals = strchr(pair, '=');

	if (equals != NULL)
		add_setting(session, pnstrdup(pair, equals - pair), equals + 1, by_user, role);
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
 * Add the settings with a dot in their name that ALTER ROLE or ALTER DATABASE has made
 * the default here for this role, or for all (role 0) or everywhere (database 0).
 */
static void
add_defaults(RexpSession *session, Oid database, Oid role)
{
	Relation	relation = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(database));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(role));
	scan = systable_beginscan(relation, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Datum		array = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
										 RelationGetDescr(relation), &isnull);
		Datum	   *pairs;
		int			npairs = 0;

		if (!isnull)
			deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT,
							  &pairs, NULL, &npairs);
		for (int i = 0; i < npairs; i++)
		{
			char	   *pair = TextDatumGetCString(pairs[i]);
			char	   *name = pnstrdup(pair, strcspn(pair, "="));

			if (has_dot(name) && !is_captured(session, name))
				add_pair(session, pair, false, role);
		}
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
}

/*
 * rexp_session_describe
 *	  The session that a query has, palloc'd: that of the caller, or, with an owner, that
 *	  of an export which is defined with these settings (of char *, name=value).
 */
void
rexp_session_describe(RexpSession *session, Oid owner, List *defined)
{
	struct config_generic **settings;
	int			count;
	ListCell   *cell;

	memset(session, 0, sizeof(RexpSession));
	session->database = MyDatabaseId;
	session->session_user = GetSessionUserId();
	GetUserIdAndSecContext(&session->current_user, &session->sec_context);
	session->statement_timeout = StatementTimeout;
	session->role = pstrdup(OidIsValid(owner) ? "none" :
							GetConfigOption("role", false, false));

	settings = rexp_guc_variables(&count);
	for (int i = 0; i < count; i++)
	{
		const char *value;

		if (!is_taken_over(settings[i]) ||
			(OidIsValid(owner) && is_of_definition(settings[i]->name)))
			continue;
		value = GetConfigOption(settings[i]->name, true, false);
		if (value != NULL)
			add_setting(session, settings[i]->name, value,
						settings[i]->scontext == PGC_USERSET, settings[i]->srole);
	}
	if (!OidIsValid(owner))
		return;

	session->current_user = owner;
	foreach(cell, defined)
		add_pair(session, lfirst(cell), true, owner);
	add_defaults(session, session->database, owner);
	add_defaults(session, InvalidOid, owner);
	add_defaults(session, session->database, InvalidOid);
	add_defaults(session, InvalidOid, InvalidOid);
}

/*
 * rexp_session_capture
 *	  The same for a worker.  Raises an error if it could not be its equal.
 */
void
rexp_session_capture(RexpSession *session, Oid owner, List *defined)
{
	HeapTuple	tuple;
	bool		can_login;

	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot export within a security-restricted operation")));

	rexp_session_describe(session, owner, defined);
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
}

/* In the worker: connect.  What fails here is FATAL. */
void
rexp_session_connect(const RexpSession *session)
{
	BackgroundWorkerInitializeConnectionByOid(session->database,
											  session->session_user,
											  REXP_BGWORKER_CONNECT_FLAGS);
}

/* Set a setting, with our own rights or all. */
static void
set_as(const char *name, const char *value, GucContext context, GucAction action)
{
	(void) set_config_option(name, value, context, PGC_S_SESSION, action, true, ERROR,
							 false);
}

/* For the rest of the session. */
static void
set(const char *name, const char *value, GucContext context)
{
	set_as(name, value, context, GUC_ACTION_SET);
}

/* Take over the settings that are not so yet, each by the rights by which it was set. */
static void
take_over(const RexpSession *session, GucAction action)
{
	for (int i = 0; i < session->nsettings; i++)
	{
		const RexpSetting *setting = &session->settings[i];
		const char *value = GetConfigOption(setting->name, true, false);

		if (value != NULL && strcmp(value, setting->value) == 0)
			continue;
		if (!setting->by_user)
			set_as(setting->name, setting->value, PGC_SUSET, action);
		else
			(void) set_config_option_ext(setting->name, setting->value, PGC_USERSET,
										 PGC_S_SESSION, setting->role, action, true,
										 ERROR, false);
	}
}

/*
 * Settings with a dot in their name that the role or the database gave us and
 * the caller does not have.  There is no way back to none; empty is what comes
 * after a SET LOCAL.
 */
static void
empty_settings_of_role(const RexpSession *session, GucAction action)
{
	int			count;
	struct config_generic **settings = rexp_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		if ((settings[i]->flags & GUC_CUSTOM_PLACEHOLDER) != 0 &&
			settings[i]->source >= PGC_S_GLOBAL &&
			!is_captured(session, settings[i]->name))
			set_as(settings[i]->name, "", PGC_USERSET, action);
	}
}

/*
 * rexp_session_enter
 *	  In a subtransaction, of which the end takes it back: set this session as the
 *	  query of an export has it.
 */
void
rexp_session_enter(const RexpSession *session)
{
	empty_settings_of_role(session, GUC_ACTION_LOCAL);
	take_over(session, GUC_ACTION_LOCAL);
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
	empty_settings_of_role(session, GUC_ACTION_SET);
	take_over(session, GUC_ACTION_SET);

	/* the caller decides how long the whole may take, not a default */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set("transaction_timeout", "0", PGC_SUSET);
	set("application_name", "redis_export", PGC_USERSET);
	if (strcmp(session->role, "none") != 0)
		set("role", session->role, PGC_USERSET);
}
