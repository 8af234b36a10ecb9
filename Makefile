# Two commands matter: `make demo` and `make test`. Both set up everything they need first.
PYTHON ?= python3.11
VENV ?= .venv
ARGS ?=
JSON ?=
BENCH ?= bench_levers
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install system demo up test check format bench screenshots clean

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

install: $(VENV)/.installed  ## Virtual environment with the pinned packages

$(VENV)/.installed: constraints.txt pyproject.toml
	@echo "Setting up $(VENV) (about five minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -e '.[runtime,dev]'
	@touch $@

system:  ## System packages for the simulator and the browser tests (needs root; says so otherwise)
	@bash deploy/system-packages.sh || echo "Going on without them."

demo: install system  ## The main job end to end; ARGS=--exit to end by itself
	$(BIN)/python manage.py demo $(ARGS)

up: install  ## The whole platform on this machine, until Ctrl-C
	$(BIN)/python manage.py up $(ARGS)

test: install  ## Every test; what was skipped is listed at the end
	$(BIN)/python -m tests.run $(ARGS)

check: install  ## Format, lint, layers, types, migrations, OpenAPI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PYTHONPATH=.:platform $(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py spectacular --validate --fail-on-warn --file /dev/null
	env -u DATABASE_URL $(BIN)/python manage.py openapi --check

format: install  ## Let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install  ## What each lever saves, plain against levers in turns; JSON=file.json keeps the figures; BENCH=bench_group for forwards alone
	$(BIN)/python -m tests.benchmarks.$(BENCH) $(if $(JSON),--json $(JSON)) $(ARGS)

screenshots: install system  ## Pictures of every page from the demo's state, light and dark, wide and phone
	$(BIN)/python -m tests.screenshots $(ARGS)

clean:  ## Remove the virtual environment and the state folder
	rm -rf $(VENV) .state
