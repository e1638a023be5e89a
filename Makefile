# Two commands do all set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Processes of pytest, each with a control plane of its own; a module stays in one.
PYTEST := $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder
# Tests on a cluster wait for servers half of their time: two processes per core, up to eight.
TWICE := $(shell cores=$$(nproc); echo $$((cores < 4 ? 2 * cores : 8)))

# The suite starts hundreds of processes: what Python compiles is kept whatever the environment says.
test test-again test-fast test-node nightly: export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo controlplane machine test test-again test-fast test-node nightly simulate-faults lint types lock drift bench site generate picture clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kai_py needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing the locked dependencies into $(VENV) (one or two minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
# What tests need of jsonschema works without it, and importing kubernetes (which imports kubernetes_validate, and
# that jsonschema) takes two seconds longer with it: it builds 38 parsers.
	@$(BIN)/python -m pip uninstall --quiet --disable-pip-version-check --yes rfc3987-syntax
	@touch $(STAMP)

demo: setup
	$(BIN)/kai-py demo

# Built here, where its progress is seen; once per machine and version.
controlplane: setup
	$(BIN)/python -m tests.cluster.controlplane.oracles
	$(BIN)/python -m tests.cluster.controlplane

# Fails, with what is missing, where tests would be skipped for want of a program.
machine: controlplane
	$(BIN)/python -m tests.support.machine

test: controlplane
	$(PYTEST) --numprocesses $(TWICE)

# What the last run reported as failed, one test after another.
test-again: controlplane
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# An eighth of the examples of each property; `make test` tries all of them. What is in the two
# folders is marked: they are not even read.
test-fast: setup
	HYPOTHESIS_PROFILE=fast $(PYTEST) --numprocesses auto --maxprocesses 8 -m "not cluster and not slow and not nightly and not node" \
	  --ignore tests/cluster --ignore tests/node

# Real nodes as processes of this machine; where they can't run, it says why and succeeds.
test-node: setup
	@if $(BIN)/python -m tests.node.requirements; then \
	  $(BIN)/python -m tests.cluster.controlplane && $(BIN)/python -m tests.node.programs \
	  && $(BIN)/python -m pytest -m node tests/node; fi

nightly: controlplane
	$(PYTEST) --numprocesses auto --maxprocesses 8 -m nightly

# One seed of the simulation of faults; a schedule that was kept: SCHEDULE=tests/…/kept/NAME.json.
SEED ?= 1
HOURS ?= 4
SHRINK ?=
SCHEDULE ?=
simulate-faults: setup
	$(BIN)/python -m tests.fault_simulation --hours $(HOURS) $(if $(SHRINK),--shrink) $(or $(SCHEDULE),$(SEED))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

generate: setup
	$(BIN)/kai-py crds --output-dir crds
	$(BIN)/kai-py install --chart charts/kai-py
	$(BIN)/python -m tests.docs.reference

picture: setup
	$(BIN)/kai-py demo --svg docs/demo.svg

# The documentation as pages that need no network.
site: setup
	$(BIN)/python -m sphinx --quiet --fail-on-warning docs dist/site
	@echo dist/site/index.html

# After a change of the dependencies in pyproject.toml; versions that are locked stay.
lock:
	uv pip compile --quiet --universal --generate-hashes --group dev --no-header pyproject.toml -o requirements.lock

drift: setup
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT \
	  && $(BIN)/kai-py crds --output-dir "$$fresh/crds" \
	  && $(BIN)/kai-py install --chart "$$fresh/chart" \
	  && diff -r crds "$$fresh/crds" && diff -r charts/kai-py "$$fresh/chart" \
	  || { echo "crds/ or charts/ differ from the code: run make generate and commit" >&2; exit 1; }

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
