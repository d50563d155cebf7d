/*-------------------------------------------------------------------------
 *
 * reply_json.c
 *	  What Redis answers, as text and as JSON.
 *
 * Nothing here knows connections or what was asked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/text.h"
#include "miscadmin.h"
#include "redis/error_reply.h"
#include "redis/reply_json.h"
#include "utils/builtins.h"
#include "utils/json.h"

/* Bytes of Redis as text if they are one, as \x hex if not; palloc'd. */
char *
rexp_reply_shown(const char *bytes, size_t len)
{
	char	   *text = rexp_text_exact(bytes, len);

	if (text == NULL)
	{
		text = palloc(len * 2 + 3);
		memcpy(text, "\\x", 2);
		text[2 + hex_encode(bytes, len, text + 2)] = '\0';
	}
	return text;
}

/* The same as a JSON string. */
void
rexp_reply_string(StringInfo out, const char *bytes, size_t len)
{
	char	   *text = rexp_reply_shown(bytes, len);

	escape_json(out, text);
	pfree(text);
}

/* A reply as JSON text.  An error reply raises that error. */
void
rexp_reply_append(StringInfo out, const redisReply *reply)
{
	RexpError	error;

	switch (reply->type)
	{
		case REDIS_REPLY_ERROR:
			(void) rexp_answer_to(reply->str, reply->len, &error);
			rexp_error_raise(&error);
			break;
		case REDIS_REPLY_INTEGER:
			appendStringInfo(out, INT64_FORMAT, (int64) reply->integer);
			break;
		case REDIS_REPLY_NIL:
			appendStringInfoString(out, "null");
			break;
		case REDIS_REPLY_ARRAY:
			check_stack_depth();
			appendStringInfoChar(out, '[');
			for (size_t i = 0; i < reply->elements; i++)
			{
				CHECK_FOR_INTERRUPTS();
				if (i > 0)
					appendStringInfoChar(out, ',');
				rexp_reply_append(out, reply->element[i]);
			}
			appendStringInfoChar(out, ']');
			break;
		default:
			rexp_reply_string(out, reply->str, reply->len);
			break;
	}
}
