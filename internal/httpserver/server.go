// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"net/http"
	"time"
)

const (
	// listenRetry is the time between two attempts to listen.
	listenRetry = 2 * time.Second
	// closeTimeout is how long Close waits for a listener that hangs.
	closeTimeout = time.Second
)

// Options configure a Server.
type Options struct {
	Listen   func() (net.Listener, error)
	Handler  http.Handler
	MaxConns int
	// WriteTimeout bounds an answer; 0 stands for ten seconds.
	WriteTimeout time.Duration
	// Failed is called with the first error of listening or serving. The server tries again.
	Failed func(error)
}

// Server is an HTTP server that retries until it can listen.
type Server struct {
	opts  Options
	http  *http.Server
	tried chan struct{} // closed after the first attempt to listen
	quit  chan struct{}
	done  chan struct{}

	failed bool // Failed was called
}

// Start starts a server.
func Start(opts Options) *Server {
	if opts.WriteTimeout == 0 {
		opts.WriteTimeout = 10 * time.Second
	}
	s := &Server{opts: opts, tried: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
	s.http = &http.Server{
		Handler: opts.Handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: opts.WriteTimeout,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10,
	}
	go s.run()
	return s
}

// Wait returns after the first attempt to listen.
func (s *Server) Wait() { <-s.tried }

func (s *Server) run() {
	defer close(s.done)
	for attempt := 1; ; attempt++ {
		l, err := s.opts.Listen()
		if attempt == 1 {
			close(s.tried)
		}
		if err == nil {
			err = s.http.Serve(&limitedListener{Listener: l, limit: s.opts.MaxConns})
		}
		select {
		case <-s.quit:
			return
		default:
		}
		if !s.failed {
			s.failed = true
			s.opts.Failed(err)
		}
		select {
		case <-s.quit:
			return
		case <-time.After(listenRetry):
		}
	}
}

// Close ends the server, which may be nil. A server that hangs on its socket's directory ends
// with the process.
func (s *Server) Close() {
	if s == nil {
		return
	}
	close(s.quit)
	s.http.Close()
	select {
	case <-s.done:
	case <-time.After(closeTimeout):
	}
}
