# `make help` lists what can be done. Every target sets up what it needs first.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
HELM   := $(BIN)/helm
# Test processes side by side, with one broker for all. More than cores: tests also wait.
WORKERS ?= 5
# File by file, in the order of tests/conftest.py: what a file shares is started once.
SPREAD = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
EXPLORER := tests/unit/explorer/test_explorer_exhaustive.py
LOCK   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
          --no-emit-index-url --custom-compile-command "make lock" --constraint requirements/pins.in

CORE   := tests/integration/test_sink_contract.py tests/integration/test_source_conformance.py \
          tests/integration/test_consumer_contract.py tests/integration/test_recovery.py \
          tests/faults/test_drivers.py

# Spark starts Python processes all the time; each would compile this package anew.
unexport PYTHONDONTWRITEBYTECODE
# Whether there is a newer pip is no news for who wants to run this.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DIST_EXTRA_CONFIG := $(CURDIR)/requirements/build.cfg

.DEFAULT_GOAL := help
.PHONY: help demo setup fmt lint type java test crash unit spark integration chart image release older system cluster drill audit faults bench bench-peers docs explore check lock

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## Watch a pipeline being killed in mid-batch and losing nothing (2 minutes)
	$(BIN)/onceflow demo

setup: $(READY) $(HELM)  ## Make .venv with everything that is needed, at locked versions

fmt: $(READY)  ## Format the code and repair what can be repaired
	$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/python -m tests.java --fix

lint: $(READY)  ## Check format, style and layers
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports --no-logo

type: $(READY)  ## Check types
	$(BIN)/mypy

java: $(READY)  ## Check the format of our Java, compile it and test it with JUnit; needs a JDK
	$(BIN)/python -m tests.java

test: $(READY) $(HELM)  ## Run the tests against real brokers (10 minutes)
	$(BIN)/pytest tests --ignore tests/system --ignore tests/cluster --ignore $(EXPLORER) -m "not long and not crash" $(SPREAD)

# Each starts several JVMs, and has deadlines.
crash: WORKERS = 3
crash: $(READY)  ## Kill and freeze whole processes, executors and brokers, one seed of each
	$(BIN)/pytest tests/faults tests/integration -m "crash and not long" $(SPREAD)

unit: $(READY)  ## Run the tests that need neither Java nor a socket
	$(BIN)/pytest tests/unit -m "not explorer"

spark: $(READY)  ## Run the tests on local Spark, without a broker
	$(BIN)/pytest tests/spark

integration: $(READY)  ## Run the tests against a real broker
	$(BIN)/pytest tests/integration

chart: $(READY) $(HELM)  ## Check the Helm chart, and write its table and golden files afresh
	$(BIN)/python deploy/dashboard.py
	ONCEFLOW_TEST_REWRITE_GOLDEN=1 $(BIN)/pytest tests/deploy
	git diff --stat tests/deploy/golden deploy

image: $(READY)  ## Build the service's image with a Docker engine
	find docker/packages -type f ! -name README.md -delete
	$(BIN)/python -m pip download --quiet --no-deps --require-hashes --dest docker/packages \
	    -r requirements/run.lock -r requirements/build.lock
	$(BIN)/python -m onceflow.devkit fetch kafka --into docker/packages/jars/kafka
	$(BIN)/python -m onceflow.devkit fetch s3 --into docker/packages/jars/s3
	docker build --network host --file docker/Dockerfile --tag onceflow \
	    --build-arg VERSION=$$($(BIN)/onceflow version) \
	    --build-arg REVISION=$$(git rev-parse HEAD) $(IMAGE_OPTIONS) .

release:  ## Build it twice on a base with a digest, and compare: BASE_IMAGE=debian@sha256:...
	@echo "$(BASE_IMAGE)" | grep -Eq '^[a-z0-9./:_-]+@sha256:[0-9a-f]{64}$$' || { \
	    echo "BASE_IMAGE: a release names its base by digest; expected debian@sha256:..., found '$(BASE_IMAGE)'" >&2; exit 2; }
	$(MAKE) image IMAGE_OPTIONS="--build-arg BASE_IMAGE=$(BASE_IMAGE) $(IMAGE_OPTIONS)"
	BUILT_WITH="--build-arg BASE_IMAGE=$(BASE_IMAGE) $(IMAGE_OPTIONS)" $(BIN)/pytest tests/system/test_image_twice.py

older: $(READY)  ## Run the tests of the core on the Kafka of a year ago
	ONCEFLOW_TEST_KAFKA=4.1 ONCEFLOW_TEST_BROKER=embedded $(BIN)/pytest $(CORE) $(SPREAD)

# They start containers, browsers and builds of their own.
system: WORKERS = 4
system: image $(HELM)  ## Run the tests that need Docker, Compose, Chromium and Prometheus
	$(BIN)/pytest tests/system -m "not long" $(SPREAD)

cluster: image $(HELM)  ## Run the chart on two real nodes, built by Go (minutes; the first time 20)
	$(BIN)/python -m tests.cluster -m "not long" tests/cluster

drill: image $(HELM)  ## Let nodes, disks, brokers and the API server fail there (half an hour)
	$(BIN)/python -m tests.cluster tests/cluster/test_outages.py tests/cluster/test_executors.py

audit: $(READY)  ## Ask the package index for known weaknesses of what is locked
	$(BIN)/pip-audit --progress-spinner off --disable-pip --require-hashes \
	    -r requirements/run.lock -r requirements/dev.lock

faults: $(READY)  ## Play every fault with many seeds, and an hour of random ones (hours; resumable)
	$(BIN)/python -m tests.faults.sweep --workers $(WORKERS)
	ONCEFLOW_TEST_EVERYTHING=1 $(BIN)/python -m tests.faults.sweep --only D --only E --seeds 1
	ONCEFLOW_TEST_EVERYTHING=1 $(BIN)/pytest tests/unit tests/spark tests/integration -m "long or explorer"

bench: $(READY)  ## Measure throughput and latency beside Spark's own connector
	$(BIN)/python -m bench

bench-peers: $(READY)  ## Measure the same with Kafka Streams and Flink, which are fetched first; needs a JDK
	$(BIN)/python -m bench --peers --memory-s 0

docs: $(READY)  ## Check the documents and the code against our rules, and run the code in them
	$(BIN)/pytest tests/unit/repository/test_docs.py tests/unit/repository/test_tidy.py tests/unit/repository/test_words.py tests/unit/repository/test_rooms.py \
	    tests/unit/faults/test_fault_page.py

explore: $(READY)  ## Search every order of steps of the protocol, with every fault
	$(BIN)/pytest $(EXPLORER) -m "not long" -n 2

check: lint type java docs explore  ## Everything that needs no broker and should pass before a commit

lock: $(READY)  ## Resolve Python packages and jars afresh and write the lock files
	$(LOCK) --extra service --extra kafka-python --extra postgres --extra http --extra delta --extra gateway \
	    -o requirements/run.lock pyproject.toml
	$(LOCK) --all-extras -c requirements/run.lock -o requirements/dev.lock pyproject.toml requirements/dev.in
	$(LOCK) -c requirements/dev.lock -o requirements/build.lock requirements/build.in
	$(BIN)/python -m onceflow.devkit lock broker
	$(BIN)/python -m onceflow.devkit lock broker-4.1
	$(BIN)/python -m onceflow.devkit lock clients
	$(BIN)/python -m onceflow.devkit lock kafka
	$(BIN)/python -m onceflow.devkit lock s3
	$(BIN)/python -m onceflow.devkit lock streams
	$(BIN)/python -m onceflow.devkit lock flink
	$(BIN)/python -m onceflow.devkit lock format
	$(BIN)/python -m onceflow.devkit lock junit

$(READY): pyproject.toml requirements/build.lock requirements/dev.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/build.lock
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --no-build-isolation -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/onceflow fetch kafka
	$(BIN)/python -m onceflow.runtime.spark.record_classes & recorded=$$!; \
	    $(BIN)/python -m tests.support.brokers.record_classes && wait $$recorded
	@touch $@

$(HELM): requirements/helm.lock tests/deploy/provide_helm.py | $(READY)
	$(BIN)/python -m tests.deploy.provide_helm
	@touch $@
