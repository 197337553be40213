# Two commands do all the set-up: make lab, make test. Needs python3 (3.11 or newer) with pip, and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: help lab demo test test-all test-bounds lint docs docs-links bench bench-layers bench-gpu experiments picture clean

help:
	@echo "make lab       install into $(VENV) and open JupyterLab on the quickstart (BROWSER=none: only serve)"
	@echo "make test      install the test dependencies too and run the tests"
	@echo "make demo      the same fit without Jupyter, on the command line; writes runs/demo/report.html"
	@echo "make test-all  all tests: every browser, notebook and killed process, large trials"
	@echo "make test-bounds  a part of the tests with the oldest and with the newest packages, each installed apart;"
	@echo "                3 GB in .bounds and about fifteen minutes; test-all does it too"
	@echo "make lint      ruff and mypy"
	@echo "make docs      the documentation into docs/_build/html, the notebooks executed; ten minutes the first time"
	@echo "make docs-links  whether the documentation's external links answer; needs a network"
	@echo "make bench     speed, as ratios to numpyro's SVI and to d3p, which it installs apart (.bench, .5 GB);"
	@echo "                and bench-layers; an hour"
	@echo "make bench-layers  neural networks: speed, memory and accuracy beside Opacus and jax_privacy (.bench, 2 GB)"
	@echo "make bench-gpu the same on a GPU, without peers; needs jax and numpyro only"
	@echo "make experiments  the published experiments beside what the workbench reaches; fifteen minutes, FULL=1: hours"
	@echo "make picture   the README's picture of the screen, taken anew; needs Chromium"
	@echo "make clean     remove $(VENV), .bounds and the programs that tests keep compiled"

lab: $(VENV)/installed
	$(BIN)/workbench lab

demo: $(VENV)/installed
	$(BIN)/workbench fit --model logistic --data breast_cancer --epsilon 1 --delta 1e-3 --iterations 2000 --out runs/demo

# A process for each core; the browser tests, which take several themselves, after the others. XLA optimises what must hold
# exactly as it does for users, and nothing else: compiling is most of what the rest takes, which takes half as long
# without optimisation and with the older emitters (test-all leaves nothing out). What is compiled is kept in .cache/xla.
UNIT := not integration and not statistical and not thorough
OPTIMISED := tests/privacy tests/sampling tests/auditing/test_reachable.py tests/auditing/test_sensitivity.py tests/auditing/test_summation.py \
  $(filter-out tests/noise/test_keys.py,$(wildcard tests/noise/test_*.py)) \
  $(filter-out $(addprefix tests/clipping/test_,bookkeeping.py jaxprs.py lanes.py strategies.py uses.py),$(wildcard tests/clipping/test_*.py)) \
  tests/inference/test_private_step.py tests/inference/test_norm_counts.py tests/inference/test_units.py tests/test_nothing_leaves.py
# an XLA that does not know a flag would not start
OLDER_EMITTERS := import jax; print("--xla_cpu_use_fusion_emitters=false" if jax.__version_info__ < (0, 11) else "")
test test-all: export OPENBLAS_NUM_THREADS := 1  # workers share the cores
test test-all: export PYTHONDONTWRITEBYTECODE :=  # or each process would compile JAX's sources again
test: $(VENV)/tested
	$(BIN)/python -m pytest $(PARALLEL) -m "$(UNIT) and not browser" $(OPTIMISED)
	XLA_FLAGS="--xla_backend_optimization_level=0 $$($(BIN)/python -c '$(OLDER_EMITTERS)')" $(BIN)/python -m pytest \
	  $(PARALLEL) -m "$(UNIT) and not browser" $(OPTIMISED:%=--ignore=%)
	$(BIN)/python -m pytest -m "$(UNIT) and browser" tests/browser

test-all: $(VENV)/tested
	$(BIN)/python -m pytest $(PARALLEL) -m "not browser" --hypothesis-profile=many
	$(BIN)/python -m pytest -m browser tests/browser
	$(MAKE) test-bounds

# the oldest packages that pyproject.toml allows, and the newest that there are; what other packages warn of is not ours here
SMOKE := tests/test_packaging.py tests/data/test_tables.py tests/data/test_storage.py tests/models/test_neural_classifier.py \
  tests/privacy/test_accounting.py tests/results/test_arviz_adapter.py tests/results/test_storage.py \
  tests/sweeps/test_store_key.py
test-bounds: export OPENBLAS_NUM_THREADS := 1
test-bounds: $(VENV)/tested
	rm -rf .bounds && mkdir .bounds
	$(BIN)/python tests/bounds.py > .bounds/oldest.txt
	PIP_CONSTRAINT=.bounds/oldest.txt $(MAKE) VENV=.bounds/oldest .bounds/oldest/tested
	$(MAKE) VENV=.bounds/newest .bounds/newest/tested
	for each in oldest newest; do XLA_FLAGS=--xla_backend_optimization_level=0 \
	  .bounds/$$each/bin/python -m pytest $(PARALLEL) -m "$(UNIT)" -W ignore $(SMOKE) || exit 1; done

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# fails on broken links and references, and on public names that no page documents
docs: $(VENV)/tested
	DOCS_NOTEBOOKS=cache $(BIN)/python -m sphinx -E -W --keep-going -n -q docs docs/_build/html

docs-links: $(VENV)/tested
	$(BIN)/python -m sphinx -b linkcheck docs docs/_build/links

bench: bench-layers
	$(BIN)/python tests/benchmarks/normals.py
	$(BIN)/python tests/benchmarks/samplers.py
	$(BIN)/python tests/benchmarks/devices.py
	$(BIN)/python tests/benchmarks/processes.py
	$(BIN)/python tests/benchmarks/storage.py --records 1000000 10000000 --memory 1 0.125
	$(BIN)/python tests/benchmarks/speed.py vae strategies sizes
	taskset -c 0 $(BIN)/python tests/benchmarks/speed.py hierarchical logistic local
	$(BIN)/python tests/benchmarks/speed.py lanes
	$(BIN)/python tests/benchmarks/sweep.py
	$(BIN)/python tests/benchmarks/estimators.py $(if $(ADULT),--adult $(ADULT))

# steps on all cores and on one; Adult and Fashion-MNIST as for the experiments below
bench-layers: $(VENV)/tested
	$(BIN)/python tests/benchmarks/layers.py
	taskset -c 0 $(BIN)/python tests/benchmarks/layers.py --tables steps
	taskset -c 0 $(BIN)/python tests/benchmarks/layers.py --foreign
	taskset -c 0 $(BIN)/python tests/benchmarks/layers.py --deep
	$(BIN)/python tests/benchmarks/accuracy.py $(if $(ADULT),--adult $(ADULT))

# on a machine with a GPU and jax, numpyro, optax and scipy; nothing is installed
bench-gpu:
	PYTHONPATH=. $(PYTHON) tests/benchmarks/speed.py vae hierarchical lanes strategies sizes --no-peers
	PYTHONPATH=. $(PYTHON) tests/benchmarks/layers.py --no-peers

# Adult is read from WORKBENCH_DATA, or downloaded; Fashion-MNIST from Debian's dataset-fashion-mnist, or downloaded
experiments: $(VENV)/tested
	$(BIN)/python tests/experiments/run.py $(if $(FULL),--full) $(EXPERIMENTS)

picture: $(VENV)/tested
	PYTHONPATH=. $(BIN)/python tests/browser/picture.py

clean:
	rm -rf $(VENV) .cache/xla .bounds

# Debian splits ensurepip off python3: where it is missing, the environment gets its pip from the system's
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); else \
	  $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $@ install --quiet pip; fi

$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV): about 1.4 GB, two to five minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[data]"
	@touch $@

$(VENV)/tested: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) with the test dependencies: about 1.6 GB, two to five minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[test]"
	@touch $@ $(VENV)/installed
