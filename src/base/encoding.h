/*-------------------------------------------------------------------------
 *
 * encoding.h
 *	  Text in the encoding of the database as UTF-8.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ENCODING_H
#define REDIS_EXPORT_ENCODING_H

#include "base/error.h"

/* From the database's encoding to UTF-8. */
typedef struct RexpConverter
{
	int			encoding;
	Oid			proc;
} RexpConverter;

extern char *rexp_literal_utf8(const char *text, size_t len);
extern void rexp_converter_init(RexpConverter *converter);
extern bool rexp_to_utf8(const RexpConverter *converter, bool strict,
						 const char **bytes, size_t *len, const char *what,
						 RexpError *error);

#endif							/* REDIS_EXPORT_ENCODING_H */
