// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/httpserver"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const (
	maxConns       = 64 // to the metrics address
	maxStatusConns = 8
	// profileTimeout bounds an answer where CPU profiles are served.
	profileTimeout = 2 * time.Minute
)

// servers are the HTTP servers and the audit file. They follow the configuration. What fails
// (an address that is in use, a file that cannot be written) is logged and tried again;
// containers do not wait for it.
type servers struct {
	p       *Plugin
	audit   atomic.Pointer[auditFile]
	scrapes *deadline.Pool // for what a scrape reads, which can hang

	mu      sync.Mutex
	config  config.Metrics
	metrics *httpserver.Server // at metrics.listen; nil without one
	status  *httpserver.Server // at the status socket in the state directory
}

// applyConfig applies a configuration.
func (s *servers) applyConfig(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p.closing.Err() != nil {
		return
	}
	s.applyAudit(cfg)
	if s.status == nil {
		mux := s.p.newHandler(false)
		mux.HandleFunc("GET /status", s.p.serveStatus)
		socket := status.Socket(cfg.StateDir)
		s.status = s.startServer(socket, httpserver.Options{Handler: mux, MaxConns: maxStatusConns, Listen: func() (net.Listener, error) {
			l, err := httpserver.ListenUnix(s.p.opts.Host.Path(socket))
			if err != nil {
				return nil, err
			}
			return status.Listener{Listener: l}, nil
		}})
	}
	if s.config == cfg.Metrics {
		return
	}
	s.config = cfg.Metrics
	s.metrics.Close()
	s.metrics = nil
	if address := cfg.Metrics.Listen; address != "" {
		opts := httpserver.Options{Handler: s.p.newHandler(cfg.Metrics.PProf), MaxConns: maxConns, Listen: func() (net.Listener, error) {
			if path, ok := strings.CutPrefix(address, config.UnixListen); ok {
				return httpserver.ListenUnix(s.p.opts.Host.Path(path))
			}
			return net.Listen("tcp", address)
		}}
		if cfg.Metrics.PProf {
			opts.WriteTimeout = profileTimeout
		}
		s.metrics = s.startServer(address, opts)
	}
}

// startServer starts a server, and returns when it listens, unless the directory of its socket is
// unresponsive.
func (s *servers) startServer(address string, opts httpserver.Options) *httpserver.Server {
	log, listen := s.p.log.WithField("listen", address), opts.Listen
	opts.Listen = func() (net.Listener, error) {
		l, err := listen()
		if err == nil {
			log.WithField("address", l.Addr().String()).Debug("serving")
		}
		return l, err
	}
	opts.Failed = func(err error) { log.WithError(err).Error("cannot serve metrics, health or status; trying again") }
	server := httpserver.Start(opts)
	waitAtStart(server.Wait)
	return server
}

func (s *servers) applyAudit(cfg *config.Config) {
	old := s.audit.Load()
	path := ""
	if old != nil {
		path = old.path
	}
	if path == cfg.AuditLog.File {
		return
	}
	var file *auditFile
	if cfg.AuditLog.File != "" {
		file = openAudit(s.p.opts.Host, cfg.AuditLog.File, s.p.counters, s.p.log)
	}
	s.audit.Store(file)
	if old != nil {
		go old.lines.Close()
	}
}

func (s *servers) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Close()
	s.status.Close()
	s.metrics, s.status = nil, nil
	if a := s.audit.Swap(nil); a != nil {
		a.lines.Close()
	}
}

// Reopen has the audit file reopened before the next line: for SIGHUP, after a log was rotated. A
// file that was renamed is noticed without.
func (p *Plugin) Reopen() {
	if a := p.servers.audit.Load(); a != nil {
		a.stale.Store(true)
	}
}

// newHandler returns what is served at the metrics address and at the status socket.
func (p *Plugin) newHandler(profiles bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(telemetry.NewGatherer(p.counters, p.takeSample), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", p.serveHealth)
	mux.HandleFunc("GET /readyz", p.serveReady)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// serveHealth reports whether the process can do its work. It answers 503 only where a restart
// can help: a rejected configuration would be rejected again, and an unresponsive directory
// would be unresponsive again.
func (p *Plugin) serveHealth(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	code := http.StatusOK
	if p.workers.Busy() >= maxWorkers {
		code = http.StatusServiceUnavailable
		fmt.Fprintf(&b, "workers: all %d are blocked on host file systems or sockets\n", maxWorkers)
	} else {
		fmt.Fprintln(&b, "workers: ok")
	}
	if cfg := p.ConfigStatus(); cfg.LastError != nil {
		fmt.Fprintf(&b, "config: generation %d is in force; a newer one is rejected: %s\n", cfg.Generation, cfg.Error)
	} else {
		fmt.Fprintf(&b, "config: ok, generation %d\n", cfg.Generation)
	}
	if a := p.servers.audit.Load(); a != nil && a.failing.Load() {
		fmt.Fprintf(&b, "audit: %s cannot be written\n", a.path)
	} else {
		fmt.Fprintln(&b, "audit: ok")
	}
	p.writeDirectories(&b)
	writeText(w, code, b.Bytes())
}

// serveReady answers 200 while the plugin is registered with the runtime, and names
// unresponsive directories: the plugin serves containers that do not need them.
func (p *Plugin) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !p.runtime.registered.Load() {
		writeText(w, http.StatusServiceUnavailable, []byte("not registered with the runtime\n"))
		return
	}
	b := bytes.NewBufferString("registered with the runtime\n")
	if len(p.config.dirs.Faults()) > 0 {
		p.writeDirectories(b)
	}
	writeText(w, http.StatusOK, b.Bytes())
}

// writeDirectories writes a line for each unresponsive directory, or one that all answer.
func (p *Plugin) writeDirectories(b *bytes.Buffer) {
	faults := p.config.dirs.Faults()
	for _, fault := range faults {
		fmt.Fprintf(b, "directories: %s\n", fault)
	}
	if len(faults) == 0 {
		fmt.Fprintln(b, "directories: ok")
	}
}

func writeText(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func (p *Plugin) serveStatus(w http.ResponseWriter, _ *http.Request) {
	node := p.nodeStatus()
	node.Sockets, node.SocketsError = p.listSockets()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(node)
}

// nodeStatus returns what "jackfield status" prints, without the sockets.
func (p *Plugin) nodeStatus() *status.Node {
	n := &status.Node{
		Version: version.String(), PID: os.Getpid(), Started: p.started.UTC(), Registered: p.runtime.registered.Load(), Runtime: p.runtime.info.Load(),
		Config: p.ConfigStatus().Config, Containers: p.containers.listStarted(), Missed: p.containers.listMissed(), Sandboxes: p.containers.listSandboxes(), Vswitches: p.ports.listStatus(),
	}
	if store := p.state.store.Load(); store != nil {
		st := store.Status()
		n.Staging, n.StagingReason, n.StagingReasonCode = string(st.Mode), st.Detail, string(st.Reason)
	}
	return n
}

// listSockets returns the sockets of running containers, or why they are not known.
func (p *Plugin) listSockets() ([]status.PlacedSocket, string) {
	placed, err := deadline.Run(p.servers.scrapes, scrapeTimeout, func() (all []staging.PlacedSocket, _ error) {
		for _, store := range p.state.openStores() {
			all = append(all, store.Sockets()...)
		}
		return all, nil
	})
	if err != nil {
		return nil, "a directory of the host is unresponsive"
	}
	sockets := make([]status.PlacedSocket, len(placed))
	for i, s := range placed {
		owner := cmp.Or(p.containers.recordOf(s.ContainerID), &status.Container{})
		sockets[i] = status.PlacedSocket{
			Namespace: owner.Namespace, Pod: owner.Pod, Container: owner.Container, ContainerID: s.ContainerID, Sandbox: s.SandboxID,
			Path: path.Join(engine.ContainerDir, s.At), HostPath: s.HostPath, State: string(s.State), Since: s.Since, Rebinds: s.Rebinds,
			Device: s.Identity.Device, Inode: s.Identity.Inode,
		}
	}
	slices.SortFunc(sockets, func(a, b status.PlacedSocket) int {
		return cmp.Or(cmp.Compare(a.Title(), b.Title()), cmp.Compare(a.Path, b.Path))
	})
	return sockets, ""
}

const (
	// scrapeTimeout is how long a scrape waits for an unresponsive directory.
	scrapeTimeout = 500 * time.Millisecond
	// maxScrapeWorkers bounds the goroutines of scrapes that unresponsive directories can
	// block.
	maxScrapeWorkers = 8
)

// takeSample returns the state that the metrics expose beside the counters. While a directory is
// unresponsive, the size of the CDI registry is nil, and the numbers of what is staged are 0.
func (p *Plugin) takeSample() *telemetry.Sample {
	build := version.Get()
	s := &telemetry.Sample{
		Node: *p.nodeStatus(), Version: build.Version, Commit: build.ShortCommit(), ConfigRefused: p.ConfigStatus().Failures,
		Workers: p.workers.Busy(), WorkersMax: maxWorkers, AuditWritable: true, Directories: p.config.dirs.Directories(),
	}
	s.Hooks, s.HooksInError = countHooks(p.config.hooks.Load())
	if a := p.servers.audit.Load(); a != nil {
		s.AuditWritable = !a.failing.Load()
	}
	if current := p.config.core.Load(); current != nil {
		s.CDI, _ = deadline.Run(p.servers.scrapes, scrapeTimeout, func() (*cdi.Stats, error) {
			size := current.engine.Registry().Snapshot().Stats()
			return &size, nil
		})
	}
	staged, _ := deadline.Run(p.servers.scrapes, scrapeTimeout, func() (sum staging.Stats, _ error) {
		for _, store := range p.state.openStores() {
			sum = sum.Add(store.Stats())
		}
		return sum, nil
	})
	s.Staged, s.Sockets = staged.Containers, staged.Sockets
	return s
}
