# redis_export: exports the rows of a query to Redis.
#
#   make                build it, with the PostgreSQL of pg_config (or PG_CONFIG=...)
#   make install        and install it there
#   make demo           try it: installs what it needs, and cleans up after itself
#   make test           test it: the same

MODULE_big = redis_export
OBJS = \
	src/answer.o \
	src/arguments.o \
	src/block.o \
	src/cluster.o \
	src/command.o \
	src/document.o \
	src/encode.o \
	src/encode_command.o \
	src/encode_hash.o \
	src/encode_json.o \
	src/error.o \
	src/expiry.o \
	src/fill.o \
	src/job.o \
	src/lane.o \
	src/ledger.o \
	src/link.o \
	src/payload.o \
	src/pipeline.o \
	src/preview.o \
	src/progress.o \
	src/redis_export.o \
	src/resp.o \
	src/search_index.o \
	src/server_options.o \
	src/session.o \
	src/source.o \
	src/template.o \
	src/value.o \
	src/vector.o \
	src/verb.o \
	src/waiter.o \
	src/window.o \
	src/worker.o
PGFILEDESC = "redis_export - exports the rows of a query to Redis"

EXTENSION = redis_export
DATA = redis_export--1.0.sql

REGRESS = setup options arguments queries export failures documents hash commands expiry merge preview index command privileges

PKG_CONFIG ?= pkg-config
HIREDIS_CFLAGS := $(shell $(PKG_CONFIG) --cflags hiredis 2>/dev/null || echo -I/usr/include/hiredis)
HIREDIS_LIBS := $(shell $(PKG_CONFIG) --libs hiredis 2>/dev/null || echo -lhiredis)

PG_CPPFLAGS = $(HIREDIS_CFLAGS)
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter
SHLIB_LINK = $(HIREDIS_LIBS)

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(strip $(PGXS)),)
include $(PGXS)
# PostgreSQL 18's flags may come from a newer compiler than the one here
ifeq ($(shell echo 'int main(void){return 0;}' | $(CC) -Werror -Wmissing-variable-declarations -x c -fsyntax-only - 2>/dev/null && echo yes),)
override CFLAGS := $(filter-out -Wmissing-variable-declarations,$(CFLAGS))
endif
$(OBJS): $(wildcard src/*.h)
endif

-include test/targets.mk
