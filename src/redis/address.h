/*-------------------------------------------------------------------------
 *
 * address.h
 *	  Where a Redis is, and who has said so.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_ADDRESS_H
#define REDIS_EXPORT_ADDRESS_H

/* For a host's name, of which DNS allows 253 characters, with a zero. */
#define REXP_HOST_SIZE 256

/* The highest number of a database that an option may have. */
#define REXP_DB_MOST 1000000

/* Who has said it.  Only the option "host" may name a Unix socket. */
typedef enum RexpAddressSource
{
	REXP_ADDRESS_BY_REDIRECTION,	/* a node of a cluster that sends us on */
	REXP_ADDRESS_BY_MAP,		/* of a cluster */
	REXP_ADDRESS_BY_SENTINEL,
	REXP_ADDRESS_BY_SENTINEL_HOSTS, /* that option */
	REXP_ADDRESS_BY_HOST		/* that option, or the host in the option "uri" */
} RexpAddressSource;

typedef struct RexpAddress
{
	RexpAddressSource source;
	int			port;
	char		host[REXP_HOST_SIZE];	/* name, address, or path of a socket */
	char		name[REXP_HOST_SIZE];	/* a map's name for it besides, or empty */
} RexpAddress;

/* What a URI of the option "uri" says. */
typedef struct RexpUri
{
	RexpAddress address;
	int			db;
	bool		tls;
} RexpUri;

extern const char *rexp_host_fault(const char *host, bool may_be_socket);
extern bool rexp_address_is_socket(const RexpAddress *address);
extern const char *rexp_address_fault(const RexpAddress *address);
extern void rexp_address_of_option(RexpAddress *address, const char *host, int port);
extern bool rexp_address_told(RexpAddress *address, RexpAddressSource source,
							  const char *host, size_t len, int64 port);
extern void rexp_address_name(RexpAddress *address, const char *name, size_t len);
extern bool rexp_address_listed(RexpAddress *address, const char **at, int default_port);
extern const char *rexp_address_uri(RexpUri *result, const char *uri, const char **hint);

#endif							/* REDIS_EXPORT_ADDRESS_H */
