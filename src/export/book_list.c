/*-------------------------------------------------------------------------
 *
 * book_list.c
 *	  All keys that the books of an export have.
 *
 * The books are one hash, or one for each slot of a cluster (books.c).  HLEN of each
 * tells how many entries there are, and HSCAN gives the keys: each at least once that is
 * there all along (Redis manual, "SCAN"), so they go into a sort, which takes no more
 * than the memory that it is given and spills to disk.  There is no SCAN of the keyspace.
 *
 * For whom only looks at the books, it is found out which entries count for nothing.
 *
 * Nothing here knows what the keys are wanted for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/encoding.h"
#include "export/book_list.h"
#include "miscadmin.h"
#include "redis/cluster.h"
#include "redis/own_keys.h"

/* Entries that HSCAN looks at for one answer; Redis does nothing else meanwhile. */
#define SCAN_COUNT "2000"

/* Pages that are asked for at a time. */
#define PAGES 64

struct RexpBookList
{
	RexpNodes  *nodes;
	RexpBooks  *books;
	int			nslots;			/* with books of their own: all, or 1 for no cluster */
	bool	   *filled;			/* by slot: has it entries? */
	int64		count;			/* of entries */
	int			pages[PAGES];	/* a ring: the slots whose pages are asked for */
	int			first;
	int			npages;
};

/*
 * rexp_book_list_learn
 *	  Let the books know their era and which runs of the export of this name did not end
 *	  clean, as its record in Redis has them.  This is for callers that write nothing, but
 *	  need to tell which entries count.  Without a record no entry counts.
 */
void
rexp_book_list_learn(RexpNodes *nodes, RexpBooks *books, const char *name)
{
	char	   *key = psprintf("%s{%s}", REXP_OWN_PREFIX, rexp_literal_utf8(name, strlen(name)));
	int			node = rexp_nodes_of_key(nodes, key, strlen(key));
	RexpBuffer *request = rexp_nodes_request(nodes, node);
	uint32		unclean[REXP_UNCLEAN_MOST];
	int			count = 0;
	const char *era = "";
	redisReply *reply;

	rexp_resp_header(request, '*', 2);
	rexp_resp_word(request, "HGETALL");
	rexp_resp_word(request, key);
	reply = rexp_nodes_receive(nodes, node);
	if (reply->type != REDIS_REPLY_ARRAY)
		rexp_nodes_fail_reply(nodes, reply, "HGETALL");
	for (size_t i = 0; i + 1 < reply->elements; i += 2)
	{
		const char *field = reply->element[i]->str;

		if (field == NULL)
			continue;
		if (strcmp(field, "era") == 0 && reply->element[i + 1]->str != NULL)
			era = pstrdup(reply->element[i + 1]->str);
		else if (count < REXP_UNCLEAN_MOST &&
				 sscanf(field, "unclean:%8x", &unclean[count]) == 1)
			count++;
	}
	freeReplyObject(reply);
	rexp_books_begin(books, era, 0, unclean, count);
}

/* Append a command about the books of a slot, and return where it goes. */
static RexpBuffer *
begin_command(RexpBookList *list, int slot, int nwords, const char *word)
{
	RexpBuffer *request = rexp_nodes_request(list->nodes,
											 rexp_nodes_of_slot(list->nodes, slot));
	size_t		len;
	const char *key = rexp_books_key(list->books, slot, &len);

	rexp_resp_header(request, '*', nwords);
	rexp_resp_word(request, word);
	rexp_resp_bulk(request, key, len);
	return request;
}

static void
count_entries(RexpBookList *list)
{
	for (int slot = 0; slot < list->nslots; slot++)
		(void) begin_command(list, slot, 2, "HLEN");
	rexp_nodes_push(list->nodes);
	for (int slot = 0; slot < list->nslots; slot++)
	{
		redisReply *reply = rexp_nodes_receive(list->nodes,
											   rexp_nodes_of_slot(list->nodes, slot));

		if (reply->type != REDIS_REPLY_INTEGER)
			rexp_nodes_fail_reply(list->nodes, reply, "HLEN");
		list->filled[slot] = reply->integer > 0;
		list->count += reply->integer;
		freeReplyObject(reply);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * rexp_book_list_create
 *	  Count the entries of the books, in the current memory context, in which the list
 *	  then lies.  Raises an error if they cannot be had.
 */
RexpBookList *
rexp_book_list_create(RexpNodes *nodes, RexpBooks *books)
{
	RexpBookList *list = palloc0(sizeof(RexpBookList));

	list->nodes = nodes;
	list->books = books;
	list->nslots = 1;
	if (rexp_nodes_are_cluster(nodes))
	{
		rexp_books_spread(books);
		list->nslots = REXP_SLOTS;
	}
	list->filled = palloc0(sizeof(bool) * list->nslots);
	count_entries(list);
	return list;
}

/* How many entries there were. */
int64
rexp_book_list_count(const RexpBookList *list)
{
	return list->count;
}

/* Ask for the page of a slot's books that begins at this cursor. */
static void
request_page(RexpBookList *list, int slot, const char *cursor)
{
	RexpBuffer *request = begin_command(list, slot, 5, "HSCAN");

	list->pages[(list->first + list->npages++) % PAGES] = slot;
	rexp_resp_word(request, cursor);
	rexp_resp_word(request, "COUNT");
	rexp_resp_word(request, SCAN_COUNT);
}

/* Ask for the first pages of the slots that have entries, as long as there is room. */
static int
request_more(RexpBookList *list, int slot)
{
	for (; slot < list->nslots && list->npages < PAGES; slot++)
	{
		if (list->filled[slot])
			request_page(list, slot, "0");
	}
	rexp_nodes_push(list->nodes);
	return slot;
}

/* Wait for the first page that was asked for, ask for the one after it, and keep its keys. */
static void
take_page(RexpBookList *list, RexpKeySet *keys)
{
	int			slot = list->pages[list->first];
	redisReply *reply = rexp_nodes_receive_page(list->nodes,
												rexp_nodes_of_slot(list->nodes, slot),
												"HSCAN");
	const redisReply *entries = reply->element[1];

	list->first = (list->first + 1) % PAGES;
	list->npages--;
	if (strcmp(reply->element[0]->str, "0") != 0)
	{
		request_page(list, slot, reply->element[0]->str);
		rexp_nodes_push(list->nodes);
	}
	for (size_t i = 0; i + 1 < entries->elements; i += 2)
		rexp_key_set_add(keys, entries->element[i]->str, entries->element[i]->len);
	freeReplyObject(reply);
}

/*
 * rexp_book_list_read
 *	  All keys of the books, sorted, as a set of so many kB in the current memory
 *	  context.  Raises an error if not all of them could be had.
 */
RexpKeySet *
rexp_book_list_read(RexpBookList *list, int memory)
{
	RexpKeySet *keys = rexp_key_set_create(memory);
	int			slot = request_more(list, 0);

	while (list->npages > 0)
	{
		CHECK_FOR_INTERRUPTS();
		take_page(list, keys);
		if (list->npages <= PAGES / 2)
			slot = request_more(list, slot);
	}
	rexp_nodes_check_whole(list->nodes);
	rexp_key_set_sort(keys);
	return keys;
}
