# The targets are listed by `make help`.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODULE  := github.com/nri-resctrl/nri-resctrl
# Position-independent, with all relocations read-only before main.
LDFLAGS := -X $(MODULE)/lib/program.version=$(VERSION) -linkmode=external -extldflags=-Wl,-z,relro,-z,now
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
TESTFLAGS ?=
DEMOFLAGS ?=
FUZZTIME ?= 20000x
PREFIX  ?= /usr/local
DESTDIR ?=

export CGO_ENABLED = 1

.PHONY: help build test setup vet lint demo test-kernel test-node test-faults test-logs fuzz bench install uninstall deb clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

build: ## the programs, in bin/
	$(GO) build -trimpath -buildmode=pie -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: setup vet ## everything that needs no virtual machine, with the race detector
	$(GO) test -race -timeout 15m $(TESTFLAGS) ./...

demo: setup ## the whole pipeline on simulators, as a short story; a minute. DEMOFLAGS='-keep DIR' keeps it
	@[ -r /dev/fuse ] && [ -w /dev/fuse ] || { echo "the simulator needs /dev/fuse, which this user may not open: run as root, or: sudo chmod 0666 /dev/fuse" >&2; exit 1; }
	@echo "compiling (minutes the first time, moments later)"
	@$(GO) run ./tests/demo $(DEMOFLAGS)

test-faults: setup ## the programs under every fault made from outside; LONG=1 for all of it
	$(GO) vet -tags faults ./tests/faults/...
	@export SEED=$${SEED:-$$(shuf -i 1-999999 -n 1)} LONG=$(LONG); \
	  echo "seeds 1 and $$SEED (SEED=$$SEED repeats the second), LONG=$(LONG)"; set -x; \
	  $(GO) test -count=1 -v -timeout 10h $(TESTFLAGS) ./tests/model -rapid.checks=$(if $(filter 1,$(LONG)),10000,300) && \
	  $(GO) test -count=1 -v -tags faults -timeout $(if $(filter 1,$(LONG)),10h,30m) $(TESTFLAGS) ./tests/faults/...

# By number: when time is up while a worker is busy, go test may fail with
# "context deadline exceeded" (seen with Go 1.26 on a busy machine).
fuzz: ## every fuzz target, FUZZTIME each: so many inputs (20000x), or a time (10m)
	@grep -H '^func Fuzz' lib/*/*_test.go | sed 's|/[^/]*:func \(Fuzz[A-Za-z]*\).*| \1|' | while read -r dir target; do \
	  $(GO) test -v -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $(TESTFLAGS) ./$$dir || exit 1; done

test-kernel: ## on real kernels (6.12, 6.1), in small virtual machines; ONLY='6.12 evicts' takes these alone
	tests/vm/test-kernel $(TESTFLAGS)

test-node: build ## the installed programs on a whole node, in a virtual machine
	tests/node/run $(TESTFLAGS)

bench: build ## figures, each beside a floor of the same run, and the start barrier on a whole node; no judgement
	$(GO) test -run '^$$' -bench . -benchmem ./state ./lib/...
	tests/node/bench

vet:
	@unformatted=$$(gofmt -l .); \
	  [ -z "$$unformatted" ] || { echo "gofmt these files:"; echo "$$unformatted"; exit 1; } >&2
	$(GO) vet ./...

lint: vet ## gofmt, go vet, staticcheck
	$(GO) run $(STATICCHECK) ./...
	cd tests/vm/go && GOWORK=off $(GO) vet ./... && GOWORK=off $(GO) run $(STATICCHECK) ./...

# What the tests and the demo need of a Debian machine beside Go.
setup:
	@missing=; for p in gcc=gcc sqlite3=sqlite3 fusermount3=fuse3; do \
	  command -v $${p%=*} >/dev/null || missing="$$missing $${p#*=}"; done; \
	[ -e /usr/include/stdlib.h ] || missing="$$missing libc6-dev"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" != 0 ]; then \
	  echo "missing:$$missing; install with: sudo apt-get install$$missing" >&2; exit 1; fi; \
	echo "installing:$$missing" >&2; export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get -q update && apt-get -q install -y --no-install-recommends $$missing; } >/dev/null

install: ## puts it on this node, after build: PREFIX= (/usr/local), DESTDIR=
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' conf/install

uninstall: ## takes it away; configuration, state and groups stay
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' conf/install --uninstall

deb: build ## the Debian package, in dist/
	@conf/deb/build '$(VERSION)'

test-logs: ## logrotate and rsyslog on an event log that is written at full rate; root
	$(GO) test -count=1 -v -tags logs -timeout 20m $(TESTFLAGS) ./tests/install

clean: ## remove what was built here (the virtual machines' parts stay in their cache)
	rm -rf bin dist
