/*-------------------------------------------------------------------------
 *
 * key_shape.c
 *	  Which keys could have been made with a template?
 *
 * A pattern of Redis says too little: person:* holds person:cache:1, which is not
 * one of 'person:#{id}' if ids are numbers.  What integers and uuids look like is
 * known; what other columns hold is learnt from the rows of the query: which of the
 * classes digits, small letters, capitals and bytes beyond ASCII, and which other
 * characters, each by itself.  A key fits if it is the template's literals with values
 * between them that hold nothing else.  Of a query without rows nothing is learnt, and
 * anything fits.
 *
 * Nothing here knows Redis but what is special in its patterns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "key_shape.h"
#include "lib/stringinfo.h"

/* What the values of one column hold. */
typedef struct Part
{
	bool		known;			/* by its type */
	bool		seen[256];		/* by byte, where a class goes by its first */
} Part;

struct RexpKeyShape
{
	RexpFill   *fill;
	Part	   *parts;			/* one a piece of the template */
	bool		any_row;
};

/* The byte that stands for the class of a byte. */
static unsigned char
class_of(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return '0';
	if (c >= 'a' && c <= 'z')
		return 'a';
	if (c >= 'A' && c <= 'Z')
		return 'A';
	return c >= 0x80 ? 0x80 : c;
}

/* Values of some types have always the same characters. */
static void
know_type(Part *part, Oid type)
{
	const char *classes = type == INT2OID || type == INT4OID || type == INT8OID ? "0-" :
		type == UUIDOID ? "0a-" : NULL;

	part->known = classes != NULL;
	for (int i = 0; part->known && classes[i] != '\0'; i++)
		part->seen[(unsigned char) classes[i]] = true;
}

/* The shape of a key template's keys, in the current memory context. */
RexpKeyShape *
rexp_key_shape_create(const char *key_template, TupleDesc desc)
{
	RexpKeyShape *shape = palloc0(sizeof(RexpKeyShape));

	shape->fill = rexp_fill_create(key_template, "key template", "part of the key",
								   CreateTupleDescCopy(desc));
	shape->parts = palloc0(sizeof(Part) * Max(shape->fill->template->npieces, 1));
	for (int i = 0; i < shape->fill->template->npieces; i++)
	{
		int			attno = shape->fill->template->pieces[i].attno;

		if (attno > 0)
			know_type(&shape->parts[i], TupleDescAttr(desc, attno - 1)->atttypid);
	}
	return shape;
}

/* The pattern, as in SCAN MATCH, that each key of the template matches; palloc'd. */
char *
rexp_key_shape_pattern(const RexpKeyShape *shape)
{
	const RexpTemplate *template = shape->fill->template;
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

/*
 * rexp_key_shape_learn
 *	  Take note of what a row's columns hold.
 *
 * All columns of the slot must have been got, and output settings be ours.
 */
void
rexp_key_shape_learn(RexpKeyShape *shape, TupleTableSlot *slot)
{
	const RexpTemplate *template = shape->fill->template;

	for (int i = 0; i < template->npieces; i++)
	{
		int			attno = template->pieces[i].attno;
		char		scratch[REXP_DIGITS_SIZE];
		const char *bytes;
		size_t		len;
		RexpError	ignored;

		if (attno == 0 || slot->tts_isnull[attno - 1] ||
			!rexp_value_bytes(shape->fill->values[i], slot->tts_values[attno - 1],
							  scratch, &bytes, &len, &ignored))
			continue;
		for (size_t j = 0; j < len; j++)
			shape->parts[i].seen[class_of((unsigned char) bytes[j])] = true;
		shape->any_row = true;
	}
}

/* Is it known what all columns hold, so that not anything fits? */
bool
rexp_key_shape_is_known(const RexpKeyShape *shape)
{
	for (int i = 0; i < shape->fill->template->npieces; i++)
	{
		if (shape->fill->template->pieces[i].attno > 0 && !shape->parts[i].known &&
			!shape->any_row)
			return false;
	}
	return true;
}

/* Does this fit from that piece of the template on? */
static bool
fits_from(const RexpKeyShape *shape, int i, const char *at, const char *end)
{
	const RexpPiece *piece;

	if (i == shape->fill->template->npieces)
		return at == end;
	piece = &shape->fill->template->pieces[i];
	if (piece->attno == 0)
		return (size_t) (end - at) >= piece->len &&
			memcmp(at, piece->text, piece->len) == 0 &&
			fits_from(shape, i + 1, at + piece->len, end);

	/* the shortest first: an empty value is one, too */
	for (;; at++)
	{
		if (fits_from(shape, i + 1, at, end))
			return true;
		if (at == end || ((shape->any_row || shape->parts[i].known) &&
						  !shape->parts[i].seen[class_of((unsigned char) *at)]))
			return false;
	}
}

/* Could this key have been made with the template, of values like those learnt? */
bool
rexp_key_shape_fits(const RexpKeyShape *shape, const char *key, size_t len)
{
	return fits_from(shape, 0, key, key + len);
}
