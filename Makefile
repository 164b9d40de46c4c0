# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests wait more than they compute.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 2 * (os.cpu_count() or 1)))')

.PHONY: demo test pgbouncer check check-form check-mypy check-pyright format bench chaos screenshots docs clean

demo: $(VENV)/.demo
	$(BIN)/tenure demo

test: $(VENV)/.dev
	$(PYTEST) -n $(WORKERS) --dist worksteal $(if $(THROUGH),--through=$(THROUGH)) $(PYTEST_OPTIONS) $(TESTS)

# Through the PgBouncer that is installed, with prepared statements off, then through a newer one, with them on.
pgbouncer: $(VENV)/.dev
	scripts/newer_pgbouncer
	$(MAKE) test THROUGH=pgbouncer
	$(MAKE) test THROUGH=pgbouncer-prepared

check: check-form check-mypy check-pyright

check-form: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

check-mypy: $(VENV)/.dev
	$(BIN)/mypy

check-pyright: $(VENV)/.dev
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m bench $(if $(QUICK),--quick)

chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos $(if $(QUICK),--quick)
	$(if $(QUICK),,TENURE_KILLED_RUNS=1026 $(PYTEST) tests/scenarios/test_effects_killed.py)
	$(if $(QUICK),,$(BIN)/python -m tests.scheduling.burst)
	$(if $(QUICK),,$(BIN)/python -m tests.scheduling.fleet --rolling 500)
	$(if $(QUICK),,$(BIN)/python -m tests.scheduling.fleet --seconds 600)

# The pictures of the README, drawn anew by the tests.
screenshots: $(VENV)/.dev
	TENURE_SCREENSHOTS=docs/images $(PYTEST) tests/browser/test_pictures.py

docs: $(VENV)/.dev
	$(PYTEST) tests/docs

clean:
	rm -rf $(VENV) .cache build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tenure needs Python 3.11 or newer; $$($(PYTHON) --version) was found. Set PYTHON=python3.12, say." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $@ $(VENV)/.demo
