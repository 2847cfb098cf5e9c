# MLAcademy. `make lab` opens the course, `make test` checks it; both set up everything they need in .venv/.

.DEFAULT_GOAL := help
.PHONY: help setup lab test lessons book bench sanitize evidence check format clean

BIN := .venv/bin
NOTEBOOKS = $(wildcard lessons/*.ipynb lessons/*/*.ipynb exercises/*/*.ipynb solutions/*/*.ipynb)
NATIVE = $(shell find kernels -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh')
TESTS ?= tests

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make or update the environment in .venv/ (TORCH=cpu|default chooses the build of torch)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh $(if $(TORCH),--torch $(TORCH))

lab: setup ## Open JupyterLab at chapter 00
	@$(BIN)/mlacademy lab

test: check ## Run all checks and tests (TESTS=tests/mla runs some)
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(TESTS)

lessons: setup ## Run every lesson without a browser and print a table
	@$(BIN)/mlacademy lessons

book: setup ## Build the course as web pages in book/_build/html
	@$(BIN)/mlacademy book

bench: setup ## Run the benchmarks
	@$(BIN)/mlacademy bench --all

sanitize: setup ## Run the emulator's tests on a build with address and undefined-behaviour sanitizers
	@$(BIN)/python scripts/sanitize.py

evidence: setup ## Show every promise of the course kept: the command and what it printed, in one page
	@$(BIN)/python scripts/evidence.py

check: setup ## Lint, types, format of code and notebooks
	@echo "Checking lint, types and format."
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(if $(NATIVE),$(BIN)/clang-format --dry-run --Werror $(NATIVE))
	@$(if $(NOTEBOOKS),$(BIN)/python scripts/notebook.py check $(NOTEBOOKS))

format: setup ## Rewrite code and notebooks in the project's form
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@$(if $(NATIVE),$(BIN)/clang-format -i $(NATIVE))
	@$(if $(NOTEBOOKS),$(BIN)/python scripts/notebook.py format $(NOTEBOOKS))

clean: ## Remove what was built; .venv/ and work/ stay
	@rm -rf build book/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
