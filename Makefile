# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# The lock names every package by version and hash. `make LOCK= …` installs without it, on platforms that lack one of
# these versions: the newest versions that pyproject.toml allows.
LOCK ?= locks
LOCKED := $(PIP) install --quiet --no-deps --require-hashes --requirement
# The matrices are small: one thread per process is fastest, and results are the same on every machine.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help setup demo test docs lint format schema coverage hooks lock advisories clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed  ## create .venv with everything in it

$(VENV)/.installed: pyproject.toml $(if $(LOCK),$(wildcard $(LOCK)/*.txt))
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCK),)
	$(PIP) install --quiet --editable '.[dev]'
else
	$(LOCKED) $(LOCK)/packages.txt
	# The CPU build of torch where pip finds it. On Linux, PyPI's build brings several GB of CUDA packages.
	$(LOCKED) $(LOCK)/torch-cpu.txt 2> /dev/null || $(LOCKED) $(LOCK)/torch.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(PIP) check
endif
	touch $@

demo: setup  ## run the quickstart scenario; its report is runs/quickstart/report.html
	$(BIN)/fedsim run quickstart --out runs/quickstart --force

test: lint docs  ## run the linters, then all tests, slow ones last
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal

lint: setup  ## check style, types, and which package imports which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## build the documentation site, build/site/index.html; any dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

schema: setup  ## write the JSON schema of result.json again, from its types
	$(BIN)/python -m scenarios.run.result
	$(BIN)/python -m scenarios.audit.record

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

# One resolution for all platforms, in two files: torch and its CUDA packages, and all others.
lock: setup  ## write locks/ again, with the newest versions that pyproject.toml allows
	$(BIN)/uv --quiet pip compile --universal --generate-hashes --no-header --no-annotate \
	    --extra dev pyproject.toml --output-file $(VENV)/all.txt --upgrade
	awk '/^[^ ]/ { cuda = /^(torch|triton)==|^(nvidia|cuda)-/ } \
	    { print > (cuda ? "locks/torch.txt" : "locks/packages.txt") }' $(VENV)/all.txt

# --strict: a service that knows none of the packages is a failure, not an absence of vulnerabilities.
advisories: setup  ## ask PyPI for known vulnerabilities in the locked packages
	@$(BIN)/uv --quiet tool run pip-audit==2.10.1 --strict --disable-pip --require-hashes --progress-spinner off \
	    --requirement locks/packages.txt --requirement locks/torch.txt 2> $(VENV)/advisories.log; \
	    status=$$?; tail -n 1 $(VENV)/advisories.log >&2; exit $$status

clean:  ## remove the environment, the runs and all caches
	rm -rf $(VENV) runs build htmlcov .coverage* *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
