/*-------------------------------------------------------------------------
 *
 * json_check.c
 *	  A quick look whether a text is one JSON value (RFC 8259), in one pass.
 *
 * PostgreSQL's parser is the judge of that, and the only one whose "no" counts.
 * It looks at each byte by itself, though, which takes more time than all else that
 * is done with a document; most of these bytes are the insides of strings, which
 * are looked at eight at a time here.  So a "yes" of this one must be right, and
 * spares the parser, and a "no" only means to ask it.
 *
 * The text is in an encoding that a server can have, where bytes below 128 are
 * always characters of their own.  Nothing here knows rows or Redis.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode/json_check.h"

/* The same byte eight times. */
#define EIGHT(byte) (UINT64CONST(0x0101010101010101) * (byte))

/*
 * Is one of eight bytes less than n, which is at most 128?  It may say yes of a byte
 * above such a one, too; see "Bit Twiddling Hacks" (S. Anderson), "hasless".
 */
#define HAS_LESS(word, n) (((word) - EIGHT(n)) & ~(word) & EIGHT(0x80))
#define HAS_BYTE(word, byte) HAS_LESS((word) ^ EIGHT(byte), 1)

/* Past the white space there. */
static inline const char *
skip_space(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
		at++;
	return at;
}

static inline bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Past the digits there, of which there must be one; or NULL. */
static inline const char *
skip_digits(const char *at, const char *end)
{
	if (at == end || !is_digit(*at))
		return NULL;
	while (at < end && is_digit(*at))
		at++;
	return at;
}

/* Past what follows a backslash; or NULL. */
static const char *
skip_escape(const char *at, const char *end)
{
	if (at == end)
		return NULL;
	if (*at != 'u')
		return strchr("\"\\/bfnrt", *at) != NULL && *at != '\0' ? at + 1 : NULL;
	if (end - at < 5)
		return NULL;
	for (int i = 1; i <= 4; i++)
	{
		char		c = at[i];

		if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
			return NULL;
	}
	return at + 5;
}

/* Past the end of a string of which the first quote is behind us; or NULL. */
static const char *
skip_string(const char *at, const char *end)
{
	for (;;)
	{
		while (end - at >= 8)
		{
			uint64		word;

			memcpy(&word, at, 8);
			if (HAS_LESS(word, 0x20) | HAS_BYTE(word, '"') | HAS_BYTE(word, '\\'))
				break;
			at += 8;
		}

		/* it is one of the next eight, if there are so many */
		while (at < end && *at != '"' && *at != '\\' && (unsigned char) *at >= 0x20)
			at++;
		if (at == end || (unsigned char) *at < 0x20)
			return NULL;
		if (*at++ == '"')
			return at;
		at = skip_escape(at, end);
		if (at == NULL)
			return NULL;
	}
}

/* Past a number; or NULL. */
static const char *
skip_number(const char *at, const char *end)
{
	if (at < end && *at == '-')
		at++;
	if (at < end && *at == '0')
		at++;
	else if ((at = skip_digits(at, end)) == NULL)
		return NULL;
	if (at < end && *at == '.' && (at = skip_digits(at + 1, end)) == NULL)
		return NULL;
	if (at < end && (*at == 'e' || *at == 'E'))
	{
		at++;
		if (at < end && (*at == '+' || *at == '-'))
			at++;
		at = skip_digits(at, end);
	}
	return at;
}

/* Past a word; or NULL if it is another. */
static const char *
skip_word(const char *at, const char *end, const char *word, int len)
{
	return end - at >= len && memcmp(at, word, len) == 0 ? at + len : NULL;
}

/* Past a value that holds no others; or NULL. */
static const char *
skip_scalar(const char *at, const char *end)
{
	switch (*at)
	{
		case '"':
			return skip_string(at + 1, end);
		case 't':
			return skip_word(at, end, "true", 4);
		case 'f':
			return skip_word(at, end, "false", 5);
		case 'n':
			return skip_word(at, end, "null", 4);
		default:
			return skip_number(at, end);
	}
}

/* Past the name of a member and the colon; or NULL. */
static const char *
skip_name(const char *at, const char *end)
{
	at = skip_space(at, end);
	if (at == end || *at != '"')
		return NULL;
	at = skip_string(at + 1, end);
	if (at == NULL)
		return NULL;
	at = skip_space(at, end);
	return at < end && *at == ':' ? at + 1 : NULL;
}

/* The deepest that can be asked for. */
#define MOST_LEVELS 1024

/*
 * rexp_json_is_valid
 *	  Is this one JSON value and nothing else, of so many levels at most?
 *
 * If not, or if there is any doubt, the answer is false.
 */
bool
rexp_json_is_valid(const char *json, size_t len, int most_levels)
{
	const char *at = json;
	const char *end = json + len;
	char		closers[MOST_LEVELS];	/* of the levels that are open */
	int			depth = 0;

	Assert(most_levels <= MOST_LEVELS);
	for (;;)
	{
		/* a value begins */
		at = skip_space(at, end);
		if (at == end)
			return false;
		if (*at == '{' || *at == '[')
		{
			char		closer = *at == '{' ? '}' : ']';

			if (depth == most_levels)
				return false;
			at = skip_space(at + 1, end);
			if (at < end && *at == closer)
				at++;
			else
			{
				closers[depth++] = closer;
				if (closer == '}' && (at = skip_name(at, end)) == NULL)
					return false;
				continue;
			}
		}
		else if ((at = skip_scalar(at, end)) == NULL)
			return false;

		/* a value has ended, and with it may have those that it is the last of */
		for (;;)
		{
			at = skip_space(at, end);
			if (depth == 0)
				return at == end;
			if (at == end)
				return false;
			if (*at == ',')
				break;
			if (*at != closers[depth - 1])
				return false;
			at++;
			depth--;
		}
		at++;
		if (closers[depth - 1] == '}' && (at = skip_name(at, end)) == NULL)
			return false;
	}
}
