/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  Values in sixteen bytes each, to be compared.
 *
 * Documents are compared by what they mean, as RedisJSON keeps it: members have no
 * order, the last of one name counts, and numbers are 64-bit integers or doubles.
 * Of doubles, fourteen digits are looked at: RedisJSON can be off by the last bit.
 *
 * Nothing here knows where the values are from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/hashfn.h"
#include "digest.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "reply.h"
#include "utils/fmgrprotos.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

/* Up to here each integer is a double of its own. */
#define EXACT_INTEGERS 9007199254740992.0

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

/* A number as RedisJSON keeps it: an integer if it is written as one and fits. */
static void
append_number(StringInfo out, Numeric number)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(numeric_out,
														   NumericGetDatum(number)));
	double		value;

	if (strchr(text, '.') == NULL && strlen(text) < 19)
	{
		appendStringInfo(out, "i%s", text);
		return;
	}
	value = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
											   NumericGetDatum(number)));
	if (strchr(text, '.') == NULL && (value >= 9.2e18 || value <= -9.2e18))
		appendStringInfo(out, "d%.14g", value);
	else if (strchr(text, '.') == NULL)
		appendStringInfo(out, "i%s", text);
	else if (value == rint(value) && fabs(value) < EXACT_INTEGERS)
		appendStringInfo(out, "i%.0f", value == 0 ? 0.0 : value);
	else
		appendStringInfo(out, "d%.14g", value);
}

static void
append_scalar(StringInfo out, const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			appendStringInfo(out, "s%d:", value->val.string.len);
			appendBinaryStringInfo(out, value->val.string.val, value->val.string.len);
			break;
		case jbvNumeric:
			append_number(out, value->val.numeric);
			break;
		case jbvBool:
			appendStringInfoChar(out, value->val.boolean ? 't' : 'f');
			break;
		default:
			appendStringInfoChar(out, 'n');
			break;
	}
	appendStringInfoChar(out, ' ');
}

/* A document, unambiguously, with the members of each object in one order. */
static void
append_document(StringInfo out, Jsonb *document)
{
	JsonbIterator *iterator = JsonbIteratorInit(&document->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		switch (token)
		{
			case WJB_KEY:
			case WJB_VALUE:
			case WJB_ELEM:
				append_scalar(out, &value);
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

/* The number after \u, or -1. */
static int
escaped_unit(const char *at)
{
	unsigned int unit;

	return at[0] == '\\' && at[1] == 'u' && sscanf(at + 2, "%4x", &unit) == 1 ? (int) unit : -1;
}

/*
 * make_acceptable
 *	  Put characters that nobody uses in place of what jsonb does not take: of \u0000,
 *	  and of half of a pair of surrogates.  False if it takes this not even then: in
 *	  databases of other encodings than UTF8, escapes of what these may lack.
 */
static bool
make_acceptable(char *json)
{
	for (char *at = json; (at = strchr(at, '\\')) != NULL && at[1] != '\0'; at += 2)
	{
		int			unit = escaped_unit(at);

		if (unit >= 0x80 && GetDatabaseEncoding() != PG_UTF8)
			return false;
		if (unit >= 0xd800 && unit <= 0xdbff)
		{
			int			second = escaped_unit(at + 6);

			if (second >= 0xdc00 && second <= 0xdfff)
			{
				at += 6;
				continue;
			}
		}
		if (unit == 0 || (unit >= 0xd800 && unit <= 0xdfff))
			memcpy(at + 2, unit == 0 ? "ffff" : "fffe", 4);
	}
	return true;
}

/*
 * rexp_digest_json
 *	  The digest of a document, which is JSON in UTF-8.
 *
 * What cannot be converted to the database's encoding is compared as it is written.
 * Memory is taken from the current context.
 */
RexpDigest
rexp_digest_json(const char *json, size_t len)
{
	StringInfoData canonical;
	char	   *text = rexp_reply_text(json, len);

	if (text == NULL || !make_acceptable(text))
		return rexp_digest_bytes(json, len);
	initStringInfo(&canonical);
	append_document(&canonical,
					DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text))));
	return rexp_digest_bytes(canonical.data, canonical.len);
}
