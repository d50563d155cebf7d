# test/targets.mk: the targets around the extension, which the Makefile includes last. Nothing here takes part in a plain
# `make` or `make install`.
#
#   make deps                     installs what the tests and the demo need and this machine lacks
#   make test [WHAT="regress types t/001_harness.t"] [PG_CONFIG=…]
#   make soak [SECONDS=600] [SEED=n]   exports under random faults
#   make test-memory [WHAT=…]     tests under valgrind and a sanitizer
#   make demo [DOCUMENTS=100000] [PG_CONFIG=…]
#   make dist                     the zip that PGXN takes, of the last commit, without what .gitattributes leaves out
#   make print-REGRESS            a variable's value, for test/run

.DEFAULT_GOAL := all
.PHONY: deps test test-memory soak demo dist

deps:
	@test/deps

test:
	@test/run $(if $(filter command environment,$(firstword $(origin PG_CONFIG))),--pg "$(PG_CONFIG)") $(WHAT)

soak:
	@test/soak $(or $(SECONDS),600) $(SEED)

test-memory:
	@test/memory $(WHAT)

demo:
	@demo/run $(DOCUMENTS)

# PGXN wants three numbers
DISTVERSION = $(shell echo $(EXTVERSION).0.0 | cut -d. -f1-3)
dist:
	git archive --format=zip --prefix=redis_export-$(DISTVERSION)/ --output=redis_export-$(DISTVERSION).zip HEAD

print-%:
	@echo '$($*)'

# On a machine without pg_config, the first two lines of a newcomer's `make` say what is missing; `make test` and `make demo`
# install it.
ifeq ($(strip $(PGXS)),)
.PHONY: all install
all install:
	@echo 'pg_config was not found: it comes with the headers of the PostgreSQL server (Debian: postgresql-server-dev-all, Fedora: postgresql-server-devel).' >&2
	@echo 'Give its path as PG_CONFIG=… if it is installed elsewhere.  make test and make demo install what they need.' >&2
	@exit 1
endif
