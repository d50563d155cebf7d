/*-------------------------------------------------------------------------
 *
 * fill.h
 *	  A template, and what fills it: the values of a row's columns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_FILL_H
#define REDIS_EXPORT_FILL_H

#include "encode/template.h"
#include "encode/value.h"
#include "executor/tuptable.h"

/* A parsed template with a writer for each column in it. */
typedef struct RexpFill
{
	RexpTemplate *template;
	RexpValue **values;			/* one a piece, NULL for literals */
	TupleDesc	desc;			/* names of columns, which slots may lack */
	const char *what;			/* for errors: "part of the key" */
	int			null_column;	/* of the row at hand: the null that stopped
								 * it, or 0 */
} RexpFill;

extern RexpFill *rexp_fill_create(const char *source, const char *what,
								  const char *part, TupleDesc desc);
extern bool rexp_fill_is_literal(const RexpFill *fill);
extern bool rexp_fill_piece(RexpFill *fill, int number, TupleTableSlot *slot,
							char *scratch, const char **bytes, size_t *len,
							RexpError *error);
extern bool rexp_fill_append(RexpFill *fill, TupleTableSlot *slot,
							 RexpBuffer *out, RexpError *error);
extern void rexp_null_error(RexpError *error, TupleDesc desc, int attno,
							const char *part);

#endif							/* REDIS_EXPORT_FILL_H */
