# Each target sets up its own .venv first, on a machine with nothing but Python >= 3.11, git and make.
# The set-up is repeated only when pyproject.toml or constraints.txt have changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CORE := $(VENV)/core

.DEFAULT_GOAL := help
.PHONY: help setup demo test check core soak bench perf-page format clean

help:
	@echo "make demo    train, lose GPUs on the way, get them back, and look at the result"
	@echo "make test    the tests (make soak: the long ones and the whole failure matrix)"
	@echo "make check   style, types, who imports whom, and the core without torch"
	@echo "make bench   how long things take on this machine"
	@echo "make setup   only the environment in $(VENV); make clean removes it"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "nonuniform needs Python >= 3.11, and '$(PYTHON)' is not:" \
	       "name another one, such as make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV) (once; torch is a large download)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --editable '.[train,report,dev]'
	@touch $@

demo: $(READY)
	$(BIN)/nonuniform demo

test: $(READY)
	$(BIN)/python -m pytest

soak: $(READY)
	$(BIN)/python -m pytest -m "soak or matrix"

check: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory core

# The core in an environment of its own that has no torch, installed as a user would.
core: $(READY)
	@test -x $(CORE)/bin/python || $(BIN)/python -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet --disable-pip-version-check .
	.ci/core-without-torch $(CORE)/bin

bench: $(READY)
	@for script in bench/*.py; do \
	  echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

# The page that tells how far the step-time model is off; needs the published tables.
TABLES ?= ../shared/data
perf-page: $(READY)
	$(BIN)/python -c 'import pathlib, sys; from nonuniform.perf.validation_page import generate; \
	  pathlib.Path("docs/perf-validation.md").write_text(generate(pathlib.Path(sys.argv[1])), "utf-8")' $(TABLES)

format: $(READY)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
