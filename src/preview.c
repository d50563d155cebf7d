/*-------------------------------------------------------------------------
 *
 * preview.c
 *	  What an export would do with its first rows, and nothing of it done.
 *
 * The query runs in the caller's own session, fenced in as in a worker, and in a
 * subtransaction that is then rolled back, so that nothing is left of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode.h"
#include "fence.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "preview.h"
#include "server_options.h"
#include "source.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

typedef struct Preview
{
	const RexpJob *job;
	RexpEncoder *encoder;
	ReturnSetInfo *result;
	MemoryContext row_context;
	RexpBuffer	out;
	int64		rows;			/* at most */
	int64		row;
} Preview;

/* Can redis-cli take this word as it is? */
static bool
is_plain(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) bytes[i];

		if (c <= ' ' || c >= 0x7f || c == '"' || c == '\'' || c == '\\')
			return false;
	}
	return len > 0;
}

/* Append a word as redis-cli reads it: in double quotes if need be. */
static void
append_word(StringInfo text, const char *bytes, size_t len)
{
	if (is_plain(bytes, len))
		appendBinaryStringInfo(text, bytes, (int) len);
	else
		rexp_append_quoted(text, bytes, len);
}

static void
put_row(Preview *preview, const char *action, const char *command, const char *error)
{
	Datum		values[4];
	bool		nulls[4] = {false, false, command == NULL, error == NULL};

	values[0] = Int64GetDatum(preview->row);
	values[1] = CStringGetTextDatum(action);
	values[2] = command ? CStringGetTextDatum(command) : (Datum) 0;
	values[3] = error ? CStringGetTextDatum(error) : (Datum) 0;
	tuplestore_putvalues(preview->result->setResult, preview->result->setDesc,
						 values, nulls);
}

/* Each command in the buffer becomes a row of the result. */
static void
put_commands(Preview *preview, const char *action)
{
	const char *at = preview->out.data;
	const char *end = at + preview->out.len;

	while (at < end)
	{
		StringInfoData text;
		size_t		nwords = rexp_resp_take_header(&at);

		initStringInfo(&text);
		for (size_t i = 0; i < nwords; i++)
		{
			size_t		len = rexp_resp_take_header(&at);

			if (i > 0)
				appendStringInfoChar(&text, ' ');
			append_word(&text, at, len);
			at += len + 2;
		}
		put_row(preview, action, text.data, NULL);
	}
}

static bool
take_row(TupleTableSlot *slot, void *arg)
{
	Preview    *preview = arg;
	MemoryContext old = MemoryContextSwitchTo(preview->row_context);
	RexpBlock	block;
	RexpError	error;

	preview->row++;
	preview->out.len = 0;
	switch (rexp_encoder_encode(preview->encoder, slot, &preview->out, &block, &error))
	{
		case REXP_ENCODED:
			if (block.expiry.kind != REXP_EXPIRY_NONE)
			{
				char	   *key = palloc(block.key_len + 1);

				/* the key lies in the buffer that may be moved by that */
				memcpy(key, preview->out.data + block.key_start, block.key_len);
				rexp_expiry_command(&block.expiry, key, block.key_len, &preview->out);
			}
			put_commands(preview, block.erases ? "delete" : "write");
			break;
		case REXP_ENCODE_SKIPPED:
			put_row(preview, "skip", NULL, NULL);
			break;
		case REXP_ENCODE_FAILED:
			put_row(preview, "fail", NULL, error.message);
			break;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(preview->row_context);
	CHECK_FOR_INTERRUPTS();
	return preview->row < preview->rows;
}

/* Run the query for its first rows. */
static void
run_query(void *arg)
{
	Preview    *preview = arg;
	const RexpJob *job = preview->job;
	RexpSource *source;

	source = rexp_source_open(job->query);
	preview->encoder = rexp_encoder_create(&job->encoding,
										   rexp_source_columns(source));
	rexp_source_run(source, take_row, preview);
	rexp_source_close(source);
}

/*
 * rexp_preview
 *	  Return what an export would do with so many rows at most as the result of a
 *	  set-returning function: row_number, action, command, error.
 *
 * What is an error of the export before it starts is one here.
 */
void
rexp_preview(const RexpJob *job, int64 rows, FunctionCallInfo fcinfo)
{
	Preview		preview = {0};

	InitMaterializedSRF(fcinfo, 0);
	(void) rexp_job_check(job);

	preview.result = (ReturnSetInfo *) fcinfo->resultinfo;
	preview.job = job;
	preview.rows = rows;
	preview.row_context = AllocSetContextCreate(CurrentMemoryContext,
												"redis_export preview",
												ALLOCSET_DEFAULT_SIZES);
	rexp_buffer_init(&preview.out, 8192);

	rexp_fence_and_roll_back(rexp_job_session(job), run_query, &preview);
	MemoryContextDelete(preview.row_context);
}
