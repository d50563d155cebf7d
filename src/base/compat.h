/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Every difference between the PostgreSQL and hiredis versions that the
 *	  extension builds with, and nothing else: no other file looks at
 *	  PG_VERSION_NUM or HIREDIS_MAJOR.
 *
 * It knows nothing of exports.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_COMPAT_H
#define REDIS_EXPORT_COMPAT_H

#include "access/tupdesc.h"
#include "catalog/pg_foreign_server.h"
#include "common/jsonapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/pquery.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/datetime.h"
#include "utils/guc_tables.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/tuplesort.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "redis_export needs PostgreSQL 15 or later"
#elif PG_VERSION_NUM >= 200000
#error "this redis_export knows PostgreSQL 15 to 19: a later one needs a later redis_export"
#endif

#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 170000
#include "storage/dsm_registry.h"
#else
#include "utils/guc.h"
#endif

#include <hiredis.h>

/* hiredis 1.0 widened the length of an array and added the types of RESP3. */
#if HIREDIS_MAJOR >= 1
typedef size_t rexp_array_len;
#define REXP_HIREDIS_RESP3_FUNCTIONS .createDouble = NULL, .createBool = NULL,
#else
typedef int rexp_array_len;
#define REXP_HIREDIS_RESP3_FUNCTIONS
#endif

/* The Makefile knows whether there is hiredis_ssl, which came with 1.0. */
#ifdef REXP_HIREDIS_TLS
#include <hiredis_ssl.h>
#endif
#define REXP_HIREDIS_VERSION \
	CppAsString2(HIREDIS_MAJOR) "." CppAsString2(HIREDIS_MINOR) "." CppAsString2(HIREDIS_PATCH)

/*
 * libpq/libpq.h would declare it, but includes headers of GSSAPI that need not
 * be there where the server was built with it.
 */
extern bool pq_check_connection(void);

/* PortalRun() lost run_once in 18. */
static inline bool
rexp_portal_run(Portal portal, DestReceiver *dest, QueryCompletion *qc)
{
#if PG_VERSION_NUM >= 180000
	return PortalRun(portal, FETCH_ALL, true, dest, dest, qc);
#else
	return PortalRun(portal, FETCH_ALL, true, true, dest, dest, qc);
#endif
}

/* The index of a table's primary key. */
static inline Oid
rexp_primary_key_index(Relation relation)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(relation, false);
#else
	return RelationGetPrimaryKeyIndex(relation);
#endif
}

static inline AclResult
rexp_server_aclcheck(Oid serverid, Oid roleid)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ForeignServerRelationId, serverid, roleid, ACL_USAGE);
#else
	return pg_foreign_server_aclcheck(serverid, roleid, ACL_USAGE);
#endif
}

/* Not 0 if it is no date and time. */
static inline int
rexp_decode_datetime(char **fields, int *kinds, int nfields, int *kind, struct pg_tm *tm,
					 fsec_t *fraction, int *zone)
{
#if PG_VERSION_NUM >= 160000
	DateTimeErrorExtra ignored;

	return DecodeDateTime(fields, kinds, nfields, kind, tm, fraction, zone, &ignored);
#else
	return DecodeDateTime(fields, kinds, nfields, kind, tm, fraction, zone);
#endif
}

/* A set that lives until it is freed, whatever becomes of the transaction. */
static inline WaitEventSet *
rexp_create_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/* Extensions can name their waits since 17. */
static inline uint32
rexp_wait_event(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("RedisExport");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

static inline struct config_generic **
rexp_guc_variables(int *count)
{
#if PG_VERSION_NUM >= 160000
	return get_guc_variables(count);
#else
	*count = GetNumConfigOptions();
	return get_guc_variables();
#endif
}

/* The next value of a sort, palloc'd; false at its end. */
static inline bool
rexp_tuplesort_getdatum(Tuplesortstate *sort, Datum *value)
{
	bool		isnull;

#if PG_VERSION_NUM >= 160000
	return tuplesort_getdatum(sort, true, true, value, &isnull, NULL);
#else
	return tuplesort_getdatum(sort, true, value, &isnull, NULL);
#endif
}

/* What a backend does, by a number from 1; it was renamed in 16. */
static inline const LocalPgBackendStatus *
rexp_backend_status(int number)
{
#if PG_VERSION_NUM >= 160000
	return pgstat_get_local_beentry_by_index(number);
#else
	return pgstat_fetch_stat_local_beentry(number);
#endif
}

/* Palloc's the context in the current memory context. */
static inline JsonLexContext *
rexp_json_lexer(const char *json, size_t len, int encoding)
{
#if PG_VERSION_NUM >= 170000
	return makeJsonLexContextCstringLen(NULL, json, len, encoding, false);
#else
	return makeJsonLexContextCstringLen(unconstify(char *, json), (int) len,
										encoding, false);
#endif
}

static inline bool
rexp_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* A switch's case that goes on with the next one; 19 has a name for it. */
#if PG_VERSION_NUM < 190000
#define pg_fallthrough __attribute__((fallthrough))
#endif

/*
 * After the last column of a tuple descriptor that was not copied from another:
 * since 19 it cannot be used before.
 */
static inline void
rexp_finalize_tuple_desc(TupleDesc desc)
{
#if PG_VERSION_NUM >= 190000
	TupleDescFinalize(desc);
#endif
}

/* The types that 19 brought, for a list of types. */
#if PG_VERSION_NUM >= 190000
#define REXP_NEW_TYPES OID8OID,
#else
#define REXP_NEW_TYPES
#endif

/*
 * A document that is made piece by piece; zeroed, it is empty.  The result is
 * there when the outermost object has ended.
 */
#if PG_VERSION_NUM >= 190000
typedef JsonbInState RexpJsonbState;
#else
typedef struct RexpJsonbState
{
	JsonbParseState *parsed;
	JsonbValue *result;
} RexpJsonbState;
#endif

static inline void
rexp_jsonb_push(RexpJsonbState *state, JsonbIteratorToken token, JsonbValue *value)
{
#if PG_VERSION_NUM >= 190000
	pushJsonbValue(state, token, value);
#else
	state->result = pushJsonbValue(&state->parsed, token, value);
#endif
}

/* A new tranche of locks, named "redis_export". */
static inline int
rexp_new_tranche(void)
{
#if PG_VERSION_NUM >= 190000
	return LWLockNewTrancheId("redis_export");
#else
	return LWLockNewTrancheId();
#endif
}

/* Each process has to name a tranche for itself until 18. */
static inline void
rexp_name_tranche(int tranche)
{
#if PG_VERSION_NUM < 190000
	LWLockRegisterTranche(tranche, "redis_export");
#endif
}

/*
 * Before 17 a worker cannot connect as a role without LOGIN, which SET SESSION
 * AUTHORIZATION can make the session user.
 */
#if PG_VERSION_NUM >= 170000
#define REXP_NOLOGIN_WORKER true
#define REXP_BGWORKER_CONNECT_FLAGS BGWORKER_BYPASS_ROLELOGINCHECK
#else
#define REXP_NOLOGIN_WORKER false
#define REXP_BGWORKER_CONNECT_FLAGS 0
#endif

#if PG_VERSION_NUM >= 190000
/* The registry's callback, which has an argument since 19: where ours is. */
static inline void
rexp_init_segment(void *address, void *init)
{
	(*(void (**) (void *)) init) (address);
}
#endif

/*
 * rexp_named_segment
 *	  Find or make the shared memory of this name, for the life of the server.
 *
 * The mapping stays until the process ends.  Raises an error if there is no
 * shared memory left for it, or if a segment of this name has another size.
 *
 * Until 17 there is no registry of dynamic segments, so a few bytes of the main
 * segment (which has room to spare in a running server) hold the handle of
 * ours.  They are initialised under AddinShmemInitLock by code that cannot
 * raise an error: a half-made struct would stay for the life of the server.
 */
static inline void *
rexp_named_segment(const char *name, size_t size, void (*init) (void *))
{
#if PG_VERSION_NUM >= 190000
	bool		found;

	return GetNamedDSMSegment(name, size, rexp_init_segment, &found, &init);
#elif PG_VERSION_NUM >= 170000
	bool		found;

	return GetNamedDSMSegment(name, size, init, &found);
#else
	typedef struct
	{
		LWLock		lock;
		int			tranche;
		dsm_handle	handle;
		size_t		size;
	} Anchor;
	Anchor	   *anchor;
	bool		found;
	dsm_segment *segment;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	anchor = ShmemInitStruct(name, sizeof(Anchor), &found);
	if (!found)
	{
		anchor->tranche = rexp_new_tranche();
		anchor->handle = DSM_HANDLE_INVALID;
		LWLockInitialize(&anchor->lock, anchor->tranche);
	}
	LWLockRelease(AddinShmemInitLock);
	rexp_name_tranche(anchor->tranche);

	LWLockAcquire(&anchor->lock, LW_EXCLUSIVE);
	if (anchor->handle == DSM_HANDLE_INVALID)
	{
		segment = dsm_create(size, 0);
		init(dsm_segment_address(segment));
		dsm_pin_segment(segment);
		dsm_pin_mapping(segment);
		anchor->handle = dsm_segment_handle(segment);
		anchor->size = size;
	}
	else if (anchor->size != size)
	{
		/* as GetNamedDSMSegment() */
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the shared memory of redis_export has another size"),
				 errdetail("Another build of the library has made it."),
				 errhint("Restart PostgreSQL.")));
	}
	else
	{
		segment = dsm_attach(anchor->handle);
		if (segment == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not map the shared memory of redis_export")));
		dsm_pin_mapping(segment);
	}
	LWLockRelease(&anchor->lock);
	return dsm_segment_address(segment);
#endif
}

#endif							/* REDIS_EXPORT_COMPAT_H */
