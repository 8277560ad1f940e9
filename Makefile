# Start with `make demo` and `make test`; both create .venv if needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := $(wildcard src/potstill/policy/native/*)

.PHONY: help demo test install lint sanitize conformance reference screenshots site clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY)  ## run the demo: a simulated upload service, with a report
	$(BIN)/potstill demo

test: $(READY) lint  ## run lint, type checks, import contracts and tests
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

install: $(READY)  ## create .venv and install Potstill into it

lint: $(READY)  ## run everything in `make test` except pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sanitize: $(READY)  ## run the native kernel's tests under AddressSanitizer and UBSan; part of `make test`
	tests/policy/sanitize.sh $(BIN)/python

conformance: $(READY)  ## regenerate the conformance vectors, after a change of the specification
	$(BIN)/python conformance/generate.py

reference: $(READY)  ## regenerate the pages of docs/reference from the code
	$(BIN)/python docs/reference.py

site: $(READY)  ## build the documentation as a site, in site/
	$(BIN)/python docs/site.py

screenshots: $(READY)  ## make the pictures of the service's pages in docs/pages; needs chromium
	$(BIN)/python docs/screenshots.py

# Without ensurepip (Debian without python3-venv), create the environment with virtualenv, installed by pip.
$(READY): pyproject.toml setup.py $(NATIVE) Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Potstill needs Python 3.11 or newer, and $(PYTHON) is older: make PYTHON=/path/to/python3.11 …"; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
	  { $(PYTHON) -m pip install --quiet --target $(VENV)/bootstrap virtualenv && \
	    PYTHONPATH=$(VENV)/bootstrap $(PYTHON) -m virtualenv $(VENV); }
	@echo "installing into $(VENV); this takes one or two minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:  ## remove the environment and build files
	rm -rf $(VENV) build dist src/*.egg-info src/potstill/policy/_native.*.so .mypy_cache .ruff_cache .pytest_cache
