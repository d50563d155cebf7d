/*-------------------------------------------------------------------------
 *
 * server_options.c
 *	  Foreign servers and user mappings.
 *
 * One table says which options there are, where they belong and what they may
 * be; the validator and the lookup both go by it.  How a connection is made is
 * not known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "compat.h"
#include "foreign/foreign.h"
#include "server_options.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#define WRAPPER_NAME "redis_export"

typedef enum OptionKind
{
	OPTION_TEXT,
	OPTION_INTEGER,
	OPTION_SECONDS,				/* decimals allowed; milliseconds in the struct */
	OPTION_CLUSTER				/* true, false or auto */
} OptionKind;

typedef struct Option
{
	const char *name;
	Oid			catalog;		/* of the objects that have it */
	OptionKind	kind;
	double		least;
	double		most;
	size_t		offset;			/* in RexpLinkOptions */
} Option;

static const Option options_known[] = {
	{"host", ForeignServerRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, host)},
	{"port", ForeignServerRelationId, OPTION_INTEGER, 1, 65535,
	offsetof(RexpLinkOptions, port)},
	{"db", ForeignServerRelationId, OPTION_INTEGER, 0, 1000000,
	offsetof(RexpLinkOptions, db)},
	{"connect_timeout", ForeignServerRelationId, OPTION_SECONDS, 0.1, 86400,
	offsetof(RexpLinkOptions, connect_timeout)},
	{"timeout", ForeignServerRelationId, OPTION_SECONDS, 0.1, 86400,
	offsetof(RexpLinkOptions, timeout)},
	{"cluster", ForeignServerRelationId, OPTION_CLUSTER, 0, 0,
	offsetof(RexpLinkOptions, cluster)},
	{"client_name", ForeignServerRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, client_name)},
	{"username", UserMappingRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, username)},
	{"password", UserMappingRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, password)},
};

/* The hint for an option that does not belong here; for ereport(). */
static int
hint_option(const char *name, Oid catalog)
{
	const Option *nearest = NULL;
	int			least = 4;		/* edits that still make it likely */
	StringInfoData list;

	initStringInfo(&list);
	for (size_t i = 0; i < lengthof(options_known); i++)
	{
		const Option *option = &options_known[i];
		int			distance;

		if (option->catalog != catalog)
		{
			if (strcmp(option->name, name) == 0)
				return errhint(catalog == ForeignServerRelationId ?
						"\"%s\" is an option of user mappings, where it is kept from other roles." :
						catalog == UserMappingRelationId ?
						"\"%s\" is an option of the foreign server." :
						"\"%s\" is an option of foreign servers or user mappings.",
						name);
			continue;
		}
		distance = varstr_levenshtein_less_equal(name, (int) strlen(name),
												 option->name,
												 (int) strlen(option->name),
												 1, 1, 1, least, true);
		if (distance < least)
		{
			least = distance;
			nearest = option;
		}
		appendStringInfo(&list, "%s%s", list.len ? ", " : "", option->name);
	}
	if (nearest != NULL)
		return errhint("Perhaps you meant the option \"%s\".", nearest->name);
	if (list.len > 0)
		return errhint("Valid options in this context are: %s.", list.data);
	return errhint("There are no valid options in this context.");
}

/* The number that an option says, in the unit of the struct. */
static int
option_number(const Option *option, const char *text)
{
	char	   *end;
	double		number;

	errno = 0;
	number = strtod(text, &end);
	if (end == text || *end != '\0' || errno != 0 || !(number >= option->least) ||
		number > option->most ||
		(option->kind == OPTION_INTEGER && number != (int) number))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option->name, text),
				 option->kind == OPTION_INTEGER ?
				 errhint("It is a whole number from %g to %.0f.", option->least, option->most) :
				 errhint("It is a number of seconds from %g to %.0f.", option->least, option->most)));
	return (int) (option->kind == OPTION_SECONDS ? number * 1000 : number);
}

/* true, false or auto, as an option says. */
static RexpClusterMode
option_cluster(const Option *option, const char *text)
{
	bool		on;

	if (pg_strcasecmp(text, "auto") == 0)
		return REXP_CLUSTER_AUTO;
	if (!parse_bool(text, &on))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option->name, text),
				 errhint("It is true, false, or auto.")));
	return on ? REXP_CLUSTER_ON : REXP_CLUSTER_OFF;
}

static const Option *
known_option(const char *name, Oid catalog)
{
	for (size_t i = 0; i < lengthof(options_known); i++)
	{
		if (options_known[i].catalog == catalog &&
			strcmp(options_known[i].name, name) == 0)
			return &options_known[i];
	}
	return NULL;
}

/*
 * rexp_validate_options
 *	  Raise an error unless these options fit objects of this catalog.
 */
void
rexp_validate_options(List *options, Oid catalog)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);
		const char *value = defGetString(def);
		const Option *option = known_option(def->defname, catalog);

		if (option == NULL)
		{
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", def->defname),
					 hint_option(def->defname, catalog)));
		}
		if (option->kind == OPTION_CLUSTER)
			(void) option_cluster(option, value);
		else if (option->kind != OPTION_TEXT)
			(void) option_number(option, value);
		else if (strcmp(option->name, "host") == 0)
		{
			if (value[0] == '\0')
				ereport(ERROR,
						(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
						 errmsg("invalid value for option \"%s\": \"%s\"", "host", value),
						 errhint("It is a host name, an address, or the path of a Unix socket.")));
			if (value[0] == '/' && !superuser())
				ereport(ERROR,
						(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						 errmsg("permission denied to set option \"%s\" to the path of a socket", "host"),
						 errdetail("Only superusers may, as the server's own operating system user would enter there.")));
		}
		else if (strcmp(option->name, "client_name") == 0)
		{
			for (const char *at = value; *at != '\0'; at++)
			{
				if (*at <= ' ' || *at > '~')
					ereport(ERROR,
							(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
							 errmsg("invalid value for option \"%s\": \"%s\"", "client_name", value),
							 errhint("Redis allows no spaces or special characters in it.")));
			}
		}
	}
}

/*
 * rexp_find_server
 *	  The foreign server of this name, which must be one of ours that the user
 *	  may use.
 */
Oid
rexp_find_server(const char *name, Oid user)
{
	ForeignServer *server = GetForeignServerByName(name, true);
	ForeignDataWrapper *wrapper;
	AclResult	acl;

	if (server == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("server \"%s\" does not exist", name),
				 errhint("Create it: CREATE SERVER %s FOREIGN DATA WRAPPER redis_export OPTIONS (host '...', port '...').",
						 quote_identifier(name))));
	wrapper = GetForeignDataWrapper(server->fdwid);
	if (strcmp(wrapper->fdwname, WRAPPER_NAME) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("server \"%s\" is not a server of redis_export", name),
				 errdetail("Its foreign data wrapper is \"%s\".", wrapper->fdwname)));
	acl = rexp_server_aclcheck(server->serverid, user);
	if (acl != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for foreign server %s", name),
				 errhint("Its owner can grant it: GRANT USAGE ON FOREIGN SERVER %s TO %s.",
						 quote_identifier(name),
						 quote_identifier(GetUserNameFromId(user, false)))));
	return server->serverid;
}

/* Set the members that the options name. */
static void
apply_options(RexpLinkOptions *result, List *options, Oid catalog)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);
		const Option *option = known_option(def->defname, catalog);
		char	   *member;

		if (option == NULL)
			continue;
		member = (char *) result + option->offset;
		if (option->kind == OPTION_TEXT)
			*(const char **) member = pstrdup(defGetString(def));
		else if (option->kind == OPTION_CLUSTER)
			*(RexpClusterMode *) member = option_cluster(option, defGetString(def));
		else
			*(int *) member = option_number(option, defGetString(def));
	}
}

/* The user mapping of this user, or else that of PUBLIC; InvalidOid for none. */
static Oid
find_mapping(Oid server, Oid user, List **options)
{
	HeapTuple	tuple = SearchSysCache2(USERMAPPINGUSERSERVER,
										ObjectIdGetDatum(user),
										ObjectIdGetDatum(server));
	Oid			mapping;
	Datum		datum;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		tuple = SearchSysCache2(USERMAPPINGUSERSERVER,
								ObjectIdGetDatum(InvalidOid),
								ObjectIdGetDatum(server));
	*options = NIL;
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	mapping = ((Form_pg_user_mapping) GETSTRUCT(tuple))->oid;
	datum = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple,
							Anum_pg_user_mapping_umoptions, &isnull);
	if (!isnull)
		*options = untransformRelOptions(datum);
	ReleaseSysCache(tuple);
	return mapping;
}

/*
 * rexp_link_options
 *	  Where Redis is and how this user enters, palloc'd.  Needs a transaction.
 *
 * A user mapping is optional.  *mapping is set to it, if mapping is not NULL.
 */
RexpLinkOptions *
rexp_link_options(const char *name, Oid user, Oid *mapping)
{
	Oid			serverid = rexp_find_server(name, user);
	ForeignServer *server = GetForeignServer(serverid);
	RexpLinkOptions *result = palloc0(sizeof(RexpLinkOptions));
	List	   *options;
	Oid			found = find_mapping(serverid, user, &options);

	result->server = pstrdup(name);
	result->host = "127.0.0.1";
	result->port = 6379;
	result->connect_timeout = 10 * 1000;
	result->timeout = 60 * 1000;
	result->client_name = "redis_export";
	apply_options(result, server->options, ForeignServerRelationId);
	apply_options(result, options, UserMappingRelationId);
	if (result->username != NULL && result->password == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("the user mapping for server \"%s\" has a username and no password",
						name)));
	if (mapping != NULL)
		*mapping = found;
	return result;
}
