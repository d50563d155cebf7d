/*-------------------------------------------------------------------------
 *
 * document_column.c
 *	  A document that is one column's value, as it is stored and as it is written.
 *
 * Stored it may be compressed, or binary; what it becomes follows from these bytes alone.
 * No table, no catalog and no transaction is needed for that (in a database in UTF-8,
 * the only encoding in which nothing is to be converted).  So it can be put off until it
 * is known that the row is to be written, which most rows are not, and their digest be
 * that of the bytes that are stored.
 *
 * The same value may be stored in two ways, such as before and after its column's
 * compression was changed: then it is written once more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "base/compat.h"
#include "base/quick_hash.h"
#include "common/jsonapi.h"
#include "encode/document_column.h"
#include "encode/json_check.h"
#include "mb/pg_wchar.h"
#include "utils/jsonb.h"

/*
 * PostgreSQL's parser calls itself for each level and raises an error when the
 * stack is used up, which would end the job; a document nested deeper than
 * this is its row's own fault.  RedisJSON takes 127 levels.
 */
#define MAX_JSON_DEPTH 500

/* Could the parser meet more than MAX_JSON_DEPTH levels? */
static bool
nested_too_deep(const char *json, size_t len)
{
	int			depth = 0;
	bool		in_string = false;

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
 * and answers OK (seen with 2.8).  Most documents need only a quick look for
 * that.  The text itself is never part of the error,
 * as errors go to the server's log.
 */
static bool
check_json(const RexpDocumentColumn *column, const char *json, size_t len,
		   RexpError *error)
{
	JsonLexContext *lexer;

	if (column->container_only)
	{
		size_t		first = 0;

		while (first < len && strchr(" \t\r\n", json[first]) != NULL)
			first++;
		if (first == len || (json[first] != '{' && json[first] != '['))
		{
			rexp_error_set(error, ERRCODE_INVALID_TEXT_REPRESENTATION,
						   "column \"%s\" holds no JSON object or array",
						   column->name);
			rexp_error_hint(error, "Say value => '*' to store the whole row as an object, or value => '%s' to store the column whatever JSON it holds.",
							column->name);
			return false;
		}
	}
	if (rexp_json_is_valid(json, len, MAX_JSON_DEPTH))
		return true;
	if (nested_too_deep(json, len))
	{
		rexp_error_set(error, ERRCODE_STATEMENT_TOO_COMPLEX,
					   "column \"%s\" is nested more than %d levels deep",
					   column->name, MAX_JSON_DEPTH);
		return false;
	}
	lexer = rexp_json_lexer(json, len, GetDatabaseEncoding());
	if (pg_parse_json(lexer, &nullSemAction) != JSON_SUCCESS)
	{
		rexp_error_set(error, ERRCODE_INVALID_TEXT_REPRESENTATION,
					   "column \"%s\" is not valid JSON", column->name);
		rexp_error_detail(error, "The fault lies at byte %zu of %zu.",
						  lexer->token_start ? (size_t) (lexer->token_start - json) + 1 : len,
						  len);
		return false;
	}
	return true;
}

/* The value as it is stored, but in memory; in the current context, or where it is. */
const struct varlena *
rexp_column_stored(Datum value)
{
	struct varlena *stored = (struct varlena *) DatumGetPointer(value);

	return VARATT_IS_EXTERNAL(stored) ? detoast_external_attr(stored) : stored;
}

/* A digest of it. */
uint64
rexp_column_digest(const struct varlena *stored, uint64 seed)
{
	/* a compressed one is never taken for one that is not */
	if (VARATT_IS_COMPRESSED(stored))
		return rexp_quick_hash((const char *) stored + VARHDRSZ, VARSIZE(stored) - VARHDRSZ,
							   ~seed);
	return rexp_quick_hash(VARDATA_ANY(stored), VARSIZE_ANY_EXHDR(stored), seed);
}

/* How many bytes the document will have; of jsonb it is a guess. */
size_t
rexp_column_size(const RexpDocumentColumn *column, const struct varlena *stored)
{
	size_t		size = VARATT_IS_COMPRESSED(stored) ?
		VARDATA_COMPRESSED_GET_EXTSIZE(stored) : VARSIZE_ANY_EXHDR(stored);

	return column->form == REXP_COLUMN_JSONB ? 2 * size : size;
}

/*
 * rexp_column_document
 *	  The document in the database's encoding, or false and what is wrong with it.
 *
 * *bytes lie in stored, in scratch or in the current memory context.
 */
bool
rexp_column_document(const RexpDocumentColumn *column, const struct varlena *stored,
					 StringInfo scratch, const char **bytes, size_t *len,
					 RexpError *error)
{
	if (column->form == REXP_COLUMN_JSONB)
	{
		Jsonb	   *jsonb = DatumGetJsonbP(PointerGetDatum(stored));

		resetStringInfo(scratch);
		JsonbToCString(scratch, &jsonb->root, VARSIZE(jsonb));
		*bytes = scratch->data;
		*len = scratch->len;
		return true;
	}
	stored = pg_detoast_datum_packed(unconstify(struct varlena *, stored));
	*bytes = VARDATA_ANY(stored);
	*len = VARSIZE_ANY_EXHDR(stored);
	return column->form == REXP_COLUMN_JSON || check_json(column, *bytes, *len, error);
}

/*
 * rexp_column_complete
 *	  The same of a value that was put off (a RexpCompleteValue), all in the current
 *	  memory context.
 */
bool
rexp_column_complete(void *column, const char *stored, size_t stored_len,
					 const char **bytes, size_t *len, RexpError *error)
{
	struct varlena *aligned = palloc(stored_len);
	StringInfoData scratch;

	memcpy(aligned, stored, stored_len);
	initStringInfo(&scratch);
	return rexp_column_document(column, aligned, &scratch, bytes, len, error);
}
