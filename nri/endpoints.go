// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"path"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const (
	// scrapeTimeout is how long a scrape waits for an unresponsive directory.
	scrapeTimeout = 500 * time.Millisecond
	// maxScrapeWorkers bounds the goroutines of scrapes that unresponsive directories can block.
	maxScrapeWorkers = 8
)

// endpoints are the HTTP endpoints: metrics, health and status. They only read the parts of the plugin.
type endpoints struct {
	counters   *telemetry.Counters
	calls      *runtimeCalls
	runtime    *runtimeLink
	config     *configuration
	containers *containerTable
	state      *stateDir
	ports      *vswitchPorts
	numbers    *deviceNumbers
	hookDirs   *hookDirs
	audit      *auditLog

	started time.Time
	scrapes *deadline.Pool // for reads that can hang
}

// newMux returns the endpoints of the metrics address; the status socket has one more.
func (e *endpoints) newMux(profiles bool) *http.ServeMux {
	mux := http.NewServeMux()
	gatherer := telemetry.NewGatherer(e.counters, e.takeSample)
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", e.serveHealth)
	mux.HandleFunc("GET /readyz", e.serveReady)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// serveHealth reports whether the process can work. It returns 503 only if a restart can help: a restart
// neither corrects a rejected configuration nor a directory that is unresponsive.
func (e *endpoints) serveHealth(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	code := http.StatusOK
	if e.calls.workers.Busy() >= maxWorkers {
		code = http.StatusServiceUnavailable
		fmt.Fprintf(&b, "workers: all %d are blocked on host file systems or sockets\n", maxWorkers)
	} else {
		fmt.Fprintln(&b, "workers: ok")
	}
	if cfg := e.config.describe(); cfg.LastError != nil {
		fmt.Fprintf(&b, "config: generation %d is in force; a newer one is rejected: %s\n", cfg.Generation, cfg.Error)
	} else {
		fmt.Fprintf(&b, "config: ok, generation %d\n", cfg.Generation)
	}
	if file := e.audit.failingFile(); file != "" {
		fmt.Fprintf(&b, "audit: %s cannot be written\n", file)
	} else {
		fmt.Fprintln(&b, "audit: ok")
	}
	faults := e.config.dirs.Faults()
	writeDirectories(&b, faults)
	if len(faults) == 0 {
		fmt.Fprintln(&b, "directories: ok")
	}
	writeText(w, code, b.Bytes())
}

// serveReady returns 200 while the plugin is registered with the runtime. It lists unresponsive directories,
// but containers that do not need them are served.
func (e *endpoints) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !e.runtime.registered.Load() {
		writeText(w, http.StatusServiceUnavailable, []byte("not registered with the runtime\n"))
		return
	}
	b := bytes.NewBufferString("registered with the runtime\n")
	writeDirectories(b, e.config.dirs.Faults())
	writeText(w, http.StatusOK, b.Bytes())
}

// writeDirectories writes one line per unresponsive directory.
func writeDirectories(b *bytes.Buffer, faults []string) {
	for _, fault := range faults {
		fmt.Fprintf(b, "directories: %s\n", fault)
	}
}

func writeText(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// serveStatus serves the node's status with its sockets, whose list reads the host's file systems.
func (e *endpoints) serveStatus(w http.ResponseWriter, _ *http.Request) {
	node := e.nodeStatus()
	node.Sockets, node.SocketsError = e.listSockets()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(node)
}

// nodeStatus returns the output of "jackfield status", without the sockets.
func (e *endpoints) nodeStatus() *status.Node {
	lost := e.numbers.listLost()
	n := &status.Node{
		Version: version.String(), PID: os.Getpid(), Started: e.started.UTC(), Registered: e.runtime.registered.Load(),
		Runtime: e.runtime.info.Load(), Config: e.config.describe().Config, Containers: e.containers.listStarted(),
		Missed: e.containers.listMissed(), Sandboxes: e.containers.listSandboxes(), Vswitches: e.ports.listStatus(),
		ReusedNumbers: lost.reused, RemovedDevices: lost.removed,
	}
	if store := e.state.store.Load(); store != nil {
		st := store.Status()
		n.Staging, n.StagingReason, n.StagingReasonCode = string(st.Mode), st.Detail, string(st.Reason)
	}
	return n
}

// listSockets returns the sockets of running containers, or why they cannot be listed.
func (e *endpoints) listSockets() ([]status.PlacedSocket, string) {
	placed, err := deadline.Run(e.scrapes, scrapeTimeout, func() (all []staging.PlacedSocket, _ error) {
		for _, store := range e.state.openStores() {
			all = append(all, store.Sockets()...)
		}
		return all, nil
	})
	if err != nil {
		return nil, "a directory of the host is unresponsive"
	}
	sockets := make([]status.PlacedSocket, len(placed))
	for i, s := range placed {
		owner := cmp.Or(e.containers.recordOf(s.ContainerID), &status.Container{})
		sockets[i] = status.PlacedSocket{
			Namespace: owner.Namespace, Pod: owner.Pod, Container: owner.Container,
			ContainerID: s.ContainerID, Sandbox: s.SandboxID, Path: path.Join(engine.ContainerDir, s.At), HostPath: s.HostPath,
			State: string(s.State), Since: s.Since, Rebinds: s.Rebinds, Device: s.Identity.Device, Inode: s.Identity.Inode,
		}
	}
	slices.SortFunc(sockets, func(a, b status.PlacedSocket) int {
		return cmp.Or(cmp.Compare(a.Title(), b.Title()), cmp.Compare(a.Path, b.Path))
	})
	return sockets, ""
}

// takeSample returns the state that the metrics expose beside the counters. While a directory is unresponsive,
// the size of the CDI registry is nil, and the numbers of staged containers and sockets are 0.
func (e *endpoints) takeSample() *telemetry.Sample {
	build := version.Get()
	s := &telemetry.Sample{
		Node: *e.nodeStatus(), Version: build.Version, Commit: build.ShortCommit(),
		ConfigRejected: e.config.describe().Failures, Directories: e.config.dirs.Directories(),
		Workers: e.calls.workers.Busy(), WorkersMax: maxWorkers, AuditWritable: e.audit.failingFile() == "",
	}
	s.Hooks, s.HooksInError = e.hookDirs.count()
	if current := e.config.core.Load(); current != nil {
		s.CDI, _ = deadline.Run(e.scrapes, scrapeTimeout, func() (*cdi.Stats, error) {
			size := current.engine.Registry().Snapshot().Stats()
			return &size, nil
		})
	}
	staged, _ := deadline.Run(e.scrapes, scrapeTimeout, func() (sum staging.Stats, _ error) {
		for _, store := range e.state.openStores() {
			sum = sum.Add(store.Stats())
		}
		return sum, nil
	})
	s.Staged, s.Sockets = staged.Containers, staged.Sockets
	return s
}
