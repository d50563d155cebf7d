/*-------------------------------------------------------------------------
 *
 * encode_json.c
 *	  One row to a document: JSON.SET or JSON.MERGE key path document.
 *
 * JSON.MERGE goes by RFC 7396: a null in the document deletes the field.  What
 * the document is made of is chosen here, how is document.c's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "encode/document.h"
#include "encode/encode_internal.h"
#include "encode/json_path.h"
#include "utils/builtins.h"

/* What is larger is made at once, since a batch shall not grow by much. */
#define PUT_OFF_MOST ((size_t) 256 * 1024)

typedef struct JsonEncoder
{
	RexpFill   *key_fill;
	RexpJsonPath *json_path;
	RexpDocument *document;
	RexpKeeping keeping;
	RexpBuffer	head;			/* what comes before the key */
	RexpBuffer	middle;			/* the path as an argument; empty if rows differ */
	RexpBuffer	key;			/* of the row at hand */
	RexpBuffer	path;
} JsonEncoder;

/* The document that the arguments ask for. */
static RexpDocument *
choose_document(const RexpEncoding *encoding, TupleDesc desc, const bool *left_out)
{
	const char *value = rexp_encoding_value(encoding, desc);
	Oid			type;
	int			attno;

	if (strcmp(value, "*") == 0)
	{
		rexp_check_columns_left(desc, left_out);
		return rexp_document_create(desc, 0, false, left_out);
	}

	if (encoding->exclude != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exclude cannot be used with a single column as the value"),
				 errhint("Say value => '*' to store the whole row but for the excluded columns.")));
	attno = rexp_find_column(desc, value);
	if (attno == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("value names column \"%s\", which the query does not return",
						value),
				 errhint("The query returns %s. Names are compared exactly, case included; '*' is the whole row.",
						 rexp_column_list(desc))));
	type = TupleDescAttr(desc, attno - 1)->atttypid;
	if (!rexp_document_is_text(type) && !rexp_document_is_json(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of type %s cannot be a JSON document",
						value, format_type_be(type)),
				 errhint("A document is of type json, jsonb, text or varchar. Convert it with to_jsonb(), or say value => '*' to store the whole row as an object.")));
	return rexp_document_create(desc, attno, encoding->value == NULL &&
								rexp_document_is_text(type), NULL);
}

/* Is what makes the document of a value to be left for later?  Then the block says so. */
static bool
put_off(const JsonEncoder *encoder, const struct varlena *stored, RexpBlock *block)
{
	size_t		len = VARSIZE_ANY(stored);
	size_t		size = rexp_column_size(rexp_document_column(encoder->document), stored);

	if (size > PUT_OFF_MOST)
		return false;
	block->stored_len = (uint32) len;
	block->size_to_come = Max(size, len) - len;
	return true;
}

static RexpEncoded
encode_json(void *state, TupleTableSlot *slot, RexpBuffer *out, RexpBlock *block,
			RexpError *error)
{
	JsonEncoder *encoder = state;
	const struct varlena *stored = NULL;
	const char *document;
	size_t		len;
	bool		is_put_off = false;

	encoder->key.len = 0;
	if (!rexp_fill_append(encoder->key_fill, slot, &encoder->key, error))
		return rexp_fail_with_key(&encoder->key, false, out, block);
	if (encoder->middle.len == 0)
	{
		encoder->path.len = 0;
		if (!rexp_json_path_append(encoder->json_path, slot, &encoder->path, error))
			return rexp_fail_with_key(&encoder->key, true, out, block);
	}
	if (encoder->keeping.digests)
		stored = rexp_document_stored(encoder->document, slot);
	if (stored != NULL)
	{
		block->digest = rexp_column_digest(stored, encoder->keeping.seed);
		block->has_digest = true;
		is_put_off = encoder->keeping.puts_off && put_off(encoder, stored, block);
	}
	if (is_put_off)
	{
		document = (const char *) stored;
		len = block->stored_len;
	}
	else if (!rexp_document_encode(encoder->document, slot, stored, &document, &len, error))
		return rexp_fail_with_key(&encoder->key, true, out, block);

	rexp_buffer_append(out, encoder->head.data, encoder->head.len);
	rexp_append_key(&encoder->key, out, block);
	if (encoder->middle.len > 0)
		rexp_buffer_append(out, encoder->middle.data, encoder->middle.len);
	else
		rexp_resp_bulk(out, encoder->path.data, encoder->path.len);
	block->stored_start = out->len;
	rexp_resp_bulk(out, document, len);
	return REXP_ENCODED;
}

/* Prepare documents.  Raises an error if arguments and columns do not fit. */
void
rexp_encode_json_init(RexpKindEncoder *kind, const RexpEncoding *encoding,
					  TupleDesc desc, const bool *left_out)
{
	JsonEncoder *encoder = palloc0(sizeof(JsonEncoder));
	RexpWord	words[4] = {rexp_literal_word(rexp_encoding_command(encoding))};
	const RexpBuffer *shape;

	encoder->key_fill = rexp_key_fill(encoding->key_template, desc);
	encoder->json_path = rexp_json_path_create(encoding->path, desc);
	encoder->document = choose_document(encoding, desc, left_out);

	rexp_buffer_init(&encoder->head, 64);
	rexp_resp_header(&encoder->head, '*', lengthof(words));
	rexp_resp_word(&encoder->head, words[0].bytes);
	rexp_buffer_init(&encoder->key, 256);
	rexp_buffer_init(&encoder->path, 64);
	rexp_buffer_init(&encoder->middle, 64);
	shape = rexp_json_path_shape(encoder->json_path);
	if (rexp_json_path_is_literal(encoder->json_path))
		rexp_resp_bulk(&encoder->middle, shape->data, shape->len);

	rexp_tell_given(&kind->given, encoder->key_fill, desc,
					rexp_document_is_row(encoder->document) &&
					strcmp(encoding->path, "$") == 0 ? left_out : NULL);
	kind->given.whole = !encoding->merge;
	kind->column = rexp_document_column(encoder->document);
	kind->keeping = &encoder->keeping;
	kind->encode = encode_json;
	kind->state = encoder;
	words[2].bytes = shape->data;
	words[2].len = shape->len;
	kind->verb = rexp_export_verb(lengthof(words), words);
}
