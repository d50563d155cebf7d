/*-------------------------------------------------------------------------
 *
 * block.c
 *	  The command that sets or removes the expiry of a row's key.
 *
 * It knows neither rows nor when it is sent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "flow/block.h"

/*
 * rexp_expiry_command
 *	  Append PEXPIRE, PEXPIREAT or PERSIST to out (Redis manual, on these), or
 *	  nothing if the expiry is to stay as it is.
 *
 * To PEXPIRE and PEXPIREAT Redis answers 0 if the key is not there; to PERSIST
 * also if it has no expiry.
 */
void
rexp_expiry_command(const RexpExpiry *expiry, const char *key, size_t key_len,
					RexpBuffer *out)
{
	static const char *const words[] = {
		[REXP_EXPIRY_IN] = "PEXPIRE",
		[REXP_EXPIRY_AT] = "PEXPIREAT",
		[REXP_EXPIRY_NEVER] = "PERSIST"
	};
	char		time[32];

	if (expiry->kind == REXP_EXPIRY_NONE)
		return;
	rexp_resp_header(out, '*', expiry->kind == REXP_EXPIRY_NEVER ? 2 : 3);
	rexp_resp_word(out, words[expiry->kind]);
	rexp_resp_bulk(out, key, key_len);
	if (expiry->kind != REXP_EXPIRY_NEVER)
	{
		snprintf(time, sizeof(time), INT64_FORMAT, expiry->time);
		rexp_resp_word(out, time);
	}
}
