/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Who may run an export now: at most one, of all servers that know it.
 *
 * The lease is a key in Redis, redis_export:{NAME}:lease, that holds who has it and
 * that Redis lets go of after half a minute, unless the worker renews it.  So primary and
 * replicas see the same lease, and one that is killed keeps it no longer than that.
 *
 * What is known without asking counts first: a holder on this very server (the same
 * instance of it, between two restarts) is asked for in shared memory.  If it runs no
 * more, its lease is taken over at once; and if it still runs, it is the holder, though a
 * query that gives no row for a long time may have let its lease run out.
 *
 * Once the lease has run out by our own clock, no row is sent until Redis has said that
 * it is still, or again, ours.  What is on the wire already may be late: that does not
 * harm the books (books.c), it may only put an older value over a newer one until the
 * next run.
 *
 *	   taken		SET lease HOLDER NX PX 30000
 *	   renewed		the same; PEXPIRE lease; GET lease, which says whose it is
 *	   given back	GET lease; DEL lease
 *
 * PEXPIRE may prolong the lease of somebody else, which does no harm.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/text.h"
#include "commands/dbcommands.h"
#include "flow/lease.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "redis/error_reply.h"
#include "redis/own_keys.h"
#include "status/progress.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

struct RexpLease
{
	const char *name;			/* of the export */
	char	   *key;
	char	   *holder;			/* we, in UTF-8 */
	instr_time	confirmed;		/* Redis has said that it is ours, asked then */
	bool		ours;
};

/*
 * Who we are: "INSTANCE JOB text", the first two for the same server, the text for
 * people.  In a transaction; palloc'd.
 */
static char *
holder_text(Oid user, int64 job)
{
	char		host[256];
	char	   *text;

	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "?", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	text = psprintf("%016" PRIx64 " " INT64_FORMAT " role \"%s\" in database \"%s\" on %s, port %d, %s " INT64_FORMAT ", since %s",
					rexp_progress_instance(), job, GetUserNameFromId(user, false),
					get_database_name(MyDatabaseId), host, PostPortNumber,
					job > 0 ? "export job" : "session", job > 0 ? job : (int64) MyProcPid,
					timestamptz_to_str(GetCurrentTimestamp()));
	return rexp_literal_utf8(text, strlen(text));
}

/*
 * rexp_lease_create
 *	  The lease of an export of this name, which nobody need have yet, in the current
 *	  memory context, in a transaction, for this user.  job is 0 for a session.  name must live as long.
 */
RexpLease *
rexp_lease_create(const char *name, Oid user, int64 job)
{
	RexpLease  *lease = palloc0(sizeof(RexpLease));
	char	   *key = psprintf(REXP_OWN_PREFIX "{%s}:lease", name);

	lease->name = name;
	lease->key = rexp_literal_utf8(key, strlen(key));
	lease->holder = holder_text(user, job);
	return lease;
}

const char *
rexp_lease_key(const RexpLease *lease)
{
	return lease->key;
}

/* Who has it when it is ours, in UTF-8. */
const char *
rexp_lease_holder(const RexpLease *lease)
{
	return lease->holder;
}

/* Milliseconds since Redis has last said that it is ours. */
static double
age(const RexpLease *lease)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, lease->confirmed);
	return INSTR_TIME_GET_MILLISEC(now);
}

/* Is it time to renew it? */
bool
rexp_lease_is_due(const RexpLease *lease)
{
	return !lease->ours || age(lease) >= REXP_LEASE_RENEWAL;
}

/* May somebody else have it by now? */
bool
rexp_lease_has_run_out(const RexpLease *lease)
{
	return !lease->ours || age(lease) >= REXP_LEASE_TIME;
}

/* Is this holder a job of this server that still runs? */
bool
rexp_lease_is_alive(const char *holder)
{
	uint64		instance;
	int64		job;

	return sscanf(holder, "%16" SCNx64 " " INT64_FORMAT, &instance, &job) == 2 &&
		instance == rexp_progress_instance() && rexp_progress_is_running(job);
}

/* Is it one of this server that runs no more? */
static bool
is_dead(const char *holder)
{
	uint64		instance;
	int64		job;

	return sscanf(holder, "%16" SCNx64 " " INT64_FORMAT, &instance, &job) == 2 && job > 0 &&
		instance == rexp_progress_instance() && !rexp_progress_is_running(job);
}

/* The part of a holder's text that is for people, or NULL. */
const char *
rexp_lease_people_text(const char *holder)
{
	const char *text = holder != NULL ? strchr(holder, ' ') : NULL;

	text = text != NULL ? strchr(text + 1, ' ') : NULL;
	return text != NULL ? text + 1 : NULL;
}

/* The error that somebody else has it; holder is as Redis has it, in UTF-8. */
void
rexp_lease_refuse(const char *name, const char *holder, RexpError *error)
{
	const char *text = rexp_lease_people_text(holder);

	rexp_error_set(error, ERRCODE_OBJECT_IN_USE, "export \"%s\" is running already", name);
	if (text != NULL)
		rexp_error_detail(error, "It is run by %s.", rexp_text_shown(text));
	rexp_error_hint(error, "Wait until that run has ended (if_running => 'wait'), or cancel it where it runs.");
}

/*
 * Asking
 */

static redisReply *
ask_words(RexpAsk ask, void *arg, int nwords, const char *const *words, RexpError *error)
{
	RexpBuffer	request;
	redisReply *reply;

	rexp_buffer_init(&request, 256);
	rexp_resp_header(&request, '*', nwords);
	for (int i = 0; i < nwords; i++)
		rexp_resp_word(&request, words[i]);
	reply = ask(arg, &request, error);
	rexp_buffer_free(&request);
	return reply;
}

/* Ask, and have the text of the answer, palloc'd, or NULL for nil.  False: no answer. */
static bool
ask_text(RexpAsk ask, void *arg, int nwords, const char *const *words, char **text,
		 RexpError *error)
{
	redisReply *reply = ask_words(ask, arg, nwords, words, error);
	bool		good;

	if (reply == NULL)
		return false;
	good = reply->type != REDIS_REPLY_ERROR;
	*text = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS ?
		pnstrdup(reply->str, reply->len) : NULL;
	if (!good)
	{
		(void) rexp_answer_to(reply->str, reply->len, error);
		rexp_error_prefix(error, "could not take or give back the lease of the export: ");
		rexp_error_hint(error, "It is in a key that begins with \"redis_export:\", which must be allowed (ACL: ~redis_export:*), and nobody else's.");
	}
	freeReplyObject(reply);
	return good;
}

/* Set it, if nobody has it, or else if may_overwrite. */
static bool
set_lease(RexpLease *lease, bool may_overwrite, RexpAsk ask, void *arg, bool *was_set,
		  RexpError *error)
{
	char		time[16];
	const char *words[] = {"SET", lease->key, lease->holder, "PX", time, "NX"};
	char	   *text;

	snprintf(time, sizeof(time), "%d", REXP_LEASE_TIME);
	if (!ask_text(ask, arg, may_overwrite ? 5 : 6, words, &text, error))
		return false;
	*was_set = text != NULL;
	return true;
}

/* Who has it?  NULL: nobody. */
static bool
get_lease(RexpLease *lease, RexpAsk ask, void *arg, char **holder, RexpError *error)
{
	const char *words[] = {"GET", lease->key};

	return ask_text(ask, arg, lengthof(words), words, holder, error);
}

/* Redis has said, asked then, that it is ours. */
static RexpLeaseState
confirm(RexpLease *lease, instr_time asked)
{
	lease->confirmed = asked;
	lease->ours = true;
	return REXP_LEASE_OURS;
}

/*
 * rexp_lease_take
 *	  Take the lease.  If somebody else has it, *holder is who, palloc'd.
 */
RexpLeaseState
rexp_lease_take(RexpLease *lease, RexpAsk ask, void *arg, char **holder, RexpError *error)
{
	instr_time	asked;
	bool		was_set;
	bool		overwrite = false;

	/* again if it has run out meanwhile, or over one that runs no more */
	for (int attempt = 0; attempt < 3; attempt++)
	{
		INSTR_TIME_SET_CURRENT(asked);
		if (!set_lease(lease, overwrite, ask, arg, &was_set, error) ||
			!get_lease(lease, ask, arg, holder, error))
			return REXP_LEASE_UNKNOWN;
		if (*holder != NULL && strcmp(*holder, lease->holder) == 0)
			return confirm(lease, asked);
		overwrite = *holder != NULL && is_dead(*holder);
		if (*holder != NULL && !overwrite)
			break;
	}
	if (*holder == NULL)
		*holder = pstrdup("");
	return REXP_LEASE_HELD;
}

/*
 * rexp_lease_renew
 *	  Renew the lease; take it again if it has run out and nobody else has.
 */
RexpLeaseState
rexp_lease_renew(RexpLease *lease, RexpAsk ask, void *arg, RexpError *error)
{
	char		time[16];
	const char *words[] = {"PEXPIRE", lease->key, time};
	instr_time	asked;
	bool		was_set;
	char	   *text;

	snprintf(time, sizeof(time), "%d", REXP_LEASE_TIME);
	INSTR_TIME_SET_CURRENT(asked);
	if (!set_lease(lease, false, ask, arg, &was_set, error) ||
		!ask_text(ask, arg, lengthof(words), words, &text, error) ||
		!get_lease(lease, ask, arg, &text, error))
		return REXP_LEASE_UNKNOWN;
	if (text != NULL && strcmp(text, lease->holder) == 0)
		return confirm(lease, asked);
	lease->ours = false;
	rexp_error_set(error, ERRCODE_OBJECT_IN_USE, "export \"%s\" lost its lease", lease->name);
	if (rexp_lease_people_text(text) != NULL)
		rexp_error_detail(error, "It is run by %s.", rexp_text_shown(rexp_lease_people_text(text)));
	rexp_error_hint(error, "This job did not renew it for %d seconds, and another run has begun.",
					REXP_LEASE_TIME / 1000);
	return REXP_LEASE_HELD;
}

/* Give it back, if it is surely ours.  False if Redis has not answered, or has refused. */
bool
rexp_lease_give_back(RexpLease *lease, RexpAsk ask, void *arg, RexpError *error)
{
	const char *words[] = {"DEL", lease->key};
	char	   *holder;

	if (rexp_lease_has_run_out(lease))
		return true;
	if (!get_lease(lease, ask, arg, &holder, error))
		return false;
	lease->ours = false;
	if (holder == NULL || strcmp(holder, lease->holder) != 0)
		return true;
	return ask_text(ask, arg, lengthof(words), words, &holder, error);
}
