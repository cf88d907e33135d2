# Every target is something a person could type. PYTHON chooses the interpreter of the virtual environment.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: setup demo test test-all lint bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,zoo,svhn]'
	touch $@

demo: setup
	$(BIN)/scaleproof demo

test: setup
	$(BIN)/python -m pytest

test-all: setup
	$(BIN)/python -m pytest -m 'not gpu' --cov --cov-report=term

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt scipy requests tqdm gitpython
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps torchattacks foolbox eagerpy
	$(BIN)/python benchmarks/attack_speed.py

clean:
	rm -rf $(VENV) demo-report
