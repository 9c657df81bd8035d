# `make` lists the targets with the comments behind them. Longer recipes are in scripts/.

# For test, e2e, matrix, fuzz, cover and bench-go: the number of runs, and a pattern of names.
COUNT ?= 1
RUN   ?= .

# For e2e: "transaction" has candidates lead through PgBouncer in transaction mode; for matrix: "session" leaves that out.
SCOPE ?=

# For simulate: the number of seeds, from SEED on.
SEEDS ?= 10000

# For torture and ha: the duration, and the seed of the faults (0: random).
MINUTES ?= 2
SEED    ?= 0

# For ha: the faults (empty: all) and the modes (see e2e/ha/main.go).
FAULTS ?=
MODES  ?= async,proxied,sync,guarded,leases

# For soak.
RESIGNATIONS ?= 10000
TRANSFERS    ?= 1000
HEARTBEATS   ?= 100000
WAITS        ?= 100000

# For fuzz: the duration of each target.
TIME ?= 30s

# For dist.
VERSION ?= $(shell git describe --tags --always)

# For proof: the names of the steps (empty: those that have not passed on this code).
STEPS ?=

.DEFAULT_GOAL := help
.PHONY: help proof demo check test e2e simulate mutate matrix fuzz bug torture ha soak bench bench-quick bench-go model cover generate docs record screenshots lint verify dist clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch an election live, on temporary PostgreSQL servers
	@scripts/setup.sh postgresql
	@echo 'Compiling the demo: the first time that takes up to a minute …'
	@go -C e2e run ./demo

check: ## Before a commit, in less than two minutes and with no server: build, vet, rules, and the tests of the root module
	@scripts/check.sh

test: ## Install missing packages (Debian, as root), then vet, and run every test over both drivers mixed
	@scripts/test.sh -count='$(COUNT)' -run='$(RUN)'

e2e: ## Run only the tests on real PostgreSQL, over every combination of drivers: make e2e COUNT=10 RUN=Deputy SCOPE=transaction
	@PGELECTOR_DRIVERS=all MODULES=e2e $(if $(SCOPE),PGELECTOR_SCOPE='$(SCOPE)' PACKAGES=.) scripts/test.sh -count='$(COUNT)' -run='$(RUN)'

simulate: ## Simulate elections with faults in virtual time: make simulate SEEDS=100000 SEED=7
	go -C e2e test ./simulation -run='^TestSimulation$$' -v -timeout=0 -count=1 -seed='$(SEED)' -seeds='$(SEEDS)' -processes="$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"

mutate: ## Check that the tests notice bugs planted in a copy: the list, or with RULES=1 for hours those of rules (AGAIN=1: only those not noticed before)
	go -C e2e run ./mutation $(if $(RULES),-rules) $(if $(AGAIN),-again)

matrix: ## Run the tests on PostgreSQL 15 to 18, and 14, whose support has ended (fetched with npm): make matrix MAJORS="14 18" SCOPE=session
	@RUN='$(RUN)' SCOPE='$(SCOPE)' scripts/matrix.sh $(MAJORS)

torture: ## Inject random faults into real servers and processes: make torture MINUTES=60 SEED=7
	@scripts/setup.sh postgresql pgbouncer iproute2
	go -C e2e run ./torture -minutes='$(MINUTES)' -seed='$(SEED)'

ha: ## Measure failovers with Patroni, HAProxy and PgBouncer: make ha MINUTES=60 SEED=7 FAULTS=lose,etcd (RESULTS=1 writes e2e/ha/RESULTS.md)
	@scripts/setup.sh postgresql pgbouncer patroni etcd haproxy
	go -C e2e run ./ha -minutes='$(MINUTES)' -seed='$(SEED)' -faults='$(FAULTS)' -modes='$(MODES)' $(if $(RESULTS),-results=ha/RESULTS.md)

soak: ## With each driver 10,000 resignations, 1,000 transfers, transactions of 100,000 heartbeats, and 100,000 ended waits: check for leaks: make soak RUN=Transfers
	@scripts/setup.sh postgresql
	PGELECTOR_HEARTBEATS='$(HEARTBEATS)' go -C e2e test . -run='$(if $(filter .,$(RUN)),ResignationsDoNot|ManyTransfers|ThousandsOfHeartbeats|EndedWaits,$(RUN))' \
		-count=1 -timeout=2h -v -resignations='$(RESIGNATIONS)' -transfers='$(TRANSFERS)' -waits='$(WAITS)'

fuzz: ## Fuzz the parsers: make fuzz TIME=5m RUN=Token
	@scripts/fuzz.sh '$(TIME)' '$(RUN)'

bug: ## Show a fixed bug on the commit before its fix: make bug NAME=late-answer (or all)
	@scripts/bug.sh $(NAME)

bench: ## Compare with other systems, 50 minutes: writes bench/RESULTS.md, and keeps its counts of mistakes
	go -C bench run . -keep

bench-quick: ## Compare in 5 minutes, with few samples
	go -C bench run . -quick

bench-go: ## Run the Go benchmarks, without a database
	go test -run='^$$' -bench='$(RUN)' -count='$(COUNT)' -benchmem ./elector/... ./hooks/...

model: ## Prove the model of the protocol with z3, reject each weakened one, and write e2e/model/RESULTS.md (SEARCH=1: search their traces anew, for a minute)
	@scripts/setup.sh z3
	go -C e2e run ./model/prove $(if $(SEARCH),-search)

cover: ## Measure the coverage of elector and internal/
	@scripts/cover.sh -run='$(RUN)'

generate: ## Generate db/, roster/internal/db/ and ticks/internal/db/ from queries/ with sqlc
	"$$(scripts/tool.sh sqlc)" generate

docs: ## Draw the pictures of the docs
	go -C e2e run ./pictures draw ../docs/pictures

record: ## Record metrics as a picture for the docs, and the demo as one that plays
	@scripts/setup.sh postgresql
	go -C e2e run ./pictures record pictures/metrics.json
	go -C e2e run ./pictures film ../docs/pictures/demo.svg
	go -C e2e run ./pictures draw ../docs/pictures

screenshots: ## Take screenshots of the dashboard in a real browser
	@scripts/setup.sh postgresql browser
	go -C e2e run ./pictures photograph ../docs/pictures

lint: ## Run go vet and staticcheck on every module
	@scripts/lint.sh

verify: ## Check that generated code, imports, docs and go.mod are up to date
	@scripts/verify.sh

dist: ## Build the command for five platforms, with checksums and SBOMs: make dist VERSION=v0.1.0
	@scripts/dist.sh '$(VERSION)'

proof: ## Run every proof, for two and a half hours, and write its figures to the documents; goes on where it stopped: make proof STEPS="model soak" (SHORT=1: try it in minutes)
	go -C e2e run ./proof -run -steps='$(STEPS)' $(if $(SHORT),-short)

clean: ## Remove built tools and coverage
	rm -rf .cache
