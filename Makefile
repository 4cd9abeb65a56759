# SPDX-License-Identifier: Apache-2.0
# `make help` lists what a person or CI runs. Each target installs what it needs on a bare Debian 12
# and is quick when nothing changed: a stamp file stands for each finished step.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# ccache makes a second build, also in another clone, a matter of seconds; it is used when present.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
CCACHE = $(shell command -v ccache)

# Everything that ends up in the wheel.
PACKAGE_SOURCES := pyproject.toml CMakeLists.txt $(shell find cmake include src python -type f \
  -not -name '*.pyc' -not -name '*_test.cc' -not -name '*_fuzz.cc' 2>/dev/null)

.PHONY: help setup wheel demo test test-cpp test-asan test-tsan test-fuzz test-python test-server soak chaos bench lint format \
  docs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# ---- what is installed ------------------------------------------------------------------------

$(STAMPS)/apt-%: tools/debian.sh
	@mkdir -p $(@D)
	tools/debian.sh $*
	@touch $@

$(VENV)/.stamp-venv: $(STAMPS)/apt-build
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed to build and test")'
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'
	@touch $@

# torch goes first: lmcache alone may pull in another build of it.
$(VENV)/.stamp-lmcache: $(VENV)/.stamp-venv pyproject.toml
	@echo "installing torch and lmcache into $(VENV) (some minutes the first time)"
	$(PIP) install --group torch
	$(PIP) install --group torch --group lmcache --group build
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-lmcache
	$(PIP) install --group dev
	@touch $@

$(VENV)/.stamp-package: $(VENV)/.stamp-lmcache $(PACKAGE_SOURCES)
	@echo "building lmcache-aerospike into $(VENV)"
	rm -rf build/wheel
	CMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE) CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(PIP) wheel --no-build-isolation --no-deps -w build/wheel .
	$(PIP) install --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

setup: $(STAMPS)/apt-test $(VENV)/.stamp-dev $(VENV)/.stamp-package ## Install everything for work on the project into .venv

# ---- what a user runs -------------------------------------------------------------------------

wheel: $(VENV)/.stamp-dev $(VENV)/.stamp-package ## A wheel in dist/ that needs neither a compiler nor libraries
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair -w dist build/wheel/*.whl
	@ls -l dist/*.whl

demo: $(VENV)/.stamp-package ## Store and load real KV chunks through LMCache, against the development server
	@$(BIN)/python examples/demo.py

bench: $(STAMPS)/apt-bench $(VENV)/.stamp-dev $(VENV)/.stamp-package ## Compare with LMCache's own connectors, write bench/results
	CMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE) cmake --preset bench
	cmake --build --preset bench -j $(JOBS)
	$(BIN)/python bench/run.py

# ---- tests ------------------------------------------------------------------------------------

# One preset: configure, build, test. Each prints ctest's own closing lines. Tests wait for events, but
# some have limits in time, and machines are shared: what fails is run once more, and both outcomes are
# printed. A test that fails twice has failed.
define run_preset
CMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE) cmake --preset $(1) >build/$(1).configure.log || { cat build/$(1).configure.log; exit 1; }
cmake --build --preset $(1) -j $(JOBS) -- --quiet
ctest --preset $(1) -j $(JOBS) --repeat until-pass:2 $(2)
endef

test-cpp: $(STAMPS)/apt-test ## C++ tests, optimised build
	$(call run_preset,release)

test-asan: $(STAMPS)/apt-test ## C++ tests under AddressSanitizer and UBSan
	$(call run_preset,asan)

test-tsan: $(STAMPS)/apt-test ## C++ tests under ThreadSanitizer
	$(call run_preset,tsan)

test-fuzz: $(STAMPS)/apt-test ## Every fuzz target: its corpus, then a few seconds
	$(call run_preset,fuzz)

test-python: $(STAMPS)/apt-bench $(VENV)/.stamp-dev $(VENV)/.stamp-package ## Python tests, against the installed package
	$(BIN)/python -m pytest --durations=10 || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# What needs no more than a server: the same files as in test-python.
SERVER_TESTS := tests/conformance tests/python/test_store.py tests/python/test_connector.py \
  tests/python/test_shared_store.py tests/python/test_fused_serde.py tests/python/test_metrics.py \
  tests/lmcache $(wildcard tests/remote tests/unit)
NAMESPACE ?= lmcache

test-server: $(STAMPS)/apt-bench $(VENV)/.stamp-dev $(VENV)/.stamp-package ## Integration tests against HOST=host:port [NAMESPACE=lmcache]
	@[ -n "$(HOST)" ] || { echo 'usage: make test-server HOST=host:port[,host:port...] [NAMESPACE=lmcache]' >&2; exit 2; }
	AEROKV_SERVER='$(HOST)' LMCACHE_AEROSPIKE_NAMESPACE='$(NAMESPACE)' $(BIN)/python -m pytest -r fE $(SERVER_TESTS)

SOAK_S ?= 600
soak: $(STAMPS)/apt-bench $(VENV)/.stamp-dev $(VENV)/.stamp-package ## Mixed traffic and restarts for SOAK_S=600 seconds: nothing may grow
	SOAK_S='$(SOAK_S)' $(BIN)/python -m pytest -s tests/soak

CHAOS_S ?= 600
CHAOS_SEED ?= 1
CHAOS_SEEDS ?= 5
# Each seed has its share of the time, two thirds of it in C++ and one third through Python. On failure
# both print the seed and the shortest prefix of the schedule that fails again.
chaos: $(STAMPS)/apt-test $(VENV)/.stamp-dev $(VENV)/.stamp-package ## Every event of a cluster under verified load for CHAOS_S=600 seconds, CHAOS_SEEDS=5 seeds
	CMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE) cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS) --target chaos -- --quiet
	build/release/tests/chaos/chaos --seed '$(CHAOS_SEED)' --seeds '$(CHAOS_SEEDS)' \
	  --seconds "$$(( $(CHAOS_S) * 2 / 3 / $(CHAOS_SEEDS) + 1 ))"
	$(BIN)/python tests/chaos/chaos.py --seed '$(CHAOS_SEED)' --seeds '$(CHAOS_SEEDS)' \
	  --seconds "$$(( $(CHAOS_S) / 3 / $(CHAOS_SEEDS) + 1 ))"

test: ## Everything: C++ (release, ASan+UBSan, TSan), fuzz smoke, then pytest
	$(MAKE) --no-print-directory test-cpp
	$(MAKE) --no-print-directory test-asan
	$(MAKE) --no-print-directory test-tsan
	$(MAKE) --no-print-directory test-fuzz
	$(MAKE) --no-print-directory test-python

# ---- form -------------------------------------------------------------------------------------

lint: $(STAMPS)/apt-test $(VENV)/.stamp-dev ## Formatters in check mode, clang-tidy, ruff, mypy, house rules, header check
	tools/lint.sh

format: $(VENV)/.stamp-dev ## Rewrite C++ and Python files in the project's format
	git ls-files -z -- '*.cc' '*.h' | xargs -0 $(BIN)/clang-format -i
	$(BIN)/ruff check --fix -q .
	$(BIN)/ruff format -q .

docs: $(VENV)/.stamp-dev ## Build the documentation into site/, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

clean: ## Remove what was built, and the environment
	rm -rf build dist site $(VENV)
