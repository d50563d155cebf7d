/*-------------------------------------------------------------------------
 *
 * document_column.h
 *	  A document that is one column's value, as it is stored and as it is written.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_DOCUMENT_COLUMN_H
#define REDIS_EXPORT_DOCUMENT_COLUMN_H

#include "base/error.h"
#include "lib/stringinfo.h"

typedef enum RexpColumnForm
{
	REXP_COLUMN_TEXT,			/* must be checked */
	REXP_COLUMN_JSON,
	REXP_COLUMN_JSONB
} RexpColumnForm;

/* It may be copied, and holds no pointers. */
typedef struct RexpDocumentColumn
{
	RexpColumnForm form;
	bool		container_only; /* scalars are refused */
	char		name[NAMEDATALEN];
} RexpDocumentColumn;

extern const struct varlena *rexp_column_stored(Datum value);
extern uint64 rexp_column_digest(const struct varlena *stored, uint64 seed);
extern size_t rexp_column_size(const RexpDocumentColumn *column,
							   const struct varlena *stored);
extern bool rexp_column_document(const RexpDocumentColumn *column,
								 const struct varlena *stored, StringInfo scratch,
								 const char **bytes, size_t *len, RexpError *error);
extern bool rexp_column_complete(void *column, const char *stored, size_t stored_len,
								 const char **bytes, size_t *len, RexpError *error);

#endif							/* REDIS_EXPORT_DOCUMENT_COLUMN_H */
