/*-------------------------------------------------------------------------
 *
 * search_index.c
 *	  How far an index of Redis' search is, as FT.INFO tells it (Redis manual,
 *	  "FT.INFO"): names and values by turns, some of them such lists again.
 *
 * An index that is filled in the background says so by "indexing" and
 * "percent_indexed"; one that was there before the documents takes each with its
 * write, and the latter is 1 all along.  What an index refuses is no error of the
 * write, and only counted.
 *
 * Nothing here knows exports.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/error.h"
#include "redis/search_index.h"

/* The value of that name in a list, or NULL. */
static const redisReply *
find_value(const redisReply *list, const char *name)
{
	if (list == NULL || list->type != REDIS_REPLY_ARRAY)
		return NULL;
	for (size_t i = 0; i + 1 < list->elements; i += 2)
	{
		const redisReply *key = list->element[i];

		if ((key->type == REDIS_REPLY_STRING || key->type == REDIS_REPLY_STATUS) &&
			pg_strcasecmp(key->str, name) == 0)
			return list->element[i + 1];
	}
	return NULL;
}

/* A number, however Redis writes it; 0 if it is not there. */
static double
number_of(const redisReply *value)
{
	if (value == NULL)
		return 0;
	if (value->type == REDIS_REPLY_INTEGER)
		return (double) value->integer;
	return value->str != NULL ? strtod(value->str, NULL) : 0;
}

/* A text as it can be shown, unless it says that there is none. */
static void
copy_text(const redisReply *value, char *dest, size_t size)
{
	dest[0] = '\0';
	if (value != NULL && value->str != NULL && strcmp(value->str, "N/A") != 0)
		rexp_printable(dest, size, value->str, value->len);
}

/* What is asked of the index with this name, which is in UTF-8. */
void
rexp_index_request(const char *name, RexpBuffer *request)
{
	rexp_resp_header(request, '*', 2);
	rexp_resp_word(request, "FT.INFO");
	rexp_resp_word(request, name);
}

/* What it says of itself. */
void
rexp_index_read(const redisReply *reply, RexpIndexInfo *info)
{
	const redisReply *errors = find_value(reply, "Index Errors");

	info->failures = (int64) number_of(find_value(reply, "hash_indexing_failures"));
	info->indexing = number_of(find_value(reply, "indexing")) != 0;
	info->share = number_of(find_value(reply, "percent_indexed"));
	info->documents = (int64) number_of(find_value(reply, "num_docs"));
	info->complete = !info->indexing && info->share >= 1;
	copy_text(find_value(errors, "last indexing error"), info->last_error,
			  sizeof(info->last_error));
	copy_text(find_value(errors, "last indexing error key"), info->last_key,
			  sizeof(info->last_key));
}

/* Has it done anything from one look to the next? */
bool
rexp_index_has_moved(const RexpIndexInfo *before, const RexpIndexInfo *after)
{
	return before->indexing != after->indexing || before->share != after->share ||
		before->documents != after->documents || before->failures != after->failures;
}

/* A text in the current context; NULL if it is none. */
static char *
keep_text(const redisReply *value)
{
	return value != NULL && value->str != NULL ? pnstrdup(value->str, value->len) : NULL;
}

/* What it is over, in the current memory context. */
void
rexp_index_read_schema(const redisReply *reply, RexpIndexSchema *schema)
{
	const redisReply *definition = find_value(reply, "index_definition");
	const redisReply *prefixes = find_value(definition, "prefixes");
	const redisReply *attributes = find_value(reply, "attributes");

	memset(schema, 0, sizeof(RexpIndexSchema));
	schema->key_type = keep_text(find_value(definition, "key_type"));
	for (size_t i = 0; prefixes != NULL && prefixes->type == REDIS_REPLY_ARRAY &&
		 i < prefixes->elements; i++)
	{
		char	   *prefix = keep_text(prefixes->element[i]);

		if (prefix != NULL)
			schema->prefixes = lappend(schema->prefixes, prefix);
	}
	for (size_t i = 0; attributes != NULL && attributes->type == REDIS_REPLY_ARRAY &&
		 i < attributes->elements; i++)
	{
		char	   *field = keep_text(find_value(attributes->element[i], "identifier"));

		if (field != NULL)
			schema->fields = lappend(schema->fields, field);
	}
}
