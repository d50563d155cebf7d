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

#include "resp.h"
#include "verb.h"

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

	/* what the pipeline says of it: */
	bool		deletes;		/* no row of the query: it deletes the key ... */
	bool		corrects;		/* ... or corrects the books */
	bool		watched;		/* Redis may have it already */
} RexpBlock;

extern void rexp_expiry_command(const RexpExpiry *expiry, const char *key,
								size_t key_len, RexpBuffer *out);

#endif							/* REDIS_EXPORT_BLOCK_H */
