# Two commands matter: `make up` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: up test lint types format check clean

up: $(STAMP)
	@exec $(BIN)/hourhand up

test: $(STAMP)-dev
	$(BIN)/python -m pytest tests

lint: $(STAMP)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)-dev
	$(BIN)/mypy

format: $(STAMP)-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: lint types test

clean:
	rm -rf $(VENV) build dist

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "make: python3-venv is needed (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "Installing Hourhand into $(VENV) …"
	@$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

$(STAMP)-dev: $(STAMP)
	@$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@touch $@
