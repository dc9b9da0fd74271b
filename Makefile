# Everything a person types here. Needs make and Python >= 3.11, nothing else; `make help` lists the targets.

PYTHON ?= python3
EXTRAS ?=
PROMPT ?= a red lighthouse by the sea at sunset

# Tests wait for processes more than they compute: two at a time for each core. Whoever is done takes from the others:
# else the stories with whole stacks, which wait longest, would be left for the end.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(16, 2 * (os.cpu_count() or 1)))')

VENV := .venv
BIN := $(VENV)/bin
comma := ,
# One stamp per set of extras: another set installs again, the same one does nothing.
RUN_STAMP := $(VENV)/.installed-cpu
DEV_STAMP := $(VENV)/.installed-cpu-dev$(if $(EXTRAS),-$(subst $(comma),-,$(EXTRAS)))

.DEFAULT_GOAL := help
.PHONY: help demo up test lint format bench bench-scheduling clean
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | awk -F'#' '{printf "%-14s%s\n", $$1, $$2}'

demo: $(RUN_STAMP) ## a prompt, a picture, a signed webhook: the whole way in under a minute
	$(BIN)/headrace demo "$(PROMPT)"

up: $(RUN_STAMP) ## run the stack on this machine; prints the address, the key and three lines to paste
	$(BIN)/headrace up

test: $(DEV_STAMP) ## run all tests; EXTRAS=torch,s3 adds extras
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(DEV_STAMP) ## formatting, ruff, mypy --strict, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

format: $(DEV_STAMP) ## put the code into its one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV_STAMP) ## measure, each figure beside a raw baseline; rewrites the table in README.md
	$(BIN)/python -m benchmarks

bench-scheduling: $(DEV_STAMP) ## the policy beside simpler ones under made-up load, on a simulated clock
	$(BIN)/python -m benchmarks.scheduling

clean: ## remove the virtual environment and all state of `make up`
	rm -rf $(VENV) .headrace

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Python >= 3.11 is needed: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo 'no venv module: install it (Debian and Ubuntu: apt install python3-venv)' >&2; rm -rf $(VENV); exit 1; }

$(RUN_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cpu]'
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cpu,dev$(if $(EXTRAS),$(comma)$(EXTRAS))]'
	@touch $@ $(RUN_STAMP)
