/*-------------------------------------------------------------------------
 *
 * key_shape.c
 *	  Which keys can be made with a template?
 *
 * A pattern of Redis says too little: person:* holds person:cache:1, which is not
 * one of 'person:#{id}' if ids are integers.  So the types of the columns count: of
 * some is known, byte for byte, what they write, and all others can write anything.
 * A key fits if it is the template's literals with such values between them.
 *
 * Nothing here knows Redis but what is special in its patterns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "key_shape.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "own_keys.h"
#include "template.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"

/* What the values of a type look like, as value.c writes them. */
typedef struct Form
{
	Oid			type;
	size_t		shortest;		/* bytes */
	size_t		longest;
	bool		(*is_written) (const char *text, size_t len);
} Form;

struct RexpKeyShape
{
	RexpTemplate *template;
	const Form **forms;			/* one a piece; NULL: a literal, or anything */
};

/*
 * Types
 */

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* An integer of at most 19 digits, up to this one or, if negative, to this one more. */
static bool
is_integer(const char *text, size_t len, uint64 most)
{
	size_t		sign = len > 0 && text[0] == '-';
	uint64		value = 0;

	if (len == sign || len - sign > 19)
		return false;
	if (text[sign] == '0')
		return len == 1;
	for (size_t i = sign; i < len; i++)
	{
		if (!is_digit(text[i]))
			return false;
		value = value * 10 + (text[i] - '0');
	}
	return value <= most + sign;
}

static bool
is_int2(const char *text, size_t len)
{
	return is_integer(text, len, PG_INT16_MAX);
}

static bool
is_int4(const char *text, size_t len)
{
	return is_integer(text, len, PG_INT32_MAX);
}

static bool
is_int8(const char *text, size_t len)
{
	return is_integer(text, len, PG_INT64_MAX);
}

static bool
is_boolean(const char *text, size_t len)
{
	return text[0] == 't' || text[0] == 'f';
}

static bool
is_uuid(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		bool		hyphen = i == 8 || i == 13 || i == 18 || i == 23;

		if (hyphen ? text[i] != '-' : !is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
			return false;
	}
	return true;
}

/* A day of the years 1 to 9999, which is all that people write to keys. */
static bool
is_date(const char *text, size_t len)
{
	int			parts[3] = {0, 0, 0};
	int			part = 0;

	for (size_t i = 0; i < len; i++)
	{
		if (i == 4 || i == 7)
			part++;
		if (i == 4 || i == 7 ? text[i] != '-' : !is_digit(text[i]))
			return false;
		if (text[i] != '-')
			parts[part] = parts[part] * 10 + (text[i] - '0');
	}
	return parts[0] >= 1 && parts[1] >= 1 && parts[1] <= MONTHS_PER_YEAR &&
		parts[2] >= 1 && parts[2] <= day_tab[isleap(parts[0])][parts[1] - 1];
}

static const Form forms[] = {
	{INT2OID, 1, 6, is_int2},
	{INT4OID, 1, 11, is_int4},
	{INT8OID, 1, 20, is_int8},
	{BOOLOID, 1, 1, is_boolean},
	{UUIDOID, 36, 36, is_uuid},
	{DATEOID, 10, 10, is_date},
};

static const Form *
form_of(Oid type)
{
	type = getBaseType(type);
	for (size_t i = 0; i < lengthof(forms); i++)
	{
		if (forms[i].type == type)
			return &forms[i];
	}
	return NULL;
}

/*
 * Templates
 */

/* The shape of a key template's keys, in the current memory context. */
RexpKeyShape *
rexp_key_shape_create(const char *key_template, TupleDesc desc)
{
	RexpKeyShape *shape = palloc0(sizeof(RexpKeyShape));

	shape->template = rexp_template_parse(key_template, "key template", desc);
	shape->forms = palloc0(sizeof(Form *) * Max(shape->template->npieces, 1));
	for (int i = 0; i < shape->template->npieces; i++)
	{
		int			attno = shape->template->pieces[i].attno;

		if (attno > 0)
			shape->forms[i] = form_of(TupleDescAttr(desc, attno - 1)->atttypid);
	}
	return shape;
}

/* The pattern, as in SCAN MATCH, that each key of the template matches; palloc'd. */
char *
rexp_key_shape_pattern(const RexpKeyShape *shape)
{
	const RexpTemplate *template = shape->template;
	StringInfoData pattern;

	initStringInfo(&pattern);
	for (int i = 0; i < template->npieces; i++)
	{
		const RexpPiece *piece = &template->pieces[i];

		if (piece->attno > 0)
			appendStringInfoChar(&pattern, '*');
		for (size_t j = 0; piece->attno == 0 && j < piece->len; j++)
		{
			if (strchr("*?[]\\^", piece->text[j]) != NULL)
				appendStringInfoChar(&pattern, '\\');
			appendStringInfoChar(&pattern, piece->text[j]);
		}
	}
	return pattern.data;
}

/* The number of the first column that can write anything, or 0. */
int
rexp_key_shape_unknown(const RexpKeyShape *shape)
{
	for (int i = 0; i < shape->template->npieces; i++)
	{
		if (shape->template->pieces[i].attno > 0 && shape->forms[i] == NULL)
			return shape->template->pieces[i].attno;
	}
	return 0;
}

/*
 * Of the places in the key where a piece may begin, make those where it may end:
 * ends[0 .. len], which is all false.
 */
static void
find_ends(const RexpKeyShape *shape, int i, const char *key, size_t len,
		  const bool *begins, bool *ends)
{
	const RexpPiece *piece = &shape->template->pieces[i];
	const Form *form = shape->forms[i];

	for (size_t at = 0; at <= len; at++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!begins[at])
			continue;
		if (piece->attno == 0)
		{
			if (len - at >= piece->len && memcmp(key + at, piece->text, piece->len) == 0)
				ends[at + piece->len] = true;
		}
		else if (form == NULL)
		{
			memset(ends + at, true, len + 1 - at);
			break;
		}
		else
		{
			for (size_t n = form->shortest; n <= Min(form->longest, len - at); n++)
				ends[at + n] |= form->is_written(key + at, n);
		}
	}
}

/*
 * rexp_key_shape_fits
 *	  Can this key be made with the template?
 *
 * It takes time in proportion to the key and the template, and can be interrupted.
 * Our own keys are made with none.
 */
bool
rexp_key_shape_fits(const RexpKeyShape *shape, const char *key, size_t len)
{
	size_t		size = len + 1;
	bool	   *places;
	bool		fits;

	if (rexp_is_own_key(key, len))
		return false;
	places = MemoryContextAllocHuge(CurrentMemoryContext, 2 * size);
	memset(places, false, size);
	places[0] = true;
	for (int i = 0; i < shape->template->npieces; i++)
	{
		memset(places + size, false, size);
		find_ends(shape, i, key, len, places, places + size);
		memcpy(places, places + size, size);
	}
	fits = places[len];
	pfree(places);
	return fits;
}
