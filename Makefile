# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# The matrices are small: one thread per process is fastest, and results are the same on every machine.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help setup demo test lint format schema coverage hooks clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.installed  ## create .venv with everything in it

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup  ## run the quickstart scenario; its report is runs/quickstart/report.html
	$(BIN)/fedsim run quickstart --out runs/quickstart --force

test: lint  ## run the linters, then all tests, slow ones last
	$(BIN)/python -m pytest -m "not slow"
	$(BIN)/python -m pytest -m slow

lint: setup  ## check style, types, and which package imports which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

schema: setup  ## write the JSON schema of result.json again, from its types
	$(BIN)/python -m scenarios.run.result

format: setup  ## apply the style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: setup  ## measure what the quick tests cover, per package; line by line in htmlcov/
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	@for package in fedsim analytics attacks scenarios; do \
	    printf '%-10s %s %%\n' $$package $$($(BIN)/coverage report --include="$$package/*" --format=total); done

hooks: setup  ## run the linters before every commit of this clone
	$(BIN)/pre-commit install

clean:  ## remove the environment, the runs and all caches
	rm -rf $(VENV) runs build htmlcov .coverage* *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
