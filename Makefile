# `make` does what CI does. `make help` lists the targets.

MODULES := . server eval
BENCH   ?= .
COUNT   ?= 6
FUZZTIME ?= 30s

# SQLite is C that was translated to Go. The race detector would look at every access to memory in it, which makes it five times as slow,
# and finds nothing: its locks are its own. Everything around it is looked at, its driver included.
UNWATCHED := -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false

.DEFAULT_GOAL := test
.PHONY: help build run test lint fmt vet staticcheck modules portable proofs valkey unit mysql deps bench algorithms overhead policies rivals churn scaling attacks fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/headgate
	cd server && go build -trimpath -o ../bin/headgate ./cmd/headgate

run: build ## build and start the demonstration: an API, the gateway, three kinds of clients
	./bin/headgate demo

test: deps checked unit ## everything CI checks: lint, proofs, then every test of every module under the race detector

deps: ## install what the tests need and this machine lacks (Debian packages)
	@scripts/install-test-deps

# Coq works on one core, and `go mod tidy` mostly waits for others: together they take little more than the longest of them.
.PHONY: checked
checked:
	@$(MAKE) -j 3 --no-print-directory $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) proofs fmt vet staticcheck modules portable

proofs: ## check the machine-checked proofs, and the Go code against the program extracted from them
	@$(MAKE) -s -C proofs
	go test -count=1 -v ./proofs

# The packages that take longest begin first, so that no core is left idle beside one of them. One package more runs at a time than there are
# cores, since many tests wait: for a server to start, for a process to see what another did. `make lint` has vetted them all.
CORES   := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
GOTEST  := go test -vet=off -shuffle=on -timeout 30m -p $(shell expr 1 + $(CORES))
LONGEST := ./server/store ./eval/operations ./server/redis ./eval/attacks ./server/daemon

# What runs without the race detector alone: one goroutine that searches.
ALONE := eval/algorithms

# Tests outside the library that do less under the race detector (internal/race).
IN_FULL := TestContractAcrossACluster|TestKilledEditorsLoseNothing|TestLoadUnderChangesSeesOneState|TestManyRulesChangeAtOnce

unit: ## the tests alone
	@echo "== go test -race, all modules"
	@$(GOTEST) -race $(UNWATCHED) $(LONGEST) $$(go list ./... ./server/... ./eval/... | grep -v '/$(ALONE)$$')
	@$(MAKE) -j 2 --no-print-directory $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) in-full library

# One of them waits for a database for two minutes, and the library is tested meanwhile.
.PHONY: in-full library
in-full:
	@echo "== go test, what does less under the race detector, in full"
	@$(GOTEST) -run '$(IN_FULL)' ./eval/operations ./server/store ./server/redis

library:
	@echo "== go test, the library: long properties in full, and allocations, as the race detector allocates on its own"
	@$(GOTEST) ./... ./$(ALONE)

# CI has MariaDB, which Debian keeps. MySQL comes from Debian's unstable release, and is another one tomorrow.
mysql: deps ## test databases on MySQL, in the place of MariaDB (fetches 55 MB into bin/mysql; some minutes)
	cd server && HEADGATE_TEST_MYSQLD="$$(../scripts/fetch-mysql ../bin/mysql)" go test -count=1 -timeout 15m -skip 'Failover|Disk|TLS' ./store ./daemon -run '/MariaDB|Servers'

valkey: ## test what replicas share on Valkey, in the place of Redis (fetches it into bin/valkey-server)
	@scripts/install-valkey
	@$(MAKE) -s -C proofs
	HEADGATE_TEST_REDIS=$(CURDIR)/bin/valkey-server go test -count=1 -run Redis ./proofs
	HEADGATE_TEST_REDIS=$(CURDIR)/bin/valkey-server go test -count=1 ./bucket/redis
	cd server && HEADGATE_TEST_REDIS=$(CURDIR)/bin/valkey-server go test -count=1 ./redis

lint: fmt vet staticcheck modules portable ## gofmt, vet, staticcheck, tidy module files, 32-bit and WASM builds

fmt:
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }

vet:
	@for m in $(MODULES); do echo "== go vet, module $$m"; (cd $$m && go vet ./...) || exit 1; done

# The version is pinned by eval/go.mod, the module that is never published.
bin/staticcheck: eval/go.mod
	cd eval && GOWORK=off go build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

staticcheck: bin/staticcheck
	@for m in $(MODULES); do echo "== staticcheck, module $$m"; (cd $$m && $(CURDIR)/bin/staticcheck ./...) || exit 1; done

modules:
	@for m in $(MODULES); do echo "== go mod tidy, module $$m"; (cd $$m && GOWORK=off go mod tidy -diff) || exit 1; done

# What is built for WASM is never run here, so it need not be fast.
portable:
	@echo "== the library on 32 bits and on WASM"
	@GOARCH=386 go vet ./... && GOOS=wasip1 GOARCH=wasm go build -gcflags='all=-N -l' ./...

bench: ## stage benchmarks; BENCH=regexp, COUNT=runs
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...
	cd server && go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

algorithms: ## measure what each algorithm admits at worst, into docs/algorithms.md
	go run ./eval/algorithms -write

overhead: ## time every stage inside a running process, write docs/benchmarks/overhead.md (a minute)
	cd eval && go run ./overhead

policies: ## measure loading, look-up and changes of rules, write docs/benchmarks/policies.md (at most eight minutes)
	cd eval && go run ./policies

rivals: ## measure other Go limiters beside this one, write docs/benchmarks/rivals.md (some minutes)
	cd eval && go run ./rivals

churn: ## attack bounded tables with more keys than they hold, write docs/benchmarks/churn.md (a minute or two)
	cd eval && go run ./churn

scaling: ## run 1, 2, 4 and 8 gateways before one API, with faults and other limiters, write docs/benchmarks/scaling.md (seven minutes)
	cd eval && go run ./scaling

attacks: ## attack the gateway and other limiters over sockets, write docs/attacks.md (some minutes)
	cd eval && go run ./attacks

fuzz: ## every fuzz target for FUZZTIME (default 30s) each
	@scripts/fuzz $(FUZZTIME)

clean: ## remove what build made
	rm -rf bin proofs/_build
