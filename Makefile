# The two commands are `make demo` and `make test`; both set up all they need. `make` alone lists the rest.

PYTHON ?= python3
KEEP ?=
CHECK ?= demo
PART ?=
VERSION ?=
VENV := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # uv installs no byte code, so each process would compile the packages again

.DEFAULT_GOAL := help
.PHONY: help python setup native client demo down test e2e-real bare release lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt-get install python3 python3-venv" >&2; exit 1; }

setup: python ## make .venv with every locked package and tool
	@$(PYTHON) tools/bootstrap.py

native: setup ## build libvgpu.so and the fake driver into build/native
	@$(VENV)/python tools/build_native.py

client: setup ## build kubectl hami as one file, build/kubectl-hami
	@$(VENV)/python tools/client_file.py

demo: python ## one Pod's whole life on the embedded cluster (KEEP=1 leaves it up)
	@$(PYTHON) tools/bootstrap.py demo
	@$(VENV)/python tools/build_native.py
	@$(VENV)/python e2e/demo.py $(if $(KEEP),--keep)

down: python ## end a demo that KEEP=1 left up
	@$(PYTHON) tools/bootstrap.py demo
	@$(VENV)/python e2e/demo.py --down

test: native ## every check and test that needs no GPU, root or cluster
	@rm -f build/skipped
	@HAMI_SKIPPED=$(CURDIR)/build/skipped $(VENV)/tox run -m test; status=$$?; $(VENV)/python tools/skipped.py build/skipped; exit $$status

e2e-real: native ## the same promises on a real Kubernetes, where this machine can have one (KUBERNETES=1.36)
	@if why=$$($(VENV)/python -m controlplane check 2>&1); then $(VENV)/tox run -e e2e-real $(if $(KUBERNETES),-- --kubernetes $(KUBERNETES)); \
	else echo "not run: e2e-real: $$why"; fi

bare: setup ## make CHECK (demo, test or e2e-real) in a fresh clone on a bare Debian (root)
	@$(VENV)/python tools/bare_machine.py $(CHECK)

release: setup ## a new version of a part: PART=scheduler VERSION=0.2.0
	@$(VENV)/python tools/release.py "$(PART)" "$(VERSION)"

lock: setup ## write requirements/*.lock from the .in files, with the newest versions
	@$(VENV)/python tools/lock.py

clean: ## remove what was built, and .venv
	rm -rf build .venv .tox .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
