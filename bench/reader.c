/*-------------------------------------------------------------------------
 *
 * reader.c
 *	  What Redis can answer to a client that does nothing with it.
 *
 *	   reader PORT WINDOW send FILE [TIMES]
 *				sends the commands of a file, as Redis reads them
 *	   reader PORT WINDOW scan PATTERN [COMMAND]
 *				reads all keys that match, by SCAN, and sends COMMAND for each
 *
 * At most WINDOW commands are unanswered at a time; they are sent in lumps of half of
 * that.  Of the answers only the lengths are looked at, in place: what is in
 * them is skipped, except for the pages of SCAN.  When all is answered, what came is
 * told as one line of JSON: the seconds since the first byte was sent, answers,
 * those that were nil, the sum of the integers, bytes of strings, and the keys
 * that SCAN gave.  An answer that is an error is fatal.
 *
 * (redis-cli --pipe is no yardstick for answers of any size: the time it takes
 * grows with their square.)
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* So much is read at a time: it should stay in the processor's second cache. */
#define INPUT_SIZE (256 * 1024)

/* Keys that SCAN looks at for one page. */
#define PAGE "2000"

/* Arrays in arrays. */
#define DEPTH 8

static int	redis;

/* What is to be sent: the commands of the file, or those that pages bring. */
static char *commands;
static size_t filled;			/* bytes that there are, */
static size_t room;				/* that there may be (0: it is the file), */
static size_t released;			/* that the window lets go, */
static size_t sent;				/* and that have gone */
static long window;
static long unanswered;			/* commands that were let go */
static long times = 1;			/* that all of it is sent yet */

/* What comes. */
static char input[INPUT_SIZE];
static size_t there;			/* bytes of input */
static size_t skip;				/* that are a string's, and not looked at */
static long left[DEPTH];		/* what is to come, of each array we are in */
static int	depth;

/* SCAN. */
static const char *pattern;
static const char *command;		/* for each key, or NULL */
static long queued;				/* commands of which no answer has begun */
static long before_page = -1;	/* answers before the next page, if there is one */
static bool in_page;

static struct
{
	long		replies;
	long		nils;
	long		integers;
	long		bytes;
	long		keys;
}			counted;

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "reader: %s: %s\n", what, why);
	exit(1);
}

/*
 * Sending
 */

static void
put(const char *bytes, size_t len)
{
	if (room - filled < len && sent > 0)
	{
		memmove(commands, commands + sent, filled - sent);
		filled -= sent;
		released -= sent;
		sent = 0;
	}
	if (room - filled < len)
	{
		room = room * 2 + len;
		commands = realloc(commands, room);
		if (commands == NULL)
			fail("realloc", strerror(errno));
	}
	memcpy(commands + filled, bytes, len);
	filled += len;
}

static void
put_word(const char *word, size_t len)
{
	char		header[32];

	put(header, (size_t) snprintf(header, sizeof(header), "$%zu\r\n", len));
	put(word, len);
	put("\r\n", 2);
}

static void
put_scan(const char *cursor, size_t len)
{
	put("*6\r\n", 4);
	put_word("SCAN", 4);
	put_word(cursor, len);
	put_word("MATCH", 5);
	put_word(pattern, strlen(pattern));
	put_word("COUNT", 5);
	put_word(PAGE, strlen(PAGE));
	before_page = queued++;
}

static void
put_value(const char *key, size_t len)
{
	put("*2\r\n", 4);
	put_word(command, strlen(command));
	put_word(key, len);
	queued++;
}

/* Go past a header of the commands, and return its number. */
static size_t
header(size_t *at, char type)
{
	char	   *end;
	size_t		number;

	if (*at >= filled || commands[*at] != type)
		fail("send", "this is no command");
	number = strtoul(commands + *at + 1, &end, 10);
	*at = (size_t) (end - commands) + 2;
	return number;
}

/* Fill the window, once half of it is answered. */
static void
release(void)
{
	if (unanswered > window / 2)
		return;
	if (sent == filled && times > 1)
	{
		times--;
		released = sent = 0;
	}
	for (; unanswered < window && released < filled; unanswered++)
	{
		for (size_t words = header(&released, '*'); words > 0; words--)
		{
			size_t		len = header(&released, '$');

			released += len + 2;
		}
	}
}

static void
send_some(void)
{
	ssize_t		n;

	if (sent == released)
		return;
	n = send(redis, commands + sent, released - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		sent += (size_t) n;
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		fail("send", strerror(errno));
}

/*
 * Reading
 */

/* An answer begins. */
static void
begin(void)
{
	queued--;
	in_page = before_page == 0;
	if (before_page >= 0)
		before_page--;
}

/* Something has come to its end: so may arrays have, and the answer. */
static void
end(void)
{
	while (depth > 0 && --left[depth - 1] == 0)
		depth--;
	if (depth > 0)
		return;
	counted.replies++;
	unanswered--;
	in_page = false;
}

/*
 * A string of a page: the cursor, or a key.  The next page is asked for before the
 * values of this one, so that Redis always has something to do.
 */
static void
take_of_page(const char *at, size_t len)
{
	if (depth == 2)
	{
		counted.keys++;
		if (command != NULL)
			put_value(at, len);
	}
	else if (len != 1 || *at != '0')
		put_scan(at, len);
}

/*
 * Take what begins with the line at at, and return where the next thing does; NULL if
 * more must come.
 */
static const char *
take(const char *at, const char *stop)
{
	const char *line_end = memchr(at, '\n', (size_t) (stop - at));
	const char *next;
	long		number;

	if (line_end == NULL)
		return NULL;
	next = line_end + 1;
	number = strtol(at + 1, NULL, 10);
	if (*at == '$' && in_page && stop - next < number + 2)
		return NULL;
	if (depth == 0)
		begin();
	switch (*at)
	{
		case '+':
			break;
		case ':':
			counted.integers += number;
			break;
		case '$':
			if (number < 0)
			{
				counted.nils++;
				break;
			}
			counted.bytes += number;
			if (!in_page)
			{
				skip = (size_t) number + 2;
				return next;
			}
			take_of_page(next, (size_t) number);
			next += number + 2;
			break;
		case '*':
			if (number < 0)
				counted.nils++;
			if (number <= 0)
				break;
			if (depth == DEPTH)
				fail("the answer", "too many arrays in arrays");
			left[depth++] = number;
			return next;
		case '-':
			fprintf(stderr, "reader: Redis answers: %.*s\n", (int) (line_end - at - 1), at);
			exit(1);
		default:
			fail("the answer", "this is none");
	}
	end();
	return next;
}

/* Look at all that came in, and keep what is not whole. */
static void
look(void)
{
	const char *at = input;
	const char *stop = input + there;

	for (;;)
	{
		const char *next;

		if (skip > 0)
		{
			size_t		here = (size_t) (stop - at);

			if (here < skip)
			{
				skip -= here;
				at = stop;
				break;
			}
			at += skip;
			skip = 0;
			end();
		}
		next = at == stop ? NULL : take(at, stop);
		if (next == NULL)
			break;
		at = next;
	}
	there = (size_t) (stop - at);
	if (there == INPUT_SIZE)
		fail("the answer", "a line or a key that is too long");
	memmove(input, at, there);
}

/* Read some, or wait until more can be sent. */
static void
receive(void)
{
	ssize_t		n = recv(redis, input + there, INPUT_SIZE - there,
						 sent == released ? 0 : MSG_DONTWAIT);

	if (n > 0)
	{
		there += (size_t) n;
		look();
	}
	else if (n == 0)
		fail("recv", "Redis has closed the connection");
	else if (errno == EAGAIN && sent < released)
	{
		struct pollfd poll_for = {.fd = redis, .events = POLLIN | POLLOUT};

		(void) poll(&poll_for, 1, 1000);
	}
	else if (errno != EINTR)
		fail("recv", strerror(errno));
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

static void
open_redis(const char *port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t) atoi(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	struct timeval patience = {.tv_sec = 60};
	int			on = 1;

	redis = socket(AF_INET, SOCK_STREAM, 0);
	if (redis < 0 || connect(redis, (struct sockaddr *) &address, sizeof(address)) != 0)
		fail("connect", strerror(errno));
	(void) setsockopt(redis, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void) setsockopt(redis, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

/* All of it is there before the clock starts. */
static void
map_file(const char *path)
{
	struct stat about;
	int			file = open(path, O_RDONLY);

	if (file < 0 || fstat(file, &about) != 0)
		fail(path, strerror(errno));
	filled = (size_t) about.st_size;
	commands = mmap(NULL, filled, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
	if (commands == MAP_FAILED)
		fail(path, strerror(errno));
}

int
main(int argc, char **argv)
{
	double		began;

	if (argc < 5 || (window = atol(argv[2])) < 1)
		fail("usage", "reader PORT WINDOW send FILE [TIMES], or reader PORT WINDOW scan PATTERN [COMMAND]");
	open_redis(argv[1]);
	if (strcmp(argv[3], "scan") == 0)
	{
		pattern = argv[4];
		command = argv[5];
		put_scan("0", 1);
	}
	else
	{
		map_file(argv[4]);
		if (argc > 5)
			times = atol(argv[5]);
	}

	began = now();
	while (released < filled || times > 1 || unanswered > 0)
	{
		release();
		send_some();
		receive();
	}
	printf("{\"seconds\": %.6f, \"replies\": %ld, \"nils\": %ld, \"integers\": %ld, "
		   "\"bytes\": %ld, \"keys\": %ld}\n", now() - began, counted.replies,
		   counted.nils, counted.integers, counted.bytes, counted.keys);
	return 0;
}
