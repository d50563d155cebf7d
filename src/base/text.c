/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text between UTF-8, which Redis and shared memory hold, and the encoding
 *	  of the database.
 *
 * Whatever is shown to somebody passes here.  What one of the two encodings lacks,
 * or is no text at all, is shown as \x and two digits for each byte.  In an
 * SQL_ASCII database, which has no encoding, text is UTF-8, too.
 *
 * Nothing here raises an error for a text, and nothing needs a transaction once
 * PostgreSQL's conversion functions are known: a worker shows texts at its end,
 * when it has none.  Without the functions all beyond ASCII is escaped.
 *
 * It knows neither Redis nor exports.  The values of rows are not shown but sent,
 * in UTF-8 or not at all: see value.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/text.h"
#include "catalog/namespace.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

typedef enum Way
{
	FROM_UTF8,					/* to the database's encoding */
	TO_UTF8						/* from it */
} Way;

/* What else is escaped than bytes that cannot be converted. */
typedef enum Escapes
{
	ESCAPE_NOTHING,
	ESCAPE_SHOWN,				/* control characters and the backslash */
	ESCAPE_QUOTED				/* as redis-cli reads it in double quotes */
} Escapes;

/* A way's function of PostgreSQL; its OID is 0 if there is none. */
typedef struct Conversion
{
	bool		known;
	FmgrInfo	function;
} Conversion;

static Conversion conversions[2];

/* So many bytes at most are converted at once into a piece of text. */
#define RUN_SIZE 128
#define PIECE_SIZE (RUN_SIZE * MAX_CONVERSION_GROWTH + 1)

/* Is text of the database UTF-8 as it is? */
static bool
is_utf8_here(void)
{
	return GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII;
}

/* Learn the function of a way, if it can be learnt now. */
static Conversion *
find_conversion(Way way)
{
	Conversion *conversion = &conversions[way];

	if (!conversion->known && IsTransactionState())
	{
		int			ours = GetDatabaseEncoding();
		Oid			proc = way == FROM_UTF8 ? FindDefaultConversionProc(PG_UTF8, ours) :
			FindDefaultConversionProc(ours, PG_UTF8);

		if (OidIsValid(proc))
			fmgr_info_cxt(proc, &conversion->function, TopMemoryContext);
		conversion->known = true;
	}
	return conversion;
}

/*
 * rexp_text_prepare
 *	  Learn what later conversions need, in a transaction.  Only a process that may
 *	  show its first text outside of one has to.
 */
void
rexp_text_prepare(void)
{
	if (is_utf8_here())
		return;
	(void) find_conversion(FROM_UTF8);
	(void) find_conversion(TO_UTF8);
}

/*
 * Convert as many bytes as can be, from the first one on, and return their number.
 * dest needs room for MAX_CONVERSION_GROWTH times len bytes and a zero.
 */
static size_t
convert(Way way, const char *bytes, size_t len, char *dest)
{
	Conversion *conversion;
	size_t		taken = 0;

	if (is_utf8_here())
		taken = pg_encoding_verifymbstr(PG_UTF8, bytes, (int) len);
	else
	{
		conversion = find_conversion(way);
		if (OidIsValid(conversion->function.fn_oid))
		{
			int			ours = GetDatabaseEncoding();

			/* the last argument: no error, but tell how far it went */
			dest[0] = '\0';
			return DatumGetInt32(FunctionCall6(&conversion->function,
											   Int32GetDatum(way == FROM_UTF8 ? PG_UTF8 : ours),
											   Int32GetDatum(way == FROM_UTF8 ? ours : PG_UTF8),
											   CStringGetDatum(bytes),
											   CStringGetDatum(dest),
											   Int32GetDatum((int) len),
											   BoolGetDatum(true)));
		}
		while (taken < len && bytes[taken] != '\0' && !IS_HIGHBIT_SET(bytes[taken]))
			taken++;
	}
	memcpy(dest, bytes, taken);
	dest[taken] = '\0';
	return taken;
}

static bool
needs_escape(Escapes escapes, unsigned char c)
{
	switch (escapes)
	{
		case ESCAPE_NOTHING:
			return c == '\0';
		case ESCAPE_SHOWN:
			return c < ' ' || c == 0x7f || c == '\\';
		case ESCAPE_QUOTED:
			return c < ' ' || c == 0x7f || c == '\\' || c == '"';
	}
	return false;
}

/*
 * Escape the first character of bytes, or their first byte if they begin with none.
 * Returns how many bytes these are.
 */
static size_t
escape(Way way, Escapes escapes, const char *bytes, size_t len, char *dest)
{
	static const char names[] = "\"\"\\\\\nn\rr\tt";
	int			width;

	if (escapes == ESCAPE_QUOTED)
	{
		for (const char *name = names; *name != '\0'; name += 2)
		{
			if (*bytes == *name)
			{
				sprintf(dest, "\\%c", name[1]);
				return 1;
			}
		}
	}
	width = pg_encoding_verifymbchar(way == FROM_UTF8 || is_utf8_here() ? PG_UTF8 :
									 GetDatabaseEncoding(),
									 bytes, (int) Min(len, (size_t) MAX_CONVERSION_GROWTH));
	width = Max(width, 1);
	for (int i = 0; i < width; i++)
		dest += sprintf(dest, "\\x%02x", (unsigned char) bytes[i]);
	return width;
}

/*
 * Take a piece of text off bytes: some that can be converted, or one escape, which
 * must not be cut.  dest has room for PIECE_SIZE bytes.
 */
static size_t
take_piece(Way way, Escapes escapes, const char **bytes, const char *end,
		   char *dest, bool *is_escape)
{
	size_t		run = 0;
	size_t		taken = 0;

	while (run < RUN_SIZE && *bytes + run < end && !needs_escape(escapes, (*bytes)[run]))
		run++;
	if (run > 0)
		taken = convert(way, *bytes, run, dest);
	*is_escape = taken == 0;
	if (*is_escape)
		taken = escape(way, escapes, *bytes, end - *bytes, dest);
	*bytes += taken;
	return strlen(dest);
}

/* Fill dest; a text that is too long for it ends in "more". */
static void
put_text(char *dest, size_t size, Way way, Escapes escapes, const char *bytes,
		 size_t len, const char *more)
{
	const char *end = bytes + len;
	int			encoding = way == TO_UTF8 || is_utf8_here() ? PG_UTF8 :
		GetDatabaseEncoding();
	size_t		room = size - 1 - strlen(more);
	size_t		out = 0;
	size_t		cut = 0;		/* what stays if there is more */

	while (bytes < end)
	{
		char		piece[PIECE_SIZE];
		bool		is_escape;
		size_t		piece_len = take_piece(way, escapes, &bytes, end, piece, &is_escape);
		bool		fits = out + piece_len < size;

		if (out + piece_len <= room)
			cut = out + piece_len;
		else if (out <= room && !is_escape)
			cut = out + pg_encoding_mbcliplen(encoding, piece, (int) piece_len,
											  (int) (room - out));
		memcpy(dest + out, piece, fits ? piece_len : cut > out ? cut - out : 0);
		if (!fits)
		{
			strcpy(dest + cut, more);
			return;
		}
		out += piece_len;
	}
	dest[out] = '\0';
}

static void
append_text(StringInfo out, Way way, Escapes escapes, const char *bytes, size_t len)
{
	const char *end = bytes + len;

	while (bytes < end)
	{
		char		piece[PIECE_SIZE];
		bool		is_escape;
		size_t		size = take_piece(way, escapes, &bytes, end, piece, &is_escape);

		appendBinaryStringInfo(out, piece, (int) size);
	}
}

/*
 * rexp_clip
 *	  Copy len bytes of text in the database's encoding, cut where a character
 *	  ends so that dest, of size bytes, can hold them and a zero.
 */
void
rexp_clip(char *dest, size_t size, const char *text, size_t len)
{
	if (len >= size)
		len = pg_encoding_mbcliplen(is_utf8_here() ? PG_UTF8 : GetDatabaseEncoding(),
									text, (int) Min(len, (size_t) PG_INT32_MAX),
									(int) size - 1);
	memcpy(dest, text, len);
	dest[len] = '\0';
}

/*
 * rexp_printable
 *	  Copy bytes that may be anything (a key, a reply) as text that can be
 *	  shown: control characters and the backslash are escaped, too.  A text that
 *	  was cut ends in "...".
 */
void
rexp_printable(char *dest, size_t size, const char *bytes, size_t len)
{
	put_text(dest, size, FROM_UTF8, ESCAPE_SHOWN, bytes, len, "...");
}

/* Append bytes that may be anything as redis-cli reads them, in double quotes. */
void
rexp_append_quoted(StringInfo out, const char *bytes, size_t len)
{
	appendStringInfoChar(out, '"');
	append_text(out, FROM_UTF8, ESCAPE_QUOTED, bytes, len);
	appendStringInfoChar(out, '"');
}

/* Bytes in UTF-8 as text of the database, palloc'd; NULL unless all of them are. */
char *
rexp_text_exact(const char *bytes, size_t len)
{
	char	   *text;

	if (is_utf8_here())
		return pg_encoding_verifymbstr(PG_UTF8, bytes, (int) len) == (int) len ?
			pnstrdup(bytes, len) : NULL;
	text = MemoryContextAllocHuge(CurrentMemoryContext,
								  len * MAX_CONVERSION_GROWTH + 1);
	return convert(FROM_UTF8, bytes, len, text) == len ? text : NULL;
}

/* Text in UTF-8 as text of the database, palloc'd, escaped where it cannot be. */
char *
rexp_text_shown(const char *utf8)
{
	StringInfoData text;

	initStringInfo(&text);
	append_text(&text, FROM_UTF8, ESCAPE_NOTHING, utf8, strlen(utf8));
	return text.data;
}

/* The same, cut to the size of dest. */
void
rexp_text_from_utf8(char *dest, size_t size, const char *utf8)
{
	put_text(dest, size, FROM_UTF8, ESCAPE_NOTHING, utf8, strlen(utf8), "");
}

/* Text of the database as UTF-8, cut to the size of dest. */
void
rexp_text_to_utf8(char *dest, size_t size, const char *text)
{
	put_text(dest, size, TO_UTF8, ESCAPE_NOTHING, text, strlen(text), "");
}

/* The same for a key: one that was cut ends in "...". */
void
rexp_key_to_utf8(char *dest, size_t size, const char *text)
{
	put_text(dest, size, TO_UTF8, ESCAPE_NOTHING, text, strlen(text), "...");
}
