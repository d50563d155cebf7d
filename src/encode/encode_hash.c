/*-------------------------------------------------------------------------
 *
 * encode_hash.c
 *	  One row to a hash: HSET key field value ...
 *
 * Each column is a field, under its name; a null leaves its field out.  To
 * replace a hash whole is MULTI, DEL, HSET, EXEC, so that nobody sees the key
 * without it, and a cut in between does not lose it (Redis manual,
 * "Transactions").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/encoding.h"
#include "encode/encode_internal.h"

typedef struct Field
{
	int			attno;
	char	   *label;			/* the field's name, as an argument */
	size_t		label_len;
	RexpValue  *value;
} Field;

typedef struct HashEncoder
{
	RexpFill   *key_fill;
	bool		replace;
	int			nfields;
	Field	   *fields;
	RexpBuffer	key;			/* of the row at hand */
} HashEncoder;

static const char multi[] = "*1\r\n$5\r\nMULTI\r\n";
static const char exec[] = "*1\r\n$4\r\nEXEC\r\n";

/* A command begins, and its first word is there. */
static void
begin_command(RexpBuffer *out, int nwords, const char *word)
{
	rexp_resp_header(out, '*', nwords);
	rexp_resp_word(out, word);
}

static bool
append_fields(HashEncoder *encoder, TupleTableSlot *slot, RexpBuffer *out,
			  RexpError *error)
{
	for (int i = 0; i < encoder->nfields; i++)
	{
		Field	   *field = &encoder->fields[i];
		char		scratch[REXP_DIGITS_SIZE];
		const char *bytes;
		size_t		len;

		if (slot->tts_isnull[field->attno - 1])
			continue;
		if (!rexp_value_bytes(field->value, slot->tts_values[field->attno - 1],
							  scratch, &bytes, &len, error))
			return false;
		rexp_buffer_append(out, field->label, field->label_len);
		rexp_resp_bulk(out, bytes, len);
	}
	return true;
}

static RexpEncoded
encode_hash(void *state, TupleTableSlot *slot, RexpBuffer *out, RexpBlock *block,
			RexpError *error)
{
	HashEncoder *encoder = state;
	int			present = 0;

	encoder->key.len = 0;
	if (!rexp_fill_append(encoder->key_fill, slot, &encoder->key, error))
		return rexp_fail_with_key(&encoder->key, false, out, block);
	for (int i = 0; i < encoder->nfields; i++)
		present += !slot->tts_isnull[encoder->fields[i].attno - 1];

	if (present == 0 && !encoder->replace)
	{
		rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
					   "all columns are null, and Redis has no hash without fields");
		rexp_error_hint(error, "With replace => true the key is deleted then.");
		return rexp_fail_with_key(&encoder->key, true, out, block);
	}
	if (present == 0)
	{
		begin_command(out, 2, "DEL");
		rexp_append_key(&encoder->key, out, block);
		block->expiry.kind = REXP_EXPIRY_NONE;
		block->erases = true;
		return REXP_ENCODED;
	}
	if (encoder->replace)
	{
		rexp_buffer_append(out, multi, sizeof(multi) - 1);
		begin_command(out, 2, "DEL");
		rexp_resp_bulk(out, encoder->key.data, encoder->key.len);
		block->commands = 4;
	}
	begin_command(out, 2 + 2 * present, "HSET");
	rexp_append_key(&encoder->key, out, block);
	if (!append_fields(encoder, slot, out, error))
		return REXP_ENCODE_FAILED;
	if (encoder->replace)
		rexp_buffer_append(out, exec, sizeof(exec) - 1);
	return REXP_ENCODED;
}

static void
init_field(Field *field, TupleDesc desc, int attno)
{
	const char *name = NameStr(TupleDescAttr(desc, attno - 1)->attname);
	RexpBuffer	label;

	rexp_buffer_init(&label, 128);
	rexp_resp_word(&label, rexp_literal_utf8(name, strlen(name)));
	field->attno = attno;
	field->label = label.data;
	field->label_len = label.len;
	field->value = rexp_value_create(desc, attno, REXP_VECTOR_AS_BLOB);
}

/* Prepare hashes.  Raises an error if arguments and columns do not fit. */
void
rexp_encode_hash_init(RexpKindEncoder *kind, const RexpEncoding *encoding,
					  TupleDesc desc, const bool *left_out)
{
	HashEncoder *encoder = palloc0(sizeof(HashEncoder));
	RexpWord	words[2] = {rexp_literal_word(rexp_encoding_command(encoding))};

	encoder->key_fill = rexp_key_fill(encoding->key_template, desc);
	encoder->replace = encoding->replace;
	rexp_buffer_init(&encoder->key, 256);
	encoder->fields = palloc0(sizeof(Field) * desc->natts);
	for (int attno = 1; attno <= desc->natts; attno++)
	{
		if (!left_out[attno - 1])
			init_field(&encoder->fields[encoder->nfields++], desc, attno);
	}

	rexp_tell_given(&kind->given, encoder->key_fill, desc, left_out);
	kind->given.whole = encoding->replace;
	kind->encode = encode_hash;
	kind->state = encoder;
	kind->verb = rexp_export_verb(lengthof(words), words);
}
