/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Does Redis hold a row already?  Digests that are kept beside the keys.
 *
 * To read each value back and compare it would take Redis about as long as to take
 * a new one, and us longer.  So a digest of what was last written to a key is kept
 * in Redis, eight bytes, in a hash: redis_export:digests:{TAG}, one for each of the
 * 16384 slots of a cluster, where the tag makes it go to the slot of the key itself.
 * Thus key and digest are on one node, in one stream of replication and in one file
 * of Redis', with or without a cluster: what is lost, is lost of both, the digest first.
 *
 * A digest may be missing, which costs a write; it must never be there with
 * another value in the key.  So it is forgotten in one transaction with each write, and
 * kept again only when that is acknowledged.  Without a transaction, Redis would carry
 * out the write behind an HDEL that it has refused: for the rights of the user, or since
 * only one of both keys has gone with their slot.  What others write to the key is not seen.  Exports
 * that keep no digests make all of their key template void: these are made with a
 * random seed, which Redis keeps too, and which such an export deletes.
 *
 * Nothing here knows rows, nor when what is sent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "changes.h"
#include "cluster.h"
#include "common/hashfn.h"
#include "own_keys.h"

#define HASH_PREFIX REXP_OWN_PREFIX "digests:{"
#define SEED_PREFIX REXP_OWN_PREFIX "seed:"

/* Each tag has so many characters, so that all hashes have names of one length. */
#define TAG_SIZE 4

/* The name of a hash. */
#define NAME_SIZE (sizeof(HASH_PREFIX) - 1 + TAG_SIZE + 1)

/* Before the commands of a row: HDEL hash field, of which all parts have one length. */
#define BEGIN "*1\r\n$5\r\nMULTI\r\n"
#define END "*1\r\n$4\r\nEXEC\r\n"
#define BEGIN_SIZE (sizeof(BEGIN) - 1)
#define FORGET_HEAD "*3\r\n$4\r\nHDEL\r\n$27\r\n"
#define FORGET_MIDDLE "\r\n$8\r\n"
#define FORGET_SIZE (sizeof(FORGET_HEAD) - 1 + NAME_SIZE + sizeof(FORGET_MIDDLE) - 1 + \
					 sizeof(uint64) + 2)
#define RESERVED (BEGIN_SIZE + FORGET_SIZE)

StaticAssertDecl(NAME_SIZE == 27, "FORGET_HEAD tells the length of the name");

struct RexpChanges
{
	uint64		seed;
	char		tags[REXP_SLOTS][TAG_SIZE];
};

/* For each slot a tag that belongs to it. */
static void
find_tags(RexpChanges *changes)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
	int			missing = REXP_SLOTS;

	for (uint32 n = 0; missing > 0; n++)
	{
		char		tag[TAG_SIZE];
		char	   *place;

		for (int i = 0; i < TAG_SIZE; i++)
			tag[i] = digits[(n >> (5 * i)) & 31];
		place = changes->tags[rexp_key_slot(tag, TAG_SIZE)];
		if (place[0] != '\0')
			continue;
		memcpy(place, tag, TAG_SIZE);
		missing--;
	}
}

/* In the current memory context.  There must be a seed before it is used. */
RexpChanges *
rexp_changes_create(void)
{
	RexpChanges *changes = palloc0(sizeof(RexpChanges));

	find_tags(changes);
	return changes;
}

/* The key of the seed for all keys of a pattern; palloc'd. */
char *
rexp_changes_seed_key(const char *pattern)
{
	return psprintf("%s%s", SEED_PREFIX, pattern);
}

void
rexp_changes_set_seed(RexpChanges *changes, uint64 seed)
{
	changes->seed = seed;
}

/* The name of the hash, of NAME_SIZE bytes. */
static void
write_name(const RexpChanges *changes, const RexpPrint *print, char *name)
{
	memcpy(name, HASH_PREFIX, sizeof(HASH_PREFIX) - 1);
	memcpy(name + sizeof(HASH_PREFIX) - 1, changes->tags[print->slot], TAG_SIZE);
	name[NAME_SIZE - 1] = '}';
}

/*
 * rexp_changes_reserve
 *	  Make room for what goes before a row's own commands.
 */
void
rexp_changes_reserve(RexpBuffer *out)
{
	rexp_buffer_reserve(out, RESERVED);
	out->len += RESERVED;
}

/* Write what begins the transaction, where room was made. */
static void
write_forget(const RexpChanges *changes, const RexpPrint *print, char *at)
{
	memcpy(at, BEGIN FORGET_HEAD, BEGIN_SIZE + sizeof(FORGET_HEAD) - 1);
	at += BEGIN_SIZE + sizeof(FORGET_HEAD) - 1;
	write_name(changes, print, at);
	at += NAME_SIZE;
	memcpy(at, FORGET_MIDDLE, sizeof(FORGET_MIDDLE) - 1);
	at += sizeof(FORGET_MIDDLE) - 1;
	memcpy(at, &print->field, sizeof(uint64));
	at += sizeof(uint64);
	memcpy(at, "\r\n", 2);
}

/*
 * rexp_changes_take
 *	  Take the digest of a row's commands, which are the last in the buffer, from the
 *	  room that was made at start; and put them into one transaction with what
 *	  forgets it.  The number of commands and the place of the key are what they
 *	  were, and become what they are.
 *
 * Several commands are a transaction already.  Two keys of one field would have each
 * the other's digest forgotten: it costs a write, since the digest is one of the key,
 * too.
 */
void
rexp_changes_take(const RexpChanges *changes, RexpBuffer *out, size_t start,
				  int *commands, size_t *key_start, size_t key_len, RexpPrint *print)
{
	const char *key = out->data + *key_start;
	char	   *own = out->data + start + RESERVED;
	size_t		len = out->len - start - RESERVED;

	print->slot = (uint16) rexp_key_slot(key, key_len);
	print->field = hash_bytes_extended((const unsigned char *) key, (int) key_len, 0);
	print->digest = hash_bytes_extended((const unsigned char *) own, (int) len,
										changes->seed);
	if (*commands == 1)
	{
		rexp_buffer_append(out, END, sizeof(END) - 1);
		*commands += 3;
	}
	else
	{
		/* our MULTI takes the place of its own */
		memmove(own, own + BEGIN_SIZE, len - BEGIN_SIZE);
		out->len -= BEGIN_SIZE;
		*key_start -= BEGIN_SIZE;
		*commands += 1;
	}
	write_forget(changes, print, out->data + start);
}

/*
 * Append the two commands that ask whether the key is there, and for its digest.
 */
void
rexp_changes_check(const RexpChanges *changes, const RexpPrint *print, const char *key,
				   size_t key_len, RexpBuffer *out)
{
	char		name[NAME_SIZE];

	write_name(changes, print, name);
	rexp_resp_header(out, '*', 2);
	rexp_resp_word(out, "EXISTS");
	rexp_resp_bulk(out, key, key_len);
	rexp_resp_header(out, '*', 3);
	rexp_resp_word(out, "HGET");
	rexp_resp_bulk(out, name, sizeof(name));
	rexp_resp_bulk(out, (const char *) &print->field, sizeof(uint64));
}

/* Append the command that keeps the digest. */
void
rexp_changes_note(const RexpChanges *changes, const RexpPrint *print, RexpBuffer *out)
{
	char		name[NAME_SIZE];

	write_name(changes, print, name);
	rexp_resp_header(out, '*', 4);
	rexp_resp_word(out, "HSET");
	rexp_resp_bulk(out, name, sizeof(name));
	rexp_resp_bulk(out, (const char *) &print->field, sizeof(uint64));
	rexp_resp_bulk(out, (const char *) &print->digest, sizeof(uint64));
}

/* Is this what was found the digest? */
bool
rexp_changes_same(const RexpPrint *print, const char *found, size_t len)
{
	return len == sizeof(uint64) && memcmp(found, &print->digest, len) == 0;
}
