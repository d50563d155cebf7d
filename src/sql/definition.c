/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  The exports that have a name: what they are defined to be, in a table.
 *
 * The table redis_export_definition is the extension's, and is written by nothing but
 * redis_export_define() and redis_export_drop(), with the rights of its owner.  A row
 * has the names and types of the arguments of redis_export_define(), so that one
 * piece of code (arguments.c) takes both apart, and a run has what was defined.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "base/compat.h"
#include "catalog/pg_type.h"
#include "encode/template.h"
#include "executor/spi.h"
#include "export/record.h"
#include "funcapi.h"
#include "job/launch.h"
#include "miscadmin.h"
#include "sql/arguments.h"
#include "sql/definition.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/uuid.h"

#define TABLE_NAME "redis_export_definition"

/* How a job deletes keys; the time-out is in milliseconds. */
#define DROP_BATCH 500
#define DROP_TIMEOUT 60000

/* The table, in the schema of the function that was called. */
static Oid
table_of(FunctionCallInfo fcinfo)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	Oid			table = get_relname_relid(TABLE_NAME, schema);

	if (!OidIsValid(table))
		elog(ERROR, "redis_export: table \"%s\" does not exist", TABLE_NAME);
	return table;
}

/* A text[] of a list of char *. */
static Datum
array_of(List *list)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(list_length(list), 1));
	int			count = 0;
	ListCell   *cell;

	foreach(cell, list)
		elements[count++] = CStringGetTextDatum(lfirst(cell));
	return PointerGetDatum(construct_array(elements, count, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

/* The value of a column of the row. */
static Datum
column_of(const RexpArguments *row, const char *name)
{
	for (int i = 0; i < row->count; i++)
	{
		if (strcmp(row->names[i], name) == 0)
			return row->values[i].value;
	}
	elog(ERROR, "redis_export: table \"%s\" has no column \"%s\"", TABLE_NAME, name);
	return (Datum) 0;
}

/* Take a row apart; what it says lies in the current context. */
static void
read_row(HeapTuple tuple, TupleDesc desc, RexpJob *job)
{
	RexpArguments row = {.whose = "definition"};
	NullableDatum *values = palloc(sizeof(NullableDatum) * desc->natts);

	row.count = desc->natts;
	row.types = palloc(sizeof(Oid) * desc->natts);
	row.names = palloc(sizeof(char *) * desc->natts);
	row.values = values;
	for (int i = 0; i < desc->natts; i++)
	{
		row.types[i] = TupleDescAttr(desc, i)->atttypid;
		row.names[i] = NameStr(TupleDescAttr(desc, i)->attname);
		values[i].value = heap_getattr(tuple, i + 1, desc, &values[i].isnull);
	}
	rexp_definition_arguments(&row, job);
	job->id = DatumGetCString(DirectFunctionCall1(uuid_out, column_of(&row, "id")));
	job->owner = DatumGetObjectId(column_of(&row, "owner"));
}

/* Raise an error unless the current user has the privileges of the owner. */
static void
check_owner(const RexpJob *job)
{
	char	   *owner = GetUserNameFromId(job->owner, true);

	if (owner == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the owner of export \"%s\" does not exist any more", job->name),
				 errdetail("Its query runs as its owner, the role with OID %u.", job->owner),
				 errhint("A superuser can define it anew with or_replace => true, and owns it then, or drop it with force => true.")));
	if (!has_privs_of_role(GetUserId(), job->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for export \"%s\"", job->name),
				 errdetail("It takes the privileges of its owner, role \"%s\".", owner)));
}

/* Call for each definition, or for the one of this name, until it returns false. */
static void
for_each(FunctionCallInfo fcinfo, const char *name,
		 bool (*take) (RexpJob *definition, void *arg), void *arg)
{
	Relation	relation = table_open(table_of(fcinfo), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		go_on = true;

	if (name != NULL)
		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	scan = systable_beginscan(relation, rexp_primary_key_index(relation), name != NULL,
							  NULL, name != NULL ? 1 : 0, &key);
	while (go_on && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		RexpJob		definition;

		read_row(heap_copytuple(tuple), RelationGetDescr(relation), &definition);
		go_on = take(&definition, arg);
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
}

/* Keep the definition that was asked for. */
typedef struct Found
{
	RexpJob		definition;
	bool		is_there;
} Found;

static bool
take_found(RexpJob *definition, void *arg)
{
	Found	   *found = arg;

	found->definition = *definition;
	found->is_there = true;
	return false;
}

/* Is there a definition of this name? */
static bool
find(FunctionCallInfo fcinfo, const char *name, RexpJob *definition)
{
	Found		found = {.is_there = false};

	for_each(fcinfo, name, take_found, &found);
	*definition = found.definition;
	return found.is_there;
}

static void
refuse_unknown(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("export \"%s\" does not exist", name),
			 errhint("Define it with redis_export_define(). The view redis_exports shows those that are there.")));
}

/*
 * rexp_definition_load
 *	  The definition of this name, as the part of a job that it is, in the current
 *	  memory context.  Raises an error if there is none, or if the current user does not
 *	  have the privileges of its owner.
 */
void
rexp_definition_load(FunctionCallInfo fcinfo, const char *name, RexpJob *job)
{
	if (!find(fcinfo, name, job))
		refuse_unknown(name);
	check_owner(job);
}

/*
 * Keys that two exports would write
 */

/* The template of the first key that an export writes, or NULL. */
static const char *
key_of(const RexpJob *job)
{
	if (job->encoding.kind != REXP_EXPORT_COMMAND)
		return job->encoding.key_template;
	return list_length(job->encoding.words) > 1 ? lsecond(job->encoding.words) : NULL;
}

typedef struct Conflict
{
	const RexpJob *job;
	const char *skeleton;
	const char *other;			/* name of the definition, or NULL */
} Conflict;

static bool
take_conflict(RexpJob *definition, void *arg)
{
	Conflict   *conflict = arg;

	if ((conflict->job->name == NULL || strcmp(conflict->job->name, definition->name) != 0) &&
		strcmp(conflict->job->server, definition->server) == 0 &&
		strcmp(conflict->skeleton, rexp_template_skeleton(key_of(definition))) == 0)
		conflict->other = definition->name;
	return conflict->other == NULL;
}

/* The name of another export with a name, which writes the same keys; or NULL. */
static const char *
conflicting(FunctionCallInfo fcinfo, const RexpJob *job)
{
	Conflict	conflict = {job, NULL, NULL};

	if (key_of(job) == NULL)
		return NULL;
	conflict.skeleton = rexp_template_skeleton(key_of(job));
	for_each(fcinfo, NULL, take_conflict, &conflict);
	return conflict.other;
}

/*
 * rexp_definition_refuse
 *	  Raise an error if this export, which has no name, would write the keys of one that
 *	  has: its books would not tell what the keys hold.
 */
void
rexp_definition_refuse(FunctionCallInfo fcinfo, const RexpJob *job)
{
	const char *name = conflicting(fcinfo, job);

	if (name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the keys \"%s\" are those of export \"%s\"", key_of(job), name),
				 errdetail("What Redis has of them is known from the books of that export, which this one would not keep."),
				 errhint("Run that export: CALL redis_export_run(%s). Or write other keys.",
						 quote_literal_cstr(name))));
}

/*
 * Writing
 */

/* The arguments of redis_export_define() in their order; id, owner and settings follow. */
#define ARGUMENTS \
	"name, query, key_template, server, type, value, exclude, replace, ttl, ttl_column, " \
	"watermark_column, overlap, wait_index"
#define NARGUMENTS 13
#define VALUE_ARGUMENT 5
#define NPARAMETERS (NARGUMENTS + 2)

/*
 * Execute a statement on the table, with the rights of the table's owner.  Returns the
 * number of rows that it found.
 *
 * The search path must not be the caller's: operators and types of the statement would be
 * looked up there, and functions of the caller run with the rights of the owner.
 */
static uint64
execute(FunctionCallInfo fcinfo, const char *format, int nparameters, Oid *types,
		Datum *values, const char *nulls)
{
	Oid			table = table_of(fcinfo);
	Relation	relation = table_open(table, RowExclusiveLock);
	Oid			table_owner = relation->rd_rel->relowner;
	char	   *name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
												  TABLE_NAME);
	char	   *statement = psprintf(format, name);
	Oid			user;
	int			sec_context;
	int			guc_level;
	uint64		count;

	table_close(relation, NoLock);
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(table_owner, sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	if (SPI_execute_with_args(statement, nparameters, types, values, nulls, false, 0) < 0)
		elog(ERROR, "redis_export: SPI_execute_with_args failed: %s",
			 SPI_result_code_string(SPI_result));
	count = SPI_processed;
	SPI_finish();
	AtEOXact_GUC(true, guc_level);
	SetUserIdAndSecContext(user, sec_context);
	return count;
}

/* The same for a statement that must find one row: the one that was looked at. */
static void
execute_on_one(FunctionCallInfo fcinfo, const char *format, int nparameters, Oid *types,
			   Datum *values, const char *nulls)
{
	if (execute(fcinfo, format, nparameters, types, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access to the definition of the export"),
				 errdetail("The transaction began before the definition was last changed."),
				 errhint("The transaction might succeed if retried.")));
}

/* Have all others wait who want to change definitions, until the transaction ends. */
static void
lock_definitions(FunctionCallInfo fcinfo)
{
	LockRelationOid(table_of(fcinfo), ShareRowExclusiveLock);
}

/* Tell what a change of the definition means for what is in Redis. */
static void
tell_change(const RexpJob *before, const RexpJob *now)
{
	if (before->encoding.kind != now->encoding.kind)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the type of export \"%s\"", now->name),
				 errdetail("Its keys in Redis are of the type that it has."),
				 errhint("Drop it with its keys, and define it anew: SELECT redis_export_drop(%s, keys => true).",
						 quote_literal_cstr(now->name))));
	if (strcmp(before->server, now->server) != 0)
		ereport(NOTICE,
				(errmsg("the next run of export \"%s\" writes all rows", now->name),
				 errdetail("Its keys and its books on server \"%s\" stay there.", before->server)));
	else if (strcmp(before->encoding.key_template, now->encoding.key_template) != 0)
		ereport(NOTICE,
				(errmsg("the next run of export \"%s\" writes all rows", now->name),
				 errdetail("Keys that it has written stay until a run with prune => true.")));
	else if (before->encoding.replace != now->encoding.replace)
		ereport(NOTICE,
				(errmsg("the next run of export \"%s\" writes all rows", now->name)));
	else
		ereport(NOTICE,
				(errmsg("the next run of export \"%s\" writes the rows that the change alters",
						now->name)));
}

/* Raise an error unless it can be the name of an export. */
static void
check_name(const char *name)
{
	bool		good = name[0] != '\0' && strlen(name) < NAMEDATALEN;

	for (const char *at = name; good && *at != '\0'; at++)
		good = (unsigned char) *at >= ' ' && *at != 0x7f;
	if (!good)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" cannot be the name of an export", name),
				 errhint("A name has 1 to %d bytes, and no control characters.",
						 NAMEDATALEN - 1)));
}

/*
 * rexp_definition_define
 *	  Check and write down the definition that redis_export_define() was called with,
 *	  whose arguments *job has.  With or_replace it takes the place of one of its name,
 *	  whose owner it keeps, if that is still there.
 */
void
rexp_definition_define(FunctionCallInfo fcinfo, RexpJob *job, bool or_replace)
{
	Oid			types[NPARAMETERS];
	Datum		values[NPARAMETERS];
	char		nulls[NPARAMETERS];
	RexpJob		before;
	bool		is_there;
	const char *other;
	NameData	value;
	TupleDesc	desc;

	PreventCommandIfReadOnly("redis_export_define()");
	check_name(job->name);
	lock_definitions(fcinfo);
	is_there = find(fcinfo, job->name, &before);
	if (is_there && !(superuser() && GetUserNameFromId(before.owner, true) == NULL))
		check_owner(&before);
	job->owner = is_there && GetUserNameFromId(before.owner, true) != NULL ?
		before.owner : GetUserId();
	job->settings = rexp_session_meaning();
	desc = rexp_job_check(job);
	other = conflicting(fcinfo, job);
	if (other != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("the keys \"%s\" are those of export \"%s\"", key_of(job), other),
				 errhint("Each key belongs to one export. Drop that one first, or choose other keys.")));

	for (int i = 0; i < NARGUMENTS; i++)
	{
		types[i] = get_fn_expr_argtype(fcinfo->flinfo, i);
		values[i] = fcinfo->args[i].value;
		nulls[i] = fcinfo->args[i].isnull ? 'n' : ' ';
	}

	/* so that a document does not change its shape when the query gets another column */
	if (job->encoding.kind == REXP_EXPORT_JSON)
	{
		job->encoding.value = rexp_encoding_value(&job->encoding, desc);
		namestrcpy(&value, job->encoding.value);
		values[VALUE_ARGUMENT] = NameGetDatum(&value);
		nulls[VALUE_ARGUMENT] = ' ';
	}
	types[NARGUMENTS] = OIDOID;
	values[NARGUMENTS] = ObjectIdGetDatum(job->owner);
	types[NARGUMENTS + 1] = TEXTARRAYOID;
	values[NARGUMENTS + 1] = array_of(job->settings);
	nulls[NARGUMENTS] = nulls[NARGUMENTS + 1] = ' ';

	if (!is_there)
	{
		(void) execute(fcinfo, "INSERT INTO %s (" ARGUMENTS ", owner, settings) VALUES ($1, $2, $3, "
					   "$4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
					   NPARAMETERS, types, values, nulls);
		return;
	}
	if (execute(fcinfo, "SELECT FROM %s WHERE (" ARGUMENTS ", owner::oid, settings) IS NOT DISTINCT FROM "
				"($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) AND "
				"(ttl::text, overlap::text) IS NOT DISTINCT FROM ($9::text, $12::text)",
				NPARAMETERS, types, values, nulls) > 0)
		return;
	if (!or_replace)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("export \"%s\" already exists", job->name),
				 errdetail("It is defined otherwise."),
				 errhint("To change it, define it with or_replace => true.")));
	tell_change(&before, job);
	execute_on_one(fcinfo, "UPDATE %s SET (" ARGUMENTS ", owner, settings) = "
				   "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) WHERE name = $1",
				   NPARAMETERS, types, values, nulls);
}

/*
 * rexp_definition_look
 *	  The definition of this name, if there is one that the current user may see; false if
 *	  not.
 */
bool
rexp_definition_look(FunctionCallInfo fcinfo, const char *name, RexpJob *job)
{
	return find(fcinfo, name, job) && GetUserNameFromId(job->owner, true) != NULL &&
		has_privs_of_role(GetUserId(), job->owner);
}

/* Let a job delete all keys that the export has written. */
static void
delete_keys(RexpJob *job)
{
	RexpJobStatus status;

	job->rows = REXP_ROWS_NONE;
	job->prune = true;
	job->prune_limit = 1;
	job->wait_index = NULL;
	job->watermark_column = NULL;
	job->wait = true;
	job->pipeline.batch = DROP_BATCH;
	job->pipeline.reject_limit = -1;
	job->pipeline.retry_timeout = DROP_TIMEOUT;
	rexp_job_run(job, false, &status);
}

/* Delete what Redis has of the export, and with keys its keys, too. */
static void
delete_in_redis(RexpJob *job, bool keys)
{
	if (keys)
		delete_keys(job);
	rexp_record_forget(job, false);
}

/*
 * The same, though Redis may not be there.  An error is a warning then, but for one that
 * says that the export is running.
 */
static void
try_to_delete_in_redis(RexpJob *job, bool keys)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		delete_in_redis(job, keys);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (edata->sqlerrcode == ERRCODE_QUERY_CANCELED ||
			edata->sqlerrcode == ERRCODE_OBJECT_IN_USE)
			ReThrowError(edata);
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg("what Redis keeps for export \"%s\" was left there: %s", job->name,
						edata->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/*
 * rexp_definition_drop
 *	  Delete a definition and what Redis keeps for it, with keys also the keys that it has
 *	  written; with force also if Redis cannot be asked.
 *
 * What is deleted in Redis is not rolled back: the export then is as one that never ran.
 */
void
rexp_definition_drop(FunctionCallInfo fcinfo, const char *name, bool keys, bool force)
{
	RexpJob		job;
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(name);

	PreventCommandIfReadOnly("redis_export_drop()");
	lock_definitions(fcinfo);
	if (!find(fcinfo, name, &job))
		refuse_unknown(name);
	if (!(force && superuser()))
		check_owner(&job);
	execute_on_one(fcinfo, "DELETE FROM %s WHERE name = $1", 1, &type, &value, " ");
	if (force)
		try_to_delete_in_redis(&job, keys);
	else
		delete_in_redis(&job, keys);
}
