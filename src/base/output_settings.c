/*-------------------------------------------------------------------------
 *
 * output_settings.c
 *	  The settings that decide how PostgreSQL writes a value as text.
 *
 * Values are written under the same settings whoever exports them: ISO dates, UTC,
 * shortest exact floats, hexadecimal bytea.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/output_settings.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"

/* The output settings as they are. */
void
rexp_output_settings_get(RexpOutputSettings *saved)
{
	saved->date_style = DateStyle;
	saved->date_order = DateOrder;
	saved->interval_style = IntervalStyle;
	saved->float_digits = extra_float_digits;
	saved->bytea_format = bytea_output;
	saved->timezone = session_timezone;
	saved->quote_identifiers = quote_all_identifiers;
}

/*
 * rexp_output_settings_enter
 *	  Put our fixed output settings in place of the session's.
 *
 * The query itself runs under its caller's settings, so the switch is made
 * around the writing of each row: seven assignments, where set_config_option()
 * would cost more than the row.  The variables are put back before anything
 * else runs.
 *
 * It is for the fence only (fence.c), which puts them back after an error; so
 * rows need no PG_TRY.  Elsewhere, call rexp_under_output_settings().
 */
void
rexp_output_settings_enter(RexpOutputSettings *saved)
{
	static pg_tz *utc = NULL;

	if (utc == NULL)
		utc = pg_tzset("UTC");
	rexp_output_settings_get(saved);

	DateStyle = USE_ISO_DATES;
	DateOrder = DATEORDER_YMD;
	IntervalStyle = INTSTYLE_POSTGRES;
	extra_float_digits = 1;
	bytea_output = BYTEA_OUTPUT_HEX;
	quote_all_identifiers = false;
	if (utc != NULL)
		session_timezone = utc;
}

void
rexp_output_settings_leave(const RexpOutputSettings *saved)
{
	DateStyle = saved->date_style;
	DateOrder = saved->date_order;
	IntervalStyle = saved->interval_style;
	extra_float_digits = saved->float_digits;
	bytea_output = saved->bytea_format;
	session_timezone = saved->timezone;
	quote_all_identifiers = saved->quote_identifiers;
}

/*
 * rexp_under_output_settings
 *	  Do some work under our fixed output settings, whose errors leave the session's
 *	  as they were.
 */
void
rexp_under_output_settings(void (*work) (void *arg), void *arg)
{
	RexpOutputSettings saved;

	rexp_output_settings_enter(&saved);
	PG_TRY();
	{
		work(arg);
	}
	PG_FINALLY();
	{
		rexp_output_settings_leave(&saved);
	}
	PG_END_TRY();
}
