/*-------------------------------------------------------------------------
 *
 * resp.h
 *	  A growing buffer of bytes, and commands of Redis written into it: RESP
 *	  arrays of length-prefixed strings (Redis manual, "Redis serialization
 *	  protocol specification"), so that any byte may be in any argument.
 *
 * It knows neither rows nor connections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_RESP_H
#define REDIS_EXPORT_RESP_H

#include "postgres.h"

/*
 * Unlike a StringInfo it may grow past 1 GB, and holds no terminating zero.
 * The memory belongs to the context that was current at rexp_buffer_init().
 */
typedef struct RexpBuffer
{
	char	   *data;
	size_t		len;
	size_t		capacity;
} RexpBuffer;

/* The longest "$<length>\r\n" or "*<count>\r\n". */
#define REXP_HEADER_SIZE 24

extern void rexp_buffer_init(RexpBuffer *buffer, size_t capacity);
extern void rexp_buffer_free(RexpBuffer *buffer);
extern void rexp_buffer_grow(RexpBuffer *buffer, size_t more);
extern void rexp_resp_header(RexpBuffer *buffer, char type, uint64 number);
extern size_t rexp_resp_take_header(const char **at);
extern void rexp_resp_bulk(RexpBuffer *buffer, const char *bytes, size_t len);

static inline void
rexp_buffer_reserve(RexpBuffer *buffer, size_t more)
{
	if (unlikely(buffer->capacity - buffer->len < more))
		rexp_buffer_grow(buffer, more);
}

static inline void
rexp_buffer_append(RexpBuffer *buffer, const char *bytes, size_t len)
{
	rexp_buffer_reserve(buffer, len);
	memcpy(buffer->data + buffer->len, bytes, len);
	buffer->len += len;
}

/* A zero-terminated C string as an argument. */
static inline void
rexp_resp_word(RexpBuffer *buffer, const char *word)
{
	rexp_resp_bulk(buffer, word, strlen(word));
}

#endif							/* REDIS_EXPORT_RESP_H */
