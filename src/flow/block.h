/*-------------------------------------------------------------------------
 *
 * block.h
 *	  What a row has become: the commands that write it, as they pass from the
 *	  encoder to the pipeline, and the expiry that follows them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_BLOCK_H
#define REDIS_EXPORT_BLOCK_H

#include "base/error.h"
#include "redis/resp.h"
#include "redis/verb.h"

typedef enum RexpExpiryKind
{
	REXP_EXPIRY_NONE,			/* left as it is */
	REXP_EXPIRY_IN,				/* milliseconds from now */
	REXP_EXPIRY_AT,				/* milliseconds since 1970 */
	REXP_EXPIRY_NEVER			/* taken away */
} RexpExpiryKind;

typedef struct RexpExpiry
{
	RexpExpiryKind kind;
	int64		time;			/* of IN and AT */
} RexpExpiry;

/* The commands lie side by side in a buffer of the pipeline's. */
typedef struct RexpBlock
{
	int			commands;		/* one, or several from MULTI to EXEC */
	size_t		key_start;		/* of the key in that buffer ... */
	size_t		key_len;		/* ... and its bytes, 0 for none */
	bool		key_is_whole;	/* false: as much as could be made of it */
	RexpExpiry	expiry;
	bool		repeatable;		/* to send it twice is to send it once */
	RexpRefusal refusal;		/* the answer that says that it was not written */
	bool		erases;			/* the key is gone when it is carried out */
	bool		has_digest;		/* else its commands make one: */
	uint64		digest;			/* of the value, for the books (books.c) */
	size_t		stored_start;	/* of an argument that is to be completed before the row
								 * is written, in that buffer ... */
	uint32		stored_len;		/* ... and its bytes, 0 for none */
	size_t		size_to_come;	/* by how much it will be longer then */

	/* what the pipeline says of it: */
	bool		deletes;		/* no row of the query: it deletes the key ... */
	bool		corrects;		/* ... or corrects the books */
	bool		watched;		/* Redis may have it already */
} RexpBlock;

/* The block is so many bytes further on in its buffer, or lies in another. */
static inline void
rexp_block_moved(RexpBlock *block, ssize_t by)
{
	block->key_start += by;
	if (block->stored_len > 0)
		block->stored_start += by;
}

/*
 * What completes an argument that was put off: a function of its bytes alone, which may
 * be called when there is no transaction any more.  Its result is palloc'd, or lies in
 * what it was given; false: the row has failed, with this error.
 */
typedef bool (*RexpCompleteValue) (void *arg, const char *stored, size_t stored_len,
								   const char **bytes, size_t *len, RexpError *error);

extern void rexp_expiry_command(const RexpExpiry *expiry, const char *key,
								size_t key_len, RexpBuffer *out);

#endif							/* REDIS_EXPORT_BLOCK_H */
