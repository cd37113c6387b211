PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
OUT ?= out
# Processes that run tests; by default 2, and 3 where tests also wait for sockets and processes.
WORKERS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo check test lint docs swarm fuzz mutants campaign reproduce bench-sim bench-audit bench-import bench-live bench-services bench-hostile bench-network bench-gossip bench-large bench-trees bench-scale bench-replicated bench-corrections soak pins clean

help: ## list every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt scripts/install
	@scripts/install $(PYTHON) $(VENV)
	@touch $@

install: $(INSTALLED) ## make the virtual environment with pinned packages and a Java runtime

demo: $(INSTALLED) ## the main job in about a minute: simulate, audit on Spark, sweep, report (in out/demo)
	@$(BIN)/antiphon demo --out $(OUT)/demo

lint: $(INSTALLED) ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

check: $(INSTALLED) lint ## in a minute: lint, types, and the tests that need nothing and take no time
	@$(BIN)/pytest -n $(or $(WORKERS),2) -m "not (spark or browser or live or slow)"

test: $(INSTALLED) lint ## lint, types and all tests
	@scripts/debian-packages chromium iproute2 redis-server nats-server rabbitmq-server corosync || true
	@$(BIN)/pytest -n $(or $(WORKERS),3) --dist loadgroup

docs: $(INSTALLED) ## a searchable site of docs/ and the reference (out/docs/html/index.html); needs no network
	@$(BIN)/python scripts/docs_site.py $(OUT)/docs
	@echo "The site is at $(OUT)/docs/html/index.html: open it in a browser."

swarm: $(INSTALLED) ## new examples for the property tests, then many seeded simulations (SEED=1 SEEDS=20000)
	@seed=$(or $(SEED),$(shell date +%s)); echo "Hypothesis draws new examples; make swarm SEED=$$seed draws them again."; \
		$(BIN)/pytest -n 2 -m "hypothesis and not spark" --hypothesis-profile=new --hypothesis-seed=$$seed
	@ANTIPHON_SWARM_SEEDS=$(or $(SEEDS),20000) $(BIN)/pytest -n 2 tests/sim/test_swarm.py
	@ANTIPHON_SWARM_SEEDS=$(or $(SEEDS),1000) $(BIN)/pytest -n 2 -k "swarm or hundred_sites" \
		--ignore tests/sim/test_swarm.py tests/protocols tests/sim

fuzz: $(INSTALLED) ## hostile members against every order, without end (ORDER=total SECONDS=600 SEED=1)
	@$(BIN)/python -m tests.fuzz $(if $(ORDER),--order $(ORDER)) $(if $(SECONDS),--seconds $(SECONDS)) \
		--seed $(or $(SEED),0) $(if $(SECONDS),,--runs 1000000000)

mutants: $(INSTALLED) ## comparisons turned around that no test notices (FOLDER=antiphon/protocols/dpg COUNT=40)
	@$(BIN)/python -m tests.mutants $(or $(FOLDER),antiphon/protocols/dpg) --count $(or $(COUNT),40) \
		--seed $(or $(SEED),1) $(if $(TESTS),--tests $(TESTS)) $(if $(ONLY),--only $(ONLY))

campaign: $(INSTALLED) ## very many small connections, judged in one Spark job (PROTOCOL=sco RUNS=100000)
	@$(BIN)/antiphon sweep connections --protocol $(or $(PROTOCOL),sco) --runs $(or $(RUNS),100000) \
		--out $(OUT)/campaign/$(or $(PROTOCOL),sco)

reproduce: $(INSTALLED) ## every study, the claims' verdicts and the report (in out/reproduce)
	@$(BIN)/antiphon reproduce --out $(OUT)/reproduce

bench-sim: $(INSTALLED) ## hops per second of our simulator beside SimPy's
	@$(BIN)/python bench/sim.py

bench-audit: $(INSTALLED) ## 10^7 to 10^9 deliveries beside DuckDB and Polars (half an hour, 15 GB of disk)
	@$(BIN)/python bench/audit.py

bench-import: $(INSTALLED) ## log lines imported per second beside Spark rewriting them as JSON
	@$(BIN)/python bench/import.py

bench-live: $(INSTALLED) ## live throughput and latency beside raw UDP and Corosync (half an hour)
	@$(BIN)/python bench/live.py

bench-services: $(INSTALLED) ## the total order's three services, on a quiet machine and on a busy one
	@$(BIN)/python bench/services.py

bench-hostile: $(INSTALLED) ## what floods of garbage, replays and nonsense cost a live group (a quarter of an hour)
	@$(BIN)/python bench/hostile.py

bench-network: $(INSTALLED) ## groups on links with a rate and a queue, beside Corosync and TCP (half an hour)
	@$(BIN)/python bench/network.py

bench-gossip: $(INSTALLED) ## a hundredth of the 12,000 gossip runs on Spark, beside the C++ reference's time for all
	@$(BIN)/python bench/gossip.py

bench-large: $(INSTALLED) ## one round of S_Gossip among 100,000 members: time and memory
	@$(BIN)/python bench/large.py

bench-scale: $(INSTALLED) ## what control costs as a group grows: simulated to 1,000 members, live to 60 (an hour)
	@$(BIN)/python bench/scale.py

bench-corrections: $(INSTALLED) ## what each correction of the DPG protocol buys, simulated (ten minutes)
	@$(BIN)/python bench/corrections.py --seeds 4

bench-trees: $(INSTALLED) ## the trees of meta-groups for 1,000 groups over 10,000 sites
	@$(BIN)/python bench/trees.py

bench-replicated: $(INSTALLED) ## replicated objects beside PySyncObj: sets a second, latency, kills, state transfer
	@$(BIN)/python bench/replicated.py

soak: $(INSTALLED) ## ten minutes at full speed for each order: memory, losses, promises (SECONDS=600)
	@$(BIN)/python bench/soak.py --seconds $(or $(SECONDS),600)

pins: $(INSTALLED) ## write the versions now installed to constraints.txt
	@{ head -n 1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove what make and the tests made
	@rm -rf $(VENV) $(OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis
