/*-------------------------------------------------------------------------
 *
 * json_path.h
 *	  The path of a document, with values of the row in it as names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_JSON_PATH_H
#define REDIS_EXPORT_JSON_PATH_H

#include "encode/fill.h"

typedef struct RexpJsonPath RexpJsonPath;

extern RexpJsonPath *rexp_json_path_create(const char *source, TupleDesc desc);
extern bool rexp_json_path_is_literal(const RexpJsonPath *path);
extern const RexpBuffer *rexp_json_path_shape(const RexpJsonPath *path);
extern bool rexp_json_path_append(RexpJsonPath *path, TupleTableSlot *slot,
								  RexpBuffer *out, RexpError *error);

#endif							/* REDIS_EXPORT_JSON_PATH_H */
