/*-------------------------------------------------------------------------
 *
 * resp.c
 *	  A growing buffer, and commands of Redis written into it.
 *
 * It knows neither rows nor connections.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "redis/resp.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

/* Past this size a buffer grows by what it needs, and no longer doubles. */
#define DOUBLE_UP_TO ((size_t) 8 * 1024 * 1024)

/* Palloc's capacity bytes in the current context. */
void
rexp_buffer_init(RexpBuffer *buffer, size_t capacity)
{
	buffer->data = MemoryContextAllocHuge(CurrentMemoryContext, capacity);
	buffer->len = 0;
	buffer->capacity = capacity;
}

void
rexp_buffer_free(RexpBuffer *buffer)
{
	if (buffer->data != NULL)
		pfree(buffer->data);
	buffer->data = NULL;
	buffer->len = buffer->capacity = 0;
}

/* Make room for more bytes.  Raises an error when memory is out. */
void
rexp_buffer_grow(RexpBuffer *buffer, size_t more)
{
	size_t		capacity = buffer->len + more;

	if (capacity <= DOUBLE_UP_TO)
		capacity = Max(capacity, buffer->capacity * 2);
	else
		capacity += capacity / 16;
	buffer->data = repalloc_huge(buffer->data, capacity);
	buffer->capacity = capacity;
}

/* "*3\r\n" begins a command of three arguments, "$5\r\n" one of five bytes. */
void
rexp_resp_header(RexpBuffer *buffer, char type, uint64 number)
{
	char	   *at;

	rexp_buffer_reserve(buffer, REXP_HEADER_SIZE);
	at = buffer->data + buffer->len;
	*at++ = type;
	at += pg_ulltoa_n(number, at);
	*at++ = '\r';
	*at++ = '\n';
	buffer->len = at - buffer->data;
}

void
rexp_resp_bulk(RexpBuffer *buffer, const char *bytes, size_t len)
{
	rexp_buffer_reserve(buffer, REXP_HEADER_SIZE + len + 2);
	rexp_resp_header(buffer, '$', len);
	memcpy(buffer->data + buffer->len, bytes, len);
	buffer->len += len;
	buffer->data[buffer->len++] = '\r';
	buffer->data[buffer->len++] = '\n';
}

/* The number in a header that we have written ourselves, and go past it. */
size_t
rexp_resp_take_header(const char **at)
{
	size_t		number = strtoul(*at + 1, unconstify(char **, at), 10);

	*at += 2;
	return number;
}
