# Jackfield. `make demo` runs a demonstration, `make test` runs every test; both do their own
# set-up. `make help` lists the rest.

GO      ?= go
VERSION ?=
BIN     := bin
LDFLAGS := -s -w $(if $(VERSION),-X github.com/jackfield/jackfield/internal/base/version.release=$(VERSION))

# Tests run several times as long under the race detector, which needs a C compiler. CI uses it, and RACE=-race does.
RACE := $(if $(filter true,$(CI)),$(if $(shell command -v gcc || command -v cc),-race,))
# Many packages wait for processes and timers, so more packages than processors run at a time. Some tests build the
# commands, which takes long on a busy machine.
UNIT := -timeout 60m -p 4
# The programs of these tests are the commands in a process each, or only read files: the race detector finds nothing.
UNRACED := -e /test/arrows -e /test/deploy -e /test/docs -e /test/man -e /test/monitoring -e /test/mutate -e /test/script
# Each package has its own namespaces and runtimes.
SYSTEM := -count=1 -timeout 90m
# How long each fuzz target runs under `make fuzz`. `make test` in CI only shows that each still works.
FUZZTIME ?= 5s

.PHONY: help build image release man compatibility test unit e2e critest dpdk kube fuzz bench lint figures vulncheck reports signed-off demo recording screenshot cluster cluster-down vm vm-selinux install install-nri-plugin install-crio-hook uninstall clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST)

build: ## static binaries in bin/
	CGO_ENABLED=0 $(GO) build -tags grpcnotrace -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

release: ## everything that a release of VERSION has, in bin/release/VERSION
	cd test/release && $(GO) run . -version '$(VERSION)'

image: ## container image for amd64 and arm64, bin/jackfield-image.tar
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./deploy/image -o $(BIN)/jackfield-image.tar -version '$(VERSION)' -revision "$$(git rev-parse HEAD)"

man: ## the manual pages in docs/man, after commands, flags or their documentation have changed
	cd test && $(GO) run ./man

compatibility: ## the tables of features in docs, after test/compatibility has changed
	cd test && $(GO) run ./compatibility/write

test: lint unit ## lint, unit and e2e; with CI=true every test
ifeq ($(CI),true)
	cd test && $(GO) test $(SYSTEM) -p 2 $$($(GO) list ./e2e/... ./vm/... ./kube ./cluster/... | grep -v -e /e2e/dpdk -e /e2e/grout)
	cd test/release && $(GO) test $(SYSTEM) ./kube
	@$(MAKE) --no-print-directory dpdk
	@$(MAKE) --no-print-directory fuzz FUZZTIME=1s
else
	@$(MAKE) --no-print-directory e2e
endif

unit: ## the tests of the packages and of everything in test/ but those of e2e, dpdk and kube
	$(GO) test $(UNIT) $(RACE) $$($(GO) list ./... | grep -v /deploy/image)
	$(GO) test $(UNIT) ./deploy/image # one goroutine, which compresses for a minute under the race detector
	cd test && $(GO) test $(UNIT) $(RACE) $$($(GO) list ./... | grep -v -e /test/e2e -e /test/vm -e /test/kube -e /test/cluster/ $(UNRACED))
	cd test && $(GO) test $(UNIT) $$($(GO) list ./... | grep $(UNRACED))
	cd test/charts && $(GO) test $(UNIT) ./...
	cd test/admission && $(GO) test $(UNIT) ./...
	cd test/release && $(GO) test $(UNIT) $$($(GO) list ./... | grep -v /test/release/kube)

# The first run builds containerd and CRI-O, which takes about five minutes on two cores.
e2e: ## the tests on containerd, CRI-O and Podman, and in a machine with SR-IOV (root)
	cd test && $(GO) test $(SYSTEM) -p 2 $$($(GO) list ./e2e/... ./vm/... | grep -v -e /e2e/dpdk -e /e2e/grout)
	@cd test && $(GO) run ./e2e/skipped

critest: ## all specs of critest on each runtime, with and without the plugin (root)
	cd test && JACKFIELD_CRITEST_FOCUS=. $(GO) test $(SYSTEM) -v ./e2e/critest

# One package after the other, because switches that poll keep the processors busy.
dpdk: ## the tests with vswitches and applications that use DPDK (root)
	cd test && $(GO) test $(SYSTEM) -p 1 ./e2e/dpdk ./e2e/grout

# The first run builds Kubernetes, which takes about ten minutes on two cores.
kube: ## the tests in a Kubernetes cluster (root)
	cd test && $(GO) test $(SYSTEM) -p 1 ./kube ./cluster/...
	cd test/release && $(GO) test $(SYSTEM) ./kube

reports: ## the real programs on cases like those that users report; a part of unit (root)
	cd test && $(GO) test -count=1 $(UNIT) ./reports

fuzz: ## each fuzz target for FUZZTIME
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' test/fuzz.sh . test

# BENCHFLAGS='-only cdi' runs a part, -quick everything once, to see that it works.
bench: ## run the benchmarks beside their peers and write docs/contributing/performance.md
	cd test && $(GO) run ./benchreport $(BENCHFLAGS)

lint: ## gofmt, vet, staticcheck, the texts of test/mutations, the limits of figures
	@fmt=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); if [ -n "$$fmt" ]; then echo "gofmt would change:"; echo "$$fmt"; exit 1; fi
	$(GO) vet ./...
	cd test && $(GO) vet ./...
	cd test/charts && $(GO) vet ./...
	cd test/admission && $(GO) vet ./...
	cd test/release && $(GO) vet ./...
	$(GO) tool -modfile=test/tools/go.mod staticcheck ./...
	cd test && $(GO) tool -modfile=tools/go.mod staticcheck ./...
	cd test/charts && $(GO) tool -modfile=../tools/go.mod staticcheck ./...
	cd test/admission && $(GO) tool -modfile=../tools/go.mod staticcheck ./...
	cd test/release && $(GO) tool -modfile=../tools/go.mod staticcheck ./...
	cd test && $(GO) run ./mutate -check
	cd test && $(GO) run ./figures -check

figures: ## how long lines and types are, and how the comments and errors read
	@cd test && $(GO) run ./figures

# It reads the vulnerability database of Go on the internet, so make test does not run it.
# VULNFLAGS=-db=file:///DIR reads a copy.
vulncheck: ## known vulnerabilities in code that the programs or their tests call (internet)
	$(GO) tool -modfile=test/tools/go.mod govulncheck $(VULNFLAGS) -test ./...
	cd test && $(GO) tool -modfile=tools/go.mod govulncheck $(VULNFLAGS) -test ./...
	cd test/charts && $(GO) tool -modfile=../tools/go.mod govulncheck $(VULNFLAGS) -test ./...
	cd test/admission && $(GO) tool -modfile=../tools/go.mod govulncheck $(VULNFLAGS) -test ./...
	cd test/release && $(GO) tool -modfile=../tools/go.mod govulncheck $(VULNFLAGS) -test ./...

signed-off: ## check that each commit since the commit SINCE is signed off by its author
	@git log --no-merges --format='%h %s%x09%an <%ae>%x09%(trailers:key=Signed-off-by,valueonly,separator=%x3B)' '$(SINCE)'..HEAD | \
		awk -F'\t' '!index(";" $$3 ";", ";" $$2 ";") {print "not signed off by " $$2 ": " $$1; bad=1} END {exit bad}'

demo: ## run a pod that uses its devices and sockets, on a private containerd
	cd test && $(GO) run ./demo

recording: ## run the demo and record it as docs/images/demo.svg (root)
	cd test && $(GO) run ./demo/record

screenshot: ## draw the dashboard as docs/images/dashboard.png (npm, Chromium)
	cd test && $(GO) run ./monitoring/screenshot

# MULTUS=1 adds Multus, and a pod with a second network. OVS=1 adds Open vSwitch, and an image with DPDK's testpmd.
cluster: ## run a Kubernetes node with Jackfield and sample pods, until Ctrl-C (root)
	@cd test && $(GO) run ./cluster/up $(if $(MULTUS),-multus) $(if $(OVS),-ovs)

cluster-down: ## end the cluster of make cluster
	@cd test && $(GO) run ./cluster/up down

# The first run downloads a kernel and builds modules for it, which takes some minutes.
vm: ## run a shell in a machine with SR-IOV, VFIO, vDPA and a pod that has a VF; "exit" ends it (root)
	@cd test && $(GO) run ./vm/shell

vm-selinux: ## the tests of SELinux, in a machine that enforces Debian's policy (root)
	cd test && JACKFIELD_VM_SELINUX=1 $(GO) test $(SYSTEM) -v -run SELinux ./vm

# make install DESTDIR=... PREFIX=/usr; deploy/install/install.sh has the other paths.
INSTALL_PATHS := $(foreach v,DESTDIR PREFIX SYSCONFDIR UNITDIR CNIBINDIR NETAVARKDIR NRIPLUGINDIR NRICONFDIR,$(if $($(v)),$(v)='$($(v))')) BIN='$(BIN)'
# Root may have no Go; then the existing programs in bin/ are installed.
BUILT := $(if $(shell command -v $(GO)),build)

install: $(BUILT) ## programs, hooks, manual pages, the systemd unit; no existing configuration is overwritten
	@$(INSTALL_PATHS) deploy/install/install.sh install

install-nri-plugin: $(BUILT) ## the plugin in /opt/nri/plugins, where the runtime starts it
	@$(INSTALL_PATHS) deploy/install/install.sh nri-plugin

install-crio-hook: ## the drop-in that makes CRI-O without NRI run jackfield-hook
	@$(INSTALL_PATHS) deploy/install/install.sh crio-hook

uninstall: ## remove what was installed, except edited configuration
	@$(INSTALL_PATHS) deploy/install/install.sh uninstall

clean: ## remove everything built and downloaded
	rm -rf $(BIN) .cache
