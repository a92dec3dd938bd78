# Every target sets up what it needs in .venv, quietly, and again in seconds when nothing changed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)

# What an installation is made from: settings, build files, the compiled sources, and which source files there are.
# (The package is installed in editable mode: a changed line of Python needs no new installation, a new file does.)
KEY := $(shell { cat pyproject.toml CMakeLists.txt $$(git ls-files '*.cpp' '*.hpp' 2>/dev/null); find src -name '*.py' -o -name '*.cpp' -o -name '*.j2' | sort; } \
	| cksum | cut -d' ' -f1)
USE := $(VENV)/.use-$(KEY)
TEST := $(VENV)/.test-$(KEY)
LINT := $(VENV)/.lint-$(KEY)
DOCS := $(VENV)/.docs-$(KEY)
TOOLS := $(VENV)/.tools

# Real data for development, where it is there; tests that need it skip with a reason where it is not.
ifneq ($(wildcard ../shared/data),)
export SHIFTSVD_TEST_DATA ?= $(abspath ../shared/data)
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled modules are kept, or each of the processes that tests start would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
ifeq ($(OS),Windows_NT)
export CMAKE_GENERATOR_TOOLSET ?= ClangCL
endif

# The kernels must be there where they can be built, so that a missing extension never passes for a fast one; and the
# fallback is tested too: in what multiplies by the kernels that were chosen. Other tests of kernels name the ones they want.
KERNELS := $(if $(shell command -v $${CXX:-c++} || command -v g++ || command -v clang++),require,auto)
FALLBACK := $(addprefix tests/,kernels/test_operators.py kernels/test_layouts.py kernels/test_changed_arrays.py runs/test_determinism.py)

# Whoever has no tests left takes some of the other's: a file stays in one process as far as it can, with what it has made.
PYTEST := -m pytest -q -n 2 --dist worksteal

.PHONY: help demo test test-all test-oldest test-newest test-sdist test-installs rehearse test-emulated test-device test-without torch lint lint-workflows format \
	fuzz soak paper bench docs dist wheels wheels-elsewhere check-dist check-tag clean
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(USE) ## the point: a row of the paper's table, and PCA of texts of four sizes beside scikit-learn's
	@$(BIN)/python -m paper.demo --out demo-out --force

test: $(TEST) ## the tests
	@SHIFTSVD_KERNELS=$(KERNELS) $(BIN)/python $(PYTEST) -m "not long"
	@SHIFTSVD_KERNELS=off $(BIN)/python $(PYTEST) -m "not long and not slow" $(FALLBACK)

test-all: $(TEST) ## the tests, those that take minutes too
	@SHIFTSVD_KERNELS=$(KERNELS) $(BIN)/python $(PYTEST) --every-combination
	@SHIFTSVD_KERNELS=off $(BIN)/python $(PYTEST) -m "not long" $(addprefix tests/,algebra backends kernels runs/test_determinism.py solvers)

test-without: $(TEST) $(DOCS) ## the tests and pages of the core without an extension: make test-without NAME=genetics
	@SHIFTSVD_KERNELS=$(KERNELS) $(BIN)/python tools/without.py $(NAME)
	@$(BIN)/python tools/without.py $(NAME) --docs

fuzz: $(TEST) ## damaged and hostile files to every reader; MINUTES=10; what goes wrong is kept in fuzz-out
	@OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.fuzz --minutes $(or $(MINUTES),1) $(ARGS)

# Environments of their own: the first with the lower bounds of pyproject.toml, the second with what is not released yet.
test-oldest: ## the tests with the oldest versions that are supported
	@mkdir -p .venv-oldest && "$(PYTHON)" tools/oldest.py > .venv-oldest/constraints.txt
	@PIP_CONSTRAINT=$(CURDIR)/.venv-oldest/constraints.txt PIP_BUILD_CONSTRAINT=$(CURDIR)/.venv-oldest/constraints.txt \
		$(MAKE) --no-print-directory test VENV=.venv-oldest

test-device: ## the tests of matrices on a device with PyTorch too, whose build for CPUs is enough
	@$(MAKE) --no-print-directory VENV=.venv-device torch
	@SCIPY_ARRAY_API=1 .venv-device/bin/python -m pytest -q tests/backends/device

torch: $(TEST)
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install -q --group device

test-newest: ## the tests with the newest versions, pre-releases too
	@PIP_PRE=1 PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager $(MAKE) --no-print-directory test VENV=.venv-newest

lint: $(LINT) ## style, format, types, docstrings, banned phrases
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy -n 2
	@$(BIN)/python -m benchmarks.structure.docstrings
	@$(BIN)/python -m pytest -qq -n 0 -p no:cacheprovider tests/house/test_words.py
	@files=$$(git ls-files '*.cpp' '*.hpp' '*.cu'); [ -z "$$files" ] || $(BIN)/clang-format --dry-run --Werror $$files

format: $(LINT) ## put the source in format
	@$(BIN)/ruff check --fix -q .
	@$(BIN)/ruff format -q .
	@files=$$(git ls-files '*.cpp' '*.hpp' '*.cu'); [ -z "$$files" ] || $(BIN)/clang-format -i $$files

lint-workflows: $(TOOLS) ## the workflows and CITATION.cff against their schemas
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/wish.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

paper: $(USE) ## every table and figure of the paper, published beside measured; ARGS="--seeds 30 --corpus FILE"
	@$(BIN)/python -m paper --out paper-out --force $(ARGS)

# All of it takes hours, and goes on where it was broken off; ROWS="counts digits" runs some of the rows.
comma := ,
empty :=
bench: export SHIFTSVD_KERNELS := $(KERNELS)
bench: $(USE) ## the tables and charts against every peer; make bench ROWS=counts for one row
	@$(BIN)/python -m benchmarks.peers.run $(if $(ROWS),--rows $(subst $(empty) $(empty),$(comma),$(ROWS))) $(ARGS)
	@[ -n "$(ROWS)" ] || for table in kernels off_centre memory; do $(BIN)/python -m benchmarks.claims.$$table; done

soak: export SHIFTSVD_KERNELS := $(KERNELS)
soak: $(USE) ## random fits for MINUTES=10 in threads and processes, kills, races and full disks; a line of figures
	@$(BIN)/python -m benchmarks.endurance.soak $(or $(MINUTES),10) $(SEED)

docs: $(DOCS) ## the pages, in docs/_build/html; the gallery runs
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees docs docs/_build/html
	@echo docs/_build/html/index.html

dist: $(TOOLS) ## the sdist, in dist/
	@rm -f dist/*.tar.gz
	@$(BIN)/python -m build --sdist -o dist

# Where it runs, and for what: CIBW_BUILD and CIBW_ARCHS of cibuildwheel choose fewer. Linux needs Docker or Podman.
wheels: $(TOOLS) ## the wheels of this system, as they are released, in dist/
	@$(BIN)/cibuildwheel --output-dir dist

ELSEWHERE := manylinux_2_17_x86_64 manylinux_2_17_aarch64 musllinux_1_2_x86_64
wheels-elsewhere: $(TOOLS) ## wheels for other systems, by zig, in dist/; ELSEWHERE="manylinux_2_17_aarch64"
	@$(BIN)/python tools/wheels.py $(ELSEWHERE)

test-emulated: $(TOOLS) ## the wheel for ARM in dist/, under qemu-user: kernels, operators, determinism
	@$(BIN)/python tools/emulated.py dist/*cp312-abi3*aarch64.whl $(TESTS)

check-dist: $(TOOLS) ## what is in dist/: metadata, what it needs of a system, contents, sizes
	@$(BIN)/twine check --strict dist/*
	@for wheel in dist/*.whl; do case $$wheel in *manylinux*) $(BIN)/auditwheel show $$wheel;; esac; done
	@for wheel in dist/*abi3*.whl; do [ ! -e "$$wheel" ] || $(BIN)/abi3audit --report $$wheel >&2; done
	@$(BIN)/python tools/contents.py dist/*

test-installs: ## what is in dist/ in clean environments, without compiler and with bad ones; PYTHONS="python3.11 python3.13"
	@"$(PYTHON)" tools/installs.py dist/*.tar.gz $(wildcard dist/*.whl) --python $(or $(PYTHONS),$(PYTHON))

rehearse: ## a release from a clean clone on an index of this machine, and each extra from there; PYTHONS="python3.11 python3.14"
	@"$(PYTHON)" tools/rehearsal.py --python $(or $(PYTHONS),$(PYTHON))

test-sdist: ## the tests of the sdist in dist/, where it is unpacked
	@rm -rf build/sdist && mkdir -p build/sdist && tar -xzf dist/*.tar.gz -C build/sdist --strip-components 1
	@$(MAKE) --no-print-directory -C build/sdist test

check-tag: ## whether TAG is the version in pyproject.toml: make check-tag TAG=v0.1.0
	@"$(PYTHON)" tools/tag.py "$$TAG"

clean: ## everything that was made here
	rm -rf docs/_build docs/auto_gallery docs/api/generated docs/api/uses
	rm -rf $(VENV) .venv-oldest .venv-newest .venv-device build dist demo-out paper-out fuzz-out .pytest_cache .mypy_cache .ruff_cache .hypothesis

# $(1) extras, $(2) what to install besides the package, $(3) the smaller installations that this one includes: building the
# kernels takes a minute, so `make lint` and then `make test` build them once. A failed installation leaves no stamp, so the
# next call tries again.
define install
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python" >&2; exit 1; }
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -q -e '.[$(1)]' $(2)
	@rm -f $(foreach stamp,$@ $(3),$(stamp:-$(KEY)=)-*)
	@touch $@ $(3)
endef

$(USE):
	$(call install,plot,--group paper)

$(TEST):
	$(call install,all,--group test,$(USE))

$(LINT):
	$(call install,all,--group test --group lint,$(TEST) $(USE))

$(DOCS):
	$(call install,all,--group docs --group paper,$(USE))

# What builds and checks releases: the package itself is not needed.
$(TOOLS): pyproject.toml
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -q --group release
	@touch $@
