/*-------------------------------------------------------------------------
 *
 * encode.c
 *	  One row to its commands: what all kinds of export have in common.
 *
 * The caller checks the arguments of an export by making an encoder with the
 * result of its query, and the worker makes the same again: one set of rules.
 * It knows neither where rows come from nor what becomes of commands; how each
 * kind of export writes a row is in encode_json.c, encode_hash.c and
 * encode_command.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/output_settings.h"
#include "encode/encode.h"
#include "encode/encode_internal.h"
#include "encode/ttl.h"
#include "mb/pg_wchar.h"
#include "redis/own_keys.h"
#include "utils/memutils.h"

struct RexpEncoder
{
	RexpKindEncoder kind;
	RexpExpiry	expiry;			/* of each row, unless ... */
	RexpExpiryColumn *expiry_column;	/* ... there is this */
	MemoryContext row_context;
};

/* Mark the columns that exclude names. */
static void
leave_out_excluded(List *exclude, TupleDesc desc, bool *left_out)
{
	ListCell   *cell;

	foreach(cell, exclude)
	{
		const char *name = lfirst(cell);
		int			attno = rexp_need_column(desc, name, "exclude");

		left_out[attno - 1] = true;
	}
}

/*
 * rexp_encoder_create
 *	  Check how the rows of a query shall become commands, and get ready for it.
 *
 * All of it lies in the current memory context.  Raises an error if the
 * arguments and the result's columns do not fit.
 */
RexpEncoder *
rexp_encoder_create(const RexpEncoding *encoding, TupleDesc desc)
{
	RexpEncoder *encoder = palloc0(sizeof(RexpEncoder));
	bool	   *left_out = palloc0(sizeof(bool) * desc->natts);

	/* slots of the executor may have no names of columns */
	desc = CreateTupleDescCopy(desc);
	encoder->expiry = encoding->expiry;
	if (encoding->ttl_column != NULL)
		encoder->expiry_column = rexp_expiry_column_create(encoding->ttl_column, desc);
	leave_out_excluded(encoding->exclude, desc, left_out);
	switch (encoding->kind)
	{
		case REXP_EXPORT_JSON:
			rexp_encode_json_init(&encoder->kind, encoding, desc, left_out);
			break;
		case REXP_EXPORT_HASH:
			rexp_check_columns_left(desc, left_out);
			rexp_encode_hash_init(&encoder->kind, encoding, desc, left_out);
			break;
		case REXP_EXPORT_COMMAND:
			rexp_encode_command_init(&encoder->kind, encoding, desc);
			break;
	}
	if ((encoding->expiry.kind != REXP_EXPIRY_NONE || encoding->ttl_column != NULL) &&
		encoder->kind.verb.key_word == 0 && !encoder->kind.verb.by_row)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot set an expiry with %s", rexp_encoding_command(encoding)),
				 errdetail("The command has no key.")));
	encoder->row_context = AllocSetContextCreate(CurrentMemoryContext,
												 "redis_export row",
												 ALLOCSET_DEFAULT_SIZES);
	return encoder;
}

/*
 * rexp_encoder_use_books
 *	  Rows are kept in books: from now on their digests are made in the cheapest way
 *	  that there is.  If rows are asked for first, what takes time and can be done later
 *	  is left to rexp_column_complete(), with *column.
 */
void
rexp_encoder_use_books(RexpEncoder *encoder, const RexpBooks *books,
					   RexpDocumentColumn *column)
{
	RexpKeeping *keeping = encoder->kind.keeping;

	if (encoder->kind.column == NULL)
		return;
	*column = *encoder->kind.column;
	keeping->digests = true;
	keeping->seed = rexp_books_seed(books);
	keeping->puts_off = rexp_books_are_asked(books) && GetDatabaseEncoding() == PG_UTF8;
}

/* What rows give to an index over their keys. */
const RexpGiven *
rexp_encoder_gives(const RexpEncoder *encoder)
{
	return &encoder->kind.given;
}

/*
 * rexp_encoder_encode
 *	  Append the row's commands to out and tell of them in *block.
 *
 * If the row is to be skipped, or has failed for a reason that *error then
 * tells, out may hold a part of them, for the caller to cut off.  Of a row that
 * failed, *block tells the key, as far as it could be made.
 */
RexpEncoded
rexp_encoder_encode(RexpEncoder *encoder, TupleTableSlot *slot, RexpBuffer *out,
					RexpBlock *block, RexpError *error)
{
	MemoryContext old = MemoryContextSwitchTo(encoder->row_context);
	RexpOutputSettings saved;
	RexpError	bad_expiry;
	RexpEncoded result;

	slot_getallattrs(slot);
	bad_expiry.sqlstate = 0;
	block->commands = 1;
	block->key_start = out->len;
	block->key_len = 0;
	block->key_is_whole = false;
	block->erases = block->has_digest = block->deletes = block->corrects = false;
	block->stored_len = 0;
	block->size_to_come = 0;
	block->repeatable = encoder->kind.verb.repeatable;
	block->refusal = encoder->kind.verb.refusal;
	block->expiry = encoder->expiry;
	if (encoder->expiry_column != NULL)
		(void) rexp_expiry_of_row(encoder->expiry_column, slot, &block->expiry,
								  &bad_expiry);
	rexp_output_settings_enter(&saved);
	result = encoder->kind.encode(encoder->kind.state, slot, out, block, error);
	rexp_output_settings_leave(&saved);
	if (result == REXP_ENCODED && bad_expiry.sqlstate != 0)
	{
		*error = bad_expiry;
		result = REXP_ENCODE_FAILED;
	}
	else if (result == REXP_ENCODED &&
			 rexp_is_own_key(out->data + block->key_start, block->key_len))
	{
		rexp_error_set(error, ERRCODE_RESERVED_NAME,
					   "the key begins with \"" REXP_OWN_PREFIX "\", which is reserved for what redis_export keeps in Redis");
		result = REXP_ENCODE_FAILED;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(encoder->row_context);
	return result;
}
