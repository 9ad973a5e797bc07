# Every target sets itself up: it needs make and Python 3.11 or later, nothing else.
#
#   PYTHON=python3.12   the Python to use (default: the first one that fits)
#   SPARK=4.2.0         another version of Spark, in an environment of its own
#   ALL=1               with `test`: also the tests that wait for the night, and all random examples
#   ARGS="..."          passed to the program that the target runs

PYTHON ?=
SPARK ?=
ARGS ?=
ALL ?=
VENV := .venv$(if $(SPARK),-spark-$(SPARK))
BIN := $(VENV)/bin

# The user's own Spark, Python path or profile would replace what the lock file names.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS PYTHONPATH PYTHONHOME
export PYTHON VENV
export PYTHONUNBUFFERED := 1
export PYTHONFAULTHANDLER := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint check chaos bench format docs docs-site wheel lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

setup: ## Create or update the environment in .venv and the kernel (other targets do this automatically)
	@scripts/python.sh environment.py setup $(VENV) $(if $(SPARK),--spark $(SPARK))

demo: setup ## Count words, live: a real Kafka, Spark, RocksDB, interactive queries (ARGS="--help")
	@$(BIN)/millstream demo $(ARGS)

test: setup ## Run the tests, the fast ones first (ARGS="-k words", TIER="pure spark"; ALL=1: those of the night too)
	@ALL=$(ALL) $(BIN)/python scripts/run_tests.py $(if $(TIER),--tiers "$(TIER)") -- $(ARGS)
	@$(if $(ALL),$(if $(TIER)$(ARGS),,PYTHONPATH=tests $(BIN)/python -m nightly))

lint: setup ## Check style, format and types, in seconds
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: make format"; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python kernel/build.py --check

check: lint ## Run lint and the tests that need no engine, in a minute
	@$(BIN)/python scripts/run_tests.py --tiers pure

bench: setup ## Compare with Kafka Streams, Spark and Quix Streams: 15 minutes (ARGS="--quick", 4; ARGS="latency")
	@$(BIN)/python -m bench $(ARGS)

chaos: setup ## Inject random faults for minutes, then check exact counts (ARGS="--seed 7 --minutes 10 --faults 20")
	@PYTHONPATH=tests:tests/cluster $(BIN)/python -m chaos $(ARGS)

faults: setup ## Inject 250 faults from a list, and judge each: an hour (ARGS="once-counts --first 10 --count 5")
	@PYTHONPATH=tests:tests/cluster $(BIN)/python -m faults $(ARGS)

format: setup ## Format the code, and fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

docs: setup ## Regenerate the generated parts of docs/, drawings included
	@$(BIN)/python scripts/make_docs.py $(ARGS)

docs-site: ## Build the documentation site into build/site; a broken link fails it (ARGS=--dirty)
	@scripts/python.sh environment.py docs .venv-docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict $(ARGS)
	@echo "build/site/index.html"

wheel: setup ## Build the wheel (with the kernel) and the source distribution into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build --target sdist --target wheel --directory dist

lock: ## Regenerate requirements/*.lock from pyproject.toml (ARGS=--upgrade)
	@scripts/python.sh environment.py lock $(ARGS)

clean: ## Delete the environments, the kernel's jar and tools' leftovers (cached downloads stay)
	@rm -rf .venv .venv-* millstream/kernel/*.jar build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	@find millstream tests scripts bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
