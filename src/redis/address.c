/*-------------------------------------------------------------------------
 *
 * address.c
 *	  Where a Redis is: what may become an address, whoever says it.
 *
 * Options of foreign servers say where Redis or its sentinels are, sentinels say where
 * the master is, and the nodes of a cluster where the others are.  All of that becomes
 * an address only here, and is looked at once more before a connection is made.
 *
 * A Unix socket is entered as the operating system user of the PostgreSQL server, to
 * whom others may have opened more than to anybody on the network: only the option
 * "host" may name one, which is for superusers.
 *
 * Nothing here raises an error, or knows what is done at an address.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/un.h>

#include "redis/address.h"

#define HOST_LENGTH 253
#define PORT_MOST 65535
#define REDIS_PORT 6379

/* The characters of names and addresses; an address of IPv6 may end in %interface. */
static const char host_characters[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%";

/* What a URI begins with, and whether Redis speaks TLS then. */
static const struct
{
	const char *scheme;
	bool		tls;
}			schemes[] = {
	{"redis://", false},
	{"rediss://", true},
	{"valkey://", false},
	{"valkeys://", true},
};

static const char names_socket[] = "It names a Unix socket.";
static const char hint_at_host[] = "Give the path of a Unix socket as option \"host\".";

static const char *
socket_fault(const char *path)
{
	if (strlen(path) >= sizeof(((struct sockaddr_un *) NULL)->sun_path))
		return "The path of the socket is too long.";
	for (const char *at = path; *at != '\0'; at++)
	{
		if ((unsigned char) *at < ' ' || *at == 0x7f)
			return "The path of a socket holds no control characters.";
	}
	return NULL;
}

/*
 * rexp_host_fault
 *	  What is wrong with a host, as a sentence; NULL if nothing is.
 */
const char *
rexp_host_fault(const char *host, bool may_be_socket)
{
	const char *colon = strchr(host, ':');

	if (host[0] == '/' && may_be_socket)
		return socket_fault(host);
	if (host[0] == '\0' || strspn(host, host_characters) != strlen(host))
		return may_be_socket ?
			"It is a host name, an address, or the path of a Unix socket." :
			"It is a host name or an address.";
	if (strlen(host) > HOST_LENGTH)
		return "The name of the host is too long.";
	/* addresses of IPv6 hold two at least */
	if (colon != NULL && strchr(colon + 1, ':') == NULL)
		return "It is a host alone: the port is an option of its own.";
	return NULL;
}

bool
rexp_address_is_socket(const RexpAddress *address)
{
	return address->host[0] == '/';
}

/* The same for an address that a connection is to be made to. */
const char *
rexp_address_fault(const RexpAddress *address)
{
	return rexp_host_fault(address->host, address->source == REXP_ADDRESS_BY_HOST);
}

/* Of the options host and port, which the validator has seen. */
void
rexp_address_of_option(RexpAddress *address, const char *host, int port)
{
	address->source = REXP_ADDRESS_BY_HOST;
	strlcpy(address->host, host, sizeof(address->host));
	address->name[0] = '\0';
	address->port = port;
}

/*
 * rexp_address_told
 *	  What Redis or a sentinel says, in bytes that may be anything.  False, and no
 *	  address, if it is none to be followed.
 */
bool
rexp_address_told(RexpAddress *address, RexpAddressSource source, const char *host,
				  size_t len, int64 port)
{
	if (len >= sizeof(address->host) || memchr(host, '\0', len) != NULL ||
		port < 1 || port > PORT_MOST)
		return false;
	address->source = source;
	address->port = (int) port;
	memcpy(address->host, host, len);
	address->host[len] = '\0';
	address->name[0] = '\0';
	return rexp_host_fault(address->host, false) == NULL;
}

/* The name that goes with an address, for its certificate; no name is taken for none. */
void
rexp_address_name(RexpAddress *address, const char *name, size_t len)
{
	RexpAddress told;

	if (rexp_address_told(&told, address->source, name, len, address->port))
		strlcpy(address->name, told.host, sizeof(address->name));
}

/* The number that these digits say; -1 if it is none, or has more than nine. */
static int
number_of(const char *from, const char *end)
{
	int			number = 0;

	if (from == end || end - from > 9)
		return -1;
	for (; from < end; from++)
	{
		if (*from < '0' || *from > '9')
			return -1;
		number = number * 10 + (*from - '0');
	}
	return number;
}

/*
 * rexp_address_listed
 *	  Read one entry of a list, host, host:port or [address]:port, and go past the
 *	  comma behind it.  False if it is none.
 */
bool
rexp_address_listed(RexpAddress *address, const char **at, int default_port)
{
	const char *from = *at + strspn(*at, " ");
	size_t		len = strcspn(from, ",");
	const char *end = from + len;
	const char *colon;
	int			port = default_port;

	*at = *end == ',' ? end + 1 : end;
	while (end > from && end[-1] == ' ')
		end--;
	if (from < end && *from == '[')
	{
		const char *bracket = memchr(from, ']', end - from);

		if (bracket == NULL || (bracket + 1 < end && bracket[1] != ':'))
			return false;
		colon = bracket + 1 < end ? bracket + 1 : NULL;
		from++;
		len = bracket - from;
	}
	else
	{
		colon = memchr(from, ':', end - from);
		len = (colon ? colon : end) - from;
	}
	if (colon != NULL)
		port = number_of(colon + 1, end);
	return rexp_address_told(address, REXP_ADDRESS_BY_SENTINEL_HOSTS, from, len, port);
}

static int
hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	digit |= 0x20;
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/*
 * Write what this part of a URI stands for, %41 being A, into a buffer that is as long at
 * least; its length, or -1 if a % is none that can be decoded.
 */
static int
decode(char *buffer, const char *from, const char *end)
{
	char	   *to = buffer;

	while (from < end)
	{
		if (*from != '%')
		{
			*to++ = *from++;
			continue;
		}
		if (end - from < 3 || hex_digit(from[1]) < 0 || hex_digit(from[2]) < 0)
			return -1;
		*to++ = (char) (hex_digit(from[1]) << 4 | hex_digit(from[2]));
		from += 3;
	}
	return to - buffer;
}

/* The host and the port of a URI, which are all between "//" and the path. */
static const char *
authority_fault(RexpUri *result, const char *from, const char *end, const char **hint)
{
	bool		in_brackets = from < end && *from == '[';
	const char *past = in_brackets ? memchr(from, ']', end - from) :
		memchr(from, ':', end - from);
	int			port = REDIS_PORT;
	char		host[3 * REXP_HOST_SIZE];
	int			len;

	if (in_brackets)
	{
		if (past == NULL || (past + 1 < end && past[1] != ':'))
			return "It has an opening bracket without a closing one before the port.";
		from++;
	}
	else if (past == NULL)
		past = end;
	if (!in_brackets && past < end && memchr(past + 1, ':', end - past - 1) != NULL)
	{
		*hint = "An IPv6 address stands in brackets, as in redis://[::1]:6379.";
		return "It has more than one colon after \"//\".";
	}
	if (past - from > (ptrdiff_t) sizeof(host))
		return "The name of the host is too long.";
	len = decode(host, from, past);
	past += in_brackets;
	if (past < end)
		port = number_of(past + 1, end);
	if (len == 0)
		return "It names no host.";
	if (len > 0 && host[0] == '/')
	{
		*hint = hint_at_host;
		return names_socket;
	}
	if (port < 1 || port > PORT_MOST)
		return "Its port is not a whole number from 1 to 65535.";
	if (len < 0 || (memchr(host, ':', len) != NULL) != in_brackets ||
		!rexp_address_told(&result->address, REXP_ADDRESS_BY_HOST, host, len, port))
		return "Its host is not a host name, an IPv4 address, or an IPv6 address in brackets.";
	return NULL;
}

/*
 * rexp_address_uri
 *	  Read a URI, as in redis://host:port/db.  What is wrong with it, as a sentence, or
 *	  NULL; then *hint says what to do, or is NULL.
 *
 * Neither repeats a part of the URI, which may hold a password at any place.
 */
const char *
rexp_address_uri(RexpUri *result, const char *uri, const char **hint)
{
	const char *from = NULL;
	const char *end;
	char		db[16];
	int			len;

	*hint = NULL;
	for (size_t i = 0; i < lengthof(schemes) && from == NULL; i++)
	{
		if (pg_strncasecmp(uri, schemes[i].scheme, strlen(schemes[i].scheme)) == 0)
		{
			from = uri + strlen(schemes[i].scheme);
			result->tls = schemes[i].tls;
		}
	}
	if (from == NULL)
	{
		bool		is_unix = pg_strncasecmp(uri, "unix:", strlen("unix:")) == 0;

		*hint = is_unix ? hint_at_host : "Give a URI as in redis://host:port/db, or with rediss:// for TLS.";
		return is_unix ? names_socket : "It does not begin with redis://, rediss://, valkey:// or valkeys://.";
	}
	if (strchr(from, '@') != NULL)
	{
		*hint = "Leave them out, and set the options \"username\" and \"password\" of a user mapping.";
		return "It holds a user name or a password, and all roles can read the options of a foreign server.";
	}
	if (strpbrk(from, "?#") != NULL)
	{
		*hint = "Leave them out, and set the options of the foreign server that do the same.";
		return "It has parameters after a ? or #.";
	}

	end = from + strcspn(from, "/");
	result->db = 0;
	if (end[0] == '/' && end[1] != '\0')
	{
		len = strlen(end + 1) < sizeof(db) ? decode(db, end + 1, end + strlen(end)) : -1;
		result->db = len < 0 ? -1 : number_of(db, db + len);
		if (result->db < 0 || result->db > REXP_DB_MOST)
			return "Its path is not the number of a database, as in redis://host:port/0.";
	}
	return authority_fault(result, from, end, hint);
}
