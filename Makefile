# The two commands of README.md are `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= python3
TARGET ?= embedded
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test compose-test bench lint p4 clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv with the pinned dependencies and the `mrcfab` command

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("mrcfab needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## an MRC all-reduce over a 4-plane SRv6 fabric while two links die
	$(BIN)/mrcfab run scenarios/demo.yaml --out out/demo

test: setup ## all tests: pytest's, and the PTF suite on both targets
	$(BIN)/pytest
	$(BIN)/python -m ptf_tests.run embedded
	$(BIN)/python -m ptf_tests.run bmv2

ptf: setup ## packet tests on one switch: make ptf TARGET=embedded (or bmv2)
	$(BIN)/python -m ptf_tests.run $(TARGET)

bench: setup ## packets per second of the endpoint and of the embedded switch, and where the endpoint's time goes
	$(BIN)/python bench/endpoint_rate.py
	$(BIN)/python bench/endpoint_rate.py --profile
	$(BIN)/python bench/switch_rate.py

compose-test: setup ## docker-compose.yml on a real engine, which it starts itself under root where none runs
	$(BIN)/pytest -rs tests/compose/check_fabric.py

lint: setup ## ruff and the strict type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

p4: setup ## recompile p4src/ (a p4c on the PATH, else the p4lang/p4c container)
	$(BIN)/python p4src/compile.py

clean: ## remove what was built here
	rm -rf $(VENV) out *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
