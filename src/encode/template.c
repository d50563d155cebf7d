/*-------------------------------------------------------------------------
 *
 * template.c
 *	  Parse texts such as "appointment:#{id}" into literals and columns.
 *
 * #{name} names a column exactly as the query returns it, case included, up to
 * the first closing brace; ##{ is a literal #{; any other # is itself.  How a
 * value is written is not known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/encoding.h"
#include "encode/template.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

/* The number of the column, from 1, or 0. */
int
rexp_find_column(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
	{
		if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return i + 1;
	}
	return 0;
}

/* "a", "b", ... for an error's hint; palloc'd. */
char *
rexp_column_list(TupleDesc desc)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < desc->natts; i++)
		appendStringInfo(&list, "%s\"%s\"", i ? ", " : "",
						 NameStr(TupleDescAttr(desc, i)->attname));
	return list.data;
}

/* The number of a column that must be there; "what" names it, in the error. */
int
rexp_need_column(TupleDesc desc, const char *name, const char *what)
{
	int			attno = rexp_find_column(desc, name);

	if (attno == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("%s names column \"%s\", which the query does not return",
						what, name),
				 errhint("The query returns %s. Names are compared exactly, case included.",
						 rexp_column_list(desc))));
	return attno;
}

/* Add a literal in UTF-8, unless it is empty. */
static void
add_literal(RexpTemplate *template, const char *text, int len)
{
	RexpPiece  *piece;
	char	   *utf8;

	if (len == 0)
		return;
	utf8 = rexp_literal_utf8(text, len);
	piece = &template->pieces[template->npieces++];
	piece->attno = 0;
	piece->text = utf8;
	piece->len = strlen(utf8);
}

/*
 * rexp_template_parse
 *	  Parse source against the columns of a query.
 *
 * "what" names the template in errors ("key template").  The result lies in
 * the current memory context.  Raises an error for an unclosed brace and for a
 * column that is not there.
 */
RexpTemplate *
rexp_template_parse(const char *source, const char *what, TupleDesc desc)
{
	RexpTemplate *template = palloc0(sizeof(RexpTemplate));
	StringInfoData literal;
	const char *at = source;
	int			most = 1;

	for (const char *p = source; (p = strstr(p, "#{")) != NULL; p += 2)
		most += 2;
	template->pieces = palloc(sizeof(RexpPiece) * most);

	initStringInfo(&literal);
	while (*at != '\0')
	{
		const char *end;
		char	   *name;
		int			attno;

		if (strncmp(at, "##{", 3) == 0)
		{
			appendStringInfoString(&literal, "#{");
			at += 3;
			continue;
		}
		if (strncmp(at, "#{", 2) != 0)
		{
			appendStringInfoChar(&literal, *at++);
			continue;
		}
		end = strchr(at, '}');
		if (end == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s has a \"#{\" without a closing brace", what),
					 errdetail("The template is \"%s\".", source),
					 errhint("Write #{column} for a column's value, or ##{ for the characters #{ themselves.")));
		name = pnstrdup(at + 2, end - at - 2);
		attno = rexp_need_column(desc, name, what);
		add_literal(template, literal.data, literal.len);
		resetStringInfo(&literal);
		template->pieces[template->npieces].attno = attno;
		template->npieces++;
		at = end + 1;
	}
	add_literal(template, literal.data, literal.len);
	return template;
}

/*
 * rexp_template_skeleton
 *	  A template without the names of its columns, palloc'd: two with the same skeleton
 *	  can make the same texts.
 */
char *
rexp_template_skeleton(const char *source)
{
	StringInfoData skeleton;

	initStringInfo(&skeleton);
	for (const char *at = source; *at != '\0';)
	{
		const char *end = strchr(at, '}');

		if (strncmp(at, "##{", 3) == 0)
		{
			appendStringInfoString(&skeleton, "##{");
			at += 3;
		}
		else if (strncmp(at, "#{", 2) == 0 && end != NULL)
		{
			appendStringInfoString(&skeleton, "#{}");
			at = end + 1;
		}
		else
			appendStringInfoChar(&skeleton, *at++);
	}
	return skeleton.data;
}
