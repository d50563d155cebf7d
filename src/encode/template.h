/*-------------------------------------------------------------------------
 *
 * template.h
 *	  Texts with #{column} in them: parsed once, filled once a row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_TEMPLATE_H
#define REDIS_EXPORT_TEMPLATE_H

#include "access/tupdesc.h"

/* Either literal bytes, or the value of a column. */
typedef struct RexpPiece
{
	int			attno;			/* column from 1, or 0 for a literal */
	char	   *text;			/* the literal, in UTF-8 */
	size_t		len;
} RexpPiece;

typedef struct RexpTemplate
{
	int			npieces;
	RexpPiece  *pieces;
} RexpTemplate;

extern RexpTemplate *rexp_template_parse(const char *source, const char *what,
										 TupleDesc desc);
extern char *rexp_template_skeleton(const char *source);
extern int	rexp_find_column(TupleDesc desc, const char *name);
extern int	rexp_need_column(TupleDesc desc, const char *name, const char *what);
extern char *rexp_column_list(TupleDesc desc);

#endif							/* REDIS_EXPORT_TEMPLATE_H */
