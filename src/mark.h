/*-------------------------------------------------------------------------
 *
 * mark.h
 *	  The marks in Redis: how far exports with a watermark got.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_MARK_H
#define REDIS_EXPORT_MARK_H

#include "fmgr.h"
#include "pipeline.h"

/* The fields of a mark, in this order. */
typedef enum RexpMarkField
{
	REXP_MARK_VALUE,
	REXP_MARK_TYPE,				/* of the column */
	REXP_MARK_COLUMN,
	REXP_MARK_KEY_TEMPLATE,		/* or command */
	REXP_MARK_ROWS,				/* written by the run that moved it */
	REXP_MARK_ROLE,
	REXP_MARK_DATABASE,
	REXP_MARK_MOVED_AT,
	REXP_MARK_FIELDS
} RexpMarkField;

/* As in Redis, in UTF-8; NULL: not there. */
typedef struct RexpMark
{
	const char *fields[REXP_MARK_FIELDS];
	const char *begun;			/* the note of a first run, see rexp_mark_note() */
} RexpMark;

extern char *rexp_mark_key(const char *name);
extern char *rexp_mark_type_name(Oid type);
extern char *rexp_mark_text(const char *field);
extern Datum rexp_mark_value(Oid type, const char *value);
extern char *rexp_mark_output(Oid type, Datum value);
extern bool rexp_mark_read(RexpPipeline *pipeline, const char *key, RexpMark *mark);
extern const char *rexp_mark_note(RexpPipeline *pipeline, const char *key);
extern bool rexp_mark_write(RexpPipeline *pipeline, const char *key,
							const RexpMark *mark);

extern void rexp_marks(const char *server, FunctionCallInfo fcinfo);
extern bool rexp_mark_reset(const char *server, const char *name, const char *value);

#endif							/* REDIS_EXPORT_MARK_H */
