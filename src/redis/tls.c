/*-------------------------------------------------------------------------
 *
 * tls.c
 *	  TLS on a connection of hiredis that does not block.
 *
 * hiredis_ssl carries the bytes.  But the SSL object and its context are made
 * here and not by redisCreateSSLContextWithOptions(): the reason for which a
 * certificate is refused is in the object, which hiredis' own context does not
 * give away, and its messages are those of errno, which has nothing to do with
 * it.  It also lets us work with a hiredis that cannot check host names (before
 * 1.5), and ask for no passphrase on a terminal that the server may have.
 *
 * OpenSSL's queue of errors belongs to the whole process, PostgreSQL's own
 * connections included: it is emptied before each call that may add to it, since
 * hiredis does not do that, and when the errors have been looked at.
 *
 * No PostgreSQL function that can raise an error is called here.  Writing to a
 * connection that is gone raises SIGPIPE, which PostgreSQL's processes ignore.
 *
 * Waiting, and what is to be done after a failure, is not known here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "redis/tls.h"

/*
 * rexp_tls_supported
 *	  Is there TLS in this build?  If not, *error says what to do.
 */
bool
rexp_tls_supported(RexpError *error)
{
#ifdef REXP_HIREDIS_TLS
	return true;
#else
	rexp_error_set(error, ERRCODE_FEATURE_NOT_SUPPORTED,
				   "TLS is not supported by this build of redis_export");
	rexp_error_detail(error, "It was built with hiredis %s, without hiredis_ssl.",
					  REXP_HIREDIS_VERSION);
	rexp_error_hint(error, "Build it again with hiredis 1.2 or later and OpenSSL, or after \"make deps\", which builds such a hiredis.");
	return false;
#endif
}

#ifdef REXP_HIREDIS_TLS

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/*
 * Bytes that hiredis is given at a time: a record of TLS.  What OpenSSL has
 * begun to send it must be given again as it was, so hiredis keeps it, and
 * copies the rest of its buffer together after each part that was sent.
 */
#define RECORD_SIZE 16384

/* The reasons of alerts that the other side sends begin here. */
#define ALERT(description) (SSL_AD_REASON_OFFSET + (description))

static void
forget_errors(void)
{
	ERR_clear_error();
	errno = 0;
}

/* What to do about a certificate that was refused. */
static const char *
hint_for_certificate(long verdict)
{
	switch (verdict)
	{
		case X509_V_ERR_HOSTNAME_MISMATCH:
		case X509_V_ERR_IP_ADDRESS_MISMATCH:
			return "If it is the right server, set the option \"tls_server_name\" to a name that its certificate has.";
		case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
		case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
		case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
		case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
		case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
		case X509_V_ERR_CERT_SIGNATURE_FAILURE:
			return "Set the option \"tls_ca_file\" to the certificate of the authority that has signed Redis' certificate.";
		case X509_V_ERR_CERT_HAS_EXPIRED:
		case X509_V_ERR_CERT_NOT_YET_VALID:
			return "See the dates of Redis' certificate and of those that signed it, and the clock of this machine.";
		default:
			return NULL;
	}
}

/* What to do about an error of the protocol. */
static const char *
hint_for_protocol(int reason, bool in_handshake, bool has_certificate)
{
	switch (reason)
	{
		case ALERT(SSL_AD_HANDSHAKE_FAILURE):
		case ALERT(SSL_AD_BAD_CERTIFICATE):
		case ALERT(SSL_AD_UNSUPPORTED_CERTIFICATE):
		case ALERT(SSL_AD_CERTIFICATE_REVOKED):
		case ALERT(SSL_AD_CERTIFICATE_EXPIRED):
		case ALERT(SSL_AD_CERTIFICATE_UNKNOWN):
		case ALERT(SSL_AD_UNKNOWN_CA):
		case ALERT(SSL_AD_ACCESS_DENIED):
		case ALERT(SSL_AD_CERTIFICATE_REQUIRED):
			return has_certificate ?
				"Redis may not accept the certificate in \"tls_cert_file\": see who signed it, its dates, and Redis' log." :
				"Redis may want a certificate of its clients: set the options \"tls_cert_file\" and \"tls_key_file\".";
		case SSL_R_WRONG_VERSION_NUMBER:
		case SSL_R_PACKET_LENGTH_TOO_LONG:
			return in_handshake ?
				"TLS may not be spoken there: see the option \"port\", or set the option \"tls\" to false." :
				NULL;
		default:
			return NULL;
	}
}

/*
 * Keep why the last call has failed.  The first word of TLS itself stays: after
 * it the connection breaks, too, which would only hide it.
 */
static void
keep_reason(RexpTls *tls, int system_error)
{
	unsigned long code = ERR_peek_error();
	int			reason = ERR_GET_REASON(code);
	bool		in_handshake = !SSL_is_init_finished(tls->ssl);
	long		verdict = SSL_get_verify_result(tls->ssl);
	const char *text;

	ERR_clear_error();
	if (tls->refused)
		return;
	tls->hint = NULL;
	if (in_handshake && verdict != X509_V_OK &&
		SSL_get_verify_mode(tls->ssl) != SSL_VERIFY_NONE)
	{
		snprintf(tls->reason, sizeof(tls->reason),
				 "certificate verify failed: %s",
				 X509_verify_cert_error_string(verdict));
		tls->hint = hint_for_certificate(verdict);
		tls->refused = true;
		tls->other_name = verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
			verdict == X509_V_ERR_IP_ADDRESS_MISMATCH;
		return;
	}
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
	if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
		reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		code = system_error = 0;
#endif
	if (code == 0 || ERR_GET_LIB(code) == ERR_LIB_SYS)
	{
		if (code != 0)
			system_error = reason;
		strlcpy(tls->reason,
				system_error == 0 ? "the server closed it" : strerror(system_error),
				sizeof(tls->reason));
		return;
	}
	text = ERR_reason_error_string(code);
	if (text != NULL)
		strlcpy(tls->reason, text, sizeof(tls->reason));
	else
		snprintf(tls->reason, sizeof(tls->reason), "error %lX of OpenSSL", code);
	if (ERR_GET_LIB(code) == ERR_LIB_SSL)
		tls->hint = hint_for_protocol(reason, in_handshake,
									  SSL_get_certificate(tls->ssl) != NULL);
	tls->refused = true;
}

/* The same for what is done before the handshake, with a file or a name. */
static void
keep_reason_of_setup(RexpTls *tls, const char *what, const char *name,
					 const char *hint)
{
	unsigned long code = ERR_peek_error();
	const char *text = ERR_GET_LIB(code) == ERR_LIB_SYS ?
		strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);

	snprintf(tls->reason, sizeof(tls->reason), "%s%s%s%s: %s", what,
			 name != NULL ? " \"" : "", name != NULL ? name : "",
			 name != NULL ? "\"" : "", text != NULL ? text : "unknown error");
	tls->hint = hint;
	tls->refused = true;
	ERR_clear_error();
}

/* Instead of asking for the passphrase on the terminal. */
static int
no_passphrase(char *to, int size, int writing, void *data)
{
	return -1;
}

/* Certificates and keys, and whose word is taken. */
static bool
load_files(RexpTls *tls, SSL_CTX *context, const RexpTlsOptions *options)
{
	if (options->ca_file != NULL)
	{
		if (SSL_CTX_load_verify_locations(context, options->ca_file, NULL) != 1)
		{
			keep_reason_of_setup(tls, "could not load the option \"tls_ca_file\",",
								 options->ca_file, NULL);
			return false;
		}
	}
	else if (SSL_CTX_set_default_verify_paths(context) != 1)
	{
		keep_reason_of_setup(tls, "could not use the system's store of certificates",
							 NULL, NULL);
		return false;
	}
	if (options->cert_file == NULL)
		return true;
	if (SSL_CTX_use_certificate_chain_file(context, options->cert_file) != 1)
	{
		keep_reason_of_setup(tls, "could not load the option \"tls_cert_file\",",
							 options->cert_file, NULL);
		return false;
	}
	SSL_CTX_set_default_passwd_cb(context, no_passphrase);
	if (SSL_CTX_use_PrivateKey_file(context, options->key_file,
									SSL_FILETYPE_PEM) != 1)
	{
		keep_reason_of_setup(tls, "could not load the option \"tls_key_file\",",
							 options->key_file,
							 "It must hold the key of the certificate in \"tls_cert_file\", without a passphrase.");
		return false;
	}
	return true;
}

/*
 * The name or address that the certificate must have; a name is also asked for,
 * since a server may have several certificates.
 */
static bool
set_name(RexpTls *tls, SSL *ssl, RexpTlsVerify verify, const char *name)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
	unsigned char address[sizeof(struct in6_addr)];
	bool		is_address = inet_pton(AF_INET, name, address) == 1 ||
		inet_pton(AF_INET6, name, address) == 1;
	int			good = 1;

	if (verify == REXP_TLS_VERIFY_FULL)
	{
		X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);

		/* OpenSSL takes an empty name for none */
		good = name[0] == '\0' ? 0 :
			is_address ? X509_VERIFY_PARAM_set1_ip_asc(param, name) :
			X509_VERIFY_PARAM_set1_host(param, name, strlen(name));
	}
	if (good == 1 && !is_address)
		good = (int) SSL_set_tlsext_host_name(ssl, name);
	if (good == 1)
		return true;
	keep_reason_of_setup(tls, "could not use the server name", name, NULL);
	return false;
}

static SSL *
make_ssl(RexpTls *tls, const RexpTlsOptions *options, const char *name)
{
	SSL_CTX    *context = SSL_CTX_new(TLS_client_method());
	SSL		   *ssl = NULL;

	if (context == NULL)
	{
		keep_reason_of_setup(tls, "could not begin", NULL, NULL);
		return NULL;
	}
	(void) SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);

	/* a write must never wait for something to be read */
	(void) SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_verify(context,
					   options->verify == REXP_TLS_VERIFY_OFF ?
					   SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
	if (load_files(tls, context, options))
	{
		ssl = SSL_new(context);
		if (ssl == NULL)
			keep_reason_of_setup(tls, "could not begin", NULL, NULL);
		else if (!set_name(tls, ssl, options->verify, name))
		{
			SSL_free(ssl);
			ssl = NULL;
		}
	}
	SSL_CTX_free(context);		/* the object holds it */
	return ssl;
}

/*
 * rexp_tls_start
 *	  Begin TLS, with the server of this name, on a connection that is open.
 *
 * Returns false, with a reason in *tls, if that cannot be; the connection is of
 * no more use then.  What was begun ends with hiredis' context.
 */
bool
rexp_tls_start(RexpTls *tls, redisContext *context,
			   const RexpTlsOptions *options, const char *name)
{
	memset(tls, 0, sizeof(RexpTls));
	forget_errors();
	tls->ssl = make_ssl(tls, options, name);
	if (tls->ssl == NULL)
		return false;
	forget_errors();
	if (redisInitiateSSL(context, tls->ssl) != REDIS_OK)
	{
		keep_reason(tls, errno);
		SSL_free(tls->ssl);
		tls->ssl = NULL;
		return false;
	}
	tls->context = context;
	return true;
}

/* Go on with the handshake, as far as it goes without waiting. */
RexpTlsProgress
rexp_tls_handshake(RexpTls *tls)
{
	int			result;
	int			system_error;

	forget_errors();
	result = SSL_do_handshake(tls->ssl);
	system_error = errno;
	if (result == 1)
		return REXP_TLS_DONE;
	switch (SSL_get_error(tls->ssl, result))
	{
		case SSL_ERROR_WANT_READ:
			return REXP_TLS_READ;
		case SSL_ERROR_WANT_WRITE:
			return REXP_TLS_WRITE;
		default:
			keep_reason(tls, system_error);
			return REXP_TLS_FAILED;
	}
}

/*
 * Have hiredis send what it holds.  False after a failure, also one before, of
 * which the reason stays.
 */
static bool
flush(RexpTls *tls)
{
	int			done = 1;

	if (tls->context->err != 0)
		return false;
	forget_errors();
	if (redisBufferWrite(tls->context, &done) != REDIS_OK)
	{
		keep_reason(tls, errno);
		return false;
	}
	tls->unsent = !done;
	return true;
}

/*
 * rexp_tls_send
 *	  Take bytes to be sent, as many as there is room for now.
 *
 * Returns how many those were, or -1 after a failure.  The last of them may
 * still be held here: then tls->unsent is set, and they go when there is room and
 * this or rexp_tls_receive() is called.
 */
ssize_t
rexp_tls_send(RexpTls *tls, const char *bytes, size_t len)
{
	size_t		taken = 0;

	if (!flush(tls))
		return -1;
	while (taken < len && !tls->unsent)
	{
		size_t		n = Min(len - taken, RECORD_SIZE);

		if (redisAppendFormattedCommand(tls->context, bytes + taken, n) != REDIS_OK)
			keep_reason(tls, ENOMEM);
		else if (flush(tls))
		{
			taken += n;
			continue;
		}

		/*
		 * A record that was not sent to its end will not be read.  Those
		 * before it may be, so that they count as sent; the next call fails.
		 */
		return taken > 0 ? (ssize_t) taken : -1;
	}
	return taken;
}

/*
 * rexp_tls_receive
 *	  Read what has come in, and then send what is held.
 *
 * Returns the number of bytes, 0 if there are none now, or -1 after a failure.
 * It must have returned 0 before one waits for the socket: OpenSSL may have
 * taken more from that than it has given.
 */
ssize_t
rexp_tls_receive(RexpTls *tls, char *to, size_t size)
{
	ssize_t		n;

	forget_errors();
	n = tls->context->funcs->read(tls->context, to, size);
	if (n < 0)
		keep_reason(tls, errno);
	else if (n == 0 && tls->unsent && !flush(tls))
		n = -1;
	return n;
}

/* Forget the connection, which hiredis has ended; the reason stays. */
void
rexp_tls_end(RexpTls *tls)
{
	tls->context = NULL;
	tls->ssl = NULL;
	tls->unsent = false;
}

#else							/* no TLS: none of these is ever called */

bool
rexp_tls_start(RexpTls *tls, redisContext *context,
			   const RexpTlsOptions *options, const char *name)
{
	return false;
}

RexpTlsProgress
rexp_tls_handshake(RexpTls *tls)
{
	return REXP_TLS_FAILED;
}

ssize_t
rexp_tls_send(RexpTls *tls, const char *bytes, size_t len)
{
	return -1;
}

ssize_t
rexp_tls_receive(RexpTls *tls, char *to, size_t size)
{
	return -1;
}

void
rexp_tls_end(RexpTls *tls)
{
}

#endif							/* REXP_HIREDIS_TLS */
