/*-------------------------------------------------------------------------
 *
 * form.c
 *	  In what form the rows of an export go to Redis, as it is shown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode/document.h"
#include "encode/form.h"
#include "lib/stringinfo.h"

/*
 * The document by default, as the query says: of two columns the second, if it can be
 * one, or else the whole row.
 *
 * What the columns are used for has no say in it: the same query makes the same
 * documents with an expiry, a mark or another key.
 */
static int
default_column(TupleDesc desc)
{
	Oid			type;

	if (desc->natts != 2)
		return 0;
	type = TupleDescAttr(desc, 1)->atttypid;
	return rexp_document_is_text(type) || rexp_document_is_json(type) ? 2 : 0;
}

/*
 * rexp_encoding_value
 *	  What "value" is, by its name or by default: the name of a column, or "*".
 */
const char *
rexp_encoding_value(const RexpEncoding *encoding, TupleDesc desc)
{
	int			attno;

	if (encoding->value != NULL)
		return encoding->value;
	attno = encoding->exclude == NIL ? default_column(desc) : 0;
	return attno == 0 ? "*" : NameStr(TupleDescAttr(desc, attno - 1)->attname);
}

/* The type of its keys in Redis; of documents and hashes. */
const char *
rexp_encoding_type(const RexpEncoding *encoding)
{
	return encoding->kind == REXP_EXPORT_HASH ? REXP_TYPE_HASH : REXP_TYPE_JSON;
}

/* The command that it sends, for the view; a part of the encoding. */
const char *
rexp_encoding_command(const RexpEncoding *encoding)
{
	switch (encoding->kind)
	{
		case REXP_EXPORT_JSON:
			return encoding->merge ? "JSON.MERGE" : "JSON.SET";
		case REXP_EXPORT_HASH:
			return "HSET";
		default:
			return linitial(encoding->words);
	}
}

/* Its template: of the key, or of the whole command.  Palloc'd. */
char *
rexp_encoding_template(const RexpEncoding *encoding)
{
	StringInfoData text;
	ListCell   *cell;

	initStringInfo(&text);
	if (encoding->kind != REXP_EXPORT_COMMAND)
		appendStringInfoString(&text, encoding->key_template);
	foreach(cell, encoding->words)
		appendStringInfo(&text, "%s%s", text.len > 0 ? " " : "", (char *) lfirst(cell));
	return text.data;
}
