# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Small matrices: one thread per process is fastest, and figures come out the same everywhere.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help setup demo test lint format clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.installed  ## virtual environment with everything

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup  ## run the quickstart scenario to its report
	$(BIN)/fedsim run quickstart --out runs/quickstart --force

lint: setup  ## style, types, and the rules about who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## linters, then all tests, the slow ones last
	$(BIN)/python -m pytest -m "not slow"
	$(BIN)/python -m pytest -m slow

format: setup  ## apply the style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and the runs
	rm -rf $(VENV) runs build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
