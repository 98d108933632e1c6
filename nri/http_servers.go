// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/httpserver"
	"github.com/jackfield/jackfield/internal/report/status"
)

const (
	maxConns       = 64 // to the metrics address
	maxStatusConns = 8
	// profileTimeout bounds a response of a server with CPU profiles.
	profileTimeout = 2 * time.Minute
)

// httpServers are the HTTP servers of the metrics address and of the status socket. They follow the
// configuration. A server that cannot listen logs the error and retries; containers do not wait for it.
type httpServers struct {
	*daemon
	endpoints *endpoints

	mu      sync.Mutex
	config  config.Metrics
	metrics *httpserver.Server // at metrics.listen; nil for none
	status  *httpserver.Server // at the status socket in the state directory
}

// followConfig starts the status server, and replaces the metrics server if its configuration changed.
func (s *httpServers) followConfig(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return
	}
	if s.status == nil {
		socket := status.Socket(cfg.StateDir)
		listen := func() (net.Listener, error) {
			l, err := httpserver.ListenUnix(s.host.Path(socket))
			if err != nil {
				return nil, err
			}
			return status.Listener{Listener: l}, nil
		}
		mux := s.endpoints.newMux(false)
		mux.HandleFunc("GET /status", s.endpoints.serveStatus)
		s.status = s.start(socket, listen, httpserver.Options{Handler: mux, MaxConns: maxStatusConns})
	}
	if s.config == cfg.Metrics {
		return
	}
	s.config = cfg.Metrics
	s.metrics.Close()
	s.metrics = nil
	if address := cfg.Metrics.Listen; address != "" {
		listen := func() (net.Listener, error) {
			if path, ok := strings.CutPrefix(address, config.UnixListen); ok {
				return httpserver.ListenUnix(s.host.Path(path))
			}
			return net.Listen("tcp", address)
		}
		opts := httpserver.Options{Handler: s.endpoints.newMux(cfg.Metrics.PProf), MaxConns: maxConns}
		if cfg.Metrics.PProf {
			opts.WriteTimeout = profileTimeout
		}
		s.metrics = s.start(address, listen, opts)
	}
}

// start starts a server. It returns when the server listens, unless the directory of its socket is
// unresponsive.
func (s *httpServers) start(
	address string, listen func() (net.Listener, error), opts httpserver.Options) *httpserver.Server {
	log := s.log.WithField("listen", address)
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

// close ends both servers. Requests in progress are dropped.
func (s *httpServers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Close()
	s.status.Close()
	s.metrics, s.status = nil, nil
}
