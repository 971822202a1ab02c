# Thin: each target is one command of the project's own tools. `make help` lists them.
SHELL := bash
.DEFAULT_GOAL := help
CLUSTER := tests/cluster/cluster.py
CACHE := $(or $(LANEKEEPER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lanekeeper)
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## From nothing to ordered messages through pods, and a verdict (FLIGHTS=all for the whole data set)
	cargo run -p lanekeeper-tests --bin demo

.PHONY: demo-stop
demo-stop: ## End the demo's cluster and clean up after it
	$(CLUSTER) stop

.PHONY: tools
tools: ## Build or fetch everything that tests and demo need, into the cache folder
	$(CLUSTER) tools

.PHONY: test
test: machine-is-free tools test-python test-go test-cluster ## Every test, from nothing
	cargo test --workspace --no-fail-fast

.PHONY: machine-is-free
machine-is-free:
	@$(CLUSTER) free

.PHONY: test-python
test-python: ## Unit tests of the Python tools
	python3 -m unittest discover -s tests/cluster/unit -t tests/cluster
	python3 -m unittest discover -s examples/flights
	python3 -m unittest discover -s images

.PHONY: test-go
test-go: ## Unit tests of the Go programs
	cd bench/peers && go vet ./... && go test ./...
	cd examples/flights/handler && go vet ./... && go test ./...

.PHONY: test-cluster
test-cluster: machine-is-free tools ## The dev cluster itself: starts, works, and leaves nothing behind
	python3 tests/cluster/smoke.py

.PHONY: cases
cases: tools ## The shared situations at full length (takes about an hour)
	LANEKEEPER_CASES=full cargo test -p lanekeeper-tests --no-fail-fast -- --nocapture

.PHONY: soak
soak: tools ## Random changes of N with kills in between on a whole cluster, checked (MINUTES=20)
	LANEKEEPER_SOAK_MINUTES=$(or $(MINUTES),20) cargo test -p lanekeeper-tests --test cluster soak -- --nocapture

.PHONY: model
model: ## Every state of the handover under each failure and pairs of them (stateright)
	LANEKEEPER_MODEL=full LANEKEEPER_MODEL_SECONDS=15 LANEKEEPER_WALKS=200 cargo test --release -p lanekeeper-core --test handover -- --nocapture

.PHONY: bench
bench: tools ## One lane against nats.go and the round-trip limit; writes target/bench/report.json
	cargo run --release -p lanekeeper-tests --bin bench

.PHONY: check
check: $(DENY) ## Format, lints, generated files, dependency rule, licences
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo run --quiet -p xtask -- check
	cargo run --quiet -p xtask -- deps
	$(DENY) --log-level error check bans licenses sources

$(DENY):
	cargo install --locked --version $(DENY_VERSION) --root $(CACHE)/tools/cargo-deny-$(DENY_VERSION) cargo-deny

.PHONY: generate
generate: ## Write the CRD, its chart template and the reference pages again
	cargo run --quiet -p xtask -- generate
