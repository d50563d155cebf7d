/*-------------------------------------------------------------------------
 *
 * payload.h
 *	  A job's arguments and its caller's session as bytes that go from the
 *	  caller to the worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_PAYLOAD_H
#define REDIS_EXPORT_PAYLOAD_H

#include "export/job.h"
#include "lib/stringinfo.h"
#include "session/session.h"

extern void rexp_payload_write(StringInfo out, const RexpJob *job,
							   const RexpSession *session);
extern bool rexp_payload_read(const char *bytes, RexpJob *job, RexpSession *session);

#endif							/* REDIS_EXPORT_PAYLOAD_H */
