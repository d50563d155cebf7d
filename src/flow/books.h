/*-------------------------------------------------------------------------
 *
 * books.h
 *	  Which keys an export has written, and what value each of them has: kept in
 *	  Redis, beside the keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDIS_EXPORT_BOOKS_H
#define REDIS_EXPORT_BOOKS_H

#include "flow/block.h"
#include "redis/resp.h"

typedef struct RexpBooks RexpBooks;

/* Of so many runs that did not end clean the stamps are known. */
#define REXP_UNCLEAN_MOST 64

/* The error when they cannot be had. */
#define REXP_BOOKS_FAILING "could not keep the books of the export"
#define REXP_BOOKS_HINT \
	"They are in keys that begin with \"redis_export:\", which must be allowed (ACL: ~redis_export:*), and nobody else's."

extern RexpBooks *rexp_books_create(const char *name, const char *meaning,
									const char *type, bool asked);
extern void rexp_books_spread(RexpBooks *books);
extern bool rexp_books_are_spread(const RexpBooks *books);
extern void rexp_books_begin(RexpBooks *books, const char *era, uint32 stamp,
							 const uint32 *unclean, int nunclean);
extern void rexp_books_write_all(RexpBooks *books);
extern bool rexp_books_are_asked(const RexpBooks *books);
extern uint64 rexp_books_seed(const RexpBooks *books);
extern const char *rexp_books_key(const RexpBooks *books, int slot, size_t *len);
extern void rexp_books_reserve(RexpBooks *books, RexpBuffer *out);
extern void rexp_books_digest(const RexpBooks *books, const char *commands, size_t len,
							  RexpBlock *block);
extern void rexp_books_wrap(RexpBooks *books, RexpBuffer *out, size_t start,
							RexpBlock *block);
extern void rexp_books_check(const RexpBooks *books, const char *key, size_t key_len,
							 RexpBuffer *out);
extern size_t rexp_books_doubt(const RexpBooks *books, const char *key, size_t key_len,
							   RexpBuffer *out);
extern void rexp_books_ask(const RexpBooks *books, const char *key, size_t key_len,
						   RexpBuffer *out);
extern size_t rexp_books_forget(const RexpBooks *books, const char *key, size_t key_len,
								RexpBuffer *out);
extern bool rexp_books_has_type(const RexpBooks *books, const char *type, size_t len);
extern bool rexp_books_same(const RexpBooks *books, uint64 digest, const char *entry,
							size_t len);

#endif							/* REDIS_EXPORT_BOOKS_H */
