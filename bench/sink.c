/*-------------------------------------------------------------------------
 *
 * sink.c
 *	  A Redis that only answers: what the client can send when Redis is not
 *	  the limit.
 *
 *	   sink		listens on a free port of the loopback, prints the port, and
 *				serves until its standard input is closed
 *
 * It counts commands, their words and the bytes of these, which it skips
 * without looking at them.  Only the first word decides on the answer, the one that
 * Redis gives when all goes well.  What was counted is told in INFO: bytes as
 * Redis tells them, and as sink_commands, sink_words and sink_word_bytes what
 * belongs to commands other than INFO and CLIENT.
 *
 * A connection has a thread, which reads as much as there is and answers to all
 * of it at once: two system calls for some hundred small commands.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* So much is read at a time: it should stay in the processor's second cache. */
#define INPUT_SIZE (256 * 1024)

/* The longest first word that is looked at, with the headers before it. */
#define HEAD_SIZE 64

typedef enum Kind
{
	NONE, OK, ONE, MULTI, EXEC, INFO, CLIENT
} Kind;

/* Most frequent first; what is not in it is answered with OK. */
static const struct Answer
{
	const char *word;
	Kind		kind;
}			answers[] = {
	{"SET", OK}, {"JSON.SET", OK}, {"HSET", ONE}, {"PEXPIRE", ONE}, {"PEXPIREAT", ONE},
	{"PERSIST", ONE}, {"DEL", ONE}, {"SADD", ONE}, {"ZADD", ONE}, {"MULTI", MULTI},
	{"EXEC", EXEC}, {"INFO", INFO}, {"CLIENT", CLIENT}, {NULL, OK}
};

typedef struct Connection
{
	int			fd;
	char	   *input;
	size_t		filled;			/* bytes of input that are there */
	long		skip;			/* bytes to be skipped before the next header */
	Kind		kind;			/* of the command at hand, or NONE */
	long		nwords;			/* in it, */
	long		words_left;		/* those of which the header is still to come, */
	long		bytes;			/* and what was announced of them so far */
	bool		in_multi;
	int			queued;			/* commands since MULTI */
	char	   *output;
	size_t		answered;		/* bytes of output */
	size_t		room;

	/* since the last look at all that came in */
	long		commands;
	long		words;
	long		word_bytes;
} Connection;

static atomic_long all_bytes;
static atomic_long all_commands;
static atomic_long all_words;
static atomic_long all_word_bytes;

static void
fail(const char *what)
{
	fprintf(stderr, "sink: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void
put(Connection *c, const char *bytes, size_t len)
{
	if (c->room - c->answered < len)
	{
		c->room = c->room * 2 + len;
		c->output = realloc(c->output, c->room);
		if (c->output == NULL)
			fail("realloc");
	}
	memcpy(c->output + c->answered, bytes, len);
	c->answered += len;
}

static void
put_text(Connection *c, const char *text)
{
	put(c, text, strlen(text));
}

static void
put_number(Connection *c, char type, int number)
{
	char		text[32];

	snprintf(text, sizeof(text), "%c%d\r\n", type, number);
	put_text(c, text);
}

static void
flush_counts(Connection *c)
{
	atomic_fetch_add(&all_commands, c->commands);
	atomic_fetch_add(&all_words, c->words);
	atomic_fetch_add(&all_word_bytes, c->word_bytes);
	c->commands = c->words = c->word_bytes = 0;
}

/* What an export asks a server about, and what we have counted. */
static void
put_info(Connection *c)
{
	char		text[1024];
	int			len;

	flush_counts(c);
	len = snprintf(text, sizeof(text),
				   "# Server\r\nredis_version:0.0.0\r\nprocess_id:%d\r\n"
				   "run_id:%040d\r\nloading:0\r\nevicted_keys:0\r\nrole:master\r\n"
				   "master_replid:%040d\r\nmaster_replid2:%040d\r\n"
				   "total_net_input_bytes:%ld\r\nsink_commands:%ld\r\n"
				   "sink_words:%ld\r\nsink_word_bytes:%ld\r\n",
				   (int) getpid(), (int) getpid(), (int) getpid(), 0,
				   atomic_load(&all_bytes), atomic_load(&all_commands),
				   atomic_load(&all_words), atomic_load(&all_word_bytes));
	put_number(c, '$', len);
	put(c, text, len);
	put_text(c, "\r\n");
}

/* The command at hand is there to its end, which is when Redis answers it. */
static void
answer(Connection *c)
{
	switch (c->kind)
	{
		case EXEC:
			put_number(c, '*', c->queued);
			for (; c->queued > 0; c->queued--)
				put_text(c, ":1\r\n");
			c->in_multi = false;
			break;
		case MULTI:
			put_text(c, "+OK\r\n");
			c->in_multi = true;
			break;
		case INFO:
			put_info(c);
			break;
		case CLIENT:
			/* CLIENT ID is answered with a number, and has two words */
			put_text(c, c->nwords == 2 ? ":1\r\n" : "+OK\r\n");
			break;
		default:
			if (c->in_multi)
			{
				put_text(c, "+QUEUED\r\n");
				c->queued++;
			}
			else
				put_text(c, c->kind == ONE ? ":1\r\n" : "+OK\r\n");
			break;
	}
	if (c->kind != INFO && c->kind != CLIENT)
	{
		c->commands++;
		c->words += c->nwords;
		c->word_bytes += c->bytes;
	}
	c->kind = NONE;
}

/*
 * The number after a '*' or '$', and where the line ends.  NULL if the line has
 * not come in whole.
 */
static inline const char *
header(const char *at, const char *end, char type, long *number)
{
	long		value = 0;

	if (at == end)
		return NULL;
	if (*at != type)
	{
		fprintf(stderr, "sink: a '%c' was to come, and not '%c'\n", type, *at);
		exit(1);
	}
	for (at++; at < end && *at >= '0' && *at <= '9'; at++)
		value = value * 10 + (*at - '0');
	if (end - at < 2)
		return NULL;
	*number = value;
	return at + 2;				/* \r\n */
}

/*
 * A command begins at at: where its second word does, or NULL if more must come.
 */
static const char *
begin_command(Connection *c, const char *at, const char *end)
{
	const struct Answer *found = answers;
	long		len;

	at = header(at, end, '*', &c->nwords);
	if (at == NULL)
		return NULL;
	at = header(at, end, '$', &len);
	if (at == NULL || end - at < len + 2)
		return NULL;
	while (found->word != NULL &&
		   ((long) strlen(found->word) != len || memcmp(found->word, at, len) != 0))
		found++;
	c->kind = found->kind;
	c->words_left = c->nwords - 1;
	c->bytes = len;
	return at + len + 2;
}

/* Another word of it does: where its bytes do, or NULL. */
static const char *
begin_word(Connection *c, const char *at, const char *end)
{
	long		len;

	at = header(at, end, '$', &len);
	if (at != NULL)
	{
		c->words_left--;
		c->bytes += len;
		c->skip = len + 2;
	}
	return at;
}

/* Look at all that came in, and keep what is no whole header. */
static void
look(Connection *c)
{
	const char *at = c->input;
	const char *end = c->input + c->filled;

	for (;;)
	{
		long		there = end - at;
		const char *next;

		if (there < c->skip)
		{
			c->skip -= there;
			at = end;
			break;
		}
		at += c->skip;
		c->skip = 0;
		if (c->kind != NONE && c->words_left == 0)
			answer(c);
		next = c->kind == NONE ? begin_command(c, at, end) : begin_word(c, at, end);
		if (next == NULL)
			break;
		at = next;
	}
	if (end - at > HEAD_SIZE)
	{
		fprintf(stderr, "sink: a command begins with a word that is too long\n");
		exit(1);
	}
	c->filled = end - at;
	memmove(c->input, at, c->filled);
}

static bool
send_all(int fd, const char *bytes, size_t len)
{
	while (len > 0)
	{
		ssize_t		n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		bytes += n;
		len -= n;
	}
	return true;
}

static void *
serve(void *arg)
{
	Connection *c = calloc(1, sizeof(Connection));

	if (c == NULL || (c->input = malloc(INPUT_SIZE)) == NULL)
		fail("malloc");
	c->fd = (int) (long) arg;
	for (;;)
	{
		ssize_t		n = recv(c->fd, c->input + c->filled, INPUT_SIZE - c->filled, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		atomic_fetch_add(&all_bytes, n);
		c->filled += n;
		look(c);
		flush_counts(c);
		if (!send_all(c->fd, c->output, c->answered))
			break;
		c->answered = 0;
	}
	close(c->fd);
	free(c->input);
	free(c->output);
	free(c);
	return NULL;
}

static void *
accept_all(void *arg)
{
	int			listener = (int) (long) arg;

	for (;;)
	{
		int			on = 1;
		int			fd = accept(listener, NULL, NULL);
		pthread_t	thread;

		if (fd < 0)
			fail("accept");
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (pthread_create(&thread, NULL, serve, (void *) (long) fd) != 0)
			fail("pthread_create");
		pthread_detach(thread);
	}
	return NULL;
}

int
main(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	socklen_t	len = sizeof(address);
	int			listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t	thread;
	char		byte;

	if (listener < 0 || bind(listener, (struct sockaddr *) &address, len) != 0 ||
		listen(listener, 64) != 0 ||
		getsockname(listener, (struct sockaddr *) &address, &len) != 0)
		fail("listen");
	if (pthread_create(&thread, NULL, accept_all, (void *) (long) listener) != 0)
		fail("pthread_create");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
