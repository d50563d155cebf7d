/*-------------------------------------------------------------------------
 *
 * fill.c
 *	  A template filled with the values of a row, byte for byte.
 *
 * A null never becomes part of the result: it is the row's error.  What the
 * result is for is not known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode/fill.h"

/*
 * rexp_fill_create
 *	  Parse a template against the columns of a query, in the current context.
 *
 * what names the template ("key template") and part what is made with it ("part
 * of the key"), both in errors; they and desc must live as long.  Raises what
 * rexp_template_parse() does.
 */
RexpFill *
rexp_fill_create(const char *source, const char *what, const char *part,
				 TupleDesc desc)
{
	RexpFill   *fill = palloc0(sizeof(RexpFill));

	fill->desc = desc;
	fill->what = part;
	fill->template = rexp_template_parse(source, what, desc);
	fill->values = palloc0(sizeof(RexpValue *) * Max(fill->template->npieces, 1));
	for (int i = 0; i < fill->template->npieces; i++)
	{
		int			attno = fill->template->pieces[i].attno;

		if (attno > 0)
			fill->values[i] = rexp_value_create(desc, attno, REXP_VECTOR_AS_TEXT);
	}
	return fill;
}

/* Is it the same for each row? */
bool
rexp_fill_is_literal(const RexpFill *fill)
{
	for (int i = 0; i < fill->template->npieces; i++)
	{
		if (fill->template->pieces[i].attno > 0)
			return false;
	}
	return true;
}

/* Say that a column, which is a part of something, is null. */
void
rexp_null_error(RexpError *error, TupleDesc desc, int attno, const char *part)
{
	rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
				   "column \"%s\", %s, is null",
				   NameStr(TupleDescAttr(desc, attno - 1)->attname), part);
}

/*
 * rexp_fill_piece
 *	  The bytes of one piece of the template in this row, or false and why there are
 *	  none.
 *
 * They lie where rexp_value_bytes() leaves them.  All columns of the slot must have
 * been got.
 */
bool
rexp_fill_piece(RexpFill *fill, int number, TupleTableSlot *slot, char *scratch,
				const char **bytes, size_t *len, RexpError *error)
{
	const RexpPiece *piece = &fill->template->pieces[number];

	*bytes = piece->text;
	*len = piece->len;
	if (piece->attno == 0)
		return true;
	if (slot->tts_isnull[piece->attno - 1])
	{
		fill->null_column = piece->attno;
		rexp_null_error(error, fill->desc, piece->attno, fill->what);
		return false;
	}
	return rexp_value_bytes(fill->values[number], slot->tts_values[piece->attno - 1],
							scratch, bytes, len, error);
}

/*
 * rexp_fill_append
 *	  Append the filled template to out, or return false and why it cannot be
 *	  filled; out may then hold a part of it.
 *
 * All columns of the slot must have been got.
 */
bool
rexp_fill_append(RexpFill *fill, TupleTableSlot *slot, RexpBuffer *out,
				 RexpError *error)
{
	char		scratch[REXP_DIGITS_SIZE];

	fill->null_column = 0;
	for (int i = 0; i < fill->template->npieces; i++)
	{
		const char *bytes;
		size_t		len;

		if (!rexp_fill_piece(fill, i, slot, scratch, &bytes, &len, error))
			return false;
		rexp_buffer_append(out, bytes, len);
	}
	return true;
}
