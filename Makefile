# Everything a person needs: `make demo` runs a whole study, `make test` passes the tests. Both set up first.
PYTHON ?= python3
VENV ?= .venv
DEMO_DIR ?= nightlab-demo
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test lint check format bench bench-search bench-search-short bench-planning bench-pruning torture lock docs clean bench-false-wins

demo: $(READY)
	$(BIN)/nightlab demo --dir $(DEMO_DIR)

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Figures, not tests: start-up cost, cost of a supervisor step, size of the checkpoints, slot utilisation.
bench: $(READY)
	$(BIN)/python -m bench.overhead

# The search against what a user would pick instead, on published tables: hours, resumable; the short form takes minutes.
# DATA=<folder with tables> (bench/README.md says which). Writes bench/results/search.md.
bench-search: $(READY)
	$(BIN)/python -m bench.search $(if $(DATA),--data $(DATA)) $(ARGS)

bench-search-short: $(READY)
	$(BIN)/python -m bench.search --short $(if $(DATA),--data $(DATA)) $(ARGS)

# What ending runs early saves, on the learning curves (taskset_*.parquet) in DATA. Writes bench/results/pruning.md.
bench-pruning: $(READY)
	$(BIN)/python -m bench.pruning --data $(or $(DATA),data) $(ARGS)

# Seconds a proposal and memory after 50, 200 and 1,000 experiments. Writes bench/results/planning.md.
bench-planning: $(READY)
	$(BIN)/python -m bench.planning

# What a night claims that is not there, and what it finds: simulated nights, an hour on one core. Writes
# bench/results/false_wins.md; `--nights 20` by hand gives a first idea.
bench-false-wins: $(READY)
	$(BIN)/python -m bench.false_wins

# Every fault of the crash matrix in a night of its own, random kills, power cuts: half an hour. `make test` has the
# quick form. Writes bench/results/torture.md.
torture: $(READY)
	$(BIN)/python -m bench.torture

# The generated pages: the study file's reference and its JSON Schema.
docs: $(READY)
	$(BIN)/python -m nightlab.configs.reference > docs/study-file.md
	$(BIN)/nightlab schema > configs/templates/study.schema.json

# Pins with hashes and without any address. Needs uv (`pip install uv`).
lock:
	uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes \
	  --extra dev pyproject.toml --output-file requirements.lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("nightlab needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (make PYTHON=python3.12 …)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache
