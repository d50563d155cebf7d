/*-------------------------------------------------------------------------
 *
 * key_shape.h
 *	  Which keys can be made with a template?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_KEY_SHAPE_H
#define REDIS_EXPORT_KEY_SHAPE_H

#include "access/tupdesc.h"

typedef struct RexpKeyShape RexpKeyShape;

extern RexpKeyShape *rexp_key_shape_create(const char *key_template, TupleDesc desc);
extern char *rexp_key_shape_pattern(const RexpKeyShape *shape);
extern int	rexp_key_shape_unknown(const RexpKeyShape *shape);
extern bool rexp_key_shape_fits(const RexpKeyShape *shape, const char *key,
								size_t len);

#endif							/* REDIS_EXPORT_KEY_SHAPE_H */
