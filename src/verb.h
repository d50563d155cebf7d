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

typedef struct RexpVerb
{
	int			key_word;		/* which word is the first key, from 1; 0: none */
	bool		repeatable;		/* to send it twice is to send it once */
	bool		nil_is_failure; /* nil says that nothing was written */
} RexpVerb;

extern RexpVerb rexp_verb_look_up(int nwords, const char *const *words);
extern void rexp_verb_refuse_stateful(const char *first, const char *second,
									  const char *by);
extern void rexp_verb_refuse_blocking(int nwords, const char *const *words);

#endif							/* REDIS_EXPORT_VERB_H */
