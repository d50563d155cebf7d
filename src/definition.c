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
#include "arguments.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "definition.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/uuid.h"

#define TABLE_NAME "redis_export_definition"

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

/*
 * rexp_definition_store
 *	  Write down the definition that redis_export_define() was called with, whose
 *	  arguments are good; its owner is the current user.  Raises an error if there is
 *	  one of this name.
 */
void
rexp_definition_store(FunctionCallInfo fcinfo, const RexpJob *job)
{
	/* the columns of the arguments, in their order; owner and settings follow */
	static const char *const columns =
		"name, query, key_template, server, type, value, exclude, replace, ttl, "
		"ttl_column, watermark_column, overlap, wait_index, owner, settings";
	Oid			table = table_of(fcinfo);
	Oid			types[15];
	Datum		values[15];
	char		nulls[15];
	Oid			user;
	int			sec_context;
	Relation	relation;
	Oid			table_owner;
	StringInfoData statement;

	for (int i = 0; i < 13; i++)
	{
		types[i] = get_fn_expr_argtype(fcinfo->flinfo, i);
		values[i] = fcinfo->args[i].value;
		nulls[i] = fcinfo->args[i].isnull ? 'n' : ' ';
	}
	types[13] = OIDOID;
	values[13] = ObjectIdGetDatum(job->owner);
	nulls[13] = ' ';
	types[14] = TEXTARRAYOID;
	values[14] = array_of(job->settings);
	nulls[14] = ' ';

	initStringInfo(&statement);
	appendStringInfo(&statement, "INSERT INTO %s.%s (%s) VALUES (",
					 quote_identifier(get_namespace_name(get_rel_namespace(table))),
					 TABLE_NAME, columns);
	for (int i = 1; i <= 15; i++)
		appendStringInfo(&statement, "%s$%d", i > 1 ? ", " : "", i);
	appendStringInfoChar(&statement, ')');

	relation = table_open(table, RowExclusiveLock);
	table_owner = relation->rd_rel->relowner;
	table_close(relation, NoLock);
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(table_owner, sec_context | SECURITY_LOCAL_USERID_CHANGE);
	SPI_connect();
	if (SPI_execute_with_args(statement.data, 15, types, values, nulls, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "redis_export: the definition could not be written");
	SPI_finish();
	SetUserIdAndSecContext(user, sec_context);
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
				 errhint("Let a role that is to own it define it anew: redis_export_define(..., or_replace => true).")));
	if (!has_privs_of_role(GetUserId(), job->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for export \"%s\"", job->name),
				 errdetail("It takes the privileges of its owner, role \"%s\".", owner)));
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
	Relation	relation = table_open(table_of(fcinfo), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	scan = systable_beginscan(relation, rexp_primary_key_index(relation), true,
							  NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("export \"%s\" does not exist", name),
				 errhint("Define it with redis_export_define(). The view redis_exports shows those that are there.")));
	tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	read_row(tuple, RelationGetDescr(relation), job);
	table_close(relation, AccessShareLock);
	check_owner(job);
}
