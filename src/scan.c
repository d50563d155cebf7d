/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  The keys that Redis holds, and their values, as rows.
 *
 * SCAN gives each key at least once that is there all along (Redis manual, "SCAN"),
 * in no order, and some twice.  So all keys are read first, from each master of a
 * cluster, into a sort that takes no more than work_mem and spills to disk; then
 * they come out in order, each once.  Values are asked for as the keys come out, in
 * pipelines: while one lot of rows is handed out, the next is on its way.
 *
 * If only keys are asked for, and in any order, they are handed out as they come.
 * Those that have been are remembered (key_filter.c) as long as that fits into
 * memory; from then on others go into the sort, and come last.
 *
 * A key that is gone meanwhile, or holds another type by then, is left out.  When a
 * connection breaks, the query fails: it reads only, and can be asked again.
 *
 * Keys in which exports keep books are nobody's business: they are left out, unless it
 * is them that the pattern asks for.  Nothing else here knows exports.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "cluster.h"
#include "compat.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "key_filter.h"
#include "key_set.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "own_keys.h"
#include "reply.h"
#include "scan.h"
#include "sentinel.h"
#include "server_options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

/* Keys that SCAN looks at for one answer; Redis does nothing else meanwhile. */
#define SCAN_COUNT "2000"

/* Keys whose values are asked for at a time. */
#define LOT 500

/* One node: the connection, and what is on its way. */
typedef struct ScanNode
{
	RexpLink   *link;
	int			timeout;		/* milliseconds */
	bool		is_replica;		/* when it was entered */
	RexpBuffer	request;
	size_t		sent;
} ScanNode;

/* Keys that are on their way to become rows. */
typedef struct Lot
{
	int			nkeys;
	bytea	   *keys[LOT];
	int16		nodes[LOT];		/* who has it */
	int			used;
} Lot;

struct RexpScan
{
	RexpScanOptions options;
	MemoryContext context;		/* of all that lives as long as the scan */
	MemoryContextCallback callback;
	RexpCluster *cluster;		/* NULL: there is one node */
	bool		own_keys;		/* are they asked for? */
	int			nnodes;
	ScanNode	   *nodes;
	RexpKeySet *keys;			/* or NULL as long as none are kept */
	int			node;			/* whose keys are read */
	char		cursor[32];		/* of its next page, "0": there is none */
	redisReply *page;			/* its last one, or NULL */
	size_t		at;				/* the next key of the page */
	RexpKeyFilter *filter;		/* or NULL: all keys are read first */
	bool		sorted;			/* the keys that it did not remember */
	RexpBuffer	key;			/* handed out, as a bytea */
	Lot		   *lot;			/* whose rows are handed out */
	Lot		   *next;			/* whose values are on their way */
	redisReply *value;			/* that was handed out last, or NULL */
};


/* The end of the scan, however it comes: by the reset of its context. */
static void
close_scan(void *arg)
{
	RexpScan	   *scan = arg;

	for (int i = 0; i < scan->nnodes; i++)
		rexp_link_close(scan->nodes[i].link);
	if (scan->value != NULL)
		freeReplyObject(scan->value);
	if (scan->page != NULL)
		freeReplyObject(scan->page);
}

/*
 * Nodes
 */

static void
add_node(RexpScan *scan, const RexpLinkOptions *options)
{
	ScanNode	   *node = &scan->nodes[scan->nnodes];

	node->link = rexp_link_create(options, true);
	node->timeout = options->timeout;
	node->sent = 0;
	rexp_buffer_init(&node->request, 4096);
	scan->nnodes++;
}

/* Raise an error, and say what it was for. */
static void
fail(const RexpScan *scan, RexpError *error)
{
	if (scan->options.failing != NULL)
		rexp_error_prefix(error, "%s: ", scan->options.failing);
	rexp_error_raise(error);
}

/* Connect, or raise an error. */
static void
open_node(const RexpScan *scan, ScanNode *node)
{
	RexpError	error;

	if (rexp_connect(node->link, &error) != REXP_ANSWER_DONE)
		fail(scan, &error);
	node->is_replica = rexp_link_server_info(node->link)->is_replica;
}

/* Some slots belong to nobody, or to one whose address is not known: their keys cannot be read. */
static void
check_coverage(const RexpScan *scan)
{
	RexpError	error;
	int			lacking = 0;

	for (int slot = 0; slot < REXP_SLOTS; slot++)
		lacking += scan->cluster->owner[slot] < 0;
	if (lacking == 0)
		return;
	rexp_error_set(&error, ERRCODE_CANNOT_CONNECT_NOW,
				   "no node of the Redis Cluster has %d of its %d slots", lacking,
				   REXP_SLOTS);
	rexp_error_hint(&error, "See CLUSTER NODES and CLUSTER SLOTS in Redis.");
	fail(scan, &error);
}

/*
 * find_cluster
 *	  Is this a node of a cluster?  Then get the map.
 *
 * One node of several is no answer to what Redis holds: what may be one, and does not
 * tell where the others are, raises an error.
 */
static bool
find_cluster(RexpScan *scan, const RexpLinkOptions *options)
{
	const RexpServerInfo *info = rexp_link_server_info(scan->nodes[0].link);
	bool		is_known = info->is_cluster || options->cluster == REXP_CLUSTER_ON;
	RexpError	error;

	if (options->cluster == REXP_CLUSTER_OFF && info->is_cluster)
	{
		rexp_error_set(&error, ERRCODE_FEATURE_NOT_SUPPORTED,
					   "the keys of one node of a Redis Cluster are not all there are");
		rexp_error_hint(&error, "Set the option \"cluster\" of the foreign server to true or auto.");
		fail(scan, &error);
	}
	if (options->cluster == REXP_CLUSTER_OFF || (info->tells_cluster && !is_known))
		return false;

	scan->cluster = rexp_cluster_create();
	if (rexp_cluster_refresh(scan->cluster, scan->nodes[0].link, options->connect_timeout,
							 &error) == REXP_ANSWER_DONE)
	{
		check_coverage(scan);
		return true;
	}
	scan->cluster = NULL;
	if (!is_known && error.sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED)
		return false;
	if (is_known)
		rexp_error_prefix(&error, "could not ask for the nodes of the cluster: ");
	else
	{
		rexp_error_prefix(&error, "could not find out whether Redis is a cluster: ");
		rexp_error_hint(&error, "If it is none, set the option \"cluster\" of the foreign server to false; or grant the Redis user the command: ACL SETUSER ... +info, or +cluster|slots.");
	}
	fail(scan, &error);
	return false;				/* keeps the compiler quiet */
}

/* Connect to the Redis of the options, or to all masters of the cluster. */
static void
open_nodes(RexpScan *scan)
{
	const RexpLinkOptions *options = scan->options.link_options != NULL ?
		scan->options.link_options :
		rexp_link_options(scan->options.server, GetUserId(), NULL);
	RexpLinkOptions node;

	scan->nodes = palloc0(sizeof(ScanNode));
	add_node(scan, options);
	open_node(scan, &scan->nodes[0]);
	if (!find_cluster(scan, options))
		return;

	rexp_link_close(scan->nodes[0].link);
	scan->nnodes = 0;
	scan->nodes = palloc0(sizeof(ScanNode) * Max(scan->cluster->nnodes, 1));
	node = *options;
	for (int i = 0; i < scan->cluster->nnodes; i++)
	{
		node.lead_to = &scan->cluster->nodes[i].address;
		add_node(scan, &node);
		if (scan->cluster->nodes[i].slots > 0)
			open_node(scan, &scan->nodes[i]);
	}
}

/* The next reply of a node, after what is left to be sent; or an error is raised. */
static redisReply *
receive(const RexpScan *scan, ScanNode *node)
{
	RexpError	error;
	redisReply *reply = rexp_link_converse(node->link, &node->request, &node->sent,
										   node->timeout, &error);

	if (reply == NULL)
		fail(scan, &error);
	return reply;
}

/* Raise an error: what has been read is a part of what there is, or may be. */
static void
fail_incomplete(const RexpScan *scan, const char *why)
{
	RexpError	error;

	rexp_error_set(&error, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "%s while the keys of Redis were read", why);
	rexp_error_detail(&error, "Some of them may not have been seen.");
	rexp_error_hint(&error, "Try again when that is over.");
	fail(scan, &error);
}

/*
 * Does a node still have the slots whose keys were read there, and no others?  By its
 * own map: others may hear of a change later.  Each node may write an address in its own
 * way, but not the port.
 */
static bool
has_same_slots(const RexpScan *scan, int number)
{
	ScanNode   *node = &scan->nodes[number];
	const RexpCluster *before = scan->cluster;
	RexpCluster *now = rexp_cluster_create();
	int			owner = -1;
	bool		same = true;
	RexpError	error;

	if (rexp_cluster_refresh(now, node->link, node->timeout, &error) != REXP_ANSWER_DONE)
		fail(scan, &error);
	for (int slot = 0; slot < REXP_SLOTS && same; slot++)
	{
		if (before->owner[slot] != number)
			continue;
		if (owner < 0)
			owner = now->owner[slot];
		same = owner >= 0 && now->owner[slot] == owner;
	}
	same = same && owner >= 0 && now->nodes[owner].slots == before->nodes[number].slots &&
		now->nodes[owner].address.port == before->nodes[number].address.port;
	pfree(now->nodes);
	pfree(now);
	return same;
}

/*
 * Is a slot of this node on its way?  Its keys go one by one, and one may have gone from
 * a node that was still to be read to one that had been.  Who may not ask is not told.
 */
static bool
moves_slots(const RexpScan *scan, ScanNode *node)
{
	redisReply *reply;
	bool		moves;

	node->request.len = node->sent = 0;
	rexp_resp_header(&node->request, '*', 2);
	rexp_resp_word(&node->request, "CLUSTER");
	rexp_resp_word(&node->request, "NODES");
	reply = receive(scan, node);
	moves = reply->type != REDIS_REPLY_ERROR && reply->str != NULL &&
		strstr(reply->str, " [") != NULL;
	freeReplyObject(reply);
	node->request.len = node->sent = 0;
	return moves;
}

/*
 * check_whole
 *	  All keys have been read: was it from those who had them, all the time?
 */
static void
check_whole(RexpScan *scan)
{
	for (int i = 0; i < scan->nnodes; i++)
	{
		ScanNode   *node = &scan->nodes[i];
		RexpError	error;

		if (!rexp_link_is_open(node->link))
			continue;
		if (!rexp_link_refresh_info(node->link, &error))
			fail(scan, &error);
		if (rexp_link_server_info(node->link)->is_replica && !node->is_replica)
			fail_incomplete(scan, "another Redis took over as the master");
		if (scan->cluster == NULL)
			continue;
		if (!has_same_slots(scan, i) || moves_slots(scan, node))
			fail_incomplete(scan, "slots of the Redis Cluster moved");
	}
}

/*
 * Keys
 */

static void
request_page(RexpScan *scan, ScanNode *node, const char *cursor)
{
	const char *type = scan->options.type;

	node->request.len = node->sent = 0;
	rexp_resp_header(&node->request, '*', type != NULL ? 8 : 6);
	rexp_resp_word(&node->request, "SCAN");
	rexp_resp_word(&node->request, cursor);
	rexp_resp_word(&node->request, "MATCH");
	rexp_resp_word(&node->request, scan->options.pattern);
	rexp_resp_word(&node->request, "COUNT");
	rexp_resp_word(&node->request, SCAN_COUNT);
	if (type != NULL)
	{
		rexp_resp_word(&node->request, "TYPE");
		rexp_resp_word(&node->request, type);
	}
}

/* Raise an error, since it is no answer to SCAN. */
static void
refuse_page(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("Redis gave no answer to SCAN that can be read")));
}

/* Raise an error for what is no answer to SCAN. */
static void
check_page(const RexpScan *scan, const redisReply *reply)
{
	RexpError	error;

	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		reply->element[0]->type == REDIS_REPLY_STRING &&
		reply->element[1]->type == REDIS_REPLY_ARRAY)
		return;
	if (reply->type != REDIS_REPLY_ERROR)
		refuse_page();
	(void) rexp_answer_to(reply->str, reply->len, &error);
	fail(scan, &error);
}

/* Ask for the page after this one, for Redis to be at it meanwhile. */
static void
request_next(RexpScan *scan, ScanNode *node)
{
	RexpError	error;
	ssize_t		n;

	request_page(scan, node, scan->cursor);
	n = rexp_link_send(node->link, node->request.data, node->request.len, &error);
	if (n < 0)
		fail(scan, &error);
	node->sent = n;
}

/*
 * next_page
 *	  Wait for the next page of keys, of this node or of the next one that has any.
 *	  False if there are no more.
 */
static bool
next_page(RexpScan *scan)
{
	ScanNode   *node;

	if (scan->page != NULL)
		freeReplyObject(scan->page);
	scan->page = NULL;
	if (scan->node >= 0 && strcmp(scan->cursor, "0") == 0)
		scan->nodes[scan->node].request.len = scan->nodes[scan->node].sent = 0;
	if (scan->node < 0 || strcmp(scan->cursor, "0") == 0)
	{
		while (++scan->node < scan->nnodes &&
			   !rexp_link_is_open(scan->nodes[scan->node].link))
			continue;
		if (scan->node >= scan->nnodes)
		{
			scan->node = scan->nnodes;
			check_whole(scan);
			return false;
		}
		request_page(scan, &scan->nodes[scan->node], "0");
	}
	node = &scan->nodes[scan->node];
	scan->page = receive(scan, node);
	scan->at = 0;
	check_page(scan, scan->page);
	strlcpy(scan->cursor, scan->page->element[0]->str, sizeof(scan->cursor));
	if (strcmp(scan->cursor, "0") != 0)
		request_next(scan, node);
	return true;
}

/* The next key as it comes; NULL if there are no more. */
static const redisReply *
next_of_pages(RexpScan *scan)
{
	const redisReply *key;

	do
	{
		CHECK_FOR_INTERRUPTS();
		while (scan->page == NULL || scan->at == scan->page->element[1]->elements)
		{
			if (scan->node == scan->nnodes || !next_page(scan))
				return NULL;
		}
		key = scan->page->element[1]->element[scan->at++];
		if (key->type != REDIS_REPLY_STRING)
			refuse_page();
	} while (!scan->own_keys && rexp_is_own_key(key->str, key->len));
	return key;
}

/* Read all keys, for them to come out in order. */
static void
read_all(RexpScan *scan)
{
	const redisReply *key;

	scan->keys = rexp_key_set_create(scan->options.memory);
	while ((key = next_of_pages(scan)) != NULL)
		rexp_key_set_add(scan->keys, key->str, key->len);
	rexp_key_set_sort(scan->keys);
}

/* The key that is handed out next, in a buffer of ours. */
static const bytea *
hand_out(RexpScan *scan, const redisReply *key)
{
	scan->key.len = 0;
	rexp_buffer_reserve(&scan->key, VARHDRSZ + key->len);
	SET_VARSIZE(scan->key.data, VARHDRSZ + key->len);
	memcpy(VARDATA(scan->key.data), key->str, key->len);
	return (const bytea *) scan->key.data;
}

/*
 * next_unordered
 *	  The next key that has not been handed out, as it comes; NULL at the end.
 */
static const bytea *
next_unordered(RexpScan *scan)
{
	const redisReply *key;

	while ((key = next_of_pages(scan)) != NULL)
	{
		switch (rexp_key_filter_look(scan->filter, key->str, key->len))
		{
			case REXP_SEEN_NEVER:
				return hand_out(scan, key);
			case REXP_SEEN_BEFORE:
				break;
			case REXP_SEEN_UNKNOWN:
				if (scan->keys == NULL)
					scan->keys = rexp_key_set_create(scan->options.memory / 4);
				rexp_key_set_add(scan->keys, key->str, key->len);
				break;
		}
	}
	if (scan->keys == NULL)
		return NULL;
	if (!scan->sorted)
		rexp_key_set_sort(scan->keys);
	scan->sorted = true;
	return rexp_key_set_next(scan->keys);
}

/*
 * Values
 */

static void
request_value(RexpScan *scan, ScanNode *node, const bytea *key)
{
	bool		json = scan->options.kind == REXP_SCAN_JSON;

	rexp_resp_header(&node->request, '*', json ? 3 : 2);
	rexp_resp_word(&node->request, json ? "JSON.GET" : "HGETALL");
	rexp_resp_bulk(&node->request, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	if (json)
		rexp_resp_word(&node->request, scan->options.path);
}

/* The number of the node that has a key; an error if there is none. */
static int
node_of(const RexpScan *scan, const bytea *key)
{
	int			node;

	if (scan->cluster == NULL)
		return 0;
	node = scan->cluster->owner[rexp_key_slot(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key))];
	if (node < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CANNOT_CONNECT_NOW),
				 errmsg("no node of the Redis Cluster has the slots of some keys")));
	return node;
}

/* Fill a lot with the next keys, and ask for their values. */
static void
fill_lot(RexpScan *scan, Lot *lot)
{
	lot->nkeys = lot->used = 0;
	while (lot->nkeys < LOT)
	{
		const bytea *key = rexp_key_set_next(scan->keys);

		if (key == NULL)
			break;
		lot->keys[lot->nkeys] = palloc(VARSIZE_ANY(key));
		memcpy(lot->keys[lot->nkeys], key, VARSIZE_ANY(key));
		lot->nodes[lot->nkeys] = (int16) node_of(scan, key);
		lot->nkeys++;
	}
	if (scan->options.kind == REXP_SCAN_KEYS)
		return;
	for (int i = 0; i < lot->nkeys; i++)
		request_value(scan, &scan->nodes[lot->nodes[i]], lot->keys[i]);
	for (int i = 0; i < scan->nnodes; i++)
	{
		ScanNode	   *node = &scan->nodes[i];
		RexpError	error;
		ssize_t		n;

		if (node->sent == node->request.len)
			continue;
		n = rexp_link_send(node->link, node->request.data + node->sent,
						   node->request.len - node->sent, &error);
		if (n < 0)
			fail(scan, &error);
		node->sent += n;
	}
}

/* The value of the next key of a lot, which is the caller's. */
static redisReply *
next_value(RexpScan *scan, Lot *lot)
{
	ScanNode	   *node = &scan->nodes[lot->nodes[lot->used]];
	redisReply *reply = receive(scan, node);

	/* nothing is left of the requests: begin anew */
	if (node->sent == node->request.len)
		node->request.len = node->sent = 0;
	return reply;
}

/* The lot is through: the next one takes its place. */
static void
turn_lots(RexpScan *scan)
{
	Lot		   *done = scan->lot;

	for (int i = 0; i < done->nkeys; i++)
		pfree(done->keys[i]);
	done->nkeys = 0;
	scan->lot = scan->next;
	scan->next = done;
	fill_lot(scan, scan->next);
}

/*
 * Rows
 */

/* What is no text is an error that says so of its key, unless it is to be left out. */
static void
refuse_invalid(const RexpScan *scan, const bytea *key, const char *message,
			   const char *detail)
{
	char		shown[128];

	if (scan->options.skip_invalid)
		return;
	rexp_printable(shown, sizeof(shown), VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	ereport(ERROR,
			(errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
			 errmsg(message, shown),
			 detail != NULL ? errdetail("%s", detail) : 0,
			 errhint("With skip_invalid => true such keys are left out.")));
}

/* A key as text; NULL if it is to be left out. */
static text *
key_text(const RexpScan *scan, const bytea *key)
{
	const char *bytes = VARDATA_ANY(key);
	int			len = (int) VARSIZE_ANY_EXHDR(key);
	char	   *string;

	/* as rexp_reply_text() has it, with one copy */
	if (GetDatabaseEncoding() == PG_UTF8 && pg_verify_mbstr(PG_UTF8, bytes, len, true))
		return cstring_to_text_with_len(bytes, len);
	string = rexp_reply_text(bytes, len);
	if (string != NULL)
		return cstring_to_text(string);
	refuse_invalid(scan, key, "key \"%s\" is no text in the encoding of this database", NULL);
	return NULL;
}

/* Bytes of Redis as a string of jsonb: as text if they are one, as \x hex if not. */
static JsonbValue
string_value(const redisReply *reply)
{
	JsonbValue	value = {.type = jbvString};
	char	   *string = NULL;

	if (GetDatabaseEncoding() == PG_UTF8 &&
		pg_verify_mbstr(PG_UTF8, reply->str, (int) reply->len, true))
	{
		value.val.string.val = reply->str;
		value.val.string.len = (int) reply->len;
		return value;
	}
	string = rexp_reply_shown(reply->str, reply->len);
	value.val.string.val = string;
	value.val.string.len = (int) strlen(string);
	return value;
}

/* The fields of a hash as an object, or false if there are none. */
static bool
hash_value(const redisReply *reply, Datum *value)
{
	RexpJsonbState state = {0};

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0)
		return false;
	rexp_jsonb_push(&state, WJB_BEGIN_OBJECT, NULL);
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		JsonbValue	name = string_value(reply->element[i]);
		JsonbValue	field = string_value(reply->element[i + 1]);

		CHECK_FOR_INTERRUPTS();
		rexp_jsonb_push(&state, WJB_KEY, &name);
		rexp_jsonb_push(&state, WJB_VALUE, &field);
	}
	rexp_jsonb_push(&state, WJB_END_OBJECT, NULL);
	*value = JsonbPGetDatum(JsonbValueToJsonb(state.result));
	return true;
}

/* The number after \u, or -1. */
static int
escaped_unit(const char *at)
{
	unsigned int unit;

	return at[0] == '\\' && at[1] == 'u' && sscanf(at + 2, "%4x", &unit) == 1 ? (int) unit : -1;
}

/*
 * Does JSON hold an escape that jsonb does not take?  That is \u0000, half of a pair
 * of surrogates, and in databases of other encodings than UTF8 what these may lack.
 */
static bool
has_foreign_escape(const char *json)
{
	for (const char *at = json; (at = strchr(at, '\\')) != NULL && at[1] != '\0'; at += 2)
	{
		int			unit = escaped_unit(at);
		int			second;

		if (unit == 0 || (unit >= 0x80 && GetDatabaseEncoding() != PG_UTF8))
			return true;
		if (unit < 0xd800 || unit > 0xdfff)
			continue;
		second = unit < 0xdc00 ? escaped_unit(at + 6) : -1;
		if (second < 0xdc00 || second > 0xdfff)
			return true;
		at += 6;
	}
	return false;
}

/* The document, or false if there is none, or it is to be left out. */
static bool
json_value(const RexpScan *scan, const bytea *key, const redisReply *reply, Datum *value)
{
	char	   *text;

	if (reply->type != REDIS_REPLY_STRING)
		return false;
	text = rexp_reply_text(reply->str, reply->len);
	if (text == NULL || has_foreign_escape(text))
	{
		refuse_invalid(scan, key, "the document of key \"%s\" cannot be read as jsonb",
					   text == NULL ?
					   "It holds what is no text in the encoding of this database." :
					   "It holds \\u0000, or another escape that jsonb does not take.");
		return false;
	}
	*value = DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
	return true;
}

/*
 * rexp_scan_next
 *	  The next key, and its value as Redis answers; NULL at the end, and *value is
 *	  NULL if only keys are asked for.
 *
 * Both are good until the next call.
 */
const bytea *
rexp_scan_next(RexpScan *scan, const redisReply **value)
{
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	Lot		   *lot;

	CHECK_FOR_INTERRUPTS();
	*value = NULL;
	if (scan->filter != NULL)
	{
		const bytea *key = next_unordered(scan);

		MemoryContextSwitchTo(old);
		return key;
	}
	if (scan->lot->used == scan->lot->nkeys)
		turn_lots(scan);
	lot = scan->lot;
	if (scan->value != NULL)
		freeReplyObject(scan->value);
	scan->value = NULL;
	if (lot->nkeys > 0 && scan->options.kind != REXP_SCAN_KEYS)
		scan->value = next_value(scan, lot);
	*value = scan->value;
	MemoryContextSwitchTo(old);
	return lot->nkeys > 0 ? lot->keys[lot->used++] : NULL;
}

/* Let go of the sort; the rest goes with the memory context. */
void
rexp_scan_end(RexpScan *scan)
{
	if (scan->keys != NULL)
		rexp_key_set_end(scan->keys);
	scan->keys = NULL;
}

/*
 * rexp_scan_begin
 *	  Connect, read the keys unless any order will do, and be ready to hand them out,
 *	  with all that it takes in the current memory context: its reset closes the
 *	  connections.
 */
RexpScan *
rexp_scan_begin(const RexpScanOptions *options)
{
	RexpScan	   *scan = palloc0(sizeof(RexpScan));

	scan->options = *options;
	scan->context = CurrentMemoryContext;
	scan->callback.func = close_scan;
	scan->callback.arg = scan;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &scan->callback);

	scan->own_keys = rexp_is_own_key(options->pattern, strlen(options->pattern));
	open_nodes(scan);
	scan->node = -1;
	if (options->any_order)
	{
		scan->filter = rexp_key_filter_create(scan->options.memory / 4 * 3);
		rexp_buffer_init(&scan->key, 256);
		return scan;
	}
	read_all(scan);
	scan->lot = palloc0(sizeof(Lot));
	scan->next = palloc0(sizeof(Lot));
	fill_lot(scan, scan->next);
	return scan;
}

/*
 * The value of a key as jsonb, or false if it is not there any more, or is to be left
 * out.  Errors that are no matter of this key are raised.
 */
static bool
read_value(const RexpScan *scan, const bytea *key, const redisReply *reply, Datum *value)
{
	RexpError	error;

	if (reply->type == REDIS_REPLY_ERROR)
	{
		/* another type by now is as good as gone */
		(void) rexp_answer_to(reply->str, reply->len, &error);
		if (error.sqlstate != ERRCODE_WRONG_OBJECT_TYPE)
			fail(scan, &error);
		return false;
	}
	return scan->options.kind == REXP_SCAN_JSON ?
		json_value(scan, key, reply, value) : hash_value(reply, value);
}

/* Go to the next row, in the current memory context.  False at the end. */
static bool
next_row(RexpScan *scan, text **key, Datum *value)
{
	const bytea *bytes;
	const redisReply *reply;

	while ((bytes = rexp_scan_next(scan, &reply)) != NULL)
	{
		if (reply != NULL && !read_value(scan, bytes, reply, value))
			continue;
		*key = key_text(scan, bytes);
		if (*key != NULL)
			return true;
	}
	return false;
}

/*
 * The query wants no more rows, as with a LIMIT.  The memory context goes by itself,
 * but not the files of the sort.
 */
static void
end_early(Datum scan)
{
	rexp_scan_end((RexpScan *) DatumGetPointer(scan));
}

/*
 * rexp_scan
 *	  A row for each call, as functions that return sets do it: (key), or (key,
 *	  value).  The options are those of the first call, and lie in the current
 *	  context; later ones need none.
 */
Datum
rexp_scan(FunctionCallInfo fcinfo, const RexpScanOptions *options)
{
	ExprContext *context = ((ReturnSetInfo *) fcinfo->resultinfo)->econtext;
	FuncCallContext *call;
	RexpScan	   *scan;
	text	   *key;
	Datum		value;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		RexpScanOptions copy = *options;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		copy.server = pstrdup(options->server);
		copy.pattern = pstrdup(options->pattern);
		copy.type = options->type ? pstrdup(options->type) : NULL;
		copy.path = options->path ? pstrdup(options->path) : NULL;
		if (options->kind != REXP_SCAN_KEYS)
		{
			(void) get_call_result_type(fcinfo, NULL, &call->tuple_desc);
			call->tuple_desc = BlessTupleDesc(call->tuple_desc);
		}
		call->user_fctx = rexp_scan_begin(&copy);
		MemoryContextSwitchTo(old);

		/* called before that by which the memory context goes */
		RegisterExprContextCallback(context, end_early, PointerGetDatum(call->user_fctx));
	}
	call = SRF_PERCALL_SETUP();
	scan = call->user_fctx;
	if (!next_row(scan, &key, &value))
	{
		UnregisterExprContextCallback(context, end_early, PointerGetDatum(scan));
		rexp_scan_end(scan);
		SRF_RETURN_DONE(call);
	}
	if (scan->options.kind == REXP_SCAN_KEYS)
		SRF_RETURN_NEXT(call, PointerGetDatum(key));
	else
	{
		Datum		values[2] = {PointerGetDatum(key), value};
		bool		nulls[2] = {false, false};

		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values,
																 nulls)));
	}
}
