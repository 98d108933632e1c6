# Jackfield. `make demo` shows it, `make test` runs every test; both do their own
# set-up. `make help` lists the rest.

GO      ?= go
VERSION ?=
BIN     := bin
LDFLAGS := -s -w $(if $(VERSION),-X github.com/jackfield/jackfield/pkg/version.release=$(VERSION))

# The race detector needs a C compiler.
RACE := $(if $(shell command -v gcc || command -v cc),-race,)
# Some tests build the commands, which on a busy machine takes its time.
UNIT := -timeout 60m
# How long each fuzz target runs under `make test` in CI, and under `make fuzz`.
FUZZTIME ?= 5s

.PHONY: help build image man test unit e2e fuzz bench lint demo install install-nri-plugin install-crio-hook uninstall clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST)

build: ## static binaries in bin/
	CGO_ENABLED=0 $(GO) build -tags grpcnotrace -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

image: ## container image for amd64 and arm64, bin/jackfield-image.tar
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./deploy/image -o $(BIN)/jackfield-image.tar -version '$(VERSION)' -revision "$$(git rev-parse HEAD)"

man: ## the manual pages in docs/man, after commands, flags or their documentation have changed
	cd test && $(GO) run ./man

test: lint unit e2e ## every test; in CI also the fuzz targets, for a short time
	@if [ "$$CI" = true ]; then $(MAKE) --no-print-directory fuzz; fi

unit: ## the tests of the packages and of everything in test/ but test/e2e
	$(GO) test $(UNIT) $(RACE) $$($(GO) list ./... | grep -v /deploy/image)
	$(GO) test $(UNIT) ./deploy/image # one goroutine, which compresses for a minute under the race detector
	cd test && $(GO) test $(UNIT) $(RACE) $$($(GO) list ./... | grep -v /test/e2e)
	cd test/charts && $(GO) test $(UNIT) ./...
	cd test/admission && $(GO) test $(UNIT) ./...

e2e: ## the tests on real container runtimes (root)
	cd test && $(GO) test -count=1 -timeout 40m ./e2e/...
	@cd test && $(GO) run ./e2e/skipped

fuzz: ## each fuzz target for FUZZTIME
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' test/fuzz.sh . test

# BENCHFLAGS='-only cdi' runs a part, -quick everything once, to see that it works.
bench: ## the benchmarks, beside their peers, into docs/performance.md
	cd test && $(GO) run ./benchreport $(BENCHFLAGS)

lint: ## gofmt, vet, staticcheck
	@fmt=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); if [ -n "$$fmt" ]; then echo "gofmt would change:"; echo "$$fmt"; exit 1; fi
	$(GO) vet ./...
	cd test && $(GO) vet ./...
	cd test/charts && $(GO) vet ./...
	cd test/admission && $(GO) vet ./...
	$(GO) tool -modfile=test/tools/go.mod staticcheck ./...
	cd test && $(GO) tool -modfile=tools/go.mod staticcheck ./...
	cd test/charts && $(GO) tool -modfile=../tools/go.mod staticcheck ./...
	cd test/admission && $(GO) tool -modfile=../tools/go.mod staticcheck ./...

demo: ## a pod that uses what it was given, on a private containerd
	cd test && $(GO) run ./demo

# make install DESTDIR=... PREFIX=/usr; deploy/install/install.sh has the other paths.
INSTALL_PATHS := $(foreach v,DESTDIR PREFIX SYSCONFDIR UNITDIR CNIBINDIR NRIPLUGINDIR NRICONFDIR,$(if $($(v)),$(v)='$($(v))')) BIN='$(BIN)'
# Root may have no Go: what is in bin/ then is what is installed.
BUILT := $(if $(shell command -v $(GO)),build)

install: $(BUILT) ## programs, hooks, manual pages, the systemd unit; no existing configuration is overwritten
	@$(INSTALL_PATHS) deploy/install/install.sh install

install-nri-plugin: $(BUILT) ## the plugin where the runtime starts it by itself, /opt/nri/plugins
	@$(INSTALL_PATHS) deploy/install/install.sh nri-plugin

install-crio-hook: ## the drop-in by which CRI-O without NRI runs jackfield-hook
	@$(INSTALL_PATHS) deploy/install/install.sh crio-hook

uninstall: ## what was installed away, but for configuration that was edited
	@$(INSTALL_PATHS) deploy/install/install.sh uninstall

clean: ## remove what was built and downloaded
	rm -rf $(BIN) .cache
