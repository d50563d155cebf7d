/*-------------------------------------------------------------------------
 *
 * source.c
 *	  The rows of a query.
 *
 * The query is prepared and opened as a read-only SPI cursor, which is then run
 * to its end into a DestReceiver of ours.  SPI_cursor_fetch() would copy each
 * row into a table in memory, and a plan that is run in pieces cannot be
 * parallel; this way rows pass one by one, and parallel plans start their
 * workers.
 *
 * The same rules for what a query may be are applied in the caller, before a
 * worker starts, and in the worker.  Nothing here knows Redis.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "base/compat.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "session/fence.h"
#include "session/source.h"
#include "tcop/dest.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

struct RexpSource
{
	SPIPlanPtr	plan;
	Portal		portal;
};

/* Our receiver; the first member must be the base. */
typedef struct Receiver
{
	DestReceiver base;
	RexpRowSink sink;
	void	   *arg;
} Receiver;

/*
 * The rules for a query
 */

static void
refuse_statement(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot export the rows of %s", what),
			 errhint("An export takes one SELECT, VALUES or TABLE statement that only reads.")));
}

/*
 * Does this transaction hold a lock on the relation such as writing to it
 * takes?  The relation need not be open.
 */
static bool
written_here(Oid relation)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	for (LOCKMODE mode = RowExclusiveLock; mode <= MaxLockMode; mode++)
	{
		if (rexp_lock_held_by_me(&tag, mode))
			return true;
	}
	return false;
}

/* A temporary relation of another session, a child of this one, is seen by none. */
static bool
is_temporary(Oid relation, Oid parent)
{
	return get_rel_persistence(relation) == RELPERSISTENCE_TEMP &&
		(relation == parent ||
		 isTempOrTempToastNamespace(get_rel_namespace(relation)));
}

/*
 * On a replica, what is not in the write-ahead log is not there.  Of partitions
 * only those that the plan reads matter, so they are left to the planner.
 */
static void
check_logged(Oid relation)
{
	if (get_rel_persistence(relation) == RELPERSISTENCE_UNLOGGED &&
		RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot export from unlogged relation \"%s\" on a replica",
						get_rel_name(relation)),
				 errdetail("The rows of unlogged relations are not replicated."),
				 errhint("Export on the primary, or make the relation a logged one there: ALTER TABLE ... SET LOGGED.")));
}

static void
check_relation(Oid relation, bool with_children)
{
	List	   *all = with_children ? find_all_inheritors(relation, NoLock, NULL) :
		list_make1_oid(relation);
	ListCell   *cell;

	check_logged(relation);
	foreach(cell, all)
	{
		Oid			each = lfirst_oid(cell);

		if (is_temporary(each, relation))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot export from temporary relation \"%s\"",
							get_rel_name(each)),
					 errdetail("The export runs in a background worker, which does not see the temporary relations of this session.")));
		if (written_here(each))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot export from relation \"%s\" in a transaction that has written to it or locked it",
							get_rel_name(each)),
					 errdetail("The export runs in a background worker, which does not see what is not committed."),
					 errhint("Commit first, and export then.")));
	}
}

/* Look at each query below for what an export does not take. */
static bool
check_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *entry = (RangeTblEntry *) node;

		/* since 16 a view, which is a subquery by now, is still told here */
		if (OidIsValid(entry->relid))
			check_relation(entry->relid, entry->inh);
		return false;
	}
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		if (query->commandType != CMD_SELECT || query->hasModifyingCTE)
			refuse_statement("a statement that modifies data");
		if (query->rowMarks != NIL || query->hasForUpdate)
			refuse_statement("SELECT ... FOR UPDATE or FOR SHARE");
		return query_tree_walker(query, check_walker, context,
								 QTW_EXAMINE_RTES_BEFORE);
	}
	return expression_tree_walker(node, check_walker, context);
}

static void
check_columns(TupleDesc desc)
{
	if (desc == NULL || desc->natts == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_DEFINITION),
				 errmsg("the query to export returns no columns")));
	for (int i = 0; i < desc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(desc, i)->attname);

		for (int j = 0; j < i; j++)
		{
			if (strcmp(NameStr(TupleDescAttr(desc, j)->attname), name) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("the query to export returns two columns named \"%s\"",
								name),
						 errhint("Give each a name of its own with AS.")));
		}
	}
}

/* Is this plan one that can be exported?  Returns its columns. */
static TupleDesc
check_plan(SPIPlanPtr plan)
{
	List	   *sources = SPI_plan_get_plan_sources(plan);
	CachedPlanSource *source;
	Query	   *query;

	if (list_length(sources) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query to export is empty")));
	if (list_length(sources) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("cannot export the rows of several statements"),
				 errhint("An export takes one SELECT, VALUES or TABLE statement that only reads.")));

	source = (CachedPlanSource *) linitial(sources);
	if (list_length(source->query_list) != 1)
		refuse_statement("a statement that rules rewrite");
	query = linitial_node(Query, source->query_list);
	if (query->commandType == CMD_UTILITY || query->commandType == CMD_NOTHING)
		refuse_statement("a utility statement");
	(void) check_walker((Node *) query, NULL);
	check_columns(source->resultDesc);
	return source->resultDesc;
}

static SPIPlanPtr
prepare(const char *query)
{
	SPIPlanPtr	plan = SPI_prepare_cursor(query, 0, NULL,
										  CURSOR_OPT_NO_SCROLL | CURSOR_OPT_PARALLEL_OK);

	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s",
			 SPI_result_code_string(SPI_result));
	return plan;
}

/* What a check is given, and what it finds. */
typedef struct Check
{
	const char *query;
	TupleDesc	desc;
} Check;

static void
check_query(void *arg)
{
	Check	   *check = arg;
	MemoryContext context = CurrentMemoryContext;
	TupleDesc	found;

	SPI_connect();
	found = check_plan(prepare(check->query));
	MemoryContextSwitchTo(context);
	check->desc = CreateTupleDescCopy(found);
	SPI_finish();
}

/*
 * rexp_source_check
 *	  Parse a query as this session would, or for NULL as ours, raise an error unless it can be exported, and return the
 *	  columns of its result, palloc'd in the current context.
 *
 * Of parsing, which may run code, this transaction would keep the locks until its end
 * otherwise, while the export may wait behind somebody who waits for them.
 */
TupleDesc
rexp_source_check(const char *query, const RexpSession *as)
{
	Check		check = {query, NULL};

	rexp_fence_and_roll_back(as, check_query, &check);
	return check.desc;
}

/*
 * Running it
 */

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	Receiver   *receiver = (Receiver *) self;

	return receiver->sink(slot, receiver->arg);
}

static void
receiver_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
receiver_nothing(DestReceiver *self)
{
}

/*
 * rexp_source_shown
 *	  What pg_stat_activity may show of a query that runs with the rights of this
 *	  user: it shows all to the session's user, who need not be allowed to know it
 *	  (the query is that of a SECURITY DEFINER function).  Needs a transaction.
 */
const char *
rexp_source_shown(const char *query, Oid user)
{
	return has_privs_of_role(GetSessionUserId(), user) ? query :
		"query of another role: see redis_export_progress";
}

/*
 * rexp_source_open
 *	  Prepare and open the query, in a transaction of the caller's, to which
 *	  the result belongs.
 */
RexpSource *
rexp_source_open(const char *query)
{
	RexpSource *source = palloc(sizeof(RexpSource));

	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	source->plan = prepare(query);
	(void) check_plan(source->plan);
	source->portal = SPI_cursor_open(NULL, source->plan, NULL, NULL, true);

	/* as what parallel workers show themselves to be at */
	source->portal->queryDesc->estate->es_sourceText = rexp_source_shown(query, GetUserId());
	return source;
}

TupleDesc
rexp_source_columns(const RexpSource *source)
{
	return source->portal->tupDesc;
}

/* The planner's guess at the number of rows. */
double
rexp_source_estimate(const RexpSource *source)
{
	PlannedStmt *statement = linitial_node(PlannedStmt, source->portal->stmts);

	return statement->planTree->plan_rows;
}

/*
 * rexp_source_run
 *	  Hand each row to the sink, until it wants no more or there are none.
 *
 * The slot is good until the sink returns.  The sink must leave the current
 * memory context as it was; it may raise errors.
 */
void
rexp_source_run(RexpSource *source, RexpRowSink sink, void *arg)
{
	Receiver	receiver = {
		.base = {
			.receiveSlot = receive_row,
			.rStartup = receiver_startup,
			.rShutdown = receiver_nothing,
			.rDestroy = receiver_nothing,
			.mydest = DestNone
		},
		.sink = sink,
		.arg = arg
	};

	(void) rexp_portal_run(source->portal, &receiver.base, NULL);
}

/* Let go of the cursor, its snapshot and its locks but those of the transaction. */
void
rexp_source_close(RexpSource *source)
{
	SPI_cursor_close(source->portal);
	PopActiveSnapshot();
	SPI_finish();
}
