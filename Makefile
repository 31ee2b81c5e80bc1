# Two commands matter: `make up` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
# With an empty environment the shell still finds programs, but Python does not find itself.
PATH ?= /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: up test lint types format check bench bench-kinds bench-long bench-stays-fast bench-scale bench-publish bench-record bench-short gate gate-short defects clocks oracle cgroup2 clean

up: $(STAMP)
	@exec $(BIN)/hourhand up

test: $(STAMP)-dev
	$(BIN)/python -m pytest tests -n 2 --dist loadfile --no-loadscope-reorder -m "not measuring" --durations 20

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

# The table of figures, each with its bar: docs/internals/performance.md says how they are measured. At most 40 minutes.
bench: $(STAMP)-dev
	$(BIN)/python benchmarks/table.py

# The same for the kinds: programs, HTTP calls, worker processes, logs, kept files. Some ten minutes.
bench-kinds: $(STAMP)-dev
	$(BIN)/python benchmarks/kinds_table.py

# Those that take long: ten million stored jobs and runs, half an hour without a pause, a day of many users, overload,
# and 100,000 blocked runs. Some two hours.
bench-long: $(STAMP)-dev
	$(BIN)/python benchmarks/table.py --rows growth soak day overload --output build/figures-long.md
	$(BIN)/python benchmarks/blocked_claims.py --pairs 5 --seconds 20 --at-least 0.9

# What happens in every grown cluster, beside 5,000 runs a second and ten million stored: vacuum, checkpoints, a
# transaction that nobody ends, a thousand executors, readers. Some 25 minutes.
bench-stays-fast: $(STAMP)-dev
	$(BIN)/python benchmarks/stays_fast.py

# What the figures say about larger clusters: docs/internals/scale.md. Some ten minutes.
bench-scale: $(STAMP)-dev
	$(BIN)/python benchmarks/cost_model.py

# Puts what has been measured last into the documentation, with its plots.
bench-publish: $(STAMP)-dev
	$(BIN)/python benchmarks/publish.py

# Records how fast we are beside the floor with this Python; on a machine without company. What CI compares with.
bench-record: $(STAMP)-dev
	$(BIN)/python benchmarks/ratchet.py --record

# What CI runs: that we are as fast as recorded, in one to two minutes; and each measurement in a very short form, that it
# works and that nothing is lost or doubled.
bench-short: $(STAMP)-dev
	$(BIN)/python benchmarks/ratchet.py
	$(BIN)/python -m pytest tests/acceptance/test_bench.py

# Every promise under every fault, judged by what witnesses saw: see docs/internals/chaos.md. At most 45 minutes.
gate: $(STAMP)-dev
	$(BIN)/python -m tests.chaos.gate --leases default --minutes 43 --rounds 20 --rest-every 3 --injections 20

# The same in at most six minutes, with leases shortened by configuration.
gate-short: $(STAMP)-dev
	$(BIN)/python -m tests.chaos.gate --leases short --minutes 5.3 --rounds 3 --injections 2

# That the gate can fail: each deliberate defect must be caught, and our own code pass the same scenario.
defects: $(STAMP)-dev
	$(BIN)/python -m tests.chaos.defects

# Jobs run while the clocks of PostgreSQL and of all nodes are stepped by minutes. Some 17 minutes; needs a C compiler.
clocks: $(STAMP)-dev
	$(BIN)/python -m pytest -s tests/acceptance/test_clock_steps.py -m "measuring or not measuring"

# Due times against a walk over all minutes and against other libraries: 200,000 cases, every zone. Some ten minutes.
oracle: $(STAMP)-dev
	$(BIN)/python -m tests.oracle.run

# Limits by control groups of version 2, on a kernel of its own (User-mode Linux). Two minutes.
cgroup2: $(STAMP)-dev
	tests/cgroup2/run.sh

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
