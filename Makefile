# `make` alone says what there is. Everything below sets itself up: a warm set-up takes a moment and downloads nothing.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast down check bench faults lock clean
BIN := .venv/bin
# Tests start hundreds of processes: without bytecode each of them would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

setup: ## install what is missing (Java, Maven, packages to .venv, jars to .jars), and nothing else
	@bash include/tally/embedded/setup.sh

demo: setup ## Kafka, Airflow, a stream of taxi rides with disorder, late and bad events; Ctrl-C stops everything
	@$(BIN)/tally demo

down: ## stop everything that runs for this TALLY_HOME, also after a crash
	@if [ -x $(BIN)/tally ]; then $(BIN)/tally down; else echo "not set up: nothing of Tally's runs from here"; fi

test: setup ## every test, on a real Kafka, Spark and Airflow: three files at a time
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-fast: setup ## what needs no Kafka, Spark or Airflow of its own: under two minutes, beside a change in hand
	@$(BIN)/python -m pytest -q --fast -n 3 --dist loadfile

check: setup ## lint, format, types and floors, as CI has it first
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict include
	@$(BIN)/lint-imports --no-logo --no-cache

bench: setup ## measure docs/performance.md, Tally beside its peers, and what docs/measurements.md states
	@$(BIN)/python -m bench.peers
	@$(BIN)/python -m bench.peers.page
	@$(BIN)/python -m bench

faults: setup ## kill and corrupt on purpose, and see that nothing is lost or counted twice
	@$(BIN)/python -m faults --json faults.json
	@$(BIN)/python -m faults.plain
	@$(BIN)/python -m faults.planted --json planted.json
	@$(BIN)/python -m faults.planted --clean 50
	@$(BIN)/python -m faults.decoded --records 10000000
	@$(BIN)/python -m pytest -m long

lock: setup ## write requirements.lock anew from requirements.txt
	@uv=$$(command -v uv || echo $(BIN)/uv); \
	$$uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate requirements.txt -o requirements.lock

clean: down ## remove .venv, .jars and caches; var/, the data, stays
	rm -rf .venv .jars .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
