/*-------------------------------------------------------------------------
 *
 * waiter.c
 *	  Waiting for several connections at once, with one set that is made anew only
 *	  when other connections are waited for than the last time.
 *
 * It knows neither what is sent nor what comes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "miscadmin.h"
#include "redis/waiter.h"
#include "utils/memutils.h"

/* One connection in the set. */
typedef struct Watch
{
	uint64		connection;		/* which one, of all that this process had */
	int			socket;
	uint32		events;			/* wanted now */
	uint32		watched;		/* what the set waits for */
} Watch;

struct RexpWaiter
{
	MemoryContext context;
	WaitEventSet *set;			/* NULL: to be made */
	int			nwatches;
	int			capacity;
	Watch	   *watches;
	bool		changed;		/* these are others than those in the set */
	int			in_set;
};

/* In the set, before the sockets: the latch, and the postmaster's death. */
#define OTHERS 2

/* What has happened is not looked at: whoever waited looks at all connections. */
#define EVENTS_AT_ONCE 1

/* A waiter for nothing yet, in the current memory context. */
RexpWaiter *
rexp_waiter_create(void)
{
	RexpWaiter *waiter = palloc0(sizeof(RexpWaiter));

	waiter->context = CurrentMemoryContext;
	waiter->capacity = 8;
	waiter->watches = palloc(sizeof(Watch) * waiter->capacity);
	return waiter;
}

/* From here on, connections are added that the next wait is for. */
void
rexp_waiter_begin(RexpWaiter *waiter)
{
	waiter->nwatches = 0;
	waiter->changed = false;
}

/* Add a link that is open: for input, and for room to write if asked for. */
void
rexp_waiter_add(RexpWaiter *waiter, RexpLink *link, bool until_writable)
{
	Watch	   *watch;

	if (waiter->nwatches == waiter->capacity)
	{
		waiter->capacity *= 2;
		waiter->watches = repalloc(waiter->watches, sizeof(Watch) * waiter->capacity);
	}
	watch = &waiter->watches[waiter->nwatches];
	if (waiter->nwatches >= waiter->in_set ||
		watch->connection != rexp_link_connection(link))
		waiter->changed = true;
	watch->connection = rexp_link_connection(link);
	watch->socket = rexp_link_socket(link);
	watch->events = rexp_link_events(link, until_writable);
	waiter->nwatches++;
}

static void
make_set(RexpWaiter *waiter)
{
	if (waiter->set != NULL)
	{
		FreeWaitEventSet(waiter->set);
		waiter->set = NULL;
	}
	waiter->set = rexp_create_wait_event_set(OTHERS + waiter->nwatches);
	AddWaitEventToSet(waiter->set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(waiter->set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < waiter->nwatches; i++)
	{
		Watch	   *watch = &waiter->watches[i];

		watch->watched = watch->events;
		AddWaitEventToSet(waiter->set, watch->watched, watch->socket, NULL, NULL);
	}
	waiter->in_set = waiter->nwatches;
}

/*
 * rexp_waiter_wait
 *	  Wait until something can be done with one of the connections, for the latch, or
 *	  for so many milliseconds.  Serves interrupts, so it may raise an error.
 */
void
rexp_waiter_wait(RexpWaiter *waiter, long timeout)
{
	WaitEvent	occurred[EVENTS_AT_ONCE];

	if (waiter->set == NULL || waiter->changed ||
		waiter->nwatches != waiter->in_set)
		make_set(waiter);
	for (int i = 0; i < waiter->nwatches; i++)
	{
		Watch	   *watch = &waiter->watches[i];

		if (watch->watched != watch->events)
		{
			ModifyWaitEvent(waiter->set, OTHERS + i, watch->events, NULL);
			watch->watched = watch->events;
		}
	}
	(void) WaitEventSetWait(waiter->set, timeout, occurred, EVENTS_AT_ONCE,
							rexp_wait_event());
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Free the set.  The connections are their owners'. */
void
rexp_waiter_close(RexpWaiter *waiter)
{
	if (waiter->set != NULL)
		FreeWaitEventSet(waiter->set);
	waiter->set = NULL;
	waiter->in_set = 0;
}
