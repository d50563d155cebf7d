/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Where code that is not ours may run, and with whose rights.
 *
 * A query runs functions, casts and operators that anybody may have written.  So
 * does all that only looks at it: to parse a constant, an input function may check
 * a domain.  The session may be a superuser's who has taken a role with less
 * rights, and that code must not get back to the superuser's:
 *
 *	- it runs as the role that exports, where neither role nor session
 *	  authorization can be set (SECURITY_LOCAL_USERID_CHANGE);
 *	- it can leave nothing behind to be run later, when the fence is gone, such as
 *	  a cursor WITH HOLD or a prepared statement (SECURITY_RESTRICTED_OPERATION, as
 *	  with REFRESH MATERIALIZED VIEW);
 *	- it only reads;
 *	- the fence stands until the transaction's end is over, since PostgreSQL, too,
 *	  puts things off until then (held cursors, deferred triggers).
 *
 * There are no other doors than these two: a transaction of the worker's, which an
 * error ends together with its job, and a subtransaction in anybody's, after which the
 * session is as it was.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "base/output_settings.h"
#include "miscadmin.h"
#include "session/fence.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static void
enter(Oid user, int sec_context)
{
	SetUserIdAndSecContext(user, sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	XactReadOnly = true;
}

/*
 * rexp_fence_begin
 *	  Begin a transaction in which code may run with the rights of this user, and
 *	  for which this moment is now().
 *
 * If it is aborted, the fence goes with it.
 */
void
rexp_fence_begin(RexpFence *fence, Oid user, int sec_context)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	GetUserIdAndSecContext(&fence->user, &fence->sec_context);
	enter(user, sec_context);

	/*
	 * The caller's transaction is another one, so what counts is the default
	 * level; and a replica has no serializable transactions.  For one query the
	 * other levels are the same.
	 */
	if (XactIsoLevel == XACT_SERIALIZABLE && RecoveryInProgress())
		XactIsoLevel = XACT_REPEATABLE_READ;
}

/* Commit the transaction, and be who we were before. */
void
rexp_fence_commit(const RexpFence *fence)
{
	CommitTransactionCommand();
	SetUserIdAndSecContext(fence->user, fence->sec_context);
}

/*
 * rexp_fence_and_roll_back
 *	  Do some work, in which code may run with the rights of the current user or, unless
 *	  it is NULL, as the user of this session and with its settings.  It is done in a
 *	  subtransaction that is then rolled back, however the work ends: so that nothing is
 *	  left of it, no locks, no writes, no settings (neither the query's nor ours), and
 *	  no fence.
 *
 * It begins in the current memory context, which outlives it.  Its errors are
 * raised again.
 */
void
rexp_fence_and_roll_back(const RexpSession *as, void (*work) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	RexpOutputSettings settings;
	Oid			user;
	int			sec_context;

	rexp_output_settings_get(&settings);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		/* the end of the subtransaction takes this back */
		GetUserIdAndSecContext(&user, &sec_context);
		if (as != NULL)
			rexp_session_enter(as);
		enter(as != NULL ? as->current_user : user, sec_context);
		work(arg);
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();

		/* not by set_config_option(), so PostgreSQL does not know of them */
		rexp_output_settings_leave(&settings);
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ReThrowError(edata);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}
