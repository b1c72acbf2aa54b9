# `make` lists the targets. `make test` is what CI does first.

# The modules name the Go release that everything is built with (`toolchain`): an older one is not used, it is fetched, as the go command
# does unless told not to. `make GOTOOLCHAIN=local` keeps the installed one.
export GOTOOLCHAIN := auto

# What is built names no folder of this machine, so that the build cache of one checkout serves every other.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

MODULES := . server eval $(patsubst %/go.mod,%,$(sort $(wildcard frameworks/*/go.mod clients/*/go.mod)))
BENCH   ?= .
COUNT   ?= 6
FUZZTIME ?= 30s
SEEDS   ?= 2000
FIRST   ?= $(shell date +%s)
SEED    ?= 0

# SQLite is C that was translated to Go. The race detector would look at every access to memory in it, which makes it five times as slow,
# and finds nothing: its locks are its own. So it is with what it has for a C library and for malloc. Everything around it is looked at, its driver included.
UNWATCHED := $(foreach p,sqlite/lib libc memory,-gcflags=modernc.org/$(p)=-race=false)

.DEFAULT_GOAL := help
VULN := golang.org/x/vuln/cmd/govulncheck@v1.1.4

.PHONY: quick load soak dist packages deployment kubernetes clients clients-sockets doors doors-bench engine gateway vuln help build run test lint fmt width vet staticcheck modules portable proofs valkey unit long mysql deps bench wasm edge edge-bench algorithms overhead policies rivals churn scaling nemesis worlds mutants attacks garden garden-kinds garden-long fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/headgate
	cd server && go build -trimpath -o ../bin/headgate ./cmd/headgate

dist: ## make what is installed, into dist/: archives, packages of Debian and RPM, an image, checksums
	cd packaging && GOWORK=off go run . -into ../dist

run: build ## build and start the demonstration: an API, the gateway, three kinds of clients
	./bin/headgate demo

test: deps checked unit ## everything CI checks: lint, proofs, then every test of every module under the race detector

deps: ## install what the tests need and this machine lacks (Debian packages)
	@scripts/install-test-deps
	@scripts/install-redis-cell
	@scripts/install-grpcurl
	@scripts/install-garden-deps without-maven

# Coq works on one core, and `go mod tidy` mostly waits for others: together they take little more than the longest of them.
.PHONY: checked
checked:
	@$(MAKE) -j 3 --no-print-directory $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) proofs fmt width vet staticcheck modules portable

proofs: ## check the machine-checked proofs, and the Go code against the program extracted from them
	@$(MAKE) -s -C proofs
	go test -count=1 -v ./proofs

# The packages that take longest begin first, so that no core is left idle beside one of them. One package more runs at a time than there are
# cores, since many tests wait: for a server to start, for a process to see what another did. `make lint` has vetted them all. No debugger reads them: to link them without its tables takes a third less.
CORES   := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
GOTEST  := go test -vet=off -ldflags=-w -shuffle=on -timeout 30m -p $(shell expr 1 + $(CORES))
LONGEST := ./server/database ./eval/operations ./eval/doors ./server/redis ./eval/attacks ./server/daemon ./server/cmd/headgate

# What runs without the race detector alone: one goroutine that searches, and worlds in which one goroutine is to run after the other.
ALONE := eval/adaptive eval/algorithms eval/churn eval/nemesis eval/clients eval/edge proofs

# Packages that start no goroutine, nor do their tests (TestStillPackagesStartNoGoroutine), so that there is no race to find: neither do
# they run under the detector.
STILL := body bucket bucket/internal/accounts charge/internal/subject endpoint endpoint/pattern eval/graphql eval/rivals/peer eval/routers \
	frameworks/chilimit frameworks/echo5limit frameworks/echolimit frameworks/fiberlimit frameworks/ginlimit identity/region internal/clip \
	internal/edits internal/paramname internal/siphash llm policy/file rate server/advisories server/collector server/config server/convert \
	server/descriptor server/developers server/framework server/graphql server/kinds server/openapi server/page server/rules server/state simulate slot

# Tests outside the library that do less under the race detector (internal/race): `make long` runs them in full.
IN_FULL := TestAttackFallback|TestContractAcrossACluster|TestIdleConnectionsHoldLittle|TestKilledEditorsLoseNothing|TestLoadUnderChangesSeesOneState|TestManyRulesChangeAtOnce|TestRequestsAllocateNothing|TestWhatIsCoveredIsWhatWasLimited

# Tests of databases that `make long` runs, and `make test` leaves out: long faults, and large tables read in two ways.
LONG := TestFailover|TestServerDiskFull|TestConcurrentOpenOfOldDatabases|TestLoadReadsWhatTheSlowWayReads|TestLoadReportsWhatTheSlowWayReports|TestLong4200ConnectionsAt4096Descriptors

quick: ## vet and test the library, in seconds: installs nothing
	@go vet ./...
	@go test -short ./...

unit: ## the tests alone
	@echo "== go test -race, all modules"
	@$(GOTEST) -race $(UNWATCHED) -skip '^($(LONG))$$' $(LONGEST) $$(go list $(addsuffix /...,$(addprefix ./,$(MODULES))) | grep -vE '/headgate/($(subst $() ,|,$(strip $(ALONE) $(STILL))))$$')
	@echo "== go test, without it: what starts no goroutine, and of the library long properties in full, and allocations"
	@$(GOTEST) $(addprefix ./,$(ALONE) $(STILL)) $$(scripts/tests-in-full)

long: deps ## the tests that take longer (CI runs them after `make test`)
	@echo "== go test -race, long faults of databases"
	@$(GOTEST) -race $(UNWATCHED) -run '^($(LONG))$$' ./server/database
	@echo "== go test, what does less under the race detector, in full"
	@$(GOTEST) -run '^($(IN_FULL))$$' ./eval/operations ./server/agents ./server/daemon ./server/database ./server/engine ./server/redis ./server/token
	@echo "== go test, more connections than there are descriptors, by each way to hold one"
	@$(GOTEST) -run '^($(LONG))$$' ./eval/attacks
	@echo "== requests read by net/http alone: attacks, and the gateway's own tests; and, by the engine for plain ones, ten million streams beside net/http, four million beside fasthttp and llhttp"
	@HEADGATE_TEST_ENGINE=net/http $(GOTEST) ./server/daemon ./eval/attacks
	@HEADGATE_TEST_ENGINE=net/http $(GOTEST) -run 'TestExploits|TestQuickGarden' ./eval/garden
	@HEADGATE_TEST_ENGINE=net/http $(GOTEST) -run TestPagesRun ./server/cmd/headgate
	@$(MAKE) -s engine STREAMS=10000000
	@$(GOTEST) -tags long -run TestReadersAgreeForLong ./eval/readers
	@echo "== what requests cost in the end, and a store that is well on a machine that is too busy"
	@$(GOTEST) -tags long -run 'TestEveryRequestCostsWhatItDid|TestAStoreThatIsWell' ./server/daemon
	@echo "== a gateway that is kept busy while all changes under it, for a moment"
	@$(GOTEST) -tags long -run TestSoak ./eval/soak
	@echo "== gateways and their store, broken at random"
	@$(MAKE) -s nemesis SEEDS=600 FIRST=1
	@echo "== the gateway before real servers of all kinds"
	@$(MAKE) -s garden-long
	@echo "== hostile peers of every door, many Envoys that decide by themselves, the package for JavaScript under Deno, and the types of the one for Python"
	@$(GOTEST) -tags long -run 'TestQuotasOfManyEnvoys|TestTypesOfPython|TestDeno|TestHostilePeers|TestRulesSayWhatIsAnswered|TestConformanceOfApplications' ./eval/doors
	@$(MAKE) -s edge
	@echo "== gateways of every scope killed, any and all, and a network between them that fails"
	@$(GOTEST) -tags long -run TestKilledAndParted ./eval/scaling
	@echo "== a gateway killed with a thousand requests and 64 streams under way, and a Redis with the places of three"
	@$(GOTEST) -tags long -run 'TestKillGivesPlacesBack|TestPlacesOutliveTheirStore' ./eval/operations
	@echo "== limits that follow an API, in virtual time and by a real process"
	@$(GOTEST) -tags long -run 'TestScenariosInFull|TestRealAPIHalves' ./eval/adaptive
	@echo "== clients are what the generators write"
	@scripts/generate-clients check
	@echo "== clients that pace themselves: the optimum by a solver"
	@$(GOTEST) -tags long -run TestOptimum ./eval/clients
	@echo "== planted bugs compile"
	@go run ./eval/mutants -check
	@$(MAKE) -s packages
	@$(MAKE) -s deployment
	@$(MAKE) -s kubernetes

deployment: deps ## try the Helm chart, compose.yaml, the Dockerfile and the alerts (part of `make long`; builds Helm, once)
	@scripts/install-deployment-deps
	@echo "== the chart, compose.yaml, the Dockerfile, the alerts"
	@cd packaging/deployment && GOWORK=off go mod tidy -diff && GOWORK=off go vet . && GOWORK=off go test -count=1 -timeout 20m .

kubernetes: deps ## try the webhook, rules as objects and the examples with a real kube-apiserver and etcd (part of `make long`; builds them, once)
	@scripts/install-kubernetes
	@echo "== a kube-apiserver asks the webhook, and keeps the rules"
	@cd packaging/kubernetes && GOWORK=off go mod tidy -diff && GOWORK=off go vet . && GOWORK=off go test -count=1 -timeout 20m .

packages: ## make two releases, install, reload, upgrade and remove them in a namespace (needs root; part of `make long`)
	@packaging/test

doors: deps ## ask by real proxies and clients of Redis, and hold all doors against each other (part of `make test`)
	cd eval && go test -count=1 ./doors

gateway: deps ## measure what a request costs at the gateway, beside nginx, HAProxy and Envoy, write docs/benchmarks/gateway.md (nine minutes)
	cd eval && go run ./gateway

STREAMS ?= 100000000
engine: ## read STREAMS made-up streams (default 100,000,000: a quarter of an hour) as plain requests, and by net/http
	@$(GOTEST) -tags long -run TestManyStreams -v ./server/engine -streams $(STREAMS)

SOAK ?= 30m
ENGINE ?= fast
soak: ## keep a gateway busy for SOAK (default 30m) while settings, rules and servers change and clients leave: no wrong answer, no leak
	cd eval && go run ./soak -for $(SOAK) -engine $(ENGINE)

doors-bench: ## measure what a decision costs at each door, write docs/benchmarks/doors.md (two minutes)
	cd eval && go run ./doorcost

# CI has MariaDB, which Debian keeps. MySQL comes from Debian's unstable release, and is another one tomorrow.
mysql: deps ## test databases on MySQL, in the place of MariaDB (fetches 55 MB into bin/mysql; some minutes)
	cd server && HEADGATE_TEST_MYSQLD="$$(../scripts/fetch-mysql ../bin/mysql)" go test -count=1 -timeout 15m -skip 'Failover|Disk|TLS' ./database ./daemon -run '/MariaDB|Servers'

browser: deps ## use the page as an operator does, in a real Chromium, and leave pictures of it in bin/browser (two minutes)
	@$(GOTEST) -count=1 -tags long ./eval/browser

valkey: ## test what replicas share on Valkey, in the place of Redis (fetches it into bin/valkey-server)
	@scripts/install-valkey
	@$(MAKE) -s -C proofs
	HEADGATE_TEST_REDIS=$(CURDIR)/bin/valkey-server go test -count=1 -run Redis ./proofs
	HEADGATE_TEST_REDIS=$(CURDIR)/bin/valkey-server go test -count=1 ./bucket/redis
	cd server && HEADGATE_TEST_REDIS=$(CURDIR)/bin/valkey-server go test -count=1 ./redis

lint: fmt width vet staticcheck modules portable ## gofmt, width, vet, staticcheck, tidy module files, 32-bit and WASM builds

# server/advisories holds a list for where the database cannot be reached; its test is part of `make test`.
vuln: ## ask the Go vulnerability database about the modules and the toolchain (needs vuln.go.dev)
	@for m in $(MODULES); do echo "== govulncheck, module $$m"; (cd $$m && go run $(VULN) ./...) || exit 1; done

fmt:
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }

width:
	@git ls-files '*.go' | grep -v '\.gen\.go$$' | go run scripts/width.go

# A second time with the files of `make long`: what no longer builds is said here, and not after the half hour that comes before them.
vet:
	@for m in $(MODULES); do echo "== go vet, module $$m"; (cd $$m && go vet ./... && go vet -tags long ./...) || exit 1; done
	@echo "== go vet, module packaging"; cd packaging && GOWORK=off go vet ./...

# The version is pinned by eval/go.mod, the module that is never published.
bin/staticcheck: eval/go.mod
	cd eval && GOWORK=off go build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

staticcheck: bin/staticcheck
	@for m in $(MODULES); do echo "== staticcheck, module $$m"; (cd $$m && $(CURDIR)/bin/staticcheck -tags long ./...) || exit 1; done

modules:
	@for m in $(MODULES) packaging; do echo "== go mod tidy, module $$m"; (cd $$m && GOWORK=off go mod tidy -diff) || exit 1; done

# What is built for WASM is never run here, so it need not be fast.
portable:
	@echo "== the library on 32 bits and on WASM"
	@GOARCH=386 go vet ./... && GOOS=wasip1 GOARCH=wasm go build -gcflags='all=-N -l' ./...

bench: ## stage benchmarks; BENCH=regexp, COUNT=runs
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...
	cd server && go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

wasm: ## compile the modules of the edge, which are kept in wasm/ (needs clang, lld and binaryen)
	@$(MAKE) -C wasm/core --no-print-directory

edge: deps ## put the edge filter into a real Envoy: load, reload, kills, traps, a clock that stops, 50,000 callers; and the package for JavaScript into workerd (a minute; part of `make long`)
	@scripts/install-workerd
	@$(GOTEST) -count=1 -tags long -run 'TestEnvoy|TestWorkerd' -skip TestEnvoyCosts -v ./eval/edge

edge-bench: deps ## measure what a request costs Envoy with the filter, beside an Envoy without: the figures of docs/edge.md (a minute of a quiet machine)
	@$(GOTEST) -count=1 -tags long -run TestEnvoyCosts -v ./eval/edge

clients: ## clients that pace themselves, in virtual time: tables of all algorithms, and the figure of docs/clients.md (some minutes)
	go run ./eval/clients

clients-sockets: deps ## the same in a hurry over sockets, before a real Envoy and a Headgate (two minutes of a quiet machine)
	@$(GOTEST) -tags long -run TestThePapersTopology -v ./eval/clients

algorithms: ## measure what each algorithm admits at worst, into docs/algorithms.md
	go run ./eval/algorithms -write

overhead: ## time every stage inside a running process, write docs/benchmarks/overhead.md (a minute)
	cd eval && go run ./overhead

policies: ## measure loading, look-up and changes of rules, write docs/benchmarks/policies.md (at most eight minutes)
	cd eval && go run ./policies

rivals: ## measure other Go limiters beside this one, write docs/benchmarks/rivals.md (some minutes)
	cd eval && go run ./rivals

load: ## have an API in virtual time be asked for more than it can do, for a day too: docs/load.md and its figure (half a minute)
	cd eval && go run ./adaptive

churn: ## attack bounded tables with more keys than they hold, write docs/benchmarks/churn.md (a minute or two)
	cd eval && go run ./churn

scaling: ## run 1, 2, 4 and 8 gateways before one API, with faults and other limiters, write docs/benchmarks/scaling.md (eleven minutes)
	cd eval && go run ./scaling

nemesis: ## break gateways and their store at random, in virtual time: SEEDS=how many, FIRST=from which, or SEED=one EVENTS=0,3
	cd eval && go test -count=1 -timeout 0 -run 'TestNemesis(OfPlaces|OfClasses)?$$' ./nemesis -args -seeds=$(SEEDS) -first=$(FIRST) -seed=$(SEED) -events=$(EVENTS)

WORLDS ?= 1000
worlds: ## draw everything that rules can say at random, with callers, clocks and corrections, and hold the library to a ledger: WORLDS=how many, FIRST=from which
	go test -count=1 -timeout 0 -run TestEverythingTogether ./charge -args -worlds=$(WORLDS) -first=$(FIRST)

mutants: ## plant bugs, one after the other, and see that tests and nemesis catch them, write docs/benchmarks/mutants.md (half an hour)
	go run ./eval/mutants

garden: ## put the gateway before real servers of many kinds, 90,000 requests to each, write docs/benchmarks/attacks.md (half an hour)
	@scripts/install-garden-deps
	cd eval && go run ./garden -write

garden-long: ## some thousand requests to each of these servers, whether they still read as kinds.json says, and routes of Rails and Spring (some minutes)
	@scripts/install-garden-deps
	@$(GOTEST) -tags long -run 'TestGarden|TestExploits|TestRailsAgrees|TestSpringAgrees' ./eval/garden ./eval/approutes

garden-kinds: ## ask these servers how they read requests, write server/kinds/kinds.json
	@scripts/install-garden-deps
	cd eval && go run ./garden -measure

attacks: ## attack the gateway and other limiters over sockets, write docs/benchmarks/attacks.md (some minutes)
	cd eval && go run ./attacks

fuzz: ## every fuzz target for FUZZTIME (default 30s) each
	@scripts/fuzz $(FUZZTIME)

clean: ## remove what build made
	rm -rf bin proofs/_build
