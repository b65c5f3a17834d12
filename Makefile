# Shortcuts. `.ci/run` holds the stages; here are the names people type.

GO        ?= go
LINT      := $(GO) tool -modfile=tools/go.mod golangci-lint
BENCHSTAT := $(GO) tool -modfile=tools/go.mod benchstat
# Packages whose tests depend on the order in which goroutines run.
CONCURRENT := ./runner/... ./store/... ./execution/... ./llmproxy/... ./storehttp/... ./trainer/...

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## build, format, vet, test, lint: what to run before a commit
	bash .ci/run build format vet test lint

.PHONY: test
test: ## all tests
	$(GO) test ./...

.PHONY: race
race: ## all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race ./...

.PHONY: flaky
flaky: ## concurrent packages 20 times and everything 3 times, with the race detector
	CGO_ENABLED=1 $(GO) test -race -count=20 -timeout 120m $(CONCURRENT)
	CGO_ENABLED=1 $(GO) test -race -count=3 -timeout 120m ./...

.PHONY: lint
lint: ## golangci-lint, pinned in tools/go.mod (the first run builds it)
	$(LINT) run ./...

.PHONY: format
format: ## format the code as lint wants it
	$(LINT) fmt ./...

.PHONY: fuzz
fuzz: ## every fuzz target, FUZZ_SECONDS each (default 60)
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} bash .ci/run fuzz

.PHONY: bench
bench: ## all benchmarks, ten times, summed up by benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count=10 ./... | tee bench.txt
	$(BENCHSTAT) bench.txt

.PHONY: generate
generate: ## write generated files anew
	$(GO) generate ./...

.PHONY: ui
ui: ## build the dashboard, whose files are committed (needs Node 20)
	cd dashboard/ui && npm ci --no-audit --no-fund && npm run -s build

.PHONY: calc
calc: ## train the built-in model on the example, about a minute
	$(GO) run ./examples/calc

.PHONY: figures
figures: ## train calc, grid, sql, twenty-questions and rag for three seeds, with their controls, about half an hour
	@for e in calc grid sql twenty-questions rag; do for s in 1 2 3; do \
	  $(GO) run ./examples/$$e --seed $$s --report examples/$$e/figures/seed-$$s.json && \
	  $(GO) run ./examples/$$e --seed $$s --shuffle-rewards --report examples/$$e/figures/shuffled-$$s.json || exit 1; \
	done; done

.PHONY: curves
curves: ## draw the learning curves of these from their figures
	$(GO) -C tools/curves run . ../../examples/calc ../../examples/grid ../../examples/sql \
	  ../../examples/twenty-questions ../../examples/rag

.PHONY: ci
ci: ## everything that CI runs, about 36 minutes on two cores
	bash .ci/run
