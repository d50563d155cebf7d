/*-------------------------------------------------------------------------
 *
 * suspect.h
 *	  What a lane remembers to find out which row breaks the connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SUSPECT_H
#define REDIS_EXPORT_SUSPECT_H

#include "flow/window.h"
#include "redis/link.h"

/* Zeros at the start. */
typedef struct RexpSuspicion
{
	bool		active;			/* a row was first in line at a cut */
	bool		chosen;			/* on this connection: who is first ... */
	bool		passed;			/* ... and one write was answered */
	int			writes;			/* and so many were begun */
	uint32		passes;			/* connections on which one was answered */
	RexpError	why;			/* the last cut that counted against a row */
} RexpSuspicion;

extern void rexp_suspicion_cut(RexpSuspicion *suspicion, RexpWindow *window,
							   RexpBatch *batch, RexpRow *row, bool only,
							   const RexpError *why);
extern void rexp_suspicion_connected(RexpSuspicion *suspicion, RexpWindow *window,
									 bool restarted);
extern RexpRow *rexp_suspicion_next_to_blame(const RexpSuspicion *suspicion,
											 RexpWindow *window, RexpBatch **batch,
											 RexpError *error);
extern void rexp_suspicion_tell_crashes(const RexpSuspicion *suspicion,
										RexpWindow *window, RexpError *error);
extern void rexp_suspicion_write_answered(RexpSuspicion *suspicion);
extern bool rexp_suspicion_choose_first(RexpSuspicion *suspicion, RexpWindow *window,
										RexpLink *link, RexpError *error);

#endif							/* REDIS_EXPORT_SUSPECT_H */
