# `make` lists the targets: each is described by the comment behind it.
# What needs more than a line or two is in scripts/.

# For test, e2e, fuzz and bench-go: how often, and which ones.
COUNT ?= 1
RUN   ?= .

# For simulate: how many, from SEED on.
SEEDS ?= 10000

# For torture and ha: for how long, and which draw of faults (0: a new one).
MINUTES ?= 2
SEED    ?= 0

# For ha: which faults (none: all), and in which modes (see e2e/ha/seats.go).
FAULTS ?=
MODES  ?= async,proxied,sync,guarded

# For fuzz: for how long each target.
TIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help demo test e2e simulate mutate matrix fuzz bug torture ha soak bench bench-quick bench-go model cover generate docs record screenshots lint verify clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch an election live, on throw-away PostgreSQL servers
	@scripts/setup.sh postgresql
	@go -C e2e run ./demo

test: ## Install what is missing (Debian, as root), then vet and run every test
	@scripts/test.sh -count='$(COUNT)' -run='$(RUN)'

e2e: ## Only the tests on real PostgreSQL: make e2e COUNT=10 RUN=Failover
	@MODULES=e2e scripts/test.sh -count='$(COUNT)' -run='$(RUN)'

simulate: ## Elections in virtual time, with faults: make simulate SEEDS=100000 SEED=7
	go -C e2e test ./simulation -run='^TestSimulation$$' -v -timeout=0 -count=1 -seed='$(SEED)' -seeds='$(SEEDS)' -processes="$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"

mutate: ## Break the library on purpose, in a copy, and see the tests fail: RULES=1 takes an hour (AGAIN=1: only what was not noticed)
	go -C e2e run ./mutation $(if $(RULES),-rules) $(if $(AGAIN),-again)

matrix: ## The tests on real PostgreSQL, on versions 14 to 18 (fetched by npm): make matrix MAJORS="14 18"
	@scripts/matrix.sh $(MAJORS)

torture: ## Faults drawn at random, on real servers and processes: make torture MINUTES=60 SEED=7
	@scripts/setup.sh postgresql pgbouncer iproute2
	go -C e2e run ./torture -minutes='$(MINUTES)' -seed='$(SEED)'

ha: ## What failovers cost, on Patroni, HAProxy and PgBouncer: make ha MINUTES=60 SEED=7 FAULTS=lose,etcd (RESULTS=1 writes e2e/ha/RESULTS.md)
	@scripts/setup.sh postgresql pgbouncer patroni etcd haproxy
	go -C e2e run ./ha -minutes='$(MINUTES)' -seed='$(SEED)' -faults='$(FAULTS)' -modes='$(MODES)' $(if $(RESULTS),-results=ha/RESULTS.md)

soak: ## Hand leadership over 10,000 times with each driver, and see that nothing grows
	@scripts/setup.sh postgresql
	PGELECTOR_HAND_OVERS=10000 go -C e2e test . -run=HandOversLeave -count=1 -timeout=1h -v

fuzz: ## Fuzz everything that parses: make fuzz TIME=5m RUN=Token
	@scripts/fuzz.sh '$(TIME)' '$(RUN)'

bug: ## Show a fixed bug on the commit before its fix: make bug NAME=late-answer (or all)
	@scripts/bug.sh $(NAME)

bench: ## Side by side with other systems, 20 minutes: writes bench/RESULTS.md
	go -C bench run .

bench-quick: ## The same in 2 minutes, with few samples
	go -C bench run . -quick

bench-go: ## Go benchmarks of the packages: no database needed
	go test -run='^$$' -bench='$(RUN)' -count='$(COUNT)' -benchmem ./elector/... ./hooks/...

model: ## Have spin search docs/model for two writers (TRACE=1 shows what it finds)
	@scripts/model.sh

cover: ## Coverage of elector and internal/session by their own, the sqlmock and the e2e tests
	@scripts/cover.sh

generate: ## Write db/ and roster/internal/db/ anew from queries/, with sqlc
	"$$(scripts/tool.sh sqlc)" generate

docs: ## Draw the pictures of the documents anew
	go -C e2e run ./pictures ../docs/pictures

record: ## Record a terminal session, and the metrics of an election, anew, as pictures for the docs
	@scripts/setup.sh postgresql
	go -C e2e run ./recording ../docs/pictures/session.svg
	go -C e2e run ./scraping pictures/metrics.json
	go -C e2e run ./pictures ../docs/pictures

screenshots: ## Take the pictures of the dashboard anew, in a real browser
	@scripts/setup.sh postgresql browser
	go -C e2e run ./screenshots ../docs/pictures

lint: ## go vet and staticcheck on every module
	@scripts/lint.sh

verify: ## Fail if something was changed alone: generated code, imports, docs, go.mod
	@scripts/verify.sh

clean: ## Remove built tools and coverage
	rm -rf .cache
