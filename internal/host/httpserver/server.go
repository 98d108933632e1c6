// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/retry"
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
	// WriteTimeout bounds a response; 0 is ten seconds.
	WriteTimeout time.Duration
	// Failed is called with the first error of listening or serving. The server retries.
	Failed func(error)
}

// Server is an HTTP server that retries until it can listen.
type Server struct {
	opts    Options
	http    *http.Server
	tried   chan struct{} // closed after the first attempt to listen
	closing context.Context
	close   context.CancelFunc

	mu    sync.Mutex
	conns []net.Conn // open connections, the oldest first
}

// Start starts a server.
func Start(opts Options) *Server {
	s := &Server{opts: opts, tried: make(chan struct{})}
	s.closing, s.close = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: opts.Handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: cmp.Or(opts.WriteTimeout, 10*time.Second),
		IdleTimeout:  30 * time.Second, MaxHeaderBytes: 8 << 10, ConnState: s.limitConns,
	}
	go s.run()
	return s
}

// limitConns bounds the number of connections by closing the oldest one. So no client can exclude
// others by holding connections open. The kubelet in particular kills a plugin whose health it
// cannot check.
func (s *Server) limitConns(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns = append(s.conns, c)
		if len(s.conns) > s.opts.MaxConns {
			s.conns[0].Close()
			s.conns = s.conns[1:]
		}
	case http.StateClosed, http.StateHijacked:
		s.conns = slices.DeleteFunc(s.conns, func(open net.Conn) bool { return open == c })
	}
}

// Wait returns after the first attempt to listen.
func (s *Server) Wait() { <-s.tried }

func (s *Server) run() {
	var tried, failed sync.Once
	isTransient := func(err error) bool { return !errors.Is(err, http.ErrServerClosed) }
	_ = retry.Every(listenRetry).Retry(s.closing, isTransient, func() error {
		l, err := s.opts.Listen()
		tried.Do(func() { close(s.tried) })
		if err == nil {
			err = s.http.Serve(l)
		}
		if isTransient(err) {
			failed.Do(func() { s.opts.Failed(err) })
		}
		return err
	})
}

// Close ends the server, which can be nil. A server that hangs on its socket's directory ends with
// the process.
func (s *Server) Close() {
	if s == nil {
		return
	}
	s.close()
	_ = deadline.Within(closeTimeout, s.http.Close)
}
