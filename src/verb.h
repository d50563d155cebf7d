/*-------------------------------------------------------------------------
 *
 * verb.h
 *	  What we know of Redis' commands.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_VERB_H
#define REDIS_EXPORT_VERB_H

#include "postgres.h"

/* What nil says, as an answer. */
typedef enum RexpNil
{
	REXP_NIL_IS_FINE,
	REXP_NIL_NO_PLACE,			/* the document has no place for the path */
	REXP_NIL_NOT_SET			/* a condition did not hold */
} RexpNil;

typedef struct RexpVerb
{
	int			key_word;		/* which word is the first key, from 1; 0: none */
	bool		repeatable;		/* to send it twice is to send it once */
	RexpNil		nil;
} RexpVerb;

extern RexpVerb rexp_verb_look_up(int nwords, const char *const *words);
extern void rexp_verb_refuse_stateful(const char *first, const char *second,
									  const char *by);
extern void rexp_verb_refuse_blocking(int nwords, const char *const *words);

#endif							/* REDIS_EXPORT_VERB_H */
