# Each target makes its own virtual environment when there is none: `make demo` is all one needs.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: demo serve test lint format world umls bench readme clean

.venv/installed: pyproject.toml constraints.txt hatch_build.py src/puda/native.c
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) --editable '.[test,lint]'
	touch $@

demo: .venv/installed
	rm -rf runs/demo
	$(BIN)/puda train world --out runs/demo
	$(BIN)/puda predict runs/demo --head "South Africa" --relation speaks -k 5
	$(BIN)/puda predict runs/demo --tail Arabic --relation speaks -k 5
	$(BIN)/puda predict runs/demo --head Sydney --relation located_in -k 3 --include-known
	$(BIN)/puda complete runs/demo -o runs/demo/missing.tsv --top 10
	$(BIN)/puda explain runs/demo "South Sudan" speaks Arabic

# The page on the run that `make demo` leaves.
serve: .venv/installed
	$(INSTALL) --editable '.[web]'
	$(BIN)/puda serve runs/demo

test: .venv/installed-dev
	$(BIN)/pytest

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What docs/umls.md shows; hours on one core, finished runs are kept.
umls: .venv/installed
	$(BIN)/python benchmarks/umls.py

# What docs/speed.md shows, beside other tools; an hour on a quiet machine, finished rounds are kept.
bench: .venv/installed
	$(INSTALL) --editable '.[bench]'
	$(BIN)/python benchmarks/speed.py

# The output that README.md and docs/ show.
readme: .venv/installed
	$(BIN)/python scripts/readme.py

world: .venv/installed
	$(INSTALL) --editable '.[world]'
	$(BIN)/python scripts/build_world.py

clean:
	rm -rf .venv runs dist
