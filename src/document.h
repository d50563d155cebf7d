/*-------------------------------------------------------------------------
 *
 * document.h
 *	  Values of a row as Redis gets them: a JSON text, or the text of a column.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_DOCUMENT_H
#define REDIS_EXPORT_DOCUMENT_H

#include "access/tupdesc.h"
#include "error.h"
#include "executor/tuptable.h"
#include "pgtime.h"
#include "resp.h"

/* Output settings of the session, put aside while we write values. */
typedef struct RexpOutputSettings
{
	int			date_style;
	int			date_order;
	int			interval_style;
	int			float_digits;
	int			bytea_format;
	pg_tz	   *timezone;
} RexpOutputSettings;

extern void rexp_output_settings_enter(RexpOutputSettings *saved);
extern void rexp_output_settings_leave(const RexpOutputSettings *saved);

/* How one column is written as text: in a key, or as a field. */
typedef struct RexpText RexpText;

extern RexpText *rexp_text_create(TupleDesc desc, int attno);
extern RexpText *rexp_text_create_for_type(Oid type, const char *name);
extern bool rexp_text_append(RexpText *text, Datum value, RexpBuffer *out,
							 RexpError *error);

/* How a row becomes a JSON document. */
typedef struct RexpDocument RexpDocument;

extern RexpDocument *rexp_document_create(TupleDesc desc, int attno,
										  bool container_only,
										  const bool *excluded);
extern bool rexp_document_encode(RexpDocument *document, TupleTableSlot *slot,
								 const char **bytes, size_t *len,
								 RexpError *error);
extern bool rexp_document_is_text(Oid type);
extern bool rexp_document_is_json(Oid type);

#endif							/* REDIS_EXPORT_DOCUMENT_H */
