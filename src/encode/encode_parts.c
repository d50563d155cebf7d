/*-------------------------------------------------------------------------
 *
 * encode_parts.c
 *	  What the encoders of documents, hashes and commands share: the check of the
 *	  columns, the key, and the verb.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/encoding.h"
#include "encode/encode_internal.h"

/* Raise an error unless some column is left. */
void
rexp_check_columns_left(TupleDesc desc, const bool *left_out)
{
	for (int i = 0; i < desc->natts; i++)
	{
		if (!left_out[i])
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("no column is left to export"),
			 errdetail("All are excluded.")));
}

/*
 * rexp_tell_given
 *	  How the keys begin, and the names of the columns that are part of the value, in
 *	  UTF-8; NULL for left_out: they are not known.
 */
void
rexp_tell_given(RexpGiven *given, const RexpFill *key_fill, TupleDesc desc,
				const bool *left_out)
{
	const RexpPiece *first = key_fill->template->pieces;

	given->key_begin = key_fill->template->npieces > 0 && first->attno == 0 ?
		pnstrdup(first->text, first->len) : "";
	for (int i = 0; left_out != NULL && i < desc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(desc, i)->attname);

		if (!left_out[i])
			given->names = lappend(given->names, rexp_literal_utf8(name, strlen(name)));
	}
}

/* Raise an error if this is no command to export with, and tell what is known of it. */
RexpVerb
rexp_export_verb(int nwords, const RexpWord *words)
{
	RexpVerb	verb;
	RexpError	error;

	if (!rexp_verb_look_up(nwords, words, REXP_SENDER_EXPORT, &verb, &error))
		rexp_error_raise(&error);
	return verb;
}

/* A word that is a string. */
RexpWord
rexp_literal_word(const char *string)
{
	RexpWord	word = {string, strlen(string), false, false};

	return word;
}

/* The key template of documents and hashes, which must tell rows apart. */
RexpFill *
rexp_key_fill(const char *key_template, TupleDesc desc)
{
	RexpFill   *fill = rexp_fill_create(key_template, "key template",
										"part of the key", desc);

	if (rexp_fill_is_literal(fill))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key template \"%s\" names no column", key_template),
				 errdetail("All rows would be written to one and the same key."),
				 errhint("Name a column that identifies the row, as in 'appointment:#{id}'. The query returns %s.",
						 rexp_column_list(desc))));
	return fill;
}

/* Append the key as an argument, and tell where it is. */
void
rexp_append_key(const RexpBuffer *key, RexpBuffer *out, RexpBlock *block)
{
	rexp_resp_bulk(out, key->data, key->len);
	block->key_start = out->len - 2 - key->len;
	block->key_len = key->len;
	block->key_is_whole = true;
}

/* The row cannot be written: show its key, which is whole or as far as it was made. */
RexpEncoded
rexp_fail_with_key(const RexpBuffer *key, bool is_whole, RexpBuffer *out,
				   RexpBlock *block)
{
	block->key_start = out->len;
	block->key_len = key->len;
	block->key_is_whole = is_whole;
	rexp_buffer_append(out, key->data, key->len);
	return REXP_ENCODE_FAILED;
}
