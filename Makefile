# Every target but help and clean sets up first what is missing (tools/setup.sh).  Full logs: .longshore/logs/.
#   make setup PYTHON=python3.12      another interpreter
#   make demo ARGS="--steps 3"        more options for the command behind a target
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format docs lock clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# One more than there are cores, because tests wait for containers and processes; each may take several GiB.  The files
# keep their order, so that those that wait most, tests/integration, do not come last.
TEST_PROCESSES := $(shell processes=$$(($$(nproc) + 1)); echo $$((processes < 4 ? processes : 4)))
# Tests start hundreds of Python processes, each of which would compile the project again.
export PYTHONDONTWRITEBYTECODE :=
SOURCES := protocol sandbox actors learner launch tests tools
ARGS :=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## virtual environment, pinned packages, Docker engine, base image: only what is missing
	@$(if $(PYTHON),PYTHON="$(PYTHON)") tools/setup.sh

demo: setup ## train the demo agent from scratch and write its report (ten to fifteen minutes on two quiet cores)
	@$(BIN)/python -m launch.cluster demo --nodes 1 $(ARGS)

test: setup ## the fast tests and one real run of each package (about eight minutes on two quiet cores)
	@$(PYTEST) -n $(TEST_PROCESSES) --dist loadscope --no-loadscope-reorder -m "not slow and not chaos and not gpu" $(ARGS)

test-all: setup ## also the slow tests and those that kill processes; only tests for a GPU are left out
	@$(PYTEST) -m "not gpu" $(ARGS)

lint: setup ## ruff, pyright, import contracts, and a reason for every ignore
	@failed=; \
	check() { printf 'lint: %s\n' "$$*"; "$$@" || failed="$$failed $$1"; }; \
	check $(BIN)/ruff check $(SOURCES); \
	check $(BIN)/ruff format --check $(SOURCES); \
	check $(BIN)/pyright; \
	check $(BIN)/lint-imports; \
	check $(BIN)/python tools/count_ignores.py; \
	if [ -n "$$failed" ]; then printf 'lint: failed:%s\n' "$$failed"; exit 1; fi; printf 'lint: clean\n'

format: setup ## format the code with ruff
	@$(BIN)/ruff check --fix-only --quiet $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

docs: setup ## write the generated pages, and build the site of docs/ into site/
	@$(BIN)/python tools/config_page.py
	@$(BIN)/python tools/commands_page.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@printf 'docs: site/index.html\n'

lock: setup ## resolve pyproject.toml into a new constraints.txt (ARGS="NAME …" updates only these packages)
	@$(BIN)/python tools/lock.py $(ARGS)

clean: ## remove build products, caches and logs; print what stays
	@rm -rf build dist site ./*.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis .longshore/logs
	@find . -path ./.venv -prune -o -path ./runs -prune -o -path ./.longshore -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
	@printf 'clean: kept: .venv (packages), runs (your results), .longshore (engine state), the Docker engine and its images\n'
