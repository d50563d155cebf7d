/*-------------------------------------------------------------------------
 *
 * document.c
 *	  A row as a JSON document.
 *
 * It is what row_to_json() or the column itself says, in UTF-8 and under the
 * fixed settings of value.c; but pgvector's vectors become arrays of numbers.
 *
 * What is wrong with one row comes back as a RexpError, from calls that cannot
 * raise errors; whatever does raise one (an output function, memory) ends the
 * job.  Memory is taken from the current context, which the caller resets
 * after each row.  Nothing here knows Redis, keys or commands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/encoding.h"
#include "base/output_settings.h"
#include "catalog/pg_type.h"
#include "encode/document.h"
#include "encode/vector.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* A buffer kept from row to row is given back if one row made it larger. */
#define KEEP_BUFFER ((size_t) 1024 * 1024)

/* One column of a document that is the whole row. */
typedef struct Member
{
	int			attno;
	RexpValueKind kind;
	Oid			base_type;
	char	   *label;			/* "name": with the quotes and the colon */
	size_t		label_len;
	FmgrInfo	function;		/* output function, or to_json() */
} Member;

struct RexpDocument
{
	/* the document is one column: */
	int			attno;			/* or 0: the whole row */
	RexpDocumentColumn column;
	const char *what;			/* it is, for errors */
	/* or the whole row: */
	int			nmembers;
	Member	   *members;

	RexpConverter converter;
	MemoryContext context;		/* of what is kept from row to row */
	StringInfoData string;
	RexpBuffer	buffer;
};

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

/* One column's value, not null, as JSON. */
static void
write_member(RexpDocument *document, Member *member, Datum value)
{
	RexpBuffer *out = &document->buffer;
	char		scratch[MAXDATELEN + 32];
	RexpOutputSettings ignored;
	const char *bytes;
	size_t		len;

	switch (member->kind)
	{
		case REXP_VALUE_INT2:
		case REXP_VALUE_INT4:
		case REXP_VALUE_INT8:
			rexp_buffer_append(out, scratch,
							   rexp_value_integer(member->kind, value, scratch));
			break;
		case REXP_VALUE_BOOL:
			if (DatumGetBool(value))
				rexp_buffer_append(out, "true", 4);
			else
				rexp_buffer_append(out, "false", 5);
			break;
		case REXP_VALUE_TEXT:
			rexp_value_varlena(value, &bytes, &len);
			write_quoted(out, bytes, len);
			break;
		case REXP_VALUE_TIME:
			JsonEncodeDateTime(scratch, value, member->base_type, NULL);
			write_quoted(out, scratch, strlen(scratch));
			break;
		case REXP_VALUE_NUMBER:
			bytes = OutputFunctionCall(&member->function, value);
			len = strlen(bytes);
			/* NaN and Infinity are no JSON numbers: strings, as row_to_json() */
			if (isdigit((unsigned char) bytes[bytes[0] == '-' ? 1 : 0]))
				rexp_buffer_append(out, bytes, len);
			else
				write_quoted(out, bytes, len);
			break;
		case REXP_VALUE_JSON:
			rexp_value_varlena(value, &bytes, &len);
			rexp_buffer_append(out, bytes, len);
			break;
		case REXP_VALUE_JSONB:
			{
				Jsonb	   *jsonb = DatumGetJsonbP(value);

				resetStringInfo(&document->string);
				JsonbToCString(&document->string, &jsonb->root, VARSIZE(jsonb));
				rexp_buffer_append(out, document->string.data,
								   document->string.len);
				break;
			}
		case REXP_VALUE_VECTOR:
			/* pgvector's text, as [1,2.5], is JSON, and there is no NaN in it */
			bytes = OutputFunctionCall(&member->function, value);
			rexp_buffer_append(out, bytes, strlen(bytes));
			break;
		case REXP_VALUE_BYTEA:
		case REXP_VALUE_OTHER:
			rexp_value_varlena(FunctionCall1(&member->function, value), &bytes, &len);
			rexp_buffer_append(out, bytes, len);

			/* a cast may be a function with SET, which has left the session's behind */
			rexp_output_settings_enter(&ignored);
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
	member->kind = rexp_value_kind(member->base_type);
	if (rexp_vector_kind(member->base_type) >= REXP_VECTOR_VECTOR)
		member->kind = REXP_VALUE_VECTOR;
	member->label = label.data;
	member->label_len = label.len;

	if (member->kind == REXP_VALUE_OTHER || member->kind == REXP_VALUE_BYTEA)
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
	document->context = CurrentMemoryContext;
	initStringInfo(&document->string);
	rexp_buffer_init(&document->buffer, 1024);
	rexp_converter_init(&document->converter);
	document->what = "the document";

	if (attno > 0)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, attno - 1);

		document->column.form = rexp_document_is_text(attribute->atttypid) ? REXP_COLUMN_TEXT :
			getBaseType(attribute->atttypid) == JSONBOID ? REXP_COLUMN_JSONB : REXP_COLUMN_JSON;
		document->column.container_only = container_only;
		strlcpy(document->column.name, NameStr(attribute->attname), NAMEDATALEN);
		document->what = psprintf("column \"%s\"", document->column.name);
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
 * stored is what rexp_document_stored() has found, or NULL.  *bytes is good until the next call or until the current memory context is
 * reset.  Call it between rexp_output_settings_enter() and rexp_output_settings_leave().
 */
bool
rexp_document_encode(RexpDocument *document, TupleTableSlot *slot,
					 const struct varlena *stored, const char **bytes, size_t *len,
					 RexpError *error)
{
	shrink_buffers(document);
	slot_getallattrs(slot);

	if (document->attno > 0)
	{
		if (slot->tts_isnull[document->attno - 1])
		{
			rexp_error_set(error, ERRCODE_NULL_VALUE_NOT_ALLOWED,
						   "column \"%s\", the document, is null",
						   document->column.name);
			return false;
		}
		if (stored == NULL)
			stored = rexp_document_stored(document, slot);
		if (!rexp_column_document(&document->column, stored, &document->string, bytes, len,
								  error))
			return false;
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
	return rexp_to_utf8(&document->converter, true, bytes, len, document->what, error);
}

/*
 * rexp_document_stored
 *	  The value that is the document, as it is stored; NULL if it is null, or if the
 *	  document is the whole row.  Lies where rexp_column_stored() leaves it.
 */
const struct varlena *
rexp_document_stored(const RexpDocument *document, TupleTableSlot *slot)
{
	if (document->attno == 0 || slot->tts_isnull[document->attno - 1])
		return NULL;
	return rexp_column_stored(slot->tts_values[document->attno - 1]);
}

/* The column that the document is; NULL if it is the whole row. */
const RexpDocumentColumn *
rexp_document_column(const RexpDocument *document)
{
	return document->attno > 0 ? &document->column : NULL;
}

/* Is it the whole row, an object with a member for each column? */
bool
rexp_document_is_row(const RexpDocument *document)
{
	return document->attno == 0;
}
