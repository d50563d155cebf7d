/*-------------------------------------------------------------------------
 *
 * error.h
 *	  An error as data: filled in where nothing may be raised (a reply of
 *	  Redis, one row of many, a worker that ends), raised or shown later.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ERROR_H
#define REDIS_EXPORT_ERROR_H

#include "postgres.h"

#include "base/text.h"

/* Sizes in bytes, with the terminating zero. */
#define REXP_MESSAGE_SIZE	512
#define REXP_DETAIL_SIZE	512
#define REXP_HINT_SIZE		256

/* A plain struct, so that it can lie in shared memory; sqlstate 0 is no error. */
typedef struct RexpError
{
	int			sqlstate;
	char		message[REXP_MESSAGE_SIZE];
	char		detail[REXP_DETAIL_SIZE];
	char		hint[REXP_HINT_SIZE];
} RexpError;

extern void rexp_error_set(RexpError *error, int sqlstate, const char *format,...) pg_attribute_printf(3, 4);
extern void rexp_error_detail(RexpError *error, const char *format,...) pg_attribute_printf(2, 3);
extern void rexp_error_hint(RexpError *error, const char *format,...) pg_attribute_printf(2, 3);
extern void rexp_error_prefix(RexpError *error, const char *format,...) pg_attribute_printf(2, 3);
extern void rexp_error_from_edata(RexpError *error, const ErrorData *edata);
extern void rexp_error_to_utf8(const RexpError *error, RexpError *utf8);
extern void rexp_error_from_utf8(const RexpError *utf8, RexpError *error);
extern void rexp_error_raise(const RexpError *error);

#endif							/* REDIS_EXPORT_ERROR_H */
