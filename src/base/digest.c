/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  Values in few bytes each, to be compared.
 *
 * Documents are compared by what they mean, as RedisJSON keeps it: members have no
 * order, the last of one name counts, and a number is an integer if it is written
 * as one and fits into 64 bits, with a sign or without, and a double otherwise.
 *
 * Integers are compared exactly, and doubles are not: RedisJSON moves the last digits
 * of a double.  Whatever they are rounded to, some would be moved across an edge.
 * So a document becomes a digest of all else in it, sixteen bytes, with its doubles
 * behind, eight bytes each, and these are compared one by one.
 *
 * jsonb finds order and last members.  But it does not keep how a number is written,
 * nor does it take each string in each encoding.  So it is given another document, in
 * which a string stands for each string, integer and double: the digest, the digits,
 * or how many doubles came before.
 *
 * Nothing here knows where the values are from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/digest.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"

/*
 * Doubles that are so many places or less apart are the same.  RedisJSON 2.8 moves one
 * by two places at most when it reads it, and can do so each time that Redis is
 * loaded from disk.
 */
#define SAME_DOUBLES 16

/* What the strings of the document for jsonb begin with. */
#define MARK_STRING 's'
#define MARK_INTEGER 'i'
#define MARK_DOUBLE 'd'

/* A document on its way. */
typedef struct Reading
{
	const char *at;
	const char *end;
	StringInfoData marked;		/* the document for jsonb */
	StringInfoData token;		/* the string or number at hand */
	StringInfoData doubles;		/* all of them, as they come */
} Reading;

RexpDigest
rexp_digest_bytes(const char *bytes, size_t len)
{
	RexpDigest	digest;

	digest.halves[0] = hash_bytes_extended((const unsigned char *) bytes, (int) len, 0);
	digest.halves[1] = hash_bytes_extended((const unsigned char *) bytes, (int) len,
										   UINT64CONST(0x9e3779b97f4a7c15));
	return digest;
}

/* The digest of several things that have no order. */
void
rexp_digest_add(RexpDigest *sum, const RexpDigest *digest)
{
	sum->halves[0] += digest->halves[0];
	sum->halves[1] += digest->halves[1];
}

/*
 * Strings
 */

/* The number after \u, and go past it.  Zero if there is none. */
static pg_wchar
take_unit(Reading *reading)
{
	pg_wchar	unit = 0;

	for (int i = 0; i < 4 && reading->at < reading->end; i++)
	{
		unsigned char c = (unsigned char) *reading->at++;

		unit = unit * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return unit & 0xffff;
}

/* The character after \u, which may take a second one; half a pair is itself. */
static void
append_unicode(Reading *reading)
{
	pg_wchar	c = take_unit(reading);
	unsigned char utf8[8];

	if (is_utf16_surrogate_first(c) && reading->end - reading->at >= 6 &&
		reading->at[0] == '\\' && reading->at[1] == 'u')
	{
		const char *back = reading->at;
		pg_wchar	second;

		reading->at += 2;
		second = take_unit(reading);
		if (is_utf16_surrogate_second(second))
			c = surrogate_pair_to_codepoint(c, second);
		else
			reading->at = back;
	}
	unicode_to_utf8(c, utf8);
	appendBinaryStringInfo(&reading->token, (const char *) utf8, pg_utf_mblen(utf8));
}

/* What is escaped; the backslash has been taken. */
static void
append_escaped(Reading *reading)
{
	static const char from[] = "bfnrt";
	static const char to[] = "\b\f\n\r\t";
	char		c = reading->at < reading->end ? *reading->at++ : '\\';
	const char *found = c == '\0' ? NULL : strchr(from, c);

	if (c == 'u')
		append_unicode(reading);
	else
		appendStringInfoChar(&reading->token, found != NULL ? to[found - from] : c);
}

/* A string, the quote of which has been taken: its digest takes its place. */
static void
take_string(Reading *reading)
{
	RexpDigest	digest;

	resetStringInfo(&reading->token);
	while (reading->at < reading->end && *reading->at != '"')
	{
		const char *run = reading->at;

		while (reading->at < reading->end && *reading->at != '"' && *reading->at != '\\')
			reading->at++;
		appendBinaryStringInfo(&reading->token, run, (int) (reading->at - run));
		if (reading->at < reading->end && *reading->at == '\\')
		{
			reading->at++;
			append_escaped(reading);
		}
	}
	reading->at++;
	digest = rexp_digest_bytes(reading->token.data, reading->token.len);
	appendStringInfo(&reading->marked, "\"%c" UINT64_FORMAT "-" UINT64_FORMAT "\"",
					 MARK_STRING, digest.halves[0], digest.halves[1]);
}

/*
 * Numbers
 */

/* Is this what RedisJSON keeps as an integer? */
static bool
is_integer(const char *token)
{
	static const char least[] = "9223372036854775808";
	static const char most[] = "18446744073709551615";
	bool		negative = token[0] == '-';
	const char *limit = negative ? least : most;
	size_t		len = strlen(token + negative);

	if (strpbrk(token, ".eE") != NULL || strcmp(token, "-0") == 0)
		return false;
	return len < strlen(limit) ||
		(len == strlen(limit) && strcmp(token + negative, limit) <= 0);
}

static void
take_number(Reading *reading)
{
	const char *start = reading->at;

	while (reading->at < reading->end && *reading->at != '\0' &&
		   strchr("+-.0123456789eE", *reading->at) != NULL)
		reading->at++;
	resetStringInfo(&reading->token);
	appendBinaryStringInfo(&reading->token, start, (int) (reading->at - start));
	if (is_integer(reading->token.data))
		appendStringInfo(&reading->marked, "\"%c%s\"", MARK_INTEGER, reading->token.data);
	else
	{
		double		value = strtod(reading->token.data, NULL);

		appendStringInfo(&reading->marked, "\"%c%d\"", MARK_DOUBLE,
						 (int) (reading->doubles.len / sizeof(double)));
		appendBinaryStringInfo(&reading->doubles, (const char *) &value, sizeof(double));
	}
}

/* Where a double is among all, in order; both zeros are in one place. */
static int64
place_of(const char *bytes)
{
	int64		place;

	memcpy(&place, bytes, sizeof(place));
	return place >= 0 ? place : PG_INT64_MIN - place;
}

static bool
same_double(const char *a, const char *b)
{
	int64		x = place_of(a);
	int64		y = place_of(b);

	return (uint64) Max(x, y) - (uint64) Min(x, y) <= SAME_DOUBLES;
}

/*
 * Documents
 */

/* What jsonb shall order. */
static Jsonb *
mark_all(Reading *reading)
{
	while (reading->at < reading->end)
	{
		char		c = *reading->at;

		CHECK_FOR_INTERRUPTS();
		if (c == '-' || (c >= '0' && c <= '9'))
			take_number(reading);
		else
		{
			reading->at++;
			if (c == '"')
				take_string(reading);
			else
				appendStringInfoCharMacro(&reading->marked, c);
		}
	}
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
											  CStringGetDatum(reading->marked.data)));
}

/* A marked string, unambiguously; a double goes to the others in its order. */
static void
append_scalar(StringInfo out, const Reading *reading, const JsonbValue *value,
			  StringInfo doubles)
{
	if (value->type == jbvString && value->val.string.val[0] == MARK_DOUBLE)
	{
		int			number = 0;

		for (int i = 1; i < value->val.string.len; i++)
			number = number * 10 + (value->val.string.val[i] - '0');
		appendStringInfoChar(out, MARK_DOUBLE);
		appendBinaryStringInfo(doubles, reading->doubles.data + number * sizeof(double),
							   sizeof(double));
	}
	else if (value->type == jbvString)
		appendBinaryStringInfo(out, value->val.string.val, value->val.string.len);
	else
		appendStringInfoChar(out, value->type == jbvNull ? 'n' : value->val.boolean ? 't' : 'f');
	appendStringInfoChar(out, ' ');
}

/* A document, unambiguously, with the members of each object in one order. */
static void
append_document(StringInfo out, const Reading *reading, Jsonb *document,
				StringInfo doubles)
{
	JsonbIterator *iterator = JsonbIteratorInit(&document->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		switch (token)
		{
			case WJB_KEY:
			case WJB_VALUE:
			case WJB_ELEM:
				append_scalar(out, reading, &value, doubles);
				break;
			case WJB_BEGIN_ARRAY:
				appendStringInfoChar(out, value.val.array.rawScalar ? '=' : '[');
				break;
			case WJB_END_ARRAY:
				appendStringInfoChar(out, ']');
				break;
			case WJB_BEGIN_OBJECT:
				appendStringInfoChar(out, '{');
				break;
			default:
				appendStringInfoChar(out, '}');
				break;
		}
	}
}

/*
 * rexp_digest_json
 *	  What tells a document, which is JSON in UTF-8, from others that are not the same:
 *	  to be compared with rexp_digest_json_equal().
 *
 * It is palloc'd, and all else that it takes is in the current context, too.
 */
bytea *
rexp_digest_json(const char *json, size_t len)
{
	Reading		reading = {.at = json,.end = json + len};
	StringInfoData canonical;
	StringInfoData result;
	RexpDigest	digest;

	initStringInfo(&reading.marked);
	initStringInfo(&reading.token);
	initStringInfo(&reading.doubles);
	initStringInfo(&canonical);
	initStringInfo(&result);
	appendStringInfoSpaces(&result, VARHDRSZ + sizeof(digest));
	append_document(&canonical, &reading, mark_all(&reading), &result);
	digest = rexp_digest_bytes(canonical.data, canonical.len);
	memcpy(result.data + VARHDRSZ, &digest, sizeof(digest));
	SET_VARSIZE(result.data, result.len);
	return (bytea *) result.data;
}

/* Do these stand for the same document? */
bool
rexp_digest_json_equal(const bytea *a, const bytea *b)
{
	size_t		size = VARSIZE_ANY_EXHDR(a);
	const char *left = VARDATA_ANY(a);
	const char *right = VARDATA_ANY(b);

	if (size != VARSIZE_ANY_EXHDR(b) || memcmp(left, right, sizeof(RexpDigest)) != 0)
		return false;
	for (size_t at = sizeof(RexpDigest); at < size; at += sizeof(double))
	{
		if (!same_double(left + at, right + at))
			return false;
	}
	return true;
}
