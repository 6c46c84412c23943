# SPDX-License-Identifier: Apache-2.0
VENV ?= .venv
INVENTORY ?=

.PHONY: help up down venv dev test lint unit browser integration e2e bench lock clean

help: ## What there is
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

up: venv ## The main job: deploy, verify, benchmark, report (INVENTORY=DIR for another inventory)
	$(VENV)/bin/pdlab up $(if $(INVENTORY),-i $(INVENTORY))

down: venv ## Stop what `make up` started
	$(VENV)/bin/pdlab down $(if $(INVENTORY),-i $(INVENTORY))

venv:
	@[ -x $(VENV)/bin/pytest ] || scripts/bootstrap.sh $(VENV) requirements.txt

dev: ## The environment for working on pdlab, into $(VENV)
	@scripts/bootstrap.sh $(VENV) requirements-dev.txt

test: dev ## Everything: linters, unit, reports in a browser, integration on systemd hosts, the rehearsal end to end
	scripts/test.sh all

lint: dev ## ruff, mypy, ansible-lint, yamllint
	scripts/test.sh lint

unit: dev ## The fast tests
	scripts/test.sh unit

browser: dev ## Reports in a headless Chromium
	scripts/test.sh browser

integration: dev ## On real systemd hosts (needs root)
	scripts/test.sh integration

e2e: dev ## The real engine on this machine's CPU
	scripts/test.sh e2e

bench: dev ## Ratios against the bare tools (ROWS="second_deploy …" for some of them)
	$(VENV)/bin/python benchmarks/run.py $(ROWS)

lock: dev ## Resolve all lock files anew
	scripts/lock.sh

clean: ## Remove what tests and builds leave in the checkout
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
