/*-------------------------------------------------------------------------
 *
 * suspect.h
 *	  What a lane remembers to find out which row breaks the connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_SUSPECT_H
#define REDIS_EXPORT_SUSPECT_H

#include "base/error.h"

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

#endif							/* REDIS_EXPORT_SUSPECT_H */
