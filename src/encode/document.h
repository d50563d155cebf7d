/*-------------------------------------------------------------------------
 *
 * document.h
 *	  A row as a JSON document.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_DOCUMENT_H
#define REDIS_EXPORT_DOCUMENT_H

#include "access/tupdesc.h"
#include "base/error.h"
#include "encode/document_column.h"
#include "encode/value.h"
#include "executor/tuptable.h"

/* How a row becomes a JSON document. */
typedef struct RexpDocument RexpDocument;

extern RexpDocument *rexp_document_create(TupleDesc desc, int attno,
										  bool container_only,
										  const bool *excluded);
extern bool rexp_document_encode(RexpDocument *document, TupleTableSlot *slot,
								 const struct varlena *stored, const char **bytes,
								 size_t *len, RexpError *error);
extern const struct varlena *rexp_document_stored(const RexpDocument *document,
												  TupleTableSlot *slot);
extern const RexpDocumentColumn *rexp_document_column(const RexpDocument *document);
extern bool rexp_document_is_row(const RexpDocument *document);
extern bool rexp_document_is_text(Oid type);
extern bool rexp_document_is_json(Oid type);

#endif							/* REDIS_EXPORT_DOCUMENT_H */
