# make ask    sets everything up and asks three questions of a book, offline, with the embedded model
# make test   sets everything up and runs the test suite
# make check  ruff, mypy and the import contracts
# make docs   builds the documentation site into build/site
# make test-cluster   the tests of training on verl and Ray, in an environment of their own (2 GB)
# make test-suites    the tests with inspect_ai and lm-evaluation-harness, in an environment of their own (2 GB)

PYTHON ?= python3
# Processes that run tests side by side: one for each core.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count())')
VENV ?= .venv
BIN := $(VENV)/bin
# Once, for both torch and the rest: torch goes first and alone, so that nothing pulls in another build of it.
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)

CLUSTER_VENV ?= .venv-cluster
CLUSTER_PIP := $(CLUSTER_VENV)/bin/python -m pip --disable-pip-version-check
SUITES_VENV ?= .venv-suites
SUITES_PIP := $(SUITES_VENV)/bin/python -m pip --disable-pip-version-check

.PHONY: ask test check docs test-cluster test-suites clean

ask: $(VENV)/.local-installed
	@$(BIN)/python examples/ask_a_book.py

test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-cluster: $(CLUSTER_VENV)/.installed
	$(CLUSTER_VENV)/bin/python -m pytest tests/cluster tests/embedded/test_lfm2.py -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

test-suites: $(SUITES_VENV)/.installed
	$(SUITES_VENV)/bin/python -m pytest tests/inspect_provider tests/server/test_suites.py -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

check: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"memagent needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.torch-installed: $(VENV)/.created constraints.txt
	@echo "setting up in $(VENV): a few minutes, once"
	$(PIP) install --quiet $(TORCH)
	@touch $@

$(VENV)/.local-installed: $(VENV)/.torch-installed pyproject.toml
	$(PIP) install --quiet -c constraints.txt -e '.[local,documents]'
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.torch-installed pyproject.toml
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.local-installed

$(CLUSTER_VENV)/.installed: pyproject.toml constraints-cluster.txt
	$(PYTHON) -m venv $(CLUSTER_VENV)
	$(CLUSTER_PIP) install --quiet $(TORCH)
	$(CLUSTER_PIP) install --quiet -c constraints-cluster.txt -e '.[cluster]' pytest pytest-timeout pytest-xdist hypothesis psutil
	@touch $@

$(SUITES_VENV)/.installed: pyproject.toml constraints-suites.txt
	$(PYTHON) -m venv $(SUITES_VENV)
	$(SUITES_PIP) install --quiet $(TORCH)
	$(SUITES_PIP) install --quiet -c constraints-suites.txt -e '.[local,serve,inspect]' 'lm-eval[api]' pytest pytest-timeout pytest-xdist hypothesis httpx2 openai
	@touch $@

docs: $(VENV)/.docs-installed
	$(BIN)/mkdocs build --quiet

$(VENV)/.docs-installed: $(VENV)/.dev-installed
	$(PIP) install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(CLUSTER_VENV) $(SUITES_VENV) build dist src/*.egg-info
