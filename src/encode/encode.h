/*-------------------------------------------------------------------------
 *
 * encode.h
 *	  One row to its commands: the door between the query and the pipeline.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ENCODE_H
#define REDIS_EXPORT_ENCODE_H

#include "encode/document_column.h"
#include "encode/form.h"
#include "executor/tuptable.h"
#include "flow/books.h"

typedef struct RexpEncoder RexpEncoder;

extern RexpEncoder *rexp_encoder_create(const RexpEncoding *encoding,
										TupleDesc desc);
extern void rexp_encoder_use_books(RexpEncoder *encoder, const RexpBooks *books,
								   RexpDocumentColumn *column);
extern const RexpGiven *rexp_encoder_gives(const RexpEncoder *encoder);
extern RexpEncoded rexp_encoder_encode(RexpEncoder *encoder, TupleTableSlot *slot,
									   RexpBuffer *out, RexpBlock *block,
									   RexpError *error);

#endif							/* REDIS_EXPORT_ENCODE_H */
