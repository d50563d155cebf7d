/*-------------------------------------------------------------------------
 *
 * encoding.c
 *	  Text in the encoding of the database as UTF-8, which is what Redis is sent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/encoding.h"
#include "catalog/namespace.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

/*
 * rexp_converter_init
 *	  Prepare to convert from the encoding of the database.  Needs a transaction.
 *
 * Raises an error if PostgreSQL has no conversion from it to UTF-8.
 */
void
rexp_converter_init(RexpConverter *converter)
{
	converter->encoding = GetDatabaseEncoding();
	converter->proc = InvalidOid;
	if (converter->encoding != PG_UTF8 && converter->encoding != PG_SQL_ASCII)
	{
		converter->proc = FindDefaultConversionProc(converter->encoding, PG_UTF8);
		if (!OidIsValid(converter->proc))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("there is no conversion from encoding \"%s\" to \"%s\"",
							pg_encoding_to_char(converter->encoding), "UTF8")));
	}
}

/*
 * rexp_literal_utf8
 *	  Text of the caller's, in the database's encoding, as UTF-8: palloc'd, and with
 *	  a zero behind it.  In an SQL_ASCII database it is what it is.  Raises an error
 *	  if it cannot be converted.
 */
char *
rexp_literal_utf8(const char *text, size_t len)
{
	char	   *copy = pnstrdup(text, len);

	return GetDatabaseEncoding() == PG_SQL_ASCII ? copy :
		pg_server_to_any(copy, (int) len, PG_UTF8);
}

/*
 * rexp_to_utf8
 *	  Bytes in the database's encoding as UTF-8, palloc'd if they differ.
 *
 * Bytes of an SQL_ASCII database are what they are: checked if "strict", as
 * JSON must be UTF-8, and passed on as they are otherwise.
 */
bool
rexp_to_utf8(const RexpConverter *converter, bool strict, const char **bytes,
			 size_t *len, const char *what, RexpError *error)
{
	bool		good;

	if (converter->encoding == PG_UTF8)
		return true;
	if (converter->encoding == PG_SQL_ASCII)
		good = !strict || pg_verify_mbstr(PG_UTF8, *bytes, (int) *len, true);
	else
	{
		size_t		room = *len * MAX_CONVERSION_GROWTH + 1;
		unsigned char *dest;
		int			done;

		if (room > PG_INT32_MAX)
		{
			rexp_error_set(error, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						   "the value is too long to be converted to UTF-8");
			return false;
		}
		dest = MemoryContextAllocHuge(CurrentMemoryContext, room);
		done = pg_do_encoding_conversion_buf(converter->proc,
											 converter->encoding, PG_UTF8,
											 (unsigned char *) unconstify(char *, *bytes),
											 (int) *len, dest, (int) room, true);
		good = done == (int) *len;
		*bytes = (const char *) dest;
		*len = strlen((const char *) dest);
	}
	if (!good)
		rexp_error_set(error, ERRCODE_UNTRANSLATABLE_CHARACTER,
					   "%s holds bytes that cannot be converted to UTF-8", what);
	return good;
}
