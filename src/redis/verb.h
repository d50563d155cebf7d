/*-------------------------------------------------------------------------
 *
 * verb.h
 *	  What we know of Redis' commands.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_VERB_H
#define REDIS_EXPORT_VERB_H

#include "base/error.h"

/* One word of a command, or what is known of it before there is a row. */
typedef struct RexpWord
{
	const char *bytes;			/* NULL: each row has its own */
	size_t		len;
	bool		is_number;		/* not known, but no name of an option */
	bool		is_many;		/* not known, nor how many words it will be */
} RexpWord;

/* The answer, other than an error, that says that nothing was written. */
typedef enum RexpRefusal
{
	REXP_REFUSAL_NONE,			/* there is none */
	REXP_REFUSAL_NO_PLACE,		/* nil: the document has no place for the path */
	REXP_REFUSAL_KEY_THERE,		/* nil, with NX */
	REXP_REFUSAL_KEY_GONE,		/* nil, with XX */
	REXP_REFUSAL_PATH_THERE,	/* nil, with NX and a path */
	REXP_REFUSAL_PATH_GONE,		/* nil, with XX and a path */
	REXP_REFUSAL_CONDITION,		/* nil, with another condition */
	REXP_REFUSAL_STREAM_GONE,	/* nil, with NOMKSTREAM */
	REXP_REFUSAL_OLD_VALUE,		/* the key's value, with NX and GET */
	REXP_REFUSAL_UNTOLD			/* the answer does not tell */
} RexpRefusal;

typedef struct RexpVerb
{
	int			key_word;		/* which word is the first key, from 1; 0: none */
	bool		repeatable;		/* to send it twice is to send it once */
	RexpRefusal refusal;
	bool		by_row;			/* words that are not known have a say in it */
} RexpVerb;

/* Who sends the command. */
typedef enum RexpSender
{
	REXP_SENDER_COMMAND,		/* redis_command */
	REXP_SENDER_EXPORT,			/* an export, the same for each row */
	REXP_SENDER_ROW				/* an export, for one row of many */
} RexpSender;

extern RexpWord *rexp_command_words(const char *command, int *nwords);
extern bool rexp_verb_look_up(int nwords, const RexpWord *words, RexpSender sender,
							  RexpVerb *verb, RexpError *error);
extern const char *rexp_refusal_text(RexpRefusal refusal);

#endif							/* REDIS_EXPORT_VERB_H */
