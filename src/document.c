/*-------------------------------------------------------------------------
 *
 * document.c
 *	  Values of a row as Redis gets them.
 *
 * A document is what row_to_json() or the column itself says, a text is what
 * the type's output function says, both in UTF-8 and both under fixed settings:
 * ISO dates, UTC, shortest exact floats, hexadecimal bytea.  So the same row
 * gives the same bytes whoever exports it.
 *
 * What is wrong with one row comes back as a RexpError, from calls that cannot
 * raise errors; whatever does raise one (an output function, memory) ends the
 * job.  Memory is taken from the current context, which the caller resets
 * after each row.  Nothing here knows Redis, keys or commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "compat.h"
#include "document.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/*
 * PostgreSQL's parser calls itself for each level and raises an error when the
 * stack is used up, which would end the job; a document nested deeper than
 * this is its row's own fault.  RedisJSON takes 128 levels.
 */
#define MAX_JSON_DEPTH 500

/* A buffer kept from row to row is given back if one row made it larger. */
#define KEEP_BUFFER ((size_t) 1024 * 1024)

typedef enum ValueKind
{
	VALUE_INT2,
	VALUE_INT4,
	VALUE_INT8,
	VALUE_BOOL,
	VALUE_TEXT,					/* the varlena's bytes are the text */
	VALUE_BYTEA,
	VALUE_NUMBER,				/* float or numeric */
	VALUE_TIME,					/* what JsonEncodeDateTime() knows */
	VALUE_JSON,
	VALUE_JSONB,
	VALUE_OTHER
} ValueKind;

/* From the database's encoding to UTF-8. */
typedef struct Converter
{
	int			encoding;
	Oid			proc;
} Converter;

struct RexpText
{
	ValueKind	kind;
	char	   *name;			/* of the column, for errors */
	FmgrInfo	output;
	Converter	converter;
};

/* One column of a document that is the whole row. */
typedef struct Member
{
	int			attno;
	ValueKind	kind;
	Oid			base_type;
	char	   *label;			/* "name": with the quotes and the colon */
	size_t		label_len;
	FmgrInfo	function;		/* output function, or to_json() */
} Member;

struct RexpDocument
{
	/* the document is one column: */
	int			attno;			/* or 0: the whole row */
	bool		is_text;		/* must be checked */
	bool		is_jsonb;
	bool		container_only; /* scalars are refused */
	char	   *name;
	/* or the whole row: */
	int			nmembers;
	Member	   *members;

	Converter	converter;
	MemoryContext context;		/* of what is kept from row to row */
	StringInfoData string;
	RexpBuffer	buffer;
};

/*
 * rexp_output_settings_enter
 *	  Put our fixed output settings in place of the session's.
 *
 * The query itself runs under its caller's settings, so the switch is made
 * around the writing of each row: six assignments, where set_config_option()
 * would cost more than the row.  The variables are put back before anything
 * else runs; if an error is raised in between, the job is over anyway.
 */
void
rexp_output_settings_enter(RexpOutputSettings *saved)
{
	static pg_tz *utc = NULL;

	if (utc == NULL)
		utc = pg_tzset("UTC");

	saved->date_style = DateStyle;
	saved->date_order = DateOrder;
	saved->interval_style = IntervalStyle;
	saved->float_digits = extra_float_digits;
	saved->bytea_format = bytea_output;
	saved->timezone = session_timezone;

	DateStyle = USE_ISO_DATES;
	DateOrder = DATEORDER_YMD;
	IntervalStyle = INTSTYLE_POSTGRES;
	extra_float_digits = 1;
	bytea_output = BYTEA_OUTPUT_HEX;
	if (utc != NULL)
		session_timezone = utc;
}

void
rexp_output_settings_leave(const RexpOutputSettings *saved)
{
	DateStyle = saved->date_style;
	DateOrder = saved->date_order;
	IntervalStyle = saved->interval_style;
	extra_float_digits = saved->float_digits;
	bytea_output = saved->bytea_format;
	session_timezone = saved->timezone;
}

static void
converter_init(Converter *converter)
{
	converter->encoding = GetDatabaseEncoding();
	converter->proc = InvalidOid;
	if (converter->encoding != PG_UTF8 && converter->encoding != PG_SQL_ASCII)
	{
		converter->proc = FindDefaultConversionProc(converter->encoding, PG_UTF8);
		if (!OidIsValid(converter->proc))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("there is no conversion from encoding \"%s\" to \"%s\"",
							pg_encoding_to_char(converter->encoding), "UTF8")));
	}
}

/*
 * to_utf8
 *	  Bytes in the database's encoding as UTF-8, palloc'd if they differ.
 *
 * Bytes of an SQL_ASCII database are what they are: checked if "strict", as
 * JSON must be UTF-8, and passed on as they are otherwise.
 */
static bool
to_utf8(const Converter *converter, bool strict, const char **bytes,
		size_t *len, const char *name, RexpError *error)
{
	bool		good;

	if (converter->encoding == PG_UTF8)
		return true;
	if (converter->encoding == PG_SQL_ASCII)
		good = !strict || pg_verify_mbstr(PG_UTF8, *bytes, (int) *len, true);
	else
	{
		size_t		room = *len * MAX_CONVERSION_GROWTH + 1;
		unsigned char *dest;
		int			done;

		if (room > PG_INT32_MAX)
		{
			rexp_error_set(error, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						   "the value is too long to be converted to UTF-8");
			return false;
		}
		dest = MemoryContextAllocHuge(CurrentMemoryContext, room);
		done = pg_do_encoding_conversion_buf(converter->proc,
											 converter->encoding, PG_UTF8,
											 (unsigned char *) unconstify(char *, *bytes),
											 (int) *len, dest, (int) room, true);
		good = done == (int) *len;
		*bytes = (const char *) dest;
		*len = strlen((const char *) dest);
	}
	if (!good)
		rexp_error_set(error, ERRCODE_UNTRANSLATABLE_CHARACTER,
					   "%s%s%s holds bytes that cannot be converted to UTF-8",
					   name ? "column \"" : "the document", name ? name : "",
					   name ? "\"" : "");
	return good;
}

bool
rexp_document_is_text(Oid type)
{
	type = getBaseType(type);
	return type == TEXTOID || type == VARCHAROID;
}

bool
rexp_document_is_json(Oid type)
{
	type = getBaseType(type);
	return type == JSONOID || type == JSONBOID;
}

static ValueKind
value_kind(Oid base_type)
{
	switch (base_type)
	{
		case INT2OID:
			return VALUE_INT2;
		case INT4OID:
			return VALUE_INT4;
		case INT8OID:
			return VALUE_INT8;
		case BOOLOID:
			return VALUE_BOOL;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return VALUE_TEXT;
		case BYTEAOID:
			return VALUE_BYTEA;
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return VALUE_NUMBER;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return VALUE_TIME;
		case JSONOID:
			return VALUE_JSON;
		case JSONBOID:
			return VALUE_JSONB;
		default:
			return VALUE_OTHER;
	}
}

/* Decimal digits of an integer column; room for MAXINT8LEN + 1 bytes. */
static int
write_integer(ValueKind kind, Datum value, char *dest)
{
	int64		number;

	if (kind == VALUE_INT8)
		number = DatumGetInt64(value);
	else if (kind == VALUE_INT4)
		number = DatumGetInt32(value);
	else
		number = DatumGetInt16(value);
	return pg_lltoa(number, dest);
}

/* Bytes of a varlena, detoasted in the current context. */
static void
varlena_bytes(Datum value, const char **bytes, size_t *len)
{
	struct varlena *data = PG_DETOAST_DATUM_PACKED(value);

	*bytes = VARDATA_ANY(data);
	*len = VARSIZE_ANY_EXHDR(data);
}

RexpText *
rexp_text_create_for_type(Oid type, const char *name)
{
	RexpText   *text = palloc0(sizeof(RexpText));
	Oid			function;
	bool		is_varlena;

	text->kind = value_kind(getBaseType(type));
	text->name = pstrdup(name);
	getTypeOutputInfo(type, &function, &is_varlena);
	fmgr_info(function, &text->output);
	converter_init(&text->converter);
	return text;
}

/* Prepare a column's text, in the current context. */
RexpText *
rexp_text_create(TupleDesc desc, int attno)
{
	Form_pg_attribute attribute = TupleDescAttr(desc, attno - 1);

	return rexp_text_create_for_type(attribute->atttypid,
									 NameStr(attribute->attname));
}

/*
 * rexp_text_append
 *	  Append a value that is not null as text: bytea as its raw bytes, all else
 *	  as its type writes it.  Call it between rexp_output_settings_enter() and _leave().
 */
bool
rexp_text_append(RexpText *text, Datum value, RexpBuffer *out, RexpError *error)
{
	char		digits[32];
	const char *bytes;
	size_t		len;

	switch (text->kind)
	{
		case VALUE_INT2:
		case VALUE_INT4:
		case VALUE_INT8:
			rexp_buffer_append(out, digits,
							   write_integer(text->kind, value, digits));
			return true;
		case VALUE_BYTEA:
			varlena_bytes(value, &bytes, &len);
			rexp_buffer_append(out, bytes, len);
			return true;
		case VALUE_TEXT:
		case VALUE_JSON:
			varlena_bytes(value, &bytes, &len);
			break;
		default:
			bytes = OutputFunctionCall(&text->output, value);
			len = strlen(bytes);
			break;
	}
	if (!to_utf8(&text->converter, false, &bytes, &len, text->name, error))
		return false;
	rexp_buffer_append(out, bytes, len);
	return true;
}

/*
 * write_quoted
 *	  Append a JSON string, escaped as PostgreSQL's escape_json() does.
 */
static void
write_quoted(RexpBuffer *out, const char *bytes, size_t len)
{
	const char *end = bytes + len;
	const char *run = bytes;

	rexp_buffer_reserve(out, len + 2);
	out->data[out->len++] = '"';
	for (; bytes < end; bytes++)
	{
		unsigned char c = (unsigned char) *bytes;
		char		escape[8];

		if (likely(c >= ' ' && c != '"' && c != '\\'))
			continue;
		rexp_buffer_append(out, run, bytes - run);
		run = bytes + 1;
		escape[0] = '\\';
		escape[2] = '\0';
		switch (c)
		{
			case '\b':
				escape[1] = 'b';
				break;
			case '\f':
				escape[1] = 'f';
				break;
			case '\n':
				escape[1] = 'n';
				break;
			case '\r':
				escape[1] = 'r';
				break;
			case '\t':
				escape[1] = 't';
				break;
			case '"':
			case '\\':
				escape[1] = (char) c;
				break;
			default:
				sprintf(escape, "\\u%04x", c);
				break;
		}
		rexp_buffer_append(out, escape, strlen(escape));
	}
	rexp_buffer_append(out, run, bytes - run);
	rexp_buffer_append(out, "\"", 1);
}

/*
 * nested_too_deep
 *	  Could the parser meet more than MAX_JSON_DEPTH levels?
 *
 * Most documents have too few brackets for that, which one plain loop shows;
 * for the others, brackets outside of strings are followed.
 */
static bool
nested_too_deep(const char *json, size_t len)
{
	size_t		brackets = 0;
	int			depth = 0;
	bool		in_string = false;

	for (size_t i = 0; i < len; i++)
		brackets += (json[i] == '{') | (json[i] == '[');
	if (brackets <= MAX_JSON_DEPTH)
		return false;

	for (size_t i = 0; i < len; i++)
	{
		char		c = json[i];

		if (in_string)
		{
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		}
		else if (c == '"')
			in_string = true;
		else if (c == '{' || c == '[')
		{
			if (++depth > MAX_JSON_DEPTH)
				return true;
		}
		else if (c == '}' || c == ']')
			depth--;
	}
	return false;
}

/*
 * check_json
 *	  Is this text one JSON value, as PostgreSQL's parser sees it?
 *
 * RedisJSON is no judge of that: it stores the first half of {"a":1}{"b":2}
 * and answers OK (seen with 2.8).  The text itself is never part of the error,
 * as errors go to the server's log.
 */
static bool
check_json(const RexpDocument *document, const char *json, size_t len,
		   RexpError *error)
{
	JsonLexContext *lexer;

	if (document->container_only)
	{
		size_t		first = 0;

		while (first < len && strchr(" \t\r\n", json[first]) != NULL)
			first++;
		if (first == len || (json[first] != '{' && json[first] != '['))
		{
			rexp_error_set(error, ERRCODE_INVALID_TEXT_REPRESENTATION,
						   "column \"%s\" holds no JSON object or array",
						   document->name);
			rexp_error_hint(error, "Say value => '*' to store the whole row as an object, or value => '%s' to store the column whatever JSON it holds.",
							document->name);
			return false;
		}
	}
	if (nested_too_deep(json, len))
	{
		rexp_error_set(error, ERRCODE_STATEMENT_TOO_COMPLEX,
					   "column \"%s\" is nested more than %d levels deep",
					   document->name, MAX_JSON_DEPTH);
		return false;
	}
	lexer = rexp_json_lexer(json, len, GetDatabaseEncoding());
	if (pg_parse_json(lexer, &nullSemAction) != JSON_SUCCESS)
	{
		rexp_error_set(error, ERRCODE_INVALID_TEXT_REPRESENTATION,
					   "column \"%s\" is not valid JSON", document->name);
		rexp_error_detail(error, "The fault lies at byte %zu of %zu.",
						  lexer->token_start ? (size_t) (lexer->token_start - json) + 1 : len,
						  len);
		return false;
	}
	return true;
}

/* One column's value, not null, as JSON. */
static void
write_member(RexpDocument *document, Member *member, Datum value)
{
	RexpBuffer *out = &document->buffer;
	char		scratch[MAXDATELEN + 32];
	const char *bytes;
	size_t		len;

	switch (member->kind)
	{
		case VALUE_INT2:
		case VALUE_INT4:
		case VALUE_INT8:
			rexp_buffer_append(out, scratch,
							   write_integer(member->kind, value, scratch));
			break;
		case VALUE_BOOL:
			if (DatumGetBool(value))
				rexp_buffer_append(out, "true", 4);
			else
				rexp_buffer_append(out, "false", 5);
			break;
		case VALUE_TEXT:
			varlena_bytes(value, &bytes, &len);
			write_quoted(out, bytes, len);
			break;
		case VALUE_TIME:
			JsonEncodeDateTime(scratch, value, member->base_type, NULL);
			write_quoted(out, scratch, strlen(scratch));
			break;
		case VALUE_NUMBER:
			bytes = OutputFunctionCall(&member->function, value);
			len = strlen(bytes);
			/* NaN and Infinity are no JSON numbers: strings, as row_to_json() */
			if (isdigit((unsigned char) bytes[bytes[0] == '-' ? 1 : 0]))
				rexp_buffer_append(out, bytes, len);
			else
				write_quoted(out, bytes, len);
			break;
		case VALUE_JSON:
			varlena_bytes(value, &bytes, &len);
			rexp_buffer_append(out, bytes, len);
			break;
		case VALUE_JSONB:
			{
				Jsonb	   *jsonb = DatumGetJsonbP(value);

				resetStringInfo(&document->string);
				JsonbToCString(&document->string, &jsonb->root, VARSIZE(jsonb));
				rexp_buffer_append(out, document->string.data,
								   document->string.len);
				break;
			}
		case VALUE_BYTEA:
		case VALUE_OTHER:
			varlena_bytes(FunctionCall1(&member->function, value), &bytes, &len);
			rexp_buffer_append(out, bytes, len);
			break;
	}
}

/* Prepare one column of a whole-row document. */
static void
member_init(Member *member, TupleDesc desc, int attno)
{
	Form_pg_attribute attribute = TupleDescAttr(desc, attno - 1);
	RexpBuffer	label;
	const char *name = NameStr(attribute->attname);
	Oid			function;
	bool		is_varlena;

	rexp_buffer_init(&label, 128);
	write_quoted(&label, name, strlen(name));
	rexp_buffer_append(&label, ":", 1);

	member->attno = attno;
	member->base_type = getBaseType(attribute->atttypid);
	member->kind = value_kind(member->base_type);
	member->label = label.data;
	member->label_len = label.len;

	if (member->kind == VALUE_OTHER || member->kind == VALUE_BYTEA)
	{
		/* to_json(anyelement) finds the type in the call's expression */
		fmgr_info(F_TO_JSON, &member->function);
		fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSON, JSONOID,
												 list_make1(makeNullConst(attribute->atttypid,
																		  -1, InvalidOid)),
												 InvalidOid, InvalidOid,
												 COERCE_EXPLICIT_CALL),
						   &member->function);
	}
	else
	{
		getTypeOutputInfo(attribute->atttypid, &function, &is_varlena);
		fmgr_info(function, &member->function);
	}
}

/*
 * rexp_document_create
 *	  Prepare documents, in the current memory context.
 *
 * attno is the column that is the document, which the caller has found to be
 * json, jsonb, text or varchar; 0 stands for the whole row as an object, but
 * for the columns for which excluded[attno - 1] is set (excluded may be NULL).
 * With container_only, a text must hold an object or an array.
 */
RexpDocument *
rexp_document_create(TupleDesc desc, int attno, bool container_only,
					 const bool *excluded)
{
	RexpDocument *document = palloc0(sizeof(RexpDocument));

	document->attno = attno;
	document->container_only = container_only;
	document->context = CurrentMemoryContext;
	initStringInfo(&document->string);
	rexp_buffer_init(&document->buffer, 1024);
	converter_init(&document->converter);

	if (attno > 0)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, attno - 1);

		document->is_text = rexp_document_is_text(attribute->atttypid);
		document->is_jsonb = getBaseType(attribute->atttypid) == JSONBOID;
		document->name = pstrdup(NameStr(attribute->attname));
		return document;
	}

	document->members = palloc0(sizeof(Member) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		if (excluded == NULL || !excluded[i])
			member_init(&document->members[document->nmembers++], desc, i + 1);
	}
	return document;
}

/* Make sure that one large row does not keep its memory for the whole job. */
static void
shrink_buffers(RexpDocument *document)
{
	MemoryContext old;

	if ((size_t) document->string.maxlen <= KEEP_BUFFER &&
		document->buffer.capacity <= KEEP_BUFFER)
		return;
	old = MemoryContextSwitchTo(document->context);
	pfree(document->string.data);
	initStringInfo(&document->string);
	rexp_buffer_free(&document->buffer);
	rexp_buffer_init(&document->buffer, 1024);
	MemoryContextSwitchTo(old);
}

/*
 * rexp_document_encode
 *	  The row's document in UTF-8, or false and what is wrong with the row.
 *
 * *bytes is good until the next call or until the current memory context is
 * reset.  Call it between rexp_output_settings_enter() and rexp_output_settings_leave().
 */
bool
rexp_document_encode(RexpDocument *document, TupleTableSlot *slot,
					 const char **bytes, size_t *len, RexpError *error)
{
	shrink_buffers(document);
	slot_getallattrs(slot);

	if (document->attno > 0)
	{
		Datum		value = slot->tts_values[document->attno - 1];

		if (slot->tts_isnull[document->attno - 1])
		{
			rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
						   "column \"%s\", the document, is null",
						   document->name);
			return false;
		}
		if (document->is_jsonb)
		{
			Jsonb	   *jsonb = DatumGetJsonbP(value);

			resetStringInfo(&document->string);
			JsonbToCString(&document->string, &jsonb->root, VARSIZE(jsonb));
			*bytes = document->string.data;
			*len = document->string.len;
		}
		else
		{
			varlena_bytes(value, bytes, len);
			if (document->is_text && !check_json(document, *bytes, *len, error))
				return false;
		}
	}
	else
	{
		RexpBuffer *out = &document->buffer;

		out->len = 0;
		rexp_buffer_append(out, "{", 1);
		for (int i = 0; i < document->nmembers; i++)
		{
			Member	   *member = &document->members[i];

			if (i > 0)
				rexp_buffer_append(out, ",", 1);
			rexp_buffer_append(out, member->label, member->label_len);
			if (slot->tts_isnull[member->attno - 1])
				rexp_buffer_append(out, "null", 4);
			else
				write_member(document, member,
							 slot->tts_values[member->attno - 1]);
		}
		rexp_buffer_append(out, "}", 1);
		*bytes = out->data;
		*len = out->len;
	}
	return to_utf8(&document->converter, true, bytes, len, document->name, error);
}
