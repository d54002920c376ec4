# Every target works in a fresh clone: it creates .venv itself.
#
#   make demo    a broker, a year of real flights through topics, a Spark pipeline over them
#   make test    all tests; tests that need Maven, Go, npm or Debian's kcat are skipped without them
#   make retest  runs the few tests again that failed in the last `make test`
#   make check   lint, types, tidy and most unit tests: under a minute, for use while you work
#   make mutate  reports one-line faults that no quick test detects: ONLY=log/segment.py or a package, SAMPLE=100 of each, SEED=k
#   make lint    ruff and a strict type check
#   make docs    generates pages from the code (docs/configuration.md)
#   make bench   throughput, latency, start-up and memory, measured on this machine
#   make bench-full  every workload beside Apache Kafka, Redis Streams, RabbitMQ and NATS JetStream, with table, charts and
#                JSON in OUT (bench-result): ONLY="transactions tls-1kb" TURNS=1 SCALE=0.1 GIGABYTES=1; it resumes; FRESH=1 measures all again
#   make scale   simulates clusters of SIZES="3x1000 30x10000" (brokers x partitions): what their metadata costs
#   make attacks measures the waits of healthy clients while other clients attack a broker
#   make crash-proof  power failures at every moment of SEEDS (40) histories, and flipped bits
#   make simulate  whole brokers and clients on virtual time: SEEDS=200 runs, or SEED=k with its trace, or BUGS=1
#                  for the injected faults; KIND=broker, cluster or producer for one kind
#   make differential  sends random requests to Apache Kafka and Felice and compares the responses: SEED=1 OPERATIONS=3000,
#                      ARGS=--rights with an authorizer on both and several users
#   make soak    mixed load for MINUTES (60) on one broker: memory, files and histories checked; files go to OUT
#   make chaos   kills, stops and disconnects three brokers and three ZooKeeper servers under load for MINUTES (30)
#   make copier  each client copies 100,000 records exactly once while processes are killed; CLIENT=java for one client
#   make dist    builds the source distribution and the wheel into dist/; make dist-test installs and tests both;
#                make publish uploads them to PyPI
#   make spark-kills  Spark copies exactly once while drivers, workers and brokers are killed KILLS (300) times;
#                KILL_MINUTES=60 ends the kills earlier
#   make streams-kills  a stream application books payments while its processes and brokers are killed KILLS (300) times;
#                AT=s3 or hdfs: with a copy of its checkpoint there, and an empty directory for each new
#                driver, as if it ran on another machine; AT=cluster: the same with s3, on a cluster of Spark
#   make sql-kills  fourteen queries of two SQL servers make each result once while servers, Java, workers and brokers are
#                killed KILLS (300) times; BROKERS=3 for three brokers
#   make registry-kills  forty clients register schemas while the leader of three registries is killed KILLS (300) times
#   make group-kills  five consumers of two clients come and go in a KIP-848 group while their broker is killed KILLS (300) times
#   make connect-kills  tasks of each connector are killed KILLS (20) times in each phase of their work, and the servers at their other side
#   make import-proof  imports a Kafka that was killed under SECONDS (30) of load, while the import is killed KILLS (20) times,
#                exports it again, and compares all records, groups and users each time
#   make streams-oracle  compares stream topologies with Kafka Streams over SEEDS (40) random inputs each
#   make peers   downloads what tests with third-party clients need: jars, modules, packages

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PYTEST ?= $(PY) -m pytest
TEST_LOGS := .pytest_cache
MINUTES ?= 60
OUT    ?= soak-result
SEEDS  ?= 40
KILLS  ?= 300

.PHONY: demo test retest check dist dist-test publish lint format docs bench bench-full scale attacks mutate simulate soak chaos crash-proof copier spark-kills streams-kills sql-kills registry-kills group-kills connect-kills import-proof streams-oracle peers clean

demo: $(VENV)/.demo
	$(VENV)/bin/felice demo $(ARGS)

# Some tests use CPU, and others wait for sockets and processes. So four of the five parts run in parallel on two cores. The
# shortest part begins when another part ends, so the cores are busy until the end.
PARTS := pipelines others computing units connect
PARTS_AT_ONCE ?= 4
pipelines := tests/conformance/test_demo.py tests/streams $(sort $(wildcard $(addprefix tests/conformance/test_,spark_*.py sql_*.py streams_*.py)))
computing := tests/properties tests/scenarios tests/simulation tests/tidy
units := tests/unit
connect := $(sort $(wildcard tests/conformance/test_connect_*.py))
others := $(addprefix --ignore=,$(pipelines) $(computing) $(units) $(connect))
FAILURES := $(PARTS:%=$(TEST_LOGS)/%.failures)

# Tests start hundreds of processes. If PYTHONDONTWRITEBYTECODE is set, each process compiles the project again, and most
# processes need more time for this than for their work. So the variable is cleared.
test retest check: export PYTHONDONTWRITEBYTECODE :=

# Each part prints its output when it ends, and writes its failures to a file. The failures of all parts are printed last.
define run_parts
	@mkdir -p $(TEST_LOGS) && rm -f $(TEST_LOGS)/*.failures $(TEST_LOGS)/*.log
	@$(MAKE) -f $(firstword $(MAKEFILE_LIST)) --no-print-directory -k -j$(PARTS_AT_ONCE) $(1:%=part-%) || { \
		printf '\nFailed:\n'; cat $(1:%=$(TEST_LOGS)/%.failures); exit 1; }
endef

test: $(VENV)/.dev $(VENV)/.classes
ifeq ($(strip $(ARGS)),)
	$(call run_parts,$(PARTS))
else
	$(PYTEST) $(ARGS)
endif

part-%:
	@echo 'Part $* of the tests: follow it in $(TEST_LOGS)/$*.log'
	@$(PYTEST) --failures-to $(TEST_LOGS)/$*.failures $($*) > $(TEST_LOGS)/$*.log 2>&1; status=$$?; cat $(TEST_LOGS)/$*.log; \
	case $$status in 0) ;; 1) test -s $(TEST_LOGS)/$*.failures ;; *) false ;; esac || \
		echo "the run of the part $* ended before its last test (exit $$status)" >> $(TEST_LOGS)/$*.failures; exit $$status

# A few tests may fail only because the machine was busy. This runs the tests again that failed in the last `make test`, and
# names those that pass now: repair them. It refuses if more than RETESTS failed, or if a run ended before its last test.
RETESTS ?= 3

retest: $(VENV)/.dev
	@cat $(FAILURES) > $(TEST_LOGS)/failures || exit 2; cd $(TEST_LOGS); \
	if [ ! -s failures ] || grep -qvE '^(FAILED|ERROR) ' failures || [ $$(wc -l < failures) -gt $(RETESTS) ]; then \
		echo "make retest: expected 1 to $(RETESTS) failed tests in $(TEST_LOGS), found:" >&2; cat failures >&2; exit 2; fi
	sed 's/^[A-Z]* //' $(TEST_LOGS)/failures | xargs -d '\n' $(PYTEST)
	@echo 'Failed first, passed alone:'; sed 's/^[A-Z]* /  /' $(TEST_LOGS)/failures

# These folders have many tests, or tests that wait for sockets, processes and timers. Run those that a change concerns.
CHECK_WITHOUT := $(addprefix tests/unit/,bench client pipelines server testing) tests/tidy/test_failing_run.py
tidy := tests/tidy $(addprefix --ignore=,$(CHECK_WITHOUT))
commands := tests/unit/cli
registry := tests/unit/registry
servers := $(addprefix tests/unit/,demo web)
pure := tests/unit $(addprefix --ignore=,$(CHECK_WITHOUT) $(commands) $(registry) $(servers))

check: lint
	$(call run_parts,pure registry commands servers tidy)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check src tests bench setup.py
	$(VENV)/bin/ruff format --check src tests bench setup.py
	$(VENV)/bin/mypy

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix src tests bench setup.py
	$(VENV)/bin/ruff format src tests bench setup.py

docs: $(VENV)/.dev
	$(PY) -m felice.config.reference > docs/configuration.md

bench: $(VENV)/.dev
	$(PY) -m bench $(ARGS)

bench-full: $(VENV)/.dev
	$(PY) -m bench.full $(ONLY) $(if $(TURNS),--turns $(TURNS)) $(if $(SCALE),--scale $(SCALE)) $(if $(GIGABYTES),--gigabytes $(GIGABYTES)) $(if $(FRESH),--fresh) --out $(if $(filter file,$(origin OUT)),bench-result,$(OUT)) $(ARGS)

scale: $(VENV)/.dev
	$(PY) -m bench.scale $(SIZES) $(ARGS)

mutate: $(VENV)/.dev
	PYTHONPATH=tests $(PY) -m mutation $(ONLY) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

attacks: $(VENV)/.dev
	$(PY) -m bench attacks --turns 1 $(ARGS)

crash-proof: $(VENV)/.dev
	CRASH_PROOF_SEEDS=$(SEEDS) $(PYTEST) tests/properties/crash --timeout 3600 $(ARGS)

simulate: $(VENV)/.dev
	PYTHONPATH=tests $(PY) -m simulation $(if $(KIND),--kind $(KIND)) $(if $(BUGS),--bugs,$(if $(SEED),--seed $(SEED),--seeds $(if $(filter file,$(origin SEEDS)),200,$(SEEDS))))

differential: $(VENV)/.dev peers
	PYTHONPATH=tests $(PY) -m differential --seed $(or $(SEED),1) --operations $(or $(OPERATIONS),3000) $(ARGS)

soak: $(VENV)/.dev
	PYTHONPATH=tests $(PY) -m soak run --minutes $(MINUTES) --out $(OUT)

chaos: $(VENV)/.dev
	$(PY) tests/chaos/cluster/run.py --minutes $(if $(filter file,$(origin MINUTES)),30,$(MINUTES)) $(ARGS)

copier: $(VENV)/.dev
	$(PY) tests/conformance/copying.py $(CLIENT)

# PyPI accepts Linux wheels only with a manylinux tag. auditwheel adds it after checking the linked libraries.
dist: $(VENV)/.dist
	rm -rf dist
	$(PY) -m build --outdir dist/build .
	mv dist/build/*.tar.gz dist/
	if ls dist/build/*-none-any.whl 2>/dev/null; then mv dist/build/*.whl dist/; \
	else PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/auditwheel repair --wheel-dir dist dist/build/*.whl; fi
	rm -r dist/build
	$(PY) -m twine check --strict dist/*

dist-test: dist $(VENV)/.dev
	FELICE_DIST=dist $(PYTEST) tests/distribution --timeout 900 $(ARGS)

publish: dist-test
	$(PY) -m twine upload dist/*

spark-kills: $(VENV)/.dev
	$(PY) tests/conformance/spark_kills.py $(KILLS) $(or $(SEED),random) $(KILL_MINUTES)

streams-kills: $(VENV)/.dev
	PYTHONPATH=tests $(PY) tests/conformance/streams_kills.py $(KILLS) $(or $(SEED),random) $(or $(AT),local)

connect-kills: $(VENV)/.dev
	CONNECT_KILLS=$(if $(filter file,$(origin KILLS)),20,$(KILLS)) $(PYTEST) -s tests/conformance/test_connect_kills.py

sql-kills: $(VENV)/.dev
	PYTHONPATH=tests $(PY) tests/conformance/sql_kills.py $(KILLS) $(or $(SEED),random) $(or $(BROKERS),1)

registry-kills: $(VENV)/.dev
	REGISTRY_KILLS=$(KILLS) $(PYTEST) -s tests/conformance/test_registry_failover.py

group-kills: $(VENV)/.dev
	PYTHONPATH=tests $(PY) tests/conformance/group_kills.py $(KILLS) $(or $(SEED),random)

import-proof: $(VENV)/.dev peers
	PYTHONPATH=tests $(PY) tests/conformance/import_proof.py $(or $(SECONDS),30) $(if $(filter file,$(origin KILLS)),20,$(KILLS))

streams-oracle: $(VENV)/.dev peers
	PYTHONPATH=tests $(PY) -m streams --seeds $(SEEDS) $(ARGS)

peers: $(VENV)/.dev
	$(PY) tests/peers/prepare.py

# Kernels are rebuilt when their source changes. Without a compiler, the plain Python versions are used.
$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit("Felice needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	touch $@

KERNELS := $(wildcard src/felice/*/kernels/*.p[xy][xi]) setup.py

$(VENV)/.demo: $(VENV)/.python pyproject.toml $(KERNELS)
	$(PY) -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml $(KERNELS)
	$(PY) -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.demo

# Tests start Spark some hundred times, and an archive of its classes saves some five seconds of each start. Not every Java can
# write it.
$(VENV)/.classes: $(VENV)/.dev
	$(VENV)/bin/felice streams prepare || true
	touch $@

$(VENV)/.dist: $(VENV)/.python pyproject.toml
	$(PY) -m pip install --quiet --editable '.[dist]'
	touch $@

clean:
	rm -rf $(VENV) build dist mutants src/felice.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/felice/*/kernels/*.so src/felice/*/kernels/*.c
