# Every target sets itself up: it needs make and Python 3.11 or later, nothing else.
#
#   PYTHON=python3.12   the Python to use (default: the first one that fits)
#   SPARK=4.2.0         another Spark than the usual one, in an environment of its own
#   ARGS="..."          handed on to the program that the target runs

PYTHON ?=
SPARK ?=
ARGS ?=
VENV := .venv$(if $(SPARK),-spark-$(SPARK))
BIN := $(VENV)/bin

# A Spark, a Python path or a profile of the user's own would take the place of what the lock file names.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS PYTHONPATH PYTHONHOME
export PYTHON VENV
export PYTHONUNBUFFERED := 1
export PYTHONFAULTHANDLER := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint check chaos bench format docs docs-site wheel lock clean

help: ## What there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

setup: ## Make or update the environment in .venv and the kernel (the other targets do it by themselves)
	@scripts/python.sh environment.py setup $(VENV) $(if $(SPARK),--spark $(SPARK))

demo: setup ## Count words, live: a real Kafka, Spark, RocksDB, interactive queries (ARGS="--help")
	@$(BIN)/millstream demo $(ARGS)

test: setup ## Every test, the fast ones first, the others side by side (ARGS="-k words", TIER="pure spark")
	@$(BIN)/python scripts/run_tests.py $(if $(TIER),--tiers "$(TIER)") -- $(ARGS)

lint: setup ## In seconds: style, format, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: make format"; exit 1; }
	@$(BIN)/mypy

check: lint ## In half a minute: the same, and the tests that need no engine
	@$(BIN)/python scripts/run_tests.py --tiers pure

bench: setup ## Measure beside Kafka Streams, Spark and Quix Streams: 15 minutes (ARGS="--quick", 4; ARGS="latency")
	@$(BIN)/python -m bench $(ARGS)

chaos: setup ## Random faults for minutes, then exact counts (ARGS="--seed 7 --minutes 10 --faults 20")
	@PYTHONPATH=tests:tests/cluster $(BIN)/python -m chaos $(ARGS)

format: setup ## Format the code, and mend what ruff can mend
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

docs: setup ## Write the generated parts of docs/ anew, drawings among them
	@$(BIN)/python scripts/make_docs.py $(ARGS)

docs-site: ## Build the documentation site into build/site; a broken link ends it (ARGS=--dirty)
	@scripts/python.sh environment.py docs .venv-docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict $(ARGS)
	@echo "build/site/index.html"

wheel: setup ## Build what is published into dist/: the wheel, with the kernel in it, and the sources
	@rm -rf dist
	@$(BIN)/python -m hatchling build --target sdist --target wheel --directory dist

lock: ## Write requirements/*.lock anew from pyproject.toml (ARGS=--upgrade)
	@scripts/python.sh environment.py lock $(ARGS)

clean: ## Delete the environments, the kernel's jar and what tools left behind (downloads in the cache stay)
	@rm -rf .venv .venv-* millstream/kernel/*.jar build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	@find millstream tests scripts bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
