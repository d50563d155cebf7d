/*-------------------------------------------------------------------------
 *
 * books.c
 *	  Which keys an export has written, and what value each of them has: kept in
 *	  Redis, beside the keys.
 *
 * The books are hashes.  A field is a key, whole, and its value an entry of twelve
 * bytes: a digest of what was written, and the stamp of the run that wrote it.  A
 * field that is there means that the export has written this key.  In a cluster there
 * is one hash for each slot that has keys, named so that it lies in that slot itself;
 * otherwise there is one for all.  Thus key and entry are on one node, in one stream
 * of replication and in one file of Redis'.
 *
 * An entry must not say of a key what another write has made untrue.  So both are
 * written in one transaction, and the entry is that of the write that was carried out
 * last, whoever sent it, and however late it arrives.  There is one exception: a write
 * that Redis refuses when it carries out the transaction, since the rest of that is
 * carried out.  A run that comes to its end corrects the entries of such keys.  One
 * that does not is unclean: the entries with its stamp count for nothing (rexp_books_same).
 * When it is not known any more which runs were unclean, a new era begins, and no entry
 * of the eras before counts (record.c).
 *
 * What others write to the key is not seen.
 *
 * Nothing here knows rows, nor when what is sent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/quick_hash.h"
#include "flow/books.h"
#include "redis/cluster.h"
#include "redis/own_keys.h"

/* Each tag has so many characters. */
#define TAG_SIZE 4

/* What begins a transaction, and what ends it. */
#define BEGIN "*1\r\n$5\r\nMULTI\r\n"
#define END "*1\r\n$4\r\nEXEC\r\n"
#define BEGIN_SIZE (sizeof(BEGIN) - 1)
#define END_SIZE (sizeof(END) - 1)

typedef struct Entry
{
	uint64		digest;
	uint32		stamp;
} Entry;

#define ENTRY_SIZE (sizeof(uint64) + sizeof(uint32))

struct RexpBooks
{
	const char *name;			/* of the export */
	const char *type;			/* of its keys, as Redis calls it */
	bool		asked;			/* for each row, before it is written */
	uint64		meaning;		/* hash of what makes a value what it is in Redis */
	uint64		seed;			/* of the digests: of the meaning and the era */
	uint32		stamp;			/* of this run */
	int			nunclean;
	uint32		unclean[REXP_UNCLEAN_MOST];
	RexpBuffer	key;			/* of the hash; of one of them, if they are spread */
	RexpBuffer	argument;		/* the same as an argument of a command */
	size_t		tag_at;			/* from the end of both, if they are spread */
	char	  (*tags)[TAG_SIZE];	/* by slot, if they are spread, or NULL */
	RexpBuffer	prefix;			/* of a row's commands */
	size_t		reserved;		/* bytes, for that of the row at hand */
};

/* Make the name of the hash. */
static void
set_key(RexpBooks *books, const char *key)
{
	books->key.len = books->argument.len = 0;
	rexp_buffer_append(&books->key, key, strlen(key));
	rexp_resp_bulk(&books->argument, key, strlen(key));
}

/*
 * rexp_books_create
 *	  The books of an export, in the current memory context.
 *
 * name is that of the export, in UTF-8.  meaning is whatever, besides its own bytes,
 * makes a value what it is in Redis: when that is another one, no entry fits any
 * more.  type is what Redis calls the type of the keys.  With asked, Redis is asked for
 * each row whether it has it, and only the others are written.  name and type must live
 * as long.
 */
RexpBooks *
rexp_books_create(const char *name, const char *meaning, const char *type, bool asked)
{
	RexpBooks  *books = palloc0(sizeof(RexpBooks));
	char	   *key = psprintf("%s{%s}:keys", REXP_OWN_PREFIX, name);

	books->name = name;
	books->type = type;
	books->asked = asked;
	books->meaning = rexp_quick_hash(meaning, strlen(meaning), 0);
	rexp_buffer_init(&books->key, 128);
	rexp_buffer_init(&books->argument, 128);
	rexp_buffer_init(&books->prefix, 256);
	set_key(books, key);
	pfree(key);
	return books;
}

/* Find a tag for each slot. */
static void
find_tags(char (*tags)[TAG_SIZE])
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
	int			missing = REXP_SLOTS;

	for (uint32 n = 0; missing > 0; n++)
	{
		char		tag[TAG_SIZE];
		char	   *place;

		for (int i = 0; i < TAG_SIZE; i++)
			tag[i] = digits[(n >> (5 * i)) & 31];
		place = tags[rexp_key_slot(tag, TAG_SIZE)];
		if (place[0] != '\0')
			continue;
		memcpy(place, tag, TAG_SIZE);
		missing--;
	}
}

/* Redis is a cluster: from now on there is a hash for each slot. */
void
rexp_books_spread(RexpBooks *books)
{
	MemoryContext old;
	char	   *key;

	if (books->tags != NULL)
		return;
	old = MemoryContextSwitchTo(GetMemoryChunkContext(books));
	books->tags = palloc0(sizeof(char[TAG_SIZE]) * REXP_SLOTS);
	find_tags(books->tags);
	key = psprintf("%s{%.*s}:keys:%s", REXP_OWN_PREFIX, TAG_SIZE, books->tags[0],
				   books->name);
	set_key(books, key);
	books->tag_at = strlen(key) - strlen(REXP_OWN_PREFIX "{");
	pfree(key);
	MemoryContextSwitchTo(old);
}

/* Is there a hash for each slot? */
bool
rexp_books_are_spread(const RexpBooks *books)
{
	return books->tags != NULL;
}

/*
 * rexp_books_begin
 *	  A run begins.  What it writes gets this stamp.  Entries that were written in
 *	  another era, or that have one of the unclean stamps, count for nothing.  The digests
 *	  of another era never match, since the era is in their seed.
 */
void
rexp_books_begin(RexpBooks *books, const char *era, uint32 stamp, const uint32 *unclean,
				 int nunclean)
{
	Assert(nunclean <= REXP_UNCLEAN_MOST);
	books->seed = rexp_quick_hash(era, strlen(era), books->meaning);
	books->stamp = stamp;
	books->nunclean = nunclean;
	memcpy(books->unclean, unclean, sizeof(uint32) * nunclean);
}

/* No entry counts, or there is none yet: all rows are written, and none is asked for. */
void
rexp_books_write_all(RexpBooks *books)
{
	books->asked = false;
}

/* Is Redis asked for each row whether it has it? */
bool
rexp_books_are_asked(const RexpBooks *books)
{
	return books->asked;
}

/* With which digests are made. */
uint64
rexp_books_seed(const RexpBooks *books)
{
	return books->seed;
}

/*
 * rexp_books_key
 *	  The name of the hash for the keys of a slot; without a cluster, whatever the slot
 *	  is, that of the only one.  Good until the next call of any function here.
 */
const char *
rexp_books_key(const RexpBooks *books, int slot, size_t *len)
{
	*len = books->key.len;
	if (books->tags != NULL)
		memcpy(books->key.data + books->key.len - books->tag_at, books->tags[slot],
			   TAG_SIZE);
	return books->key.data;
}

/* Append a command up to the name of the hash for a key, and the key. */
static void
begin_command(const RexpBooks *books, int nwords, const char *word, const char *key,
			  size_t key_len, RexpBuffer *out)
{
	rexp_resp_header(out, '*', nwords);
	rexp_resp_word(out, word);
	rexp_buffer_append(out, books->argument.data, books->argument.len);
	if (books->tags != NULL)
		memcpy(out->data + out->len - 2 - books->tag_at,
			   books->tags[rexp_key_slot(key, key_len)], TAG_SIZE);
	rexp_resp_bulk(out, key, key_len);
}

/*
 * rexp_books_reserve
 *	  Make room for what goes before a row's own commands, as much as the last row took.
 */
void
rexp_books_reserve(RexpBooks *books, RexpBuffer *out)
{
	books->reserved = books->prefix.len;
	rexp_buffer_reserve(out, books->reserved);
	out->len += books->reserved;
}

/* Let the block have the digest of what its commands, which these are, write. */
void
rexp_books_digest(const RexpBooks *books, const char *commands, size_t len, RexpBlock *block)
{
	if (!block->has_digest && !block->erases)
		block->digest = rexp_quick_hash(commands, len, books->seed);
}

/*
 * rexp_books_wrap
 *	  Make a row's commands, which are the last in the buffer, one transaction with the
 *	  entry of its key.  From start on there is the room that was made, and then the
 *	  commands; the block tells of them, and of the transaction in the end.
 *
 * The entry comes first: should Redis refuse MULTI, and carry out what follows it one by
 * one, then a cut in between leaves an entry of this run, which is not clean.
 *
 * Unless the block has a digest, it is one of the commands.
 */
void
rexp_books_wrap(RexpBooks *books, RexpBuffer *out, size_t start, RexpBlock *block)
{
	RexpBuffer *prefix = &books->prefix;
	size_t		own = start + books->reserved;
	size_t		len = out->len - own;
	const char *key = out->data + block->key_start;
	Entry		entry;

	rexp_books_digest(books, out->data + own, len, block);
	prefix->len = 0;
	rexp_buffer_append(prefix, BEGIN, BEGIN_SIZE);
	if (block->erases)
		begin_command(books, 3, "HDEL", key, block->key_len, prefix);
	else
	{
		entry.digest = block->digest;
		entry.stamp = books->stamp;
		begin_command(books, 4, "HSET", key, block->key_len, prefix);
		rexp_resp_bulk(prefix, (const char *) &entry, ENTRY_SIZE);
	}
	if (block->commands > 1)
	{
		/* they are a transaction already: ours takes the place of it */
		own += BEGIN_SIZE;
		len -= BEGIN_SIZE + END_SIZE;
		block->commands -= 2;
	}
	rexp_buffer_reserve(out, prefix->len + END_SIZE);
	if (start + prefix->len != own)
		memmove(out->data + start + prefix->len, out->data + own, len);
	memcpy(out->data + start, prefix->data, prefix->len);
	out->len = start + prefix->len + len;
	rexp_buffer_append(out, END, END_SIZE);
	rexp_block_moved(block, (ssize_t) (start + prefix->len) - (ssize_t) own);
	block->commands += 3;
}

/* Append the two commands that ask for the type of the key, and for its entry. */
void
rexp_books_check(const RexpBooks *books, const char *key, size_t key_len, RexpBuffer *out)
{
	rexp_resp_header(out, '*', 2);
	rexp_resp_word(out, "TYPE");
	rexp_resp_bulk(out, key, key_len);
	begin_command(books, 3, "HGET", key, key_len, out);
}

/*
 * rexp_books_doubt
 *	  Append the command that says of a key that it is ours, and its value not known.
 *	  Returns where the key is in it.
 */
size_t
rexp_books_doubt(const RexpBooks *books, const char *key, size_t key_len, RexpBuffer *out)
{
	size_t		start = out->len;
	size_t		end;

	begin_command(books, 4, "HSET", key, key_len, out);
	end = out->len - 2;
	rexp_resp_bulk(out, "", 0);
	return end - key_len - start;
}

/* Append the command that asks whether a key is in the books. */
void
rexp_books_ask(const RexpBooks *books, const char *key, size_t key_len, RexpBuffer *out)
{
	begin_command(books, 3, "HEXISTS", key, key_len, out);
}

/*
 * rexp_books_forget
 *	  Append the command that takes a key out of the books.  Returns where the key is in it.
 */
size_t
rexp_books_forget(const RexpBooks *books, const char *key, size_t key_len, RexpBuffer *out)
{
	size_t		start = out->len;

	begin_command(books, 3, "HDEL", key, key_len, out);
	return out->len - 2 - key_len - start;
}

/* Is this the type that the keys must have? */
bool
rexp_books_has_type(const RexpBooks *books, const char *type, size_t len)
{
	return len == strlen(books->type) && memcmp(type, books->type, len) == 0;
}

/*
 * rexp_books_same
 *	  Does this entry, that was found, say that the key has the value of this digest?
 *
 * This run's own entries do not count either: of their writes it is not known yet
 * whether they were refused.
 */
bool
rexp_books_same(const RexpBooks *books, uint64 digest, const char *found, size_t len)
{
	Entry		entry;

	if (len != ENTRY_SIZE)
		return false;
	memcpy(&entry, found, ENTRY_SIZE);
	if (entry.digest != digest || entry.stamp == books->stamp)
		return false;
	for (int i = 0; i < books->nunclean; i++)
	{
		if (books->unclean[i] == entry.stamp)
			return false;
	}
	return true;
}
