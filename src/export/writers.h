/*-------------------------------------------------------------------------
 *
 * writers.h
 *	  The transactions that write in this database at the time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_WRITERS_H
#define REDIS_EXPORT_WRITERS_H

#include "datatype/timestamp.h"

extern TimestampTz rexp_oldest_writer(void);

#endif							/* REDIS_EXPORT_WRITERS_H */
