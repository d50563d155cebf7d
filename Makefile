# redis_export: exports the rows of a query to Redis.
#
#   make                build it, with the PostgreSQL of pg_config (or PG_CONFIG=...)
#   make install        and install it there
#   make demo           try it: installs what it needs, and cleans up after itself
#   make test           test it: the same

MODULE_big = redis_export
OBJS = \
	src/address.o \
	src/answer.o \
	src/arguments.o \
	src/ask.o \
	src/block.o \
	src/book_list.o \
	src/books.o \
	src/cluster.o \
	src/command.o \
	src/connection.o \
	src/definition.o \
	src/digest.o \
	src/document.o \
	src/document_column.o \
	src/encode.o \
	src/encode_command.o \
	src/encode_hash.o \
	src/encode_json.o \
	src/encoding.o \
	src/error.o \
	src/expiry.o \
	src/fence.o \
	src/fill.o \
	src/index_fit.o \
	src/job.o \
	src/json_check.o \
	src/json_path.o \
	src/judge.o \
	src/launch.o \
	src/key_filter.o \
	src/key_set.o \
	src/lane.o \
	src/lease.o \
	src/ledger.o \
	src/link.o \
	src/nodes.o \
	src/output_settings.o \
	src/payload.o \
	src/pipeline.o \
	src/preview.o \
	src/progress.o \
	src/prune.o \
	src/quick_hash.o \
	src/record.o \
	src/redis_export.o \
	src/reply.o \
	src/resp.o \
	src/routing.o \
	src/scan.o \
	src/search_index.o \
	src/sentinel.o \
	src/server_options.o \
	src/server_watch.o \
	src/session.o \
	src/source.o \
	src/suspect.o \
	src/template.o \
	src/text.o \
	src/tls.o \
	src/unknown.o \
	src/value.o \
	src/vector.o \
	src/verb.o \
	src/verify.o \
	src/waiter.o \
	src/watermark.o \
	src/window.o \
	src/worker.o \
	src/writers.o
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

PG_CPPFLAGS = $(HIREDIS_CFLAGS) $(if $(HIREDIS_TLS),-DREXP_HIREDIS_TLS) -DREXP_VERSION='"$(EXTVERSION)"'
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
$(OBJS): $(wildcard src/*.h) $(hiredis_archive)
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
