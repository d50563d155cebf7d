/*-------------------------------------------------------------------------
 *
 * encode.c
 *	  One row to one command: JSON.SET key path document.
 *
 * The caller checks the arguments of an export by making an encoder with the
 * result of its query, and the worker makes the same again: one set of rules.
 * It knows neither where rows come from nor what becomes of commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "document.h"
#include "encode.h"
#include "mb/pg_wchar.h"
#include "template.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

struct RexpEncoder
{
	RexpTemplate *key_template;
	RexpText  **key_columns;	/* one a piece, NULL for literals */
	RexpDocument *document;
	RexpBuffer	head;			/* what comes before the key */
	RexpBuffer	middle;			/* what comes between key and document */
	RexpBuffer	key;			/* of the row at hand */
	MemoryContext row_context;
};

/* Which columns are named in the list?  Palloc'd; NULL for none. */
static bool *
excluded_columns(List *exclude, TupleDesc desc)
{
	bool	   *excluded;
	int			left = desc->natts;
	ListCell   *cell;

	if (exclude == NIL)
		return NULL;
	excluded = palloc0(sizeof(bool) * desc->natts);
	foreach(cell, exclude)
	{
		const char *name = lfirst(cell);
		int			attno = rexp_find_column(desc, name);

		if (attno == 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("exclude names column \"%s\", which the query does not return",
							name),
					 errhint("The query returns %s. Names are compared exactly, case included.",
							 rexp_column_list(desc))));
		if (!excluded[attno - 1])
			left--;
		excluded[attno - 1] = true;
	}
	if (left == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exclude leaves no column to export")));
	return excluded;
}

/*
 * The document by default: the one column that the key does not use, if it can
 * be one, or else the whole row.
 */
static RexpDocument *
default_document(const RexpTemplate *key_template, TupleDesc desc)
{
	int			found = 0;
	int			unused = 0;

	for (int attno = 1; attno <= desc->natts; attno++)
	{
		if (!rexp_template_uses(key_template, attno))
		{
			unused++;
			found = attno;
		}
	}
	if (unused == 1)
	{
		Oid			type = TupleDescAttr(desc, found - 1)->atttypid;

		if (rexp_document_is_text(type) || rexp_document_is_json(type))
			return rexp_document_create(desc, found, rexp_document_is_text(type),
										NULL);
	}
	return rexp_document_create(desc, 0, false, NULL);
}

/* The document that the arguments ask for. */
static RexpDocument *
choose_document(const RexpEncoding *encoding, const RexpTemplate *key_template,
				TupleDesc desc)
{
	bool	   *excluded = excluded_columns(encoding->exclude, desc);
	Oid			type;
	int			attno;

	if (encoding->value == NULL && excluded == NULL)
		return default_document(key_template, desc);
	if (encoding->value == NULL || strcmp(encoding->value, "*") == 0)
		return rexp_document_create(desc, 0, false, excluded);

	if (excluded != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exclude cannot be used with a single column as the value"),
				 errhint("Say value => '*' to store the whole row but for the excluded columns.")));
	attno = rexp_find_column(desc, encoding->value);
	if (attno == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("value names column \"%s\", which the query does not return",
						encoding->value),
				 errhint("The query returns %s. Names are compared exactly, case included; '*' is the whole row.",
						 rexp_column_list(desc))));
	type = TupleDescAttr(desc, attno - 1)->atttypid;
	if (!rexp_document_is_text(type) && !rexp_document_is_json(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of type %s cannot be a JSON document",
						encoding->value, format_type_be(type)),
				 errhint("A document is of type json, jsonb, text or varchar. Convert it with to_jsonb(), or say value => '*' to store the whole row as an object.")));
	return rexp_document_create(desc, attno, false, NULL);
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
	bool		any_column = false;
	char	   *path;

	encoder->key_template = rexp_template_parse(encoding->key_template,
												"key template", desc);
	encoder->key_columns = palloc0(sizeof(RexpText *) *
								   Max(encoder->key_template->npieces, 1));
	for (int i = 0; i < encoder->key_template->npieces; i++)
	{
		int			attno = encoder->key_template->pieces[i].attno;

		if (attno > 0)
		{
			encoder->key_columns[i] = rexp_text_create(desc, attno);
			any_column = true;
		}
	}
	if (!any_column)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key template \"%s\" names no column",
						encoding->key_template),
				 errdetail("All rows would be written to one and the same key."),
				 errhint("Name a column that identifies the row, as in 'appointment:#{id}'. The query returns %s.",
						 rexp_column_list(desc))));

	encoder->document = choose_document(encoding, encoder->key_template, desc);

	path = pg_server_to_any(encoding->path, (int) strlen(encoding->path), PG_UTF8);
	rexp_buffer_init(&encoder->head, 64);
	rexp_resp_header(&encoder->head, '*', 4);
	rexp_resp_word(&encoder->head, "JSON.SET");
	rexp_buffer_init(&encoder->middle, 64);
	rexp_resp_word(&encoder->middle, path);
	rexp_buffer_init(&encoder->key, 256);
	encoder->row_context = AllocSetContextCreate(CurrentMemoryContext,
												 "redis_export row",
												 ALLOCSET_DEFAULT_SIZES);
	return encoder;
}

/* Fill the key template from the row.  A null never becomes part of a key. */
static bool
fill_key(RexpEncoder *encoder, TupleTableSlot *slot, RexpError *error)
{
	const RexpTemplate *template = encoder->key_template;

	encoder->key.len = 0;
	for (int i = 0; i < template->npieces; i++)
	{
		const RexpPiece *piece = &template->pieces[i];

		if (piece->attno == 0)
			rexp_buffer_append(&encoder->key, piece->text, piece->len);
		else if (slot->tts_isnull[piece->attno - 1])
		{
			rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
						   "column \"%s\", part of the key, is null",
						   NameStr(TupleDescAttr(slot->tts_tupleDescriptor,
												 piece->attno - 1)->attname));
			return false;
		}
		else if (!rexp_text_append(encoder->key_columns[i],
								   slot->tts_values[piece->attno - 1],
								   &encoder->key, error))
			return false;
	}
	return true;
}

/*
 * rexp_encoder_encode
 *	  Append the row's command to out, or return false and what is wrong with
 *	  the row; out may then hold a part of it, for the caller to cut off.
 */
bool
rexp_encoder_encode(RexpEncoder *encoder, TupleTableSlot *slot, RexpBuffer *out,
					RexpError *error)
{
	MemoryContext old = MemoryContextSwitchTo(encoder->row_context);
	RexpOutputSettings saved;
	const char *document;
	size_t		len;
	bool		good;

	slot_getallattrs(slot);
	rexp_output_settings_enter(&saved);
	good = fill_key(encoder, slot, error) &&
		rexp_document_encode(encoder->document, slot, &document, &len, error);
	rexp_output_settings_leave(&saved);
	if (good)
	{
		rexp_buffer_append(out, encoder->head.data, encoder->head.len);
		rexp_resp_bulk(out, encoder->key.data, encoder->key.len);
		rexp_buffer_append(out, encoder->middle.data, encoder->middle.len);
		rexp_resp_bulk(out, document, len);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(encoder->row_context);
	return good;
}

/* The key of the row encoded last, as far as it could be filled. */
void
rexp_encoder_key(const RexpEncoder *encoder, const char **bytes, size_t *len)
{
	*bytes = encoder->key.data;
	*len = encoder->key.len;
}
