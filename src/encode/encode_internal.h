/*-------------------------------------------------------------------------
 *
 * encode_internal.h
 *	  What encode.c and the encoder of each kind of export share; of no concern
 *	  to others.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ENCODE_INTERNAL_H
#define REDIS_EXPORT_ENCODE_INTERNAL_H

#include "encode/document_column.h"
#include "encode/fill.h"
#include "encode/form.h"
#include "redis/verb.h"

/*
 * Append the row's commands to out and tell of them in *block, whose expiry is
 * filled already.  All columns of the slot have been got, output settings are
 * ours, and the current memory context is the row's.
 */
typedef RexpEncoded (*RexpEncodeRow) (void *state, TupleTableSlot *slot,
									  RexpBuffer *out, RexpBlock *block,
									  RexpError *error);

/* What is done for the books, with a document that is one column. */
typedef struct RexpKeeping
{
	bool		digests;		/* rows have digests of what is stored */
	uint64		seed;			/* with this */
	bool		puts_off;		/* and are completed when they are to be written */
} RexpKeeping;

/* One kind's encoder, palloc'd in the current context. */
typedef struct RexpKindEncoder
{
	RexpEncodeRow encode;
	void	   *state;
	RexpVerb	verb;
	RexpGiven	given;			/* zeros: nothing is known */
	const RexpDocumentColumn *column;	/* whose value alone is that of the key, or NULL */
	RexpKeeping *keeping;		/* how, if so; the encoder reads it for each row */
} RexpKindEncoder;

/* left_out[attno - 1] tells which columns are not part of the value. */
extern void rexp_encode_json_init(RexpKindEncoder *kind,
								  const RexpEncoding *encoding,
								  TupleDesc desc, const bool *left_out);
extern void rexp_encode_hash_init(RexpKindEncoder *kind,
								  const RexpEncoding *encoding,
								  TupleDesc desc, const bool *left_out);
extern void rexp_encode_command_init(RexpKindEncoder *kind,
									 const RexpEncoding *encoding,
									 TupleDesc desc);

extern RexpVerb rexp_export_verb(int nwords, const RexpWord *words);
extern RexpWord rexp_literal_word(const char *string);
extern void rexp_check_columns_left(TupleDesc desc, const bool *left_out);
extern RexpFill *rexp_key_fill(const char *key_template, TupleDesc desc);
extern void rexp_tell_given(RexpGiven *given, const RexpFill *key_fill, TupleDesc desc,
							const bool *left_out);
extern void rexp_append_key(const RexpBuffer *key, RexpBuffer *out,
							RexpBlock *block);
extern RexpEncoded rexp_fail_with_key(const RexpBuffer *key, bool is_whole, RexpBuffer *out,
									  RexpBlock *block);

#endif							/* REDIS_EXPORT_ENCODE_INTERNAL_H */
