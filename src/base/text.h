/*-------------------------------------------------------------------------
 *
 * text.h
 *	  Text between UTF-8, which Redis and shared memory hold, and the encoding
 *	  of the database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_TEXT_H
#define REDIS_EXPORT_TEXT_H

#include "postgres.h"

#include "lib/stringinfo.h"

extern void rexp_text_prepare(void);

extern void rexp_clip(char *dest, size_t size, const char *text, size_t len);
extern void rexp_printable(char *dest, size_t size, const char *bytes, size_t len);
extern void rexp_append_quoted(StringInfo out, const char *bytes, size_t len);

extern char *rexp_text_exact(const char *bytes, size_t len);
extern char *rexp_text_shown(const char *utf8);
extern void rexp_text_from_utf8(char *dest, size_t size, const char *utf8);
extern void rexp_text_to_utf8(char *dest, size_t size, const char *text);
extern void rexp_key_to_utf8(char *dest, size_t size, const char *text);

#endif							/* REDIS_EXPORT_TEXT_H */
