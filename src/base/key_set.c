/*-------------------------------------------------------------------------
 *
 * key_set.c
 *	  Any number of keys, each once, in order.
 *
 * A sort of PostgreSQL's, which takes so much memory and then spills to disk.  All
 * keys are added first; then they come out.  It must end in the transaction in which
 * it began, and may be used in the midst of others' work in this, such as a query's.
 *
 * Nothing here knows where keys are from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/key_set.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplesort.h"

struct RexpKeySet
{
	MemoryContext context;
	ResourceOwner owner;		/* of the sort's files */
	Tuplesortstate *sort;
	bytea	   *last;			/* that came out, or NULL */
	bool		at_end;
};

/* An empty set, in the current memory context, of so many kB (64 at least). */
RexpKeySet *
rexp_key_set_create(int memory)
{
	RexpKeySet *set = palloc0(sizeof(RexpKeySet));

	set->context = CurrentMemoryContext;
	set->owner = CurrentResourceOwner;
	set->sort = tuplesort_begin_datum(BYTEAOID, ByteaLessOperator, InvalidOid, false,
									  Max(memory, 64), NULL, TUPLESORT_RANDOMACCESS);
	return set;
}

void
rexp_key_set_add(RexpKeySet *set, const char *key, size_t len)
{
	ResourceOwner owner = CurrentResourceOwner;
	bytea	   *datum = palloc(VARHDRSZ + len);

	SET_VARSIZE(datum, VARHDRSZ + len);
	memcpy(VARDATA(datum), key, len);
	CurrentResourceOwner = set->owner;
	tuplesort_putdatum(set->sort, PointerGetDatum(datum), false);
	CurrentResourceOwner = owner;
	pfree(datum);
}

/* All keys are there. */
void
rexp_key_set_sort(RexpKeySet *set)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = set->owner;
	tuplesort_performsort(set->sort);
	CurrentResourceOwner = owner;
}

/* In bytes' order, as the sort has it. */
int
rexp_key_compare(const bytea *a, const bytea *b)
{
	size_t		a_len = VARSIZE_ANY_EXHDR(a);
	size_t		b_len = VARSIZE_ANY_EXHDR(b);
	int			result = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(a_len, b_len));

	return result != 0 ? result : (a_len > b_len) - (a_len < b_len);
}

/*
 * rexp_key_set_next
 *	  The next key in order, good until the next call; NULL at the end.
 */
const bytea *
rexp_key_set_next(RexpKeySet *set)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext old = MemoryContextSwitchTo(set->context);
	bytea	   *key = NULL;
	Datum		datum;

	CurrentResourceOwner = set->owner;
	while (key == NULL && !set->at_end)
	{
		CHECK_FOR_INTERRUPTS();
		set->at_end = !rexp_tuplesort_getdatum(set->sort, &datum);
		if (set->at_end)
			break;
		key = DatumGetByteaPP(datum);
		if (set->last != NULL && rexp_key_compare(set->last, key) == 0)
		{
			pfree(key);
			key = NULL;
		}
	}
	CurrentResourceOwner = owner;
	if (set->last != NULL)
		pfree(set->last);
	set->last = key;
	MemoryContextSwitchTo(old);
	return key;
}

/*
 * rexp_key_set_has
 *	  Is this key in the set?  To be asked for keys in order, and in place of
 *	  rexp_key_set_next().
 */
bool
rexp_key_set_has(RexpKeySet *set, const bytea *key)
{
	const bytea *at = set->last != NULL || set->at_end ? set->last : rexp_key_set_next(set);

	while (at != NULL && rexp_key_compare(at, key) < 0)
		at = rexp_key_set_next(set);
	return at != NULL && rexp_key_compare(at, key) == 0;
}

/* How many keys are there?  They come out again after that. */
int64
rexp_key_set_count(RexpKeySet *set)
{
	ResourceOwner owner = CurrentResourceOwner;
	int64		count = 0;

	while (rexp_key_set_next(set) != NULL)
		count++;
	CurrentResourceOwner = set->owner;
	tuplesort_rescan(set->sort);
	CurrentResourceOwner = owner;
	set->at_end = false;
	return count;
}

/* Let go of the sort and its files. */
void
rexp_key_set_end(RexpKeySet *set)
{
	tuplesort_end(set->sort);
	set->sort = NULL;
}
