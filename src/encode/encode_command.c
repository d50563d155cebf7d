/*-------------------------------------------------------------------------
 *
 * encode_command.c
 *	  One row to any command of Redis, each word of which is a template.
 *
 * A word that is nothing but one column is written as a field of a hash is; if
 * the column is an array, it becomes as many words as it has elements.  If a word
 * that is no literal has a say in what the command does, it is looked up for each
 * row (verb.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode/encode_internal.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

/* Some words: literal ones side by side, or what a template or column gives. */
typedef struct Part
{
	bool		is_key;			/* the command's first key begins with it */
	RexpBuffer	literal;		/* arguments as they are sent, ... */
	RexpFill   *fill;			/* ... or a template, ... */
	int			attno;			/* ... or a column, ... */
	RexpValue  *value;
	bool		is_array;		/* ... whose elements are words */
	Oid			element_type;
	int16		element_len;
	bool		element_by_value;
	char		element_align;
} Part;

typedef struct CommandEncoder
{
	TupleDesc	desc;
	bool		skip_nulls;
	int			nparts;
	Part	   *parts;
	int			nwords;			/* of each row, but for those of arrays */
	bool		any_array;
	bool		by_row;			/* what is known of it differs, too */
	RexpBuffer	words;			/* of the row at hand, if the number differs */
	RexpBuffer	scratch;
} CommandEncoder;

/* What a null does to its row. */
static RexpEncoded
meet_null(const CommandEncoder *encoder, int attno, RexpError *error)
{
	if (encoder->skip_nulls)
		return REXP_ENCODE_SKIPPED;
	rexp_null_error(error, encoder->desc, attno, "part of the command");
	return REXP_ENCODE_FAILED;
}

/* The elements of an array, one word each. */
static RexpEncoded
append_elements(CommandEncoder *encoder, Part *part, TupleTableSlot *slot,
				RexpBuffer *out, int *nwords, RexpError *error)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(slot->tts_values[part->attno - 1]),
					  part->element_type, part->element_len,
					  part->element_by_value, part->element_align,
					  &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		char		digits[REXP_DIGITS_SIZE];
		const char *bytes;
		size_t		len;

		if (nulls[i])
		{
			if (encoder->skip_nulls)
				return REXP_ENCODE_SKIPPED;
			rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
						   "column \"%s\", part of the command, is an array that contains a null",
						   NameStr(TupleDescAttr(encoder->desc, part->attno - 1)->attname));
			return REXP_ENCODE_FAILED;
		}
		if (!rexp_value_bytes(part->value, elements[i], digits, &bytes, &len, error))
			return REXP_ENCODE_FAILED;
		rexp_resp_bulk(out, bytes, len);
	}
	*nwords += count;
	return REXP_ENCODED;
}

/* The word or words of one part. */
static RexpEncoded
append_part(CommandEncoder *encoder, Part *part, TupleTableSlot *slot,
			RexpBuffer *out, int *nwords, RexpError *error)
{
	char		digits[REXP_DIGITS_SIZE];
	const char *bytes;
	size_t		len;

	if (part->attno > 0 && slot->tts_isnull[part->attno - 1])
		return meet_null(encoder, part->attno, error);
	if (part->is_array)
		return append_elements(encoder, part, slot, out, nwords, error);
	if (part->attno > 0)
	{
		if (!rexp_value_bytes(part->value, slot->tts_values[part->attno - 1],
							  digits, &bytes, &len, error))
			return REXP_ENCODE_FAILED;
		rexp_resp_bulk(out, bytes, len);
	}
	else if (part->fill != NULL)
	{
		encoder->scratch.len = 0;
		if (!rexp_fill_append(part->fill, slot, &encoder->scratch, error))
			return part->fill->null_column > 0 && encoder->skip_nulls ?
				REXP_ENCODE_SKIPPED : REXP_ENCODE_FAILED;
		rexp_resp_bulk(out, encoder->scratch.data, encoder->scratch.len);
	}
	else
		rexp_buffer_append(out, part->literal.data, part->literal.len);
	return REXP_ENCODED;
}

/* The first argument that was appended from there on is the key. */
static void
note_key(const RexpBuffer *out, size_t from, RexpBlock *block)
{
	const char *at;

	if (out->len == from)
		return;					/* an array without elements */
	at = out->data + from + 1;	/* past the $ */
	block->key_len = strtoul(at, unconstify(char **, &at), 10);
	block->key_start = at + 2 - out->data;
}

static RexpEncoded
append_parts(CommandEncoder *encoder, TupleTableSlot *slot, RexpBuffer *out,
			 int *nwords, RexpBlock *block, RexpError *error)
{
	for (int i = 0; i < encoder->nparts; i++)
	{
		Part	   *part = &encoder->parts[i];
		size_t		from = out->len;
		RexpEncoded result = append_part(encoder, part, slot, out, nwords, error);

		if (result != REXP_ENCODED)
			return result;
		if (part->is_key)
			note_key(out, from, block);
	}
	return REXP_ENCODED;
}

/*
 * look_up_row
 *	  The command begins there, as it is sent: is it one that may be, and what is
 *	  known of it?
 */
static RexpEncoded
look_up_row(const RexpBuffer *out, size_t from, RexpBlock *block, RexpError *error)
{
	int			nwords;
	RexpWord   *words = rexp_command_words(out->data + from, &nwords);
	RexpVerb	verb;

	if (!rexp_verb_look_up(nwords, words, REXP_SENDER_ROW, &verb, error))
		return REXP_ENCODE_FAILED;
	block->repeatable = verb.repeatable;
	block->refusal = verb.refusal;
	block->key_len = 0;
	if (verb.key_word > 0)
	{
		block->key_start = words[verb.key_word - 1].bytes - out->data;
		block->key_len = words[verb.key_word - 1].len;
	}
	else if (block->expiry.kind != REXP_EXPIRY_NONE)
	{
		rexp_error_set(error, ERRCODE_INVALID_PARAMETER_VALUE,
					   "cannot set an expiry, since the command has no key");
		return REXP_ENCODE_FAILED;
	}
	return REXP_ENCODED;
}

static RexpEncoded
encode_words(CommandEncoder *encoder, TupleTableSlot *slot, RexpBuffer *out,
			 RexpBlock *block, RexpError *error)
{
	int			nwords = encoder->nwords;
	RexpEncoded result;

	if (!encoder->any_array)
	{
		rexp_resp_header(out, '*', nwords);
		return append_parts(encoder, slot, out, &nwords, block, error);
	}

	/* the number of words comes first on the wire, and is known last */
	encoder->words.len = 0;
	result = append_parts(encoder, slot, &encoder->words, &nwords, block, error);
	if (result == REXP_ENCODED)
		rexp_resp_header(out, '*', nwords);
	block->key_start += out->len;
	rexp_buffer_append(out, encoder->words.data, encoder->words.len);
	return result;
}

static RexpEncoded
encode_command(void *state, TupleTableSlot *slot, RexpBuffer *out,
			   RexpBlock *block, RexpError *error)
{
	CommandEncoder *encoder = state;
	size_t		start = out->len;
	RexpEncoded result = encode_words(encoder, slot, out, block, error);

	if (result == REXP_ENCODED && encoder->by_row)
		result = look_up_row(out, start, block, error);
	return result;
}

/* A literal word joins the one before it, unless one of them is the key. */
static void
add_literal(CommandEncoder *encoder, const RexpFill *fill, bool is_key)
{
	Part	   *part = encoder->nparts > 0 ? &encoder->parts[encoder->nparts - 1] : NULL;
	const RexpTemplate *template = fill->template;

	if (part == NULL || part->literal.data == NULL || part->is_key || is_key)
	{
		part = &encoder->parts[encoder->nparts++];
		part->is_key = is_key;
		rexp_buffer_init(&part->literal, 64);
	}
	if (template->npieces == 0)
		rexp_resp_bulk(&part->literal, "", 0);
	else
		rexp_resp_bulk(&part->literal, template->pieces[0].text,
					   template->pieces[0].len);
	encoder->nwords++;
}

/* A word that is one column and nothing else. */
static void
add_column(CommandEncoder *encoder, int attno, TupleDesc desc, bool is_key)
{
	Part	   *part = &encoder->parts[encoder->nparts++];
	Form_pg_attribute attribute = TupleDescAttr(desc, attno - 1);
	Oid			base_type = getBaseType(attribute->atttypid);

	part->is_key = is_key;
	part->attno = attno;
	part->element_type = get_element_type(base_type);
	part->is_array = OidIsValid(part->element_type);
	if (part->is_array)
	{
		get_typlenbyvalalign(part->element_type, &part->element_len,
							 &part->element_by_value, &part->element_align);
		part->value = rexp_value_create_for_type(part->element_type,
												 psprintf("column \"%s\"", NameStr(attribute->attname)),
												 REXP_VECTOR_AS_BLOB);
		encoder->any_array = true;
	}
	else
	{
		part->value = rexp_value_create(desc, attno, REXP_VECTOR_AS_BLOB);
		encoder->nwords++;
	}
}

static void
add_word(CommandEncoder *encoder, const char *source, TupleDesc desc, bool is_key)
{
	RexpFill   *fill = rexp_fill_create(source, "command template",
										"part of the command", desc);

	if (rexp_fill_is_literal(fill))
		add_literal(encoder, fill, is_key);
	else if (fill->template->npieces == 1)
		add_column(encoder, fill->template->pieces[0].attno, desc, is_key);
	else
	{
		Part	   *part = &encoder->parts[encoder->nparts++];

		part->is_key = is_key;
		part->fill = fill;
		encoder->nwords++;
	}
}

/* Does a type write nothing that Redis could take for a word of its own? */
static bool
is_number(Oid type)
{
	switch (rexp_value_kind(getBaseType(type)))
	{
		case REXP_VALUE_INT2:
		case REXP_VALUE_INT4:
		case REXP_VALUE_INT8:
		case REXP_VALUE_BOOL:
		case REXP_VALUE_NUMBER:
		case REXP_VALUE_TIME:
			return true;
		default:
			return false;
	}
}

/* What is known of a word before there is a row. */
static RexpWord
known_word(const char *source, TupleDesc desc)
{
	RexpTemplate *template = rexp_template_parse(source, "command template", desc);
	const RexpPiece *piece = &template->pieces[0];
	RexpWord	word = {0};

	if (template->npieces == 0)
		word.bytes = "";
	else if (template->npieces == 1 && piece->attno == 0)
	{
		word.bytes = piece->text;
		word.len = piece->len;
	}
	else if (template->npieces == 1)
	{
		Oid			type = TupleDescAttr(desc, piece->attno - 1)->atttypid;

		word.is_number = is_number(type);
		word.is_many = OidIsValid(get_element_type(getBaseType(type)));
	}
	return word;
}

/*
 * rexp_encode_command_init
 *	  Prepare commands.  Raises an error if template and columns do not fit, and
 *	  for a command that cannot be exported with.
 */
void
rexp_encode_command_init(RexpKindEncoder *kind, const RexpEncoding *encoding,
						 TupleDesc desc)
{
	CommandEncoder *encoder = palloc0(sizeof(CommandEncoder));
	int			nwords = list_length(encoding->words);
	RexpWord   *words = palloc(sizeof(RexpWord) * Max(nwords, 1));
	int			i = 0;
	ListCell   *cell;

	if (nwords == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the command template has no words"),
				 errhint("Give each word as an element of the array, as in ARRAY['SET','key:#{id}','#{value}'].")));
	foreach(cell, encoding->words)
		words[i++] = known_word(lfirst(cell), desc);
	if (words[0].bytes == NULL || words[0].len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the first word of the command template must name a command"),
				 errdetail("It is \"%s\".", (char *) linitial(encoding->words)),
				 strpbrk(linitial(encoding->words), " \t\r\n") != NULL ?
				 errhint("Give each word as an element of the array, as in ARRAY['SET','key:#{id}','#{value}'].") :
				 errhint("The command is the same for each row; only its arguments may hold columns.")));

	kind->encode = encode_command;
	kind->state = encoder;
	kind->verb = rexp_export_verb(nwords, words);

	encoder->desc = desc;
	encoder->skip_nulls = encoding->skip_nulls;
	encoder->by_row = kind->verb.by_row;
	encoder->parts = palloc0(sizeof(Part) * nwords);
	rexp_buffer_init(&encoder->words, 256);
	rexp_buffer_init(&encoder->scratch, 256);
	i = 0;
	foreach(cell, encoding->words)
		add_word(encoder, lfirst(cell), desc, ++i == kind->verb.key_word);
}
