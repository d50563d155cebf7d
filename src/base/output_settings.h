/*-------------------------------------------------------------------------
 *
 * output_settings.h
 *	  The settings that decide how PostgreSQL writes a value as text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_OUTPUT_SETTINGS_H
#define REDIS_EXPORT_OUTPUT_SETTINGS_H

#include "pgtime.h"

/* Output settings of the session, put aside while we write values. */
typedef struct RexpOutputSettings
{
	int			date_style;
	int			date_order;
	int			interval_style;
	int			float_digits;
	int			bytea_format;
	pg_tz	   *timezone;
	bool		quote_identifiers;
} RexpOutputSettings;

extern void rexp_output_settings_get(RexpOutputSettings *saved);
extern void rexp_output_settings_enter(RexpOutputSettings *saved);
extern void rexp_output_settings_leave(const RexpOutputSettings *saved);
extern void rexp_under_output_settings(void (*work) (void *arg), void *arg);

#endif							/* REDIS_EXPORT_OUTPUT_SETTINGS_H */
