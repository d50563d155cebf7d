/*-------------------------------------------------------------------------
 *
 * payload.c
 *	  A job's arguments as bytes.
 *
 * Both sides run the same library on the same machine, so structs go as they
 * lie; what they point to follows as strings, in one order that the writer and
 * the reader share, in one function each.  A session that loaded the library before
 * another version was installed runs an older one than its worker does: a header tells
 * them apart.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/payload.h"
#include "utils/memutils.h"

/* To be changed whenever what is written changes. */
#define PAYLOAD_FORMAT "redis_export payload 1"

typedef struct PayloadHeader
{
	char		format[32];
	size_t		job_size;
	size_t		session_size;
	size_t		size;			/* of all that follows */
} PayloadHeader;

static void
fill_header(PayloadHeader *header, size_t size)
{
	memset(header, 0, sizeof(PayloadHeader));
	strlcpy(header->format, PAYLOAD_FORMAT, sizeof(header->format));
	header->job_size = sizeof(RexpJob);
	header->session_size = sizeof(RexpSession);
	header->size = size;
}

/* A string that may be NULL: one byte that says so, then its bytes and a zero. */
static void
put_string(StringInfo out, const char *string)
{
	appendStringInfoChar(out, string != NULL);
	if (string != NULL)
		appendBinaryStringInfo(out, string, (int) strlen(string) + 1);
}

static const char *
get_string(char **at)
{
	const char *string = NULL;

	if (*(*at)++)
	{
		string = *at;
		*at += strlen(string) + 1;
	}
	return string;
}

static void
put_list(StringInfo out, List *list)
{
	int			count = list_length(list);
	ListCell   *cell;

	appendBinaryStringInfo(out, (const char *) &count, sizeof(int));
	foreach(cell, list)
		put_string(out, lfirst(cell));
}

static List *
get_list(char **at)
{
	List	   *list = NIL;
	int			count;

	memcpy(&count, *at, sizeof(int));
	*at += sizeof(int);
	while (count-- > 0)
		list = lappend(list, unconstify(char *, get_string(at)));
	return list;
}

/*
 * rexp_payload_write
 *	  Append a job's arguments and its caller's session to out, which is empty.
 */
void
rexp_payload_write(StringInfo out, const RexpJob *job, const RexpSession *session)
{
	PayloadHeader header = {0};

	/* its size is known in the end */
	appendBinaryStringInfo(out, (const char *) &header, sizeof(header));
	appendBinaryStringInfo(out, (const char *) job, sizeof(RexpJob));
	appendBinaryStringInfo(out, (const char *) session, sizeof(RexpSession));
	put_string(out, job->name);
	put_string(out, job->id);
	put_list(out, job->settings);
	put_string(out, job->query);
	put_string(out, job->server);
	put_string(out, job->wait_index);
	put_string(out, job->watermark_column);
	put_string(out, job->encoding.key_template);
	put_string(out, job->encoding.value);
	put_string(out, job->encoding.path);
	put_string(out, job->encoding.ttl_column);
	put_list(out, job->encoding.exclude);
	put_list(out, job->encoding.words);
	put_string(out, session->role);
	for (int i = 0; i < session->nsettings; i++)
	{
		const RexpSetting *setting = &session->settings[i];

		appendBinaryStringInfo(out, (const char *) setting, sizeof(RexpSetting));
		put_string(out, setting->name);
		put_string(out, setting->value);
	}
	fill_header(&header, out->len - sizeof(header));
	memcpy(out->data, &header, sizeof(header));
}

/*
 * rexp_payload_read
 *	  Read what rexp_payload_write() has written.  All of it is copied into the current
 *	  memory context.  False if another version of the library has written it.
 */
bool
rexp_payload_read(const char *bytes, RexpJob *job, RexpSession *session)
{
	PayloadHeader header;
	PayloadHeader expected;
	char	   *at;

	memcpy(&header, bytes, sizeof(header));
	fill_header(&expected, header.size);
	if (memcmp(&header, &expected, sizeof(header)) != 0)
		return false;
	at = MemoryContextAllocHuge(CurrentMemoryContext, header.size);
	memcpy(at, bytes + sizeof(header), header.size);
	memcpy(job, at, sizeof(RexpJob));
	at += sizeof(RexpJob);
	memcpy(session, at, sizeof(RexpSession));
	at += sizeof(RexpSession);
	job->name = get_string(&at);
	job->id = get_string(&at);
	job->settings = get_list(&at);
	job->query = get_string(&at);
	job->server = get_string(&at);
	job->wait_index = get_string(&at);
	job->watermark_column = get_string(&at);
	job->encoding.key_template = get_string(&at);
	job->encoding.value = get_string(&at);
	job->encoding.path = get_string(&at);
	job->encoding.ttl_column = get_string(&at);
	job->encoding.exclude = get_list(&at);
	job->encoding.words = get_list(&at);
	session->role = get_string(&at);
	session->settings = palloc(sizeof(RexpSetting) * Max(session->nsettings, 1));
	for (int i = 0; i < session->nsettings; i++)
	{
		RexpSetting *setting = &session->settings[i];

		memcpy(setting, at, sizeof(RexpSetting));
		at += sizeof(RexpSetting);
		setting->name = get_string(&at);
		setting->value = get_string(&at);
	}
	return true;
}
