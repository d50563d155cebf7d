/*-------------------------------------------------------------------------
 *
 * index_fit.c
 *	  Can an index of Redis' search take what an export writes?
 *
 * An index passes over keys of another type or prefix, and a document without the
 * fields that it is over, without a word: the load looks good, and searches find
 * nothing.  What is said here is sure; where it cannot be known, nothing is.
 *
 * Nothing here asks Redis.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/text.h"
#include "encode/index_fit.h"
#include "lib/stringinfo.h"

/* May a key that begins so begin with one of the prefixes? */
static bool
fits_prefix(const List *prefixes, const char *key_begin)
{
	ListCell   *cell;

	foreach(cell, prefixes)
	{
		const char *prefix = lfirst(cell);

		if (strncmp(prefix, key_begin, Min(strlen(prefix), strlen(key_begin))) == 0)
			return true;
	}
	return prefixes == NIL;
}

/*
 * The name at the root of a document to which a path leads, palloc'd; NULL if it is
 * not plain.
 */
static char *
root_member(const char *path)
{
	size_t		len;

	if (strncmp(path, "$.", 2) != 0)
		return NULL;
	len = strcspn(path + 2, ".[*");
	return len == 0 || path[2 + len] == '*' ? NULL : pnstrdup(path + 2, len);
}

/* May rows give what the index has a field for? */
static bool
is_given(RexpExportKind kind, const RexpGiven *given, const char *field)
{
	const char *name = kind == REXP_EXPORT_JSON ? root_member(field) : field;
	ListCell   *cell;

	if (name == NULL || strncmp(name, "__", 2) == 0)
		return true;
	foreach(cell, given->names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	}
	return false;
}

/*
 * rexp_index_fits
 *	  False if the index cannot take what the export writes, or not all that it is
 *	  over, which *error then tells.
 *
 * What comes in is in UTF-8.  Keys that are not written whole may have fields from elsewhere: of these, only
 * that rows give none at all is told.
 */
bool
rexp_index_fits(const char *index, const RexpIndexSchema *schema, RexpExportKind kind,
				const RexpGiven *given, RexpError *error)
{
	const char *type = kind == REXP_EXPORT_JSON ? "JSON" : "HASH";
	char		name[128];
	char		shown[128];
	StringInfoData missing;
	int			nmissing = 0;
	ListCell   *cell;

	rexp_printable(name, sizeof(name), index, strlen(index));
	if (kind == REXP_EXPORT_COMMAND)
		return true;
	if (schema->key_type != NULL && pg_strcasecmp(schema->key_type, type) != 0)
	{
		rexp_printable(shown, sizeof(shown), schema->key_type, strlen(schema->key_type));
		rexp_error_set(error, ERRCODE_WARNING, "index \"%s\" is on %s, and the export writes %s",
					   name, shown, type);
		return false;
	}
	if (!fits_prefix(schema->prefixes, given->key_begin))
	{
		rexp_printable(shown, sizeof(shown), given->key_begin, strlen(given->key_begin));
		rexp_error_set(error, ERRCODE_WARNING, "index \"%s\" takes keys with other prefixes than \"%s\"",
					   name, shown);
		return false;
	}
	if (given->names == NIL)
		return true;
	initStringInfo(&missing);
	foreach(cell, schema->fields)
	{
		const char *field = lfirst(cell);

		if (is_given(kind, given, field))
			continue;
		rexp_printable(shown, sizeof(shown), field, strlen(field));
		appendStringInfo(&missing, "%s\"%s\"", nmissing++ > 0 ? ", " : "", shown);
	}
	if (nmissing == 0 || (!given->whole && nmissing < list_length(schema->fields)))
		return true;
	rexp_error_set(error, ERRCODE_WARNING, "index \"%s\" is over what no row gives: %s",
				   name, missing.data);
	return false;
}
