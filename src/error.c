/*-------------------------------------------------------------------------
 *
 * error.c
 *	  An error as data.
 *
 * Texts are cut to the size of their field at a character's end.  Nothing here
 * raises an error but rexp_error_raise().  It knows neither Redis nor exports.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "error.h"
#include "mb/pg_wchar.h"

/*
 * rexp_clip
 *	  Copy len bytes of text in the database's encoding, cut where a character
 *	  ends so that dest, of size bytes, can hold them and a zero.
 */
void
rexp_clip(char *dest, size_t size, const char *text, size_t len)
{
	if (len >= size)
		len = pg_mbcliplen(text, (int) Min(len, (size_t) PG_INT32_MAX),
						   (int) size - 1);
	memcpy(dest, text, len);
	dest[len] = '\0';
}

/*
 * rexp_printable
 *	  Copy bytes that may be anything (a key, a reply) as text that can be
 *	  shown: control characters, the backslash, and bytes that are no UTF-8, or
 *	  any beyond ASCII in a database of another encoding, become \x and two
 *	  digits.  A text that was cut ends in "...".
 */
void
rexp_printable(char *dest, size_t size, const char *bytes, size_t len)
{
	size_t		in = 0;
	size_t		out = 0;
	size_t		room = size - 4;

	while (in < len)
	{
		unsigned char c = (unsigned char) bytes[in];
		int			width = 1;
		bool		plain = c >= ' ' && c < 0x7f && c != '\\';

		if (IS_HIGHBIT_SET(c) && GetDatabaseEncoding() == PG_UTF8)
		{
			/* pg_encoding_mblen() looks no further than the first byte */
			width = pg_encoding_mblen(PG_UTF8, bytes + in);
			if (in + width <= len &&
				pg_verify_mbstr(PG_UTF8, bytes + in, width, true))
				plain = true;
			else
				width = 1;
		}
		if (out + (plain ? width : 4) > room)
		{
			strcpy(dest + out, "...");
			return;
		}
		if (plain)
		{
			memcpy(dest + out, bytes + in, width);
			out += width;
		}
		else
			out += sprintf(dest + out, "\\x%02x", c);
		in += width;
	}
	dest[out] = '\0';
}

static void format_into(char *dest, size_t size, const char *format,
						va_list args) pg_attribute_printf(3, 0);

static void
format_into(char *dest, size_t size, const char *format, va_list args)
{
	char		buffer[2048];
	int			len;

	len = vsnprintf(buffer, sizeof(buffer), format, args);
	if (len < 0)
		len = 0;
	rexp_clip(dest, size, buffer, Min((size_t) len, sizeof(buffer) - 1));
}

/* Set the primary message, and forget what the error held before. */
void
rexp_error_set(RexpError *error, int sqlstate, const char *format,...)
{
	va_list		args;

	error->sqlstate = sqlstate;
	error->detail[0] = error->hint[0] = '\0';
	va_start(args, format);
	format_into(error->message, sizeof(error->message), format, args);
	va_end(args);
}

void
rexp_error_detail(RexpError *error, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	format_into(error->detail, sizeof(error->detail), format, args);
	va_end(args);
}

void
rexp_error_hint(RexpError *error, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	format_into(error->hint, sizeof(error->hint), format, args);
	va_end(args);
}

/* Put words before the message that is there already. */
void
rexp_error_prefix(RexpError *error, const char *format,...)
{
	char		rest[REXP_MESSAGE_SIZE];
	char		buffer[REXP_MESSAGE_SIZE * 2];
	va_list		args;
	size_t		len;

	strlcpy(rest, error->message, sizeof(rest));
	va_start(args, format);
	format_into(buffer, REXP_MESSAGE_SIZE, format, args);
	va_end(args);
	len = strlen(buffer);
	strlcpy(buffer + len, rest, sizeof(buffer) - len);
	rexp_clip(error->message, sizeof(error->message), buffer, strlen(buffer));
}

/* Take over what ereport() was given. */
void
rexp_error_from_edata(RexpError *error, const ErrorData *edata)
{
	const char *message = edata->message ? edata->message : "unknown error";

	error->sqlstate = edata->sqlerrcode;
	error->detail[0] = error->hint[0] = '\0';
	rexp_clip(error->message, sizeof(error->message), message, strlen(message));
	if (edata->detail)
		rexp_clip(error->detail, sizeof(error->detail), edata->detail,
				  strlen(edata->detail));
	if (edata->hint)
		rexp_clip(error->hint, sizeof(error->hint), edata->hint,
				  strlen(edata->hint));
}

/* Raise it as this backend's error. */
void
rexp_error_raise(const RexpError *error)
{
	ereport(ERROR,
			(errcode(error->sqlstate),
			 errmsg("%s", error->message),
			 error->detail[0] ? errdetail("%s", error->detail) : 0,
			 error->hint[0] ? errhint("%s", error->hint) : 0));
	pg_unreachable();
}
