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

#include "base/error.h"

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

/*
 * An error as it lies in shared memory, where sessions of databases of any encoding
 * read it, and back.
 */
void
rexp_error_to_utf8(const RexpError *error, RexpError *utf8)
{
	utf8->sqlstate = error->sqlstate;
	rexp_text_to_utf8(utf8->message, sizeof(utf8->message), error->message);
	rexp_text_to_utf8(utf8->detail, sizeof(utf8->detail), error->detail);
	rexp_text_to_utf8(utf8->hint, sizeof(utf8->hint), error->hint);
}

void
rexp_error_from_utf8(const RexpError *utf8, RexpError *error)
{
	error->sqlstate = utf8->sqlstate;
	if (error->sqlstate == 0)
	{
		error->message[0] = error->detail[0] = error->hint[0] = '\0';
		return;
	}
	rexp_text_from_utf8(error->message, sizeof(error->message), utf8->message);
	rexp_text_from_utf8(error->detail, sizeof(error->detail), utf8->detail);
	rexp_text_from_utf8(error->hint, sizeof(error->hint), utf8->hint);
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
