# `make` alone lists what there is. The environment is .venv in this folder; PYTHON (3.11 or later) makes it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# Two files of tests at a time; the tests of one file, which share what is slow to make, stay together.
PARALLEL := --numprocesses 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo check test test-slow bench story docs wheel clean

help:       ## list these targets
	@grep -E '^[a-z-]+: .*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

demo: .venv/installed           ## measure the mini model and show where low-resolution steps are safe
	$(BIN)/probes grad --sigma-grid 0.3:0.9 --out demo/probe.zarr
	$(BIN)/analysis safety demo/probe.zarr

check: .venv/installed-dev      ## lint, format, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

test: .venv/installed-dev       ## the everyday tests
	$(BIN)/pytest $(PARALLEL)

test-slow: .venv/installed-dev  ## the long tests, as in CI
	$(BIN)/pytest -m slow $(PARALLEL) --durations=15

bench: .venv/installed-dev      ## every benchmark, one after the other
	set -e; for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script; done

story: .venv/installed-dev      ## the studies of examples/story (20 minutes on two free cores), then their notebook and pictures
	$(BIN)/train study examples/story/story.toml --jobs 2
	$(BIN)/train study examples/story/learning_rate.toml --jobs 2
	SIGMA_PROBES_FIGURES=docs MPLBACKEND=agg $(BIN)/python analysis/notebooks/end_points.py

docs: .venv/installed-dev       ## the interface's reference as web pages in build/docs
	$(BIN)/pdoc --math --output-directory build/docs analysis train probes

wheel: .venv/installed-dev      ## the wheel in dist/
	$(BIN)/hatchling build --target wheel

clean:      ## remove what the other targets made, the environment too
	rm -rf .venv build dist demo .pytest_cache .ruff_cache .hypothesis

# torch comes first and pinned: asked for without a pin it can bring a build of several gigabytes for another machine.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv: about 3 minutes, once"
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	touch $@

.venv/installed-dev: .venv/installed
	@echo "Installing what tests and checks need: about 1 minute, once"
	$(PIP) --editable '.[dev]'
	touch $@
