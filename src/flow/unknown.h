/*-------------------------------------------------------------------------
 *
 * unknown.h
 *	  Error replies that no rule knows: a row's own fault, or the server's state?
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_UNKNOWN_H
#define REDIS_EXPORT_UNKNOWN_H

#include "redis/error_reply.h"

/* How long to wait before a row is sent again that got one (ms). */
#define REXP_UNKNOWN_PAUSE 1500

/* So many different rows in succession, and it is the server's state. */
#define REXP_UNKNOWN_ROWS 10

/* So many texts are looked into, one by one. */
#define REXP_UNKNOWN_TEXTS 8

/* All that is remembered, for one lane; zeros at the start. */
typedef struct RexpUnknown
{
	bool		active;			/* there was one, and what follows is watched: */
	int			kind;			/* of the command that it answered */
	int64		last_row;		/* the last that got one, by its number */
	int			rows;			/* different ones, since one went well */
	bool		passed;			/* others have gone well since one is looked into */
	uint64		blamed;			/* the text for which a row has failed, while it is
								 * not known to be rows' own; 0: none */
	uint64		own[REXP_UNKNOWN_TEXTS];	/* texts that are */
	int			nown;
} RexpUnknown;

extern RexpAnswer rexp_unknown_judge(RexpUnknown *unknown, int kind, int64 row,
									 bool again, bool may_repeat, RexpError *error);
extern void rexp_unknown_went_well(RexpUnknown *unknown, bool again);

#endif							/* REDIS_EXPORT_UNKNOWN_H */
