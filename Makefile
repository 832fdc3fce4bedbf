# Every target installs what it needs; run as root on Debian 12 with Go on the PATH.
GO       ?= go
TOOL      = $(GO) tool -modfile=tools/go.mod
BIN      := build/bin
RECORDS  := build/tests
SEEDS    ?= 1000
BENCH    ?=
FUZZTIME ?= 5s
DAEMONS  := margay margay-sci margay-csma margay-cnma margay-cps margay-forwarder
export CGO_ENABLED = 0

.DEFAULT_GOAL := help
.PHONY: help setup build demo test unit race fuzz lint generate check-generated bench conformance simulate clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## packages of the build's checks and of the tests' peers
	tools/setup.sh

build: ## every program into build/bin
	@mkdir -p $(BIN)
	$(GO) build -trimpath -o $(BIN)/ $(addprefix ./cmd/,$(DAEMONS))

demo: build ## the end-to-end example of draft-zhangb-cats-centralized-control-plane-00 section 14
	$(BIN)/margay demo

test: setup lint check-generated unit race fuzz simulate ## everything that CI checks
	@$(GO) run ./test/conformance -summary

unit: build ## unit and end-to-end tests, recorded for `make conformance`
	@rm -rf $(RECORDS) && mkdir -p $(RECORDS)
	@git describe --always --abbrev=40 --dirty --match= > $(RECORDS)/commit
	$(TOOL) gotestsum --format pkgname --jsonfile $(RECORDS)/unit.json -- -timeout 20m -p 2 ./...

race: ## the packages with goroutines, under the race detector
	@mkdir -p $(RECORDS)
	CGO_ENABLED=1 $(TOOL) gotestsum --format pkgname --jsonfile $(RECORDS)/race.json -- -race -short -timeout 20m \
	  ./internal/trust/... ./internal/observe/... ./internal/config/... ./internal/collect/... ./internal/northbound/... \
	  ./internal/southbound/... ./internal/app/... ./internal/lab/impair ./internal/lab/capture

fuzz: ## each fuzz target for FUZZTIME
	FUZZTIME=$(FUZZTIME) tools/fuzz.sh

simulate: ## SEEDS new seeds of the whole domain on virtual time
	$(GO) run ./internal/simulation/cmd -seeds $(SEEDS)

lint: ## formatting, vet, staticcheck
	@test -z "$$(gofmt -l . )" || { echo "not formatted (run gofmt -w):"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(TOOL) staticcheck ./...

generate: setup ## protobuf and BPF objects
	tools/generate.sh

check-generated: setup ## the committed generated files equal what generate makes
	tools/generate.sh -check

bench: build ## measurements into bench/results.json; BENCH=datapath,firstpacket runs named areas
	$(GO) run ./test/bench -areas "$(BENCH)" -out bench/results.json

conformance: ## one line per requirement, from the record of the last `make test` on this commit
	@$(GO) run ./test/conformance

clean: ## remove what build and test made
	rm -rf build
