# `make demo` and `make test` create the .venv they need.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest --maxprocesses 4 --dist worksteal --benchmark-disable
CORES := $(shell nproc)
# Tests of clusters and commands wait for a fifth of their time: there is one process more than cores.
WITH_WAITS := $(shell test $(CORES) -lt 4 && expr $(CORES) + 1 || echo 4)
# Every commit waits for the disk: files of tests are in memory where 4 GB of it are left for them.
MEMORY := $(shell test "$$(df -Pk /dev/shm 2>&1 | awk 'NR == 2 {print $$4}')" -gt 4000000 2>/dev/null && echo /dev/shm)
FORMULAS := tests/bounds tests/learners tests/offline tests/training
.PHONY: demo test docs pages chaos chaos-short lint benchmark check-lowest check-newest check-dist build clean
.DELETE_ON_ERROR:

demo: .venv/installed
	$(BIN)/sparseoco demo

test: export PYTEST_DEBUG_TEMPROOT = $(MEMORY)
# Tests start many processes, which would compile every module they import.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/installed-test lint
	NUMBA_DISABLE_JIT=1 $(PYTEST) -n logical -m "formulas and not slow" $(FORMULAS)
	$(PYTEST) -n $(WITH_WAITS)

# Damaged files, kills, a full disk, Prefect down and slow: docs/operations/faults.md. The short part takes two minutes.
chaos: .venv/installed-test
	$(PYTEST) -n logical -m chaos

chaos-short: .venv/installed-test
	SPARSEOCO_CHAOS_TRIALS=5 $(PYTEST) -n logical -m "chaos and not slow" tests/chaos

lint: .venv/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/installed-test
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# axe, in headless Chromium, on the HTML pages that tests write.
pages: .venv/installed-test
ifeq (,$(and $(shell command -v chromium),$(shell command -v npm)))
	@echo "not checked: this needs chromium and npm"
else
	rm -rf build/pages && mkdir -p build/pages
	SPARSEOCO_PAGES=$(CURDIR)/build/pages $(BIN)/pytest -n logical --maxprocesses 4 --benchmark-disable \
		tests/report tests/pipeline/nightly/test_page.py tests/papers
	npm install --silent --no-save --prefix build/axe axe-core playwright-core
	CHROMIUM=$$(command -v chromium) node tests/report/axe.mjs build/axe build/pages
endif

benchmark: .venv/installed-test
	$(BIN)/pytest -m benchmark -s tests/benchmarks

# Runs the quick tests against the installed wheel, with the lowest and with the newest versions that pyproject.toml allows:
# without extras, then with some. For another Python: make check-newest PYTHON=python3.13
check-lowest check-newest: check-%: build
	PATH=$(CURDIR)/$(BIN):$$PATH tests/packaging/check_versions $* $(PYTHON)

# Installs the wheel with the pins and uses it outside the repository.
check-dist: build
	PATH=$(CURDIR)/$(BIN):$$PATH tests/packaging/check_wheel $(PYTHON)

# The source distribution, and the wheel from it, in dist/.
build: .venv/installed-release
	rm -rf dist
	$(BIN)/python -m build

INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/pip pyproject.toml deploy/constraints.txt
	$(INSTALL) --editable .
	touch $@

.venv/installed-test: .venv/bin/pip pyproject.toml deploy/constraints.txt
	$(INSTALL) --editable '.[test]'
	touch .venv/installed $@

.venv/installed-release: .venv/installed-test
	$(INSTALL) build uv
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site *.egg-info
