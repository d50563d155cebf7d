/*-------------------------------------------------------------------------
 *
 * key_shape.h
 *	  Which keys could have been made with a template?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_KEY_SHAPE_H
#define REDIS_EXPORT_KEY_SHAPE_H

#include "executor/tuptable.h"
#include "fill.h"

typedef struct RexpKeyShape RexpKeyShape;

extern RexpKeyShape *rexp_key_shape_create(const char *key_template, TupleDesc desc);
extern char *rexp_key_shape_pattern(const RexpKeyShape *shape);
extern void rexp_key_shape_learn(RexpKeyShape *shape, TupleTableSlot *slot);
extern bool rexp_key_shape_is_known(const RexpKeyShape *shape);
extern bool rexp_key_shape_fits(const RexpKeyShape *shape, const char *key,
								size_t len);

#endif							/* REDIS_EXPORT_KEY_SHAPE_H */
