/*-------------------------------------------------------------------------
 *
 * key_filter.c
 *	  Has this key been seen before?
 *
 * Of each key a digest of 128 bits is remembered, made with random seeds, so that
 * nobody can choose keys that are taken for one: among a thousand million keys
 * the odds for two such are one in 10^20.  When the memory is full, no more keys are
 * remembered.
 *
 * Nothing here knows where keys are from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/digest.h"
#include "base/key_filter.h"
#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define SLOTS_FIRST 1024

struct RexpKeyFilter
{
	MemoryContext context;
	uint64		seeds[2];
	size_t		most;			/* slots that there may be */
	size_t		nslots;			/* a power of two */
	size_t		used;
	RexpDigest *slots;			/* all zero: free */
};

/* In the current memory context, of so many kB. */
RexpKeyFilter *
rexp_key_filter_create(int memory)
{
	RexpKeyFilter *filter = palloc0(sizeof(RexpKeyFilter));

	filter->context = CurrentMemoryContext;
	if (!pg_strong_random(filter->seeds, sizeof(filter->seeds)))
		filter->seeds[0] = filter->seeds[1] = (uint64) GetCurrentTimestamp();

	/* while it grows, there are the old slots and twice as many */
	filter->most = (size_t) memory * 1024 / sizeof(RexpDigest) * 2 / 3;
	filter->nslots = SLOTS_FIRST;
	filter->slots = palloc0(sizeof(RexpDigest) * filter->nslots);
	return filter;
}

/* The slot of a digest, or the free one where it would be. */
static RexpDigest *
find_slot(const RexpKeyFilter *filter, const RexpDigest *digest)
{
	size_t		at = digest->halves[0] & (filter->nslots - 1);

	while ((filter->slots[at].halves[0] | filter->slots[at].halves[1]) != 0 &&
		   !rexp_digest_equal(&filter->slots[at], digest))
		at = (at + 1) & (filter->nslots - 1);
	return &filter->slots[at];
}

/* Make room for twice as many.  False if there may not be. */
static bool
grow(RexpKeyFilter *filter)
{
	RexpDigest *old = filter->slots;
	size_t		nold = filter->nslots;

	if (nold * 2 > filter->most)
		return false;
	filter->nslots = nold * 2;
	filter->slots = MemoryContextAllocExtended(filter->context,
											   sizeof(RexpDigest) * filter->nslots,
											   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (size_t i = 0; i < nold; i++)
	{
		if ((old[i].halves[0] | old[i].halves[1]) != 0)
			*find_slot(filter, &old[i]) = old[i];
	}
	pfree(old);
	return true;
}

/*
 * rexp_key_filter_look
 *	  Has it been seen?  If not, it is remembered, as long as there is memory.
 */
RexpSeen
rexp_key_filter_look(RexpKeyFilter *filter, const char *key, size_t len)
{
	const unsigned char *bytes = (const unsigned char *) key;
	RexpDigest	digest;
	RexpDigest *slot;

	digest.halves[0] = hash_bytes_extended(bytes, (int) len, filter->seeds[0]);
	digest.halves[1] = hash_bytes_extended(bytes, (int) len, filter->seeds[1]) | 1;
	slot = find_slot(filter, &digest);
	if (rexp_digest_equal(slot, &digest))
		return REXP_SEEN_BEFORE;

	/* three quarters full at most */
	if (filter->used >= filter->nslots / 4 * 3)
	{
		if (!grow(filter))
			return REXP_SEEN_UNKNOWN;
		slot = find_slot(filter, &digest);
	}
	*slot = digest;
	filter->used++;
	return REXP_SEEN_NEVER;
}
