# Every target is something a person could type. PYTHON chooses the interpreter of the virtual environment.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
JOBS ?= 2
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup setup-dev demo test test-all lint bench docs clean

setup: $(VENV)/.ready
setup-dev: $(VENV)/.ready-dev

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) --editable '.[dev,zoo,svhn,cluster]'
	touch $@

demo: setup
	$(BIN)/scaleproof demo

test: setup-dev
	$(BIN)/python -m pytest -n $(JOBS)

test-all: setup-dev
	$(BIN)/python -m pytest -n $(JOBS) -m 'not gpu' --cov --cov-report=term

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup-dev
	$(PIP) scipy requests tqdm gitpython
	$(PIP) --no-deps torchattacks foolbox eagerpy
	$(BIN)/python benchmarks/attack_speed.py
	$(BIN)/python benchmarks/memory.py

docs: setup
	$(BIN)/python tools/make_docs.py

clean:
	rm -rf $(VENV) demo-report
