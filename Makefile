# `make demo` and `make test` create the .venv they need.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: demo test docs pages chaos chaos-short lint benchmark clean
.DELETE_ON_ERROR:

demo: .venv/installed
	$(BIN)/sparseoco demo

test: .venv/installed-test lint
	$(BIN)/pytest -n logical --maxprocesses 4 --dist worksteal --benchmark-disable

# Damaged files, kills, a full disk, Prefect down and slow: docs/operations/faults.md. The short part takes two minutes.
chaos: .venv/installed-test
	$(BIN)/pytest -n logical --maxprocesses 4 --dist worksteal --benchmark-disable -m chaos

chaos-short: .venv/installed-test
	SPARSEOCO_CHAOS_TRIALS=5 $(BIN)/pytest -n logical --maxprocesses 4 --dist worksteal --benchmark-disable \
		-m "chaos and not slow" tests/chaos

lint: .venv/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# axe, in headless Chromium, on the HTML pages that tests write.
pages: .venv/installed-test
ifeq (,$(and $(shell command -v chromium),$(shell command -v npm)))
	@echo "not checked: this needs chromium and npm"
else
	mkdir -p build/pages
	SPARSEOCO_PAGES=build/pages $(BIN)/pytest -n logical --maxprocesses 4 --benchmark-disable \
		tests/report tests/pipeline/nightly/test_page.py tests/papers
	npm install --silent --no-save --prefix build/axe axe-core playwright-core
	CHROMIUM=$$(command -v chromium) node tests/report/axe.mjs build/axe build/pages
endif

benchmark: .venv/installed-test
	$(BIN)/pytest -m benchmark -s tests/benchmarks

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/pip pyproject.toml deploy/constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt --editable .
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site *.egg-info
