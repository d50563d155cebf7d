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
#include "access/xact.h"
#include "base/compat.h"
#include "base/encoding.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "redis/connect.h"
#include "session/fence.h"
#include "session/server_options.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#define WRAPPER_NAME "redis_export"

typedef enum OptionKind
{
	OPTION_TEXT,
	OPTION_WORD,				/* sent to Redis, so it is in UTF-8 in the struct */
	OPTION_FILE,				/* read by the server's operating system user */
	OPTION_INTEGER,
	OPTION_SECONDS,				/* decimals allowed; milliseconds in the struct */
	OPTION_BOOLEAN,
	OPTION_URI,					/* sets host, port, db and tls.enabled */
	OPTION_VERIFY,				/* RexpTlsVerify */
	OPTION_CLUSTER				/* RexpClusterMode */
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
	{"db", ForeignServerRelationId, OPTION_INTEGER, 0, REXP_DB_MOST,
	offsetof(RexpLinkOptions, db)},
	{"uri", ForeignServerRelationId, OPTION_URI, 0, 0,
	offsetof(RexpLinkOptions, host)},
	{"connect_timeout", ForeignServerRelationId, OPTION_SECONDS, 0.1, 86400,
	offsetof(RexpLinkOptions, connect_timeout)},
	{"timeout", ForeignServerRelationId, OPTION_SECONDS, 0.1, 86400,
	offsetof(RexpLinkOptions, timeout)},
	{"cluster", ForeignServerRelationId, OPTION_CLUSTER, 0, 0,
	offsetof(RexpLinkOptions, cluster)},
	{"client_name", ForeignServerRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, client_name)},
	{"tls", ForeignServerRelationId, OPTION_BOOLEAN, 0, 0,
	offsetof(RexpLinkOptions, tls.enabled)},
	{"tls_ca_file", ForeignServerRelationId, OPTION_FILE, 0, 0,
	offsetof(RexpLinkOptions, tls.ca_file)},
	{"tls_cert_file", ForeignServerRelationId, OPTION_FILE, 0, 0,
	offsetof(RexpLinkOptions, tls.cert_file)},
	{"tls_key_file", ForeignServerRelationId, OPTION_FILE, 0, 0,
	offsetof(RexpLinkOptions, tls.key_file)},
	{"tls_server_name", ForeignServerRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, tls.server_name)},
	{"tls_verify", ForeignServerRelationId, OPTION_VERIFY, 0, 0,
	offsetof(RexpLinkOptions, tls.verify)},
	{"sentinel_hosts", ForeignServerRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, sentinel_hosts)},
	{"sentinel_service", ForeignServerRelationId, OPTION_WORD, 0, 0,
	offsetof(RexpLinkOptions, sentinel_service)},
	{"sentinel_tls", ForeignServerRelationId, OPTION_BOOLEAN, 0, 0,
	offsetof(RexpLinkOptions, sentinel_tls.enabled)},
	{"sentinel_tls_ca_file", ForeignServerRelationId, OPTION_FILE, 0, 0,
	offsetof(RexpLinkOptions, sentinel_tls.ca_file)},
	{"sentinel_tls_cert_file", ForeignServerRelationId, OPTION_FILE, 0, 0,
	offsetof(RexpLinkOptions, sentinel_tls.cert_file)},
	{"sentinel_tls_key_file", ForeignServerRelationId, OPTION_FILE, 0, 0,
	offsetof(RexpLinkOptions, sentinel_tls.key_file)},
	{"sentinel_tls_server_name", ForeignServerRelationId, OPTION_TEXT, 0, 0,
	offsetof(RexpLinkOptions, sentinel_tls.server_name)},
	{"sentinel_tls_verify", ForeignServerRelationId, OPTION_VERIFY, 0, 0,
	offsetof(RexpLinkOptions, sentinel_tls.verify)},
	{"sentinel_username", UserMappingRelationId, OPTION_WORD, 0, 0,
	offsetof(RexpLinkOptions, sentinel_username)},
	{"sentinel_password", UserMappingRelationId, OPTION_WORD, 0, 0,
	offsetof(RexpLinkOptions, sentinel_password)},
	{"username", UserMappingRelationId, OPTION_WORD, 0, 0,
	offsetof(RexpLinkOptions, username)},
	{"password", UserMappingRelationId, OPTION_WORD, 0, 0,
	offsetof(RexpLinkOptions, password)},
};

static const struct
{
	const char *word;
	RexpTlsVerify verify;
}			verify_words[] = {
	{"full", REXP_TLS_VERIFY_FULL},
	{"ca", REXP_TLS_VERIFY_CA},
	{"off", REXP_TLS_VERIFY_OFF},
	{"none", REXP_TLS_VERIFY_OFF},
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

/* Raise an error: the value of this option is none that it can have. */
static void
refuse_value(const char *name, const char *value, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", name, value),
			 errhint("%s", hint)));
}

/* The number that an option says, in the unit of the struct. */
static int
option_number(const Option *option, const char *text)
{
	char	   *end;
	double		number;

	errno = 0;
	number = strtod(text, &end);
	if (end == text || *end != '\0' || errno != 0 ||
		strspn(text, "+-.0123456789eE") != strlen(text) || !(number >= option->least) ||
		number > option->most ||
		(option->kind == OPTION_INTEGER && number != (int) number))
		refuse_value(option->name, text,
					 psprintf(option->kind == OPTION_INTEGER ?
							  "It is a whole number from %g to %.0f." :
							  "It is a number of seconds from %g to %.0f.",
							  option->least, option->most));
	return (int) (option->kind == OPTION_SECONDS ? number * 1000 : number);
}

/* true, false or auto, as an option says. */
static RexpClusterMode
option_cluster(const Option *option, const char *text)
{
	bool		on = false;

	if (pg_strcasecmp(text, "auto") == 0)
		return REXP_CLUSTER_AUTO;
	if (!parse_bool(text, &on))
		refuse_value(option->name, text, "It is true, false, or auto.");
	return on ? REXP_CLUSTER_ON : REXP_CLUSTER_OFF;
}

static bool
option_boolean(const Option *option, const char *text)
{
	bool		value = false;

	if (!parse_bool(text, &value))
		refuse_value(option->name, text, "It is true or false.");
	return value;
}

static RexpTlsVerify
option_verify(const Option *option, const char *text)
{
	for (size_t i = 0; i < lengthof(verify_words); i++)
	{
		if (pg_strcasecmp(text, verify_words[i].word) == 0)
			return verify_words[i].verify;
	}
	refuse_value(option->name, text,
				 "It is full (who signed the certificate, and its name), ca (who signed it) or off.");
	return REXP_TLS_VERIFY_FULL;	/* keeps the compiler quiet */
}

/* Set what a URI says; an error does not repeat it, since it may hold a password. */
static void
apply_uri(RexpLinkOptions *result, const char *name, const char *value)
{
	RexpUri		uri;
	const char *hint;
	const char *fault = rexp_address_uri(&uri, value, &hint);

	if (fault != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\"", name),
				 errdetail("%s", fault),
				 hint != NULL ? errhint("%s", hint) : 0));
	result->host = pstrdup(uri.address.host);
	result->port = uri.address.port;
	result->db = uri.db;
	result->tls.enabled = uri.tls;
}

/* Set the member that an option stands for, or those. */
static void
apply_option(RexpLinkOptions *result, const Option *option, const char *value)
{
	void	   *member = (char *) result + option->offset;

	switch (option->kind)
	{
		case OPTION_TEXT:
		case OPTION_FILE:
			*(const char **) member = pstrdup(value);
			break;
		case OPTION_WORD:
			*(const char **) member = rexp_literal_utf8(value, strlen(value));
			break;
		case OPTION_INTEGER:
		case OPTION_SECONDS:
			*(int *) member = option_number(option, value);
			break;
		case OPTION_BOOLEAN:
			*(bool *) member = option_boolean(option, value);
			break;
		case OPTION_URI:
			apply_uri(result, option->name, value);
			break;
		case OPTION_VERIFY:
			*(RexpTlsVerify *) member = option_verify(option, value);
			break;
		case OPTION_CLUSTER:
			*(RexpClusterMode *) member = option_cluster(option, value);
			break;
	}
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

/* Raise an error unless the user is a superuser. */
static void
require_superuser(const char *option, const char *what, const char *detail)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"%s\"%s", option, what),
				 errdetail("%s", detail)));
}

/* A URI has an option of its own; it may hold a password, which an error is not to repeat. */
static void
refuse_uri(const char *option, const char *value, const char *hint)
{
	if (strstr(value, "://") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"%s\": it is a URI", option),
				 errhint("%s", hint)));
}

/* What is sent to a server as a word of its own is a word. */
static void
validate_word(const char *option, const char *value, const char *hint)
{
	bool		good = value[0] != '\0';

	for (const char *at = value; *at != '\0'; at++)
		good &= (unsigned char) *at >= ' ' && *at != 0x7f;
	if (!good)
		refuse_value(option, value, hint);
}

/* The option "host", which for superusers may be the path of a socket. */
static void
validate_host(const char *value)
{
	const char *fault = rexp_host_fault(value, true);

	if (value[0] != '/')
		refuse_uri("host", value,
				   pg_strncasecmp(value, "unix:", strlen("unix:")) == 0 ?
				   "Give the path of a Unix socket alone." :
				   "Give it as option \"uri\", without user name and password, which are options of a user mapping.");
	if (fault != NULL)
		refuse_value("host", value, fault);
	if (value[0] == '/')
		require_superuser("host", " to the path of a socket",
						  "Only superusers may, as the server's own operating system user would enter there.");
}

static const char hint_at_sentinels[] =
	"It is a list as in host1:26379,host2:26379; 26379 is the port by default.";

/* Is the value one that the option can have, and this user may give it? */
static void
validate_value(const Option *option, const char *value)
{
	RexpLinkOptions ignored;

	apply_option(&ignored, option, value);
	if (strcmp(option->name, "host") == 0)
		validate_host(value);
	else if (option->kind == OPTION_FILE)
	{
		if (value[0] == '\0')
			refuse_value(option->name, value,
						 "It is the path of a file in PEM format on the server.");
		require_superuser(option->name, "",
						  "Only superusers may, as the server's own operating system user would read the file.");
	}
	else if (strcmp(option->name, "tls_server_name") == 0 ||
			 strcmp(option->name, "sentinel_tls_server_name") == 0)
	{
		if (rexp_host_fault(value, false) != NULL)
			refuse_value(option->name, value,
						 "It is a name or an address in the certificate.");
	}
	else if (strcmp(option->name, "sentinel_hosts") == 0)
	{
		refuse_uri("sentinel_hosts", value, hint_at_sentinels);
		if (!rexp_sentinel_hosts_are_valid(value))
			refuse_value("sentinel_hosts", value, hint_at_sentinels);
	}
	else if (strcmp(option->name, "sentinel_service") == 0)
		validate_word("sentinel_service", value,
					  "It is the name by which sentinels know the master.");
	else if (strcmp(option->name, "client_name") == 0)
	{
		for (const char *at = value; *at != '\0'; at++)
		{
			if (*at <= ' ' || *at > '~')
				refuse_value("client_name", value,
							 "Redis allows no spaces or special characters in it.");
		}
	}
}

/*
 * Raise an error if a server has the option "uri", and another that says the same or
 * asks for a TLS that the URI has not.
 */
static void
validate_uri(List *options, const RexpLinkOptions *all)
{
	static const char *const said[] = {"host", "port", "db", "tls", "sentinel_hosts"};
	bool		given = false;
	ListCell   *cell;

	foreach(cell, options)
		given |= strcmp(lfirst_node(DefElem, cell)->defname, "uri") == 0;
	if (!given)
		return;
	foreach(cell, options)
	{
		const char *name = lfirst_node(DefElem, cell)->defname;

		for (size_t i = 0; i < lengthof(said); i++)
		{
			if (strcmp(name, said[i]) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
						 errmsg("option \"%s\" cannot be used with option \"%s\"",
								name, "uri"),
						 errdetail("The URI says host, port, database and whether to use TLS."),
						 strcmp(name, "tls") == 0 ?
						 errhint("Begin the URI with rediss:// for TLS, or with redis:// for none.") : 0));
		}
		if (strncmp(name, "tls_", strlen("tls_")) == 0 && !all->tls.enabled)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
					 errmsg("option \"%s\" cannot be used with a URI without TLS", name),
					 errhint("Begin the URI with rediss:// for TLS.")));
	}
}

/* Do the options for TLS fit together? */
static void
validate_tls(List *options, const char *prefix, const RexpTlsOptions *tls,
			 const char *host)
{
	bool		tls_is_set = false;
	const char *other = NULL;
	RexpError	error;
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);

		if (strcmp(def->defname, prefix) == 0 ||
			(strcmp(def->defname, "uri") == 0 && strcmp(prefix, "tls") == 0))
			tls_is_set = true;
		else if (strncmp(def->defname, prefix, strlen(prefix)) == 0)
			other = def->defname;
	}

	if ((tls->cert_file == NULL) != (tls->key_file == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("option \"%s_%s\" is required with option \"%s_%s\"",
						prefix, tls->cert_file ? "key_file" : "cert_file",
						prefix, tls->cert_file ? "cert_file" : "key_file")));
	/* nobody who gave a certificate meant to go without TLS */
	if (other != NULL && !tls_is_set)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("option \"%s\" is required with option \"%s\"", prefix, other),
				 errhint("Set the option \"%s\" to true.", prefix)));
	if (!tls->enabled)
		return;
	if (!rexp_tls_supported(&error))
		rexp_error_raise(&error);
	if (host != NULL && host[0] == '/' && tls->server_name == NULL &&
		tls->verify == REXP_TLS_VERIFY_FULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("option \"%s\" is required with TLS over a socket",
						"tls_server_name"),
				 errdetail("A socket has no name that a certificate could have.")));
}

/* Raise an error unless the sentinels' options of a server fit together. */
static void
validate_sentinel(const RexpLinkOptions *all)
{
	if ((all->sentinel_hosts == NULL) != (all->sentinel_service == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("option \"%s\" is required with option \"%s\"",
						all->sentinel_hosts ? "sentinel_service" : "sentinel_hosts",
						all->sentinel_hosts ? "sentinel_hosts" : "sentinel_service")));
	if (all->sentinel_hosts == NULL)
		return;
	if (all->host != NULL || all->port != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("option \"%s\" cannot be used with option \"%s\"",
						all->host ? "host" : "port", "sentinel_hosts"),
				 errdetail("The sentinels tell where the master is.")));
	if (all->cluster == REXP_CLUSTER_ON)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("option \"%s\" cannot be used with option \"%s\"",
						"cluster", "sentinel_hosts"),
				 errdetail("The nodes of a Redis Cluster find out among themselves who is a master.")));
}

/* Raise an error unless the options of a server fit together. */
static void
validate_server(List *options)
{
	RexpLinkOptions all = {0};
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);

		apply_option(&all, known_option(def->defname, ForeignServerRelationId),
					 defGetString(def));
	}
	validate_uri(options, &all);
	validate_tls(options, "tls", &all.tls, all.host);
	validate_tls(options, "sentinel_tls", &all.sentinel_tls, NULL);
	validate_sentinel(&all);
}

/*
 * rexp_validate_options
 *	  Raise an error unless these options, all that an object shall have, fit
 *	  objects of this catalog.
 */
void
rexp_validate_options(List *options, Oid catalog)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);
		const Option *option = known_option(def->defname, catalog);

		if (option == NULL)
		{
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", def->defname),
					 hint_option(def->defname, catalog)));
		}
		validate_value(option, defGetString(def));
	}
	if (catalog == ForeignServerRelationId)
		validate_server(options);
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

		if (option != NULL)
			apply_option(result, option, defGetString(def));
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

/* Take over a text that has changed; the one before may be in use elsewhere. */
static void
take_text(const char **text, const char *now)
{
	if (now == NULL)
		*text = NULL;
	else if (*text == NULL || strcmp(*text, now) != 0)
		*text = MemoryContextStrdup(TopMemoryContext, now);
}

/* Read the user mapping once more, in a transaction. */
static void
read_mapping(RexpLinkOptions *options)
{
	RexpLinkOptions now = {0};
	List	   *given;

	/* gone, or no good: what was known may still be right */
	if (!OidIsValid(find_mapping(options->serverid, options->user, &given)))
		return;
	apply_options(&now, given, UserMappingRelationId);
	if ((now.username != NULL && now.password == NULL) ||
		(now.sentinel_username != NULL && now.sentinel_password == NULL))
		return;
	take_text(&options->username, now.username);
	take_text(&options->password, now.password);
	take_text(&options->sentinel_username, now.sentinel_username);
	take_text(&options->sentinel_password, now.sentinel_password);
}

/*
 * renew_options
 *	  Bring what options have from the user mapping up to date, for a connection that
 *	  may be made long after they were read.
 *
 * In the transaction that there is, whose snapshot does not count for the catalogs;
 * in a worker outside of its query's, in one for this, within the fence since the query
 * may have run before.  Serves interrupts.
 */
static void
renew_options(RexpLinkOptions *options)
{
	MemoryContext old = CurrentMemoryContext;
	bool		alone = !IsTransactionState();
	MemoryContext scratch;
	RexpFence	fence;

	if (proc_exit_inprogress)
		return;
	if (alone)
		rexp_fence_begin(&fence, options->user, 0);
	else
		AcceptInvalidationMessages();
	scratch = AllocSetContextCreate(CurrentMemoryContext, "redis_export mapping",
									ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(scratch);
	read_mapping(options);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
	if (alone)
	{
		rexp_fence_commit(&fence);
		MemoryContextSwitchTo(old);
	}
	else
		InvalidateCatalogSnapshot();
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
	result->serverid = serverid;
	result->user = user;
	result->renew = renew_options;
	result->host = "127.0.0.1";
	result->port = 6379;
	result->connect_timeout = 10 * 1000;
	result->timeout = 60 * 1000;
	result->client_name = "redis_export";
	apply_options(result, server->options, ForeignServerRelationId);
	apply_options(result, options, UserMappingRelationId);
	if (result->sentinel_username != NULL && result->sentinel_password == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("the user mapping for server \"%s\" has a sentinel_username and no sentinel_password",
						name)));
	if (result->username != NULL && result->password == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("the user mapping for server \"%s\" has a username and no password",
						name)));
	if (mapping != NULL)
		*mapping = found;
	return result;
}
