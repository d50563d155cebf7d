/*-------------------------------------------------------------------------
 *
 * reply_json.h
 *	  What Redis answers, as text and as JSON.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_REPLY_JSON_H
#define REDIS_EXPORT_REPLY_JSON_H

#include "base/compat.h"
#include "lib/stringinfo.h"

extern char *rexp_reply_shown(const char *bytes, size_t len);
extern void rexp_reply_string(StringInfo out, const char *bytes, size_t len);
extern void rexp_reply_append(StringInfo out, const redisReply *reply);

#endif							/* REDIS_EXPORT_REPLY_JSON_H */
