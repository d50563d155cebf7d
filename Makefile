# redis_export: exports the rows of a query to Redis.
#
#   make                build it, with the PostgreSQL of pg_config (or PG_CONFIG=...)
#   make install        and install it there
#   make demo           try it: installs what it needs, and cleans up after itself
#   make test           test it: the same

MODULE_big = redis_export
OBJS = \
	src/redis_export.o \
	src/sql/arguments.o \
	src/sql/command.o \
	src/sql/definition.o \
	src/sql/preview.o \
	src/sql/scan.o \
	src/sql/verify.o \
	src/job/launch.o \
	src/job/payload.o \
	src/job/worker.o \
	src/export/book_list.o \
	src/export/job.o \
	src/export/prune.o \
	src/export/record.o \
	src/export/watermark.o \
	src/export/writers.o \
	src/session/connection.o \
	src/session/fence.o \
	src/session/server_options.o \
	src/session/session.o \
	src/session/source.o \
	src/encode/document.o \
	src/encode/document_column.o \
	src/encode/encode.o \
	src/encode/encode_command.o \
	src/encode/encode_hash.o \
	src/encode/encode_json.o \
	src/encode/encode_parts.o \
	src/encode/fill.o \
	src/encode/form.o \
	src/encode/index_fit.o \
	src/encode/json_check.o \
	src/encode/json_path.o \
	src/encode/template.o \
	src/encode/ttl.o \
	src/encode/value.o \
	src/encode/vector.o \
	src/flow/ask.o \
	src/flow/block.o \
	src/flow/books.o \
	src/flow/judge.o \
	src/flow/lane.o \
	src/flow/lease.o \
	src/flow/pipeline.o \
	src/flow/routing.o \
	src/flow/server_watch.o \
	src/flow/suspect.o \
	src/flow/unknown.o \
	src/flow/window.o \
	src/redis/address.o \
	src/redis/cluster.o \
	src/redis/connect.o \
	src/redis/error_reply.o \
	src/redis/link.o \
	src/redis/nodes.o \
	src/redis/reply_json.o \
	src/redis/resp.o \
	src/redis/search_index.o \
	src/redis/tls.o \
	src/redis/verb.o \
	src/redis/waiter.o \
	src/status/ledger.o \
	src/status/progress.o \
	src/base/digest.o \
	src/base/encoding.o \
	src/base/error.o \
	src/base/key_filter.o \
	src/base/key_set.o \
	src/base/output_settings.o \
	src/base/quick_hash.o \
	src/base/text.o
PGFILEDESC = "redis_export - exports the rows of a query to Redis"

EXTENSION = redis_export
# The version stands in the control file and nowhere else in what is built; test/t/080_package.t checks the packages against it.
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'$$/\1/p" redis_export.control)
DATA = redis_export--$(EXTVERSION).sql $(wildcard redis_export--*--*.sql)
DOCS = README.md CHANGELOG.md SECURITY.md LICENSE
PAGES = $(wildcard docs/*.md)

REGRESS = setup options tls arguments queries export failures documents json hash commands expiry merge preview index command scan verify changed prune watermark define privileges

# hiredis: the machine's if it is 1.2 or later, else the one that `make deps` has built here, else the machine's as it is. Without
# hiredis_ssl and OpenSSL the extension has no TLS. Or all by hand: HIREDIS_CFLAGS=... HIREDIS_LIBS=... [HIREDIS_TLS=yes].
PKG_CONFIG ?= pkg-config
HIREDIS_DIR ?= .deps/hiredis
ifeq ($(origin HIREDIS_LIBS),undefined)
there_is = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
hiredis_archive := $(wildcard $(HIREDIS_DIR)/libhiredis.a)
HIREDIS_TLS := $(call there_is,libssl libcrypto)
ifneq ($(and $(HIREDIS_TLS),$(call there_is,'hiredis_ssl >= 1.2')),)
hiredis_packages := hiredis_ssl hiredis libssl libcrypto
hiredis_archive :=
else ifneq ($(and $(HIREDIS_TLS),$(hiredis_archive)),)
hiredis_packages := libssl libcrypto
else ifneq ($(and $(HIREDIS_TLS),$(call there_is,hiredis_ssl)),)
hiredis_packages := hiredis_ssl hiredis libssl libcrypto
else
hiredis_packages := hiredis
hiredis_archive :=
HIREDIS_TLS :=
endif
HIREDIS_CFLAGS := $(if $(hiredis_archive),-I$(HIREDIS_DIR)) $(shell $(PKG_CONFIG) --cflags $(hiredis_packages) 2>/dev/null || echo -I/usr/include/hiredis)
HIREDIS_LIBS := $(hiredis_archive) $(shell $(PKG_CONFIG) --libs $(hiredis_packages) 2>/dev/null || echo -lhiredis)
endif

PG_CPPFLAGS = -I$(srcdir)/src $(HIREDIS_CFLAGS) $(if $(HIREDIS_TLS),-DREXP_HIREDIS_TLS) -DREXP_VERSION='"$(EXTVERSION)"'
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter
SHLIB_LINK = $(HIREDIS_LIBS)
# its folder goes before PostgreSQL's, where another hiredis may be
PG_LDFLAGS = $(filter -L%,$(HIREDIS_LIBS))

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(strip $(PGXS)),)
include $(PGXS)
# PostgreSQL 18's flags may come from a newer compiler than the one here
ifeq ($(shell echo 'int main(void){return 0;}' | $(CC) -Werror -Wmissing-variable-declarations -x c -fsyntax-only - 2>/dev/null && echo yes),)
override CFLAGS := $(filter-out -Wmissing-variable-declarations,$(CFLAGS))
endif
$(OBJS): $(wildcard src/*/*.h) $(hiredis_archive)
src/redis_export.o: redis_export.control

# The documentation gets a folder of its own, since a README.md is not the only one, and PAGES one in it, as the links have it.
docmoduledir := redis_export
.PHONY: install-pages uninstall-pages
install: install-pages
install-pages: installdirs
	$(MKDIR_P) '$(DESTDIR)$(docdir)/$(docmoduledir)/docs'
	$(INSTALL_DATA) $(PAGES) '$(DESTDIR)$(docdir)/$(docmoduledir)/docs/'
uninstall: uninstall-pages
uninstall-pages:
	rm -rf '$(DESTDIR)$(docdir)/$(docmoduledir)/docs'
endif

-include test/targets.mk
