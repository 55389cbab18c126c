# `make` lists the targets. Variables (make TARGET NAME=value):
#   VENV    the environment; several clones may share one
#   PYTHON  the Python of the environment (3.11, 3.12 or 3.13)
#   TORCH   the torch of `make test-bare`, e.g. TORCH="torch==2.6.*"
#   ARGS    more arguments for pytest, e.g. ARGS="tests/bilm -k lstm", or for make speed

VENV ?= .venv
TORCH ?= torch
ARGS ?=

# The first interpreter that runs (a pyenv shim may not) and can make environments.
first_python = $(shell for python in $(1); do \
	"$$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && { command -v "$$python"; break; }; done)
pyenv = $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/$(1).*/bin/python)

PYTHON ?= $(call first_python,python3.11 python3.12 python3.13 \
	$(foreach version,3.11 3.12 3.13,$(call pyenv,$(version))))

# The mark of a finished environment. It has another name when one of these files changes.
INSTALLED := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)

# Two processes of one thread each. More processes or threads make small machines slower.
PYTEST = OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(VENV)/bin/python -m pytest -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help
help:  ## List these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
		awk -F ':.*## ' '{ printf "  %-18s %s\n", $$1, $$2 }'

.PHONY: install
install: $(INSTALLED)  ## Set up the environment in VENV, once

.PHONY: demo
demo: $(INSTALLED)  ## Train, measure and use a small ELMo
	PATH="$(abspath $(VENV))/bin:$$PATH" bash scripts/demo.sh

.PHONY: pictures
pictures: $(INSTALLED)  ## Train the demo and draw the pictures of the documentation
	PATH="$(abspath $(VENV))/bin:$$PATH" bash scripts/demo.sh demo
	PYTHONPATH=. $(VENV)/bin/python scripts/pictures.py demo docs/pictures

.PHONY: test
test: $(INSTALLED)  ## Run the tests, except those marked nightly
	$(PYTEST) -m "not nightly" $(ARGS)

.PHONY: test-all
test-all: $(INSTALLED)  ## Run all tests: fuzz, random kills, Ray, the wheel and notebooks too
	$(PYTEST) --timeout 1800 --hypothesis-profile nightly $(ARGS)

.PHONY: test-bare
test-bare: VENV := .venv-bare
test-bare:  ## Run the tests that need no AllenNLP, in a new .venv-bare with PYTHON and TORCH
	"$(PYTHON)" -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet "pip>=25.1"  # for --group
	$(VENV)/bin/pip install --quiet -e '.[plot]' "$(TORCH)" --group test
	$(PYTEST) -m "not nightly" $(ARGS)

.PHONY: lint
lint: $(INSTALLED)  ## Check style and format of the code
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

.PHONY: types
types: $(INSTALLED)  ## Check types
	$(VENV)/bin/mypy

.PHONY: format
format: $(INSTALLED)  ## Format the code, and fix style errors where ruff can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: check
check: lint types test  ## All of lint, types and test

.PHONY: speed
speed: $(INSTALLED)  ## Measure speed beside AllenNLP's modules (15 to 25 minutes, on a quiet machine)
	$(VENV)/bin/python -m speed $(ARGS)

.PHONY: docs
docs: $(INSTALLED)  ## Build the documentation as a site, into site/
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

.PHONY: notebooks
notebooks: $(INSTALLED)  ## Run the notebooks and store their outputs (5 minutes)
	PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONWARNINGS="ignore:IProgress not found" TQDM_DISABLE=1 \
		jupyter execute --inplace --NotebookClient.record_timing=False notebooks/*.ipynb
# Commands after "!" run in a terminal, which adds carriage returns.
	sed -i 's/\\r\\n/\\n/' notebooks/*.ipynb

# Print pip's lines on packages of a megabyte or more, and on what it builds and installs.
LARGE = sed -nE '/^ *(Downloading|Using cached) .* [MG]B\)|^(Building|Installing) /s/^ *(.{1,90}).*/   \1/p'

$(INSTALLED): SHELL := bash
$(INSTALLED):
	@test -n "$(PYTHON)" || { echo "No usable Python 3.11, 3.12 or 3.13 found: install one" \
		"(with its venv module), or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "== Setting up $(VENV) with $(PYTHON): 1 to 5 minutes, about 6 GB on Linux (torch's CUDA libraries)"
	"$(PYTHON)" -m venv "$(VENV)"
	"$(VENV)/bin/pip" install --quiet "pip>=25.1"  # for --group
	@echo "== 1/2: this package, editable, and all it needs, in the versions of constraints.txt"
	@set -o pipefail; "$(VENV)/bin/pip" install -c constraints.txt -e '.[allennlp,plot,ray]' --group dev | $(LARGE)
	@echo "== 2/2: AllenNLP without its own pins (torch<1.13, spacy<3.4, ...), which don't exist for"
	@echo "   this Python. 'pip check' lists them as conflicts; the tests cover the installed versions"
	@set -o pipefail; "$(VENV)/bin/pip" install --no-deps --group allennlp | $(LARGE)
	@rm -f "$(VENV)"/.installed-*
	@touch "$@"
	@echo "== $(VENV) is ready"
