/*-------------------------------------------------------------------------
 *
 * json_check.h
 *	  A quick look whether a text is one JSON value.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_JSON_CHECK_H
#define REDIS_EXPORT_JSON_CHECK_H

#include "postgres.h"

extern bool rexp_json_is_valid(const char *json, size_t len, int most_levels);

#endif							/* REDIS_EXPORT_JSON_CHECK_H */
