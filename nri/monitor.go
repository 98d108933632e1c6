// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/status"
)

// monitor is what the plugin lets others see: the audit file, and the addresses
// that metrics, health and status are served at. It follows the configuration.
// What it cannot do (an address that is taken, a file that cannot be written) is
// logged and tried again; devices do not wait for it.
type monitor struct {
	p     *Plugin
	audit atomic.Pointer[auditFile]

	mu       sync.Mutex
	metrics  config.Metrics
	serving  *serving
	stateDir string
	status   *serving
	closed   bool
}

// apply puts a configuration into force.
func (m *monitor) apply(cfg *config.Config, w waits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	old := m.audit.Load()
	if was := pathOf(old); was != cfg.AuditLog.File {
		var file *auditFile
		if cfg.AuditLog.File != "" {
			file = openAudit(m.p.opts.Host, cfg.AuditLog.File, &m.p.counters, m.p.log)
		}
		m.audit.Store(file)
		if old != nil {
			go old.close()
		}
	}
	if m.stateDir != cfg.StateDir {
		// It changes only where the runtime hands over a configuration at the start.
		m.p.tracker.use(cfg.StateDir)
		if m.status != nil {
			m.status.close()
		}
		m.stateDir = cfg.StateDir
		mux := m.p.handler(false)
		mux.HandleFunc("GET /status", m.p.serveStatus)
		m.status = serve(m.p.log.WithField("listen", status.Socket(cfg.StateDir)), func() (net.Listener, error) {
			l, err := listenUnix(m.p.opts.Host.Path(status.Socket(cfg.StateDir)))
			if err != nil {
				return nil, err
			}
			return status.Listener{Unix: l}, nil
		}, mux, maxStatusConns, false, w)
	}
	if m.metrics != cfg.Metrics {
		if m.serving != nil {
			m.serving.close()
			m.serving = nil
		}
		m.metrics = cfg.Metrics
		if cfg.Metrics.Listen != "" {
			m.serving = serve(m.p.log.WithField("listen", cfg.Metrics.Listen), func() (net.Listener, error) { return listen(m.p.opts.Host, cfg.Metrics.Listen) },
				m.p.handler(cfg.Metrics.PProf), maxConns, cfg.Metrics.PProf, w)
		}
	}
}

func pathOf(a *auditFile) string {
	if a == nil {
		return ""
	}
	return a.path
}

func (m *monitor) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.serving != nil {
		m.serving.close()
		m.serving = nil
	}
	if m.status != nil {
		m.status.close()
		m.status = nil
	}
	if a := m.audit.Swap(nil); a != nil {
		a.close()
	}
}

// Reopen has the audit file opened anew: for SIGHUP, after a log was rotated.
func (p *Plugin) Reopen() {
	if a := p.monitor.audit.Load(); a != nil {
		a.reopen()
	}
}

// handler is what is served at the configured address.
func (p *Plugin) handler(profiles bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", p.serveMetrics)
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

const (
	maxConns       = 64
	maxStatusConns = 8
	againListen    = 2 * time.Second
)

// serving is a server that keeps trying to get its address.
type serving struct {
	srv  *http.Server
	quit chan struct{}
	done chan struct{}
}

func serve(log *logrus.Entry, open func() (net.Listener, error), h http.Handler, conns int, long bool, w waits) *serving {
	s := &serving{quit: make(chan struct{}), done: make(chan struct{})}
	s.srv = &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10, ErrorLog: nil,
	}
	if long {
		s.srv.WriteTimeout = 2 * time.Minute // a profile takes its time
	}
	opened := make(chan struct{})
	go func() {
		defer close(s.done)
		l, err := open()
		close(opened)
		for said := false; ; l, err = open() {
			if err == nil {
				log.WithField("address", l.Addr().String()).Debug("serving")
				err = s.srv.Serve(&limited{Listener: l, most: conns})
			}
			select {
			case <-s.quit:
				return
			default:
			}
			if !said {
				log.WithError(err).Error("cannot serve metrics, health or status; trying again")
				said = true
			}
			select {
			case <-s.quit:
				return
			case <-time.After(againListen):
			}
		}
	}()
	// It is there when this returns, unless its directory hangs.
	w.do(func() { <-opened })
	return s
}

func (s *serving) close() {
	close(s.quit)
	s.srv.Close()
	select {
	case <-s.done:
	case <-time.After(flushTime):
		// It hangs on its socket's directory, and ends with the process.
	}
}

// limited is a listener with a bound on its connections: of more the oldest is closed.
// Whoever keeps connections open keeps out nobody, least of all the kubelet, which
// kills a plugin whose health it cannot ask for.
type limited struct {
	net.Listener
	most int

	mu   sync.Mutex
	open []*limitedConn // the oldest first
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &limitedConn{Conn: c, of: l}
	l.mu.Lock()
	var oldest *limitedConn
	if len(l.open) >= l.most {
		oldest = l.open[0]
	}
	l.open = append(l.open, conn)
	l.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return conn, nil
}

type limitedConn struct {
	net.Conn
	of *limited
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.open, c); i >= 0 {
		c.of.open = slices.Delete(c.of.open, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
