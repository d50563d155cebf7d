/*-------------------------------------------------------------------------
 *
 * json_path.c
 *	  The path of a document, with values of the row in it as names.
 *
 * A path is a template.  What is literal in it is RedisJSON's to read; a value never
 * is: it is one member's name, or a part of it, in quotes of our own, or the number
 * of an element.  So '$.m.#{name}' with the value "*" is $.m["*"].
 *
 * RedisJSON 2.8 has no escapes within quotes: a backslash before a quote becomes a
 * part of the name, and any other backslash is refused.  It cuts off spaces with which a
 * name begins.  It takes any name that does without these in one kind of quotes or
 * the other; what it cannot take fails its row.  An element before the first is taken
 * for the first, and a number past 64 bits ends the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode/json_path.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* What is done for each row, one after the other. */
typedef enum StepKind
{
	STEP_LITERAL,				/* append this text */
	STEP_NAME,					/* a name begins, ... */
	STEP_VALUE,					/* append the value of a column */
	STEP_NAME_END,				/* ... and is appended, in quotes */
	STEP_NUMBER					/* append the number of an element */
} StepKind;

typedef struct Step
{
	StepKind	kind;
	char	   *text;
	size_t		len;
	int			piece;			/* of the template */
} Step;

struct RexpJsonPath
{
	RexpFill   *fill;
	int			nsteps;
	Step	   *steps;
	RexpBuffer	shape;			/* the path with a name for each value */
	RexpBuffer	name;			/* of the row at hand */
};

/* Where in the path the parser is. */
typedef struct Parser
{
	RexpJsonPath *path;
	const char *source;
	StringInfoData literal;		/* of the path as it is, not yet a step */
	bool		in_name;		/* a member's name comes or goes on, ... */
	char		quote;			/* ... in these quotes, or 0: none */
	StringInfoData name;		/* what is literal in it, not yet a step */
	bool		has_value;		/* a value is a part of it */
} Parser;

static void
add_step(RexpJsonPath *path, StepKind kind, int piece)
{
	Step	   *step = &path->steps[path->nsteps++];

	step->kind = kind;
	step->piece = piece;
}

static void
add_literal(RexpJsonPath *path, StringInfo text)
{
	if (text->len == 0)
		return;
	path->steps[path->nsteps].text = pnstrdup(text->data, text->len);
	path->steps[path->nsteps].len = text->len;
	add_step(path, STEP_LITERAL, 0);
	resetStringInfo(text);
}

/* A name may begin here: after a dot, in quotes, or at the path's beginning. */
static void
begin_name(Parser *parser, char quote)
{
	parser->in_name = true;
	parser->has_value = false;
	parser->quote = quote;
	resetStringInfo(&parser->name);
}

/* The name has ended. */
static void
end_name(Parser *parser)
{
	parser->in_name = false;
	if (parser->has_value)
	{
		add_literal(parser->path, &parser->name);
		add_step(parser->path, STEP_NAME_END, 0);
		return;
	}
	if (parser->quote != 0)
		appendStringInfoChar(&parser->literal, parser->quote);
	appendBinaryStringInfo(&parser->literal, parser->name.data, parser->name.len);
	if (parser->quote != 0)
		appendStringInfoChar(&parser->literal, parser->quote);
}

static void
refuse_value(const Parser *parser, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("path \"%s\" has a column where no value can stand", parser->source),
			 errdetail("%s", detail),
			 hint != NULL ? errhint("%s", hint) : 0));
}

static void
refuse_touched(const Parser *parser)
{
	refuse_value(parser, "Something else stands right beside it, and would make another number of it.", NULL);
}

/* Does it end a name that is in no quotes? */
static bool
ends_name(char c)
{
	return strchr(".[]()'\" ,:=!<>&|?@*", c) != NULL;
}

/* Is a number the last that was taken?  It must stay the number that it is. */
static bool
ends_in_number(const Parser *parser)
{
	const RexpJsonPath *path = parser->path;

	return parser->literal.len == 0 && path->nsteps > 0 &&
		path->steps[path->nsteps - 1].kind == STEP_NUMBER;
}

static void
take_character(Parser *parser, char c)
{
	if (ends_in_number(parser) && isalnum((unsigned char) c))
		refuse_touched(parser);
	if (parser->in_name && parser->quote == 0 && ends_name(c))
		end_name(parser);
	if (parser->in_name)
	{
		if (parser->quote == c)
			end_name(parser);
		else
			appendStringInfoChar(&parser->name, c);
	}
	else if (c == '"' || c == '\'')
		begin_name(parser, c);
	else
	{
		appendStringInfoChar(&parser->literal, c);
		if (c == '.')
			begin_name(parser, 0);
	}
}

/* A value within a name: the dot or quote before the name is replaced by ours. */
static void
take_value_of_name(Parser *parser, int number)
{
	RexpJsonPath *path = parser->path;
	StringInfo	literal = &parser->literal;

	if (!parser->has_value)
	{
		parser->has_value = true;
		if (parser->quote == 0)
		{
			/* of two dots both stay: it is a name at any level */
			if (literal->len < 2 || literal->data[literal->len - 2] != '.')
				literal->data[--literal->len] = '\0';
			appendStringInfoChar(literal, '[');
		}
		add_literal(path, literal);
		add_step(path, STEP_NAME, 0);
		if (parser->quote == 0)
			appendStringInfoChar(literal, ']');
	}
	add_literal(path, &parser->name);
	add_step(path, STEP_VALUE, number);
}

static void
take_value(Parser *parser, int number)
{
	RexpJsonPath *path = parser->path;
	int			attno = path->fill->template->pieces[number].attno;
	RexpValueKind kind;

	if (parser->in_name && parser->quote == 0 && parser->literal.len == 0)
		refuse_value(parser, "A value is the name of a member, and a path begins with the document.",
					 "Write '$.#{column}' for a member of the document.");
	if (parser->in_name)
	{
		take_value_of_name(parser, number);
		return;
	}
	kind = rexp_value_kind(getBaseType(TupleDescAttr(path->fill->desc, attno - 1)->atttypid));
	if (kind != REXP_VALUE_INT2 && kind != REXP_VALUE_INT4 && kind != REXP_VALUE_INT8)
		refuse_value(parser, "Behind a dot or in quotes a value is the name of a member; elsewhere it can only be an integer.",
					 "Write '$.#{column}' or '$[\"#{column}\"]' for a member, '$[#{column}]' with an integer column for an element of an array.");
	if (ends_in_number(parser) ||
		(parser->literal.len > 0 &&
		 (isalnum((unsigned char) parser->literal.data[parser->literal.len - 1]) ||
		  parser->literal.data[parser->literal.len - 1] == '-')))
		refuse_touched(parser);
	add_literal(path, &parser->literal);
	add_step(path, STEP_NUMBER, number);
}

/* Is this name one that RedisJSON can be given?  Then append it, in quotes. */
static bool
append_name(const RexpBuffer *name, RexpBuffer *out, RexpError *error)
{
	bool		has_double = name->len > 0 && memchr(name->data, '"', name->len) != NULL;
	bool		has_single = name->len > 0 && memchr(name->data, '\'', name->len) != NULL;
	const char *quote = has_double ? "'" : "\"";
	const char *fault = NULL;

	if (name->len > 0 && memchr(name->data, '\\', name->len) != NULL)
		fault = "holds a backslash";
	else if (has_double && has_single)
		fault = "holds both kinds of quotes";
	else if (name->len > 0 && name->data[0] == ' ')
		fault = "begins with a space";
	if (fault != NULL)
	{
		rexp_error_set(error, ERRCODE_INVALID_PARAMETER_VALUE,
					   "a name in the path %s, which a path of Redis cannot say", fault);
		return false;
	}
	rexp_buffer_append(out, quote, 1);
	rexp_buffer_append(out, name->data, name->len);
	rexp_buffer_append(out, quote, 1);
	return true;
}

/* Elements are counted from 0; a number before that is taken for another one. */
static bool
append_number(const char *digits, size_t len, RexpBuffer *out, RexpError *error)
{
	size_t		before = out->len;

	while (before > 0 && out->data[before - 1] == ' ')
		before--;
	if (digits[0] == '-' && before > 0 && strchr("[,:", out->data[before - 1]) != NULL)
	{
		rexp_error_set(error, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
					   "the number of an element in the path is negative");
		return false;
	}
	rexp_buffer_append(out, digits, len);
	return true;
}

/*
 * rexp_json_path_append
 *	  Append the path of a row to out, or return false and what is wrong with the row;
 *	  out may then hold a part of it.  Of a literal path, slot may be NULL.
 *
 * All columns of the slot must have been got.
 */
bool
rexp_json_path_append(RexpJsonPath *path, TupleTableSlot *slot, RexpBuffer *out,
					  RexpError *error)
{
	RexpBuffer *to = out;
	char		scratch[REXP_DIGITS_SIZE];
	const char *bytes;
	size_t		len;

	for (int i = 0; i < path->nsteps; i++)
	{
		const Step *step = &path->steps[i];

		switch (step->kind)
		{
			case STEP_LITERAL:
				rexp_buffer_append(to, step->text, step->len);
				break;
			case STEP_NAME:
				to = &path->name;
				to->len = 0;
				break;
			case STEP_VALUE:
			case STEP_NUMBER:
				if (!rexp_fill_piece(path->fill, step->piece, slot, scratch, &bytes, &len,
									 error))
					return false;
				if (step->kind == STEP_VALUE)
					rexp_buffer_append(to, bytes, len);
				else if (!append_number(bytes, len, to, error))
					return false;
				break;
			case STEP_NAME_END:
				to = out;
				if (!append_name(&path->name, to, error))
					return false;
				break;
		}
	}
	return true;
}

/* The path with a name, or a number, in place of each value. */
static void
make_shape(RexpJsonPath *path)
{
	for (int i = 0; i < path->nsteps; i++)
	{
		const Step *step = &path->steps[i];

		if (step->kind == STEP_LITERAL)
			rexp_buffer_append(&path->shape, step->text, step->len);
		else if (step->kind == STEP_NAME || step->kind == STEP_NAME_END)
			rexp_buffer_append(&path->shape, "\"", 1);
		else
			rexp_buffer_append(&path->shape, "0", 1);
	}
}

/*
 * rexp_json_path_create
 *	  Parse the template of a path against the columns of a query, in the current
 *	  context; desc must live as long.
 *
 * Raises an error for a column that is not there, and for one at a place where no
 * value can be.
 */
RexpJsonPath *
rexp_json_path_create(const char *source, TupleDesc desc)
{
	RexpJsonPath *path = palloc0(sizeof(RexpJsonPath));
	Parser		parser = {.path = path, .source = source};
	const RexpTemplate *template;

	path->fill = rexp_fill_create(source, "path", "part of the path", desc);
	template = path->fill->template;

	/* a value comes with a literal, a beginning, a literal, and then another and an end */
	path->steps = palloc0(sizeof(Step) * (6 * template->npieces + 2));
	rexp_buffer_init(&path->shape, 64);
	rexp_buffer_init(&path->name, 64);
	initStringInfo(&parser.literal);
	initStringInfo(&parser.name);
	begin_name(&parser, 0);
	for (int i = 0; i < template->npieces; i++)
	{
		const RexpPiece *piece = &template->pieces[i];

		if (piece->attno > 0)
			take_value(&parser, i);
		else
		{
			for (size_t at = 0; at < piece->len; at++)
				take_character(&parser, piece->text[at]);
		}
	}
	if (parser.in_name && parser.quote != 0 && parser.has_value)
		refuse_value(&parser, "The quotes around it are not closed.", NULL);
	if (parser.in_name)
	{
		/* quotes that are not closed are Redis' to complain about */
		char		quote = parser.quote;

		end_name(&parser);
		if (quote != 0)
			parser.literal.data[--parser.literal.len] = '\0';
	}
	add_literal(path, &parser.literal);
	make_shape(path);
	return path;
}

/* Is it the same for each row? */
bool
rexp_json_path_is_literal(const RexpJsonPath *path)
{
	return rexp_fill_is_literal(path->fill);
}

/* The path with a name for each value, which names as many places as that of any row. */
const RexpBuffer *
rexp_json_path_shape(const RexpJsonPath *path)
{
	return &path->shape;
}
