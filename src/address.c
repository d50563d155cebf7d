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

#include "address.h"

#define HOST_LENGTH 253
#define PORT_MOST 65535

/* The characters of names and addresses; an address of IPv6 may end in %interface. */
static const char host_characters[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%";

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
	char	   *past;
	long		port = default_port;

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
	{
		if (strspn(colon + 1, "0123456789") != (size_t) (end - colon - 1))
			return false;
		port = strtol(colon + 1, &past, 10);
		if (past != end || past == colon + 1)
			return false;
	}
	return rexp_address_told(address, REXP_ADDRESS_BY_SENTINEL_HOSTS, from, len, port);
}
