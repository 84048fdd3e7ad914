# Everything a person types. Each target does its own set-up; `make help` lists them.
# Works with GNU make 3.81, which macOS ships.

VENV := .venv
PYTHON_IN := $(VENV)/bin/python
ARGS :=

export PYTHON
ifdef TAILSCOPE_CHROMIUM
export TAILSCOPE_CHROMIUM
endif

# What the compiled recording core is built from; without a compiler the pure-Python one runs.
CORE := hatch_build.py instrumentation/tailscope/_core.pyx instrumentation/tailscope/_core.h

# What reads and writes the store itself; the rest of the collector's tests asks it over HTTP.
STORE_TESTS := $(addprefix tests/collector/test_,$(addsuffix .py,durability directory fingerprints intake \
	migration retention round_trip sandbox sealing settle upkeep views weighted_sql))

.PHONY: help demo test pure asan store-1.5 frameworks check lint types contracts format bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    a model service with planted faults, its report and the dashboard (ARGS=--no-dashboard: exits)"
	@echo "make test    all tests, with a real browser (ARGS='-k name' picks some)"
	@echo "make pure    the tests of the instrumentation on its pure-Python core"
	@echo "make frameworks   the tests of frameworks that pin other versions, in environments of their own"
	@echo "make asan    the tests of the compiled core under AddressSanitizer (Linux with gcc)"
	@echo "make store-1.5    the tests of the store on DuckDB 1.5"
	@echo "make check   lint, types, contracts and tests: what has to pass"
	@echo "make lint | types | contracts    one of them"
	@echo "make format  reformat the code"
	@echo "make bench   the benchmarks (each prints its machine, n and command)"
	@echo "make clean   remove the virtual environment and what builds leave"

# A stamp file is newer than pyproject.toml when what it asks for is installed.
$(VENV)/.all: pyproject.toml scripts/venv $(CORE)
	@scripts/venv $(VENV) all
	@touch $@

$(VENV)/.dev: pyproject.toml scripts/venv $(CORE)
	@scripts/venv $(VENV) dev
	@touch $(VENV)/.all $@

demo: $(VENV)/.all
	@$(VENV)/bin/tailscope demo $(ARGS)

test: $(VENV)/.dev
	@browser=$$(scripts/chromium $(PYTHON_IN)) && \
		$${browser:+env TAILSCOPE_CHROMIUM="$$browser"} $(PYTHON_IN) -m pytest $(ARGS)

pure: $(VENV)/.dev
	TAILSCOPE_CORE=pure $(PYTHON_IN) -m pytest -q tests/instrumentation $(ARGS) \
		--ignore-glob='*/test_models_*' --ignore-glob='*/test_overhead.py' --ignore-glob='*/test_clients.py'

asan: $(VENV)/.dev
	scripts/asan $(PYTHON_IN)

store-1.5: $(VENV)/.dev
	scripts/duckdb-1.5 $(PYTHON_IN) -q -n 2 --dist worksteal $(STORE_TESTS) $(ARGS)

frameworks:
	scripts/frameworks

check: lint types contracts test

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.dev
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright --pythonpath $(PYTHON_IN)

contracts: $(VENV)/.dev
	$(VENV)/bin/lint-imports

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/.dev
	@for script in benchmarks/*.py; do echo "== $$script"; $(PYTHON_IN) "$$script" $(ARGS) || exit 1; done

clean:
	rm -rf $(VENV) .venv-duckdb-1.5 build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
