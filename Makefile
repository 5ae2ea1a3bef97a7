# Twinlog: two commands are enough for a newcomer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKS := deploy/requirements
# What .ci/run builds where a machine lacks it.
TOOLS := $${XDG_CACHE_HOME:-$$HOME/.cache}/twinlog/tools
PROJECTS := pyproject.toml $(wildcard distributions/*/pyproject.toml services/*/pyproject.toml)
EDITABLE := -e '.[dev,local]' $(foreach d,$(wildcard distributions/* services/*),-e $(d))
# Most of a test on real brokers is waiting: three files at a time. JOBS=0 runs them one after the other.
# Files with long tests come first, so that the short ones fill what is left.
JOBS := 3
SEEDS := 100
# Packages come from the locks, file by file held against its hash. LOCKED=no: a Python that a locked package has no files for.
LOCKED := yes
# Tests of a file, and those that share what takes seconds to start (tests/together.py), run in one process.
SIDE_BY_SIDE := -n $(JOBS) --dist loadscope --no-loadscope-reorder
SOURCES := src services tests bench examples
RELEASED_API := proto/released.binpb

# Where it is set, each of the hundreds of processes that tests start compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install kerberos demo ci test unit properties conformance nightly versions simulate chaos chaos-both-ways chaos-models chaos-replicas chaos-translation bench lint format proto api-released lock audit sbom digests images wheels release clean

help: ## List the targets
	@grep -hE '^[a-z0-9_-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

install: $(STAMP) ## Make .venv with everything in it

$(STAMP): $(PROJECTS) $(wildcard $(LOCKS)/*.txt)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Twinlog needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCKED),no)
	$(BIN)/python -m pip install --quiet --progress-bar on $(EDITABLE)
else
	$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCKS)/build.txt
	$(BIN)/python -m pip install --quiet --progress-bar on --require-hashes --no-build-isolation -r $(LOCKS)/dev.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps $(EDITABLE)
endif
	$(BIN)/python -m compileall -q src services
	$(BIN)/python -c 'from twinlog.machine import find_java; find_java()' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --require-hashes -r $(LOCKS)/java.txt
	@touch $(STAMP)

kerberos: install ## Add to .venv what logs in by Kerberos; needs gcc and the system's Kerberos (Debian: libkrb5-dev)
	$(BIN)/python -m pip install --quiet --no-build-isolation --require-hashes -r $(LOCKS)/kerberos.txt

demo: install ## Two real clusters, four services, a group that fails over: about a minute; ARGS="--ui --transform": on the live page, with Spark
	$(BIN)/twinlog demo $(ARGS)

test: install ## Unit tests, properties, and most of the README's promises on real brokers: minutes
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not conformance and not nightly" tests/e2e tests/integration tests/contract tests/simulated tests/unit

conformance: install ## The wire, security, Java's tools, Prometheus, the page in a browser, a short chaos run
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m conformance tests/chaos tests/e2e tests/integration tests/contract

ci: install ## make test and make conformance in one run: what both need is started once
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not nightly" tests/chaos tests/e2e tests/integration tests/contract tests/simulated tests/unit

nightly: install versions ## Everything else on real brokers, and each supported release of Kafka
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m nightly tests/e2e tests/integration tests/contract tests/simulated
	HYPOTHESIS_PROFILE=exhaustive $(BIN)/python -m pytest -n auto tests/unit/configsync/access/test_acl_rights.py

# Virtual time ends what waits for ever, so no thread has to look for that in each test.
unit: install ## Tests without I/O, by example
	$(BIN)/python -m pytest -n auto --dist loadscope -o faulthandler_timeout=0 -m unit tests/unit

properties: install ## Hypothesis, models and sizes, without I/O; HYPOTHESIS_PROFILE=exhaustive: many more examples
	$(BIN)/python -m pytest -n auto --dist loadscope -m properties tests/unit

versions: install ## The contract and a whole run of records and groups on each supported release of Kafka
	for kafka in 2.8 3.3 3.9 4.3 4.4; do TWINLOG_TEST_KAFKA=$$kafka \
		$(BIN)/python -m pytest tests/contract/cluster/test_real_cluster.py \
		tests/e2e/one_run/test_records_identical.py tests/e2e/one_run/test_group_continues.py || exit 1; done

simulate: install ## Random lives of all services in virtual time, from one seed each: SEEDS=1000
	cd tests && PYTHONHASHSEED=0 ../$(BIN)/python -m simulated.simulate --seeds $(SEEDS)

chaos: install ## Kill what copies 200 times at random moments under load, and compare both sides; ARGS=--help
	$(BIN)/python tests/chaos/source_chaos.py --kills 200 $(ARGS)
	$(BIN)/python tests/chaos/source_chaos.py --changed --kills 50 --kinds task feed drain jvm service $(ARGS)

chaos-both-ways: install ## Both clusters write to one topic, and everything is killed for ten minutes; ARGS=--help
	$(BIN)/python tests/chaos/both_ways_chaos.py $(ARGS)

chaos-replicas: install ## Three source services share three flows, and are killed, suspended and cut off; ARGS=--help
	$(BIN)/python tests/chaos/replicas_chaos.py $(ARGS)

chaos-models: install ## Play a million histories of the model of preserved copies: an hour or two; ARGS=--help
	$(BIN)/python tests/chaos/model_chaos.py $(ARGS)

chaos-translation: install ## Translate 1,000 random offsets of a million roughly mirrored records: minutes
	$(BIN)/python tests/chaos/translation_chaos.py

bench: install ## Beside the real MirrorMaker 2: half an hour on a quiet machine; ARGS=--quick: minutes
	$(BIN)/python -m bench $(ARGS)

lint: install audit ## ruff, mypy, import rules, proto rules, generated files in step, known vulnerabilities, lines of code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src services/source/twinlog_source services/checkpoint/twinlog_checkpoint services/heartbeat/twinlog_heartbeat services/configsync/twinlog_configsync tests bench examples
	MYPYPATH=. $(BIN)/mypy deploy/supply
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf breaking --against $(RELEASED_API)
	$(BIN)/python proto/generate.py --check
	$(BIN)/python -m deploy.kubernetes.render --check
	$(BIN)/python tests/count_code.py --total

format: install ## Rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: install ## Generate src/twinlog/api from proto/
	$(BIN)/python proto/generate.py

api-released: install ## At a release: what `make lint` holds later changes of proto/ against
	$(BIN)/buf build --exclude-source-info --output $(RELEASED_API)

lock: install ## Renew the locks of deploy/requirements after a change of dependencies; ARGS=--upgrade: newest versions
	$(BIN)/python -m deploy.supply.locks $(ARGS)

audit: install ## Hold the locked packages against the database of advisories, where it can be reached
	$(BIN)/python -m deploy.supply.audit

sbom: install ## Bill of materials (CycloneDX) and licences of every image, into dist/
	$(BIN)/python -m deploy.supply.sbom

digests: install ## Write the present digests of others' images into deploy/images.env and the compose files; needs docker and a registry
	$(BIN)/python -m deploy.supply.images digests

images: install ## Build every image on base images by digest; needs docker
	$(BIN)/python -m deploy.supply.images build $(ARGS)

wheels: install ## Build the wheel of every distribution into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist $(foreach d,. $(wildcard distributions/* services/*),./$(d))

release: install ## What is published, in dist/release: wheels, chart, SBOM, notes, checksums; tried from these alone
	PATH="$(TOOLS):$$PATH" $(BIN)/python -m deploy.supply.release $(ARGS)

clean: ## Remove what the targets made here (not the download cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .run dist
