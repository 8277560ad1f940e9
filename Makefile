# `make demo` and `make test` are all a newcomer needs; each makes its own .venv and reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := $(wildcard src/potstill/policy/native/*)

.PHONY: help demo test install lint sanitize conformance clean
.DEFAULT_GOAL := help

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY)  ## run the whole circle on a simulated upload service
	$(BIN)/potstill demo

test: $(READY) lint  ## lint, types, room contract, tests
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

install: $(READY)  ## only make .venv and install into it

lint: $(READY)  ## everything in `make test` but pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sanitize: $(READY)  ## the native kernel's tests under AddressSanitizer and UBSan, as `make test` runs them
	tests/policy/sanitize.sh $(BIN)/python

conformance: $(READY)  ## write the conformance vectors again, after a change of the specification
	$(BIN)/python conformance/generate.py

# A Python without ensurepip (Debian's without python3-venv) still has pip: virtualenv then makes the environment.
$(READY): pyproject.toml setup.py $(NATIVE) Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Potstill needs Python 3.11 or newer, and $(PYTHON) is older: make PYTHON=/path/to/python3.11 …"; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
	  { $(PYTHON) -m pip install --quiet --target $(VENV)/bootstrap virtualenv && \
	    PYTHONPATH=$(VENV)/bootstrap $(PYTHON) -m virtualenv $(VENV); }
	@echo "installing into $(VENV), which takes a minute or two"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:  ## remove the environment and what was built
	rm -rf $(VENV) build dist src/*.egg-info src/potstill/policy/_native.*.so .mypy_cache .ruff_cache .pytest_cache
