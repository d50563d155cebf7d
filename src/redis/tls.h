/*-------------------------------------------------------------------------
 *
 * tls.h
 *	  TLS on a connection of hiredis that does not block.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_TLS_H
#define REDIS_EXPORT_TLS_H

#include "base/compat.h"
#include "base/error.h"

/* How much of the server's certificate is verified. */
typedef enum RexpTlsVerify
{
	REXP_TLS_VERIFY_FULL,		/* who signed it, and that it has our name */
	REXP_TLS_VERIFY_CA,			/* who signed it */
	REXP_TLS_VERIFY_OFF
} RexpTlsVerify;

typedef struct RexpTlsOptions
{
	bool		enabled;
	const char *ca_file;		/* NULL: the system's store */
	const char *cert_file;		/* our own certificate, or NULL */
	const char *key_file;		/* its key; both or none */
	const char *server_name;	/* of the certificate; NULL: the host's */
	RexpTlsVerify verify;
} RexpTlsOptions;

/* The state of a connection; all zero before rexp_tls_start(). */
typedef struct RexpTls
{
	redisContext *context;		/* owns ssl; NULL: no TLS on this connection */
	struct ssl_st *ssl;
	bool		unsent;			/* hiredis holds bytes until there is room */
	bool		refused;		/* TLS has failed, not what carries it ... */
	bool		other_name;		/* ... since the certificate has another name */
	char		reason[REXP_MESSAGE_SIZE];	/* of the last failure */
	const char *hint;			/* what to do about it, or NULL */
} RexpTls;

typedef enum RexpTlsProgress
{
	REXP_TLS_DONE,
	REXP_TLS_READ,				/* when there is something to read, again */
	REXP_TLS_WRITE,				/* when there is room to write, again */
	REXP_TLS_FAILED
} RexpTlsProgress;

extern bool rexp_tls_supported(RexpError *error);
extern bool rexp_tls_start(RexpTls *tls, redisContext *context,
						   const RexpTlsOptions *options, const char *name);
extern RexpTlsProgress rexp_tls_handshake(RexpTls *tls);
extern ssize_t rexp_tls_send(RexpTls *tls, const char *bytes, size_t len);
extern ssize_t rexp_tls_receive(RexpTls *tls, char *to, size_t size);
extern void rexp_tls_end(RexpTls *tls);

#endif							/* REDIS_EXPORT_TLS_H */
