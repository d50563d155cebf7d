/*-------------------------------------------------------------------------
 *
 * writers.c
 *	  The transactions that write in this database at the time.
 *
 * They are read where pg_stat_activity and pg_prepared_xacts read them, but
 * without rights and without a query, whose snapshot would be taken too early.
 * One that has not written yet is none, and with track_activities off there is no
 * telling when it began.  On a replica those of the primary cannot be seen.
 *
 * Nothing here knows exports.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "base/compat.h"
#include "executor/executor.h"
#include "export/writers.h"
#include "utils/fmgroids.h"

/* Columns of pg_prepared_xact(). */
#define PREPARED_AT 3
#define PREPARED_IN 5

static TimestampTz
earlier(TimestampTz one, TimestampTz other)
{
	return one == 0 || (other != 0 && other < one) ? other : one;
}

/*
 * Of the backends.  Those that vacuum and analyze by themselves write, but no
 * rows.  Parallel workers have no transaction number of their own.
 */
static TimestampTz
oldest_backend(void)
{
	TimestampTz oldest = 0;
	int			count;

	/* not what an earlier look in this transaction has seen */
	pgstat_clear_backend_activity_snapshot();
	count = pgstat_fetch_stat_numbackends();
	for (int i = 1; i <= count; i++)
	{
		const LocalPgBackendStatus *local = rexp_backend_status(i);

		if (local != NULL && TransactionIdIsValid(local->backend_xid) &&
			local->backendStatus.st_databaseid == MyDatabaseId &&
			local->backendStatus.st_procpid != MyProcPid &&
			local->backendStatus.st_backendType != B_AUTOVAC_WORKER)
			oldest = earlier(oldest, local->backendStatus.st_xact_start_timestamp);
	}
	pgstat_clear_backend_activity_snapshot();
	return oldest;
}

/* When was one of these prepared, if it is of this database? */
static TimestampTz
prepared_at(Datum row)
{
	HeapTupleHeader tuple = DatumGetHeapTupleHeader(row);
	bool		isnull;

	if (DatumGetObjectId(GetAttributeByNum(tuple, PREPARED_IN, &isnull)) != MyDatabaseId)
		return 0;
	return DatumGetTimestampTz(GetAttributeByNum(tuple, PREPARED_AT, &isnull));
}

/*
 * Of those that are prepared.  When they began is not known any more; it was before
 * that.
 */
static TimestampTz
oldest_prepared(void)
{
	EState	   *estate = CreateExecutorState();
	ReturnSetInfo result = {
		.type = T_ReturnSetInfo,
		.econtext = CreateExprContext(estate),
		.allowedModes = SFRM_ValuePerCall,
		.returnMode = SFRM_ValuePerCall
	};
	LOCAL_FCINFO(fcinfo, 0);
	FmgrInfo	function;
	TimestampTz oldest = 0;

	fmgr_info(F_PG_PREPARED_XACT, &function);
	for (;;)
	{
		Datum		row;

		InitFunctionCallInfoData(*fcinfo, &function, 0, InvalidOid, NULL, (Node *) &result);
		result.isDone = ExprSingleResult;
		row = FunctionCallInvoke(fcinfo);
		if (result.isDone == ExprEndResult)
			break;
		oldest = earlier(oldest, prepared_at(row));
	}
	FreeExecutorState(estate);
	return oldest;
}

/*
 * rexp_oldest_writer
 *	  When did the transaction begin that writes, or is prepared, and began first of
 *	  all others in this database?  0 if there is none.  Takes no snapshot.
 */
TimestampTz
rexp_oldest_writer(void)
{
	return earlier(oldest_backend(), oldest_prepared());
}
