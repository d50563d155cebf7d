/*-------------------------------------------------------------------------
 *
 * book_list.h
 *	  All keys that the books of an export have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_BOOK_LIST_H
#define REDIS_EXPORT_BOOK_LIST_H

#include "base/key_set.h"
#include "flow/books.h"
#include "redis/nodes.h"

/* With which errors begin. */
#define REXP_BOOK_LIST_FAILING "could not read the books of the export"

typedef struct RexpBookList RexpBookList;

extern void rexp_book_list_learn(RexpNodes *nodes, RexpBooks *books, const char *name);
extern RexpBookList *rexp_book_list_create(RexpNodes *nodes, RexpBooks *books);
extern int64 rexp_book_list_count(const RexpBookList *list);
extern RexpKeySet *rexp_book_list_read(RexpBookList *list, int memory);

#endif							/* REDIS_EXPORT_BOOK_LIST_H */
