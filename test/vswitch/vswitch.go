// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Kind is the type of a socket.
type Kind string

const (
	// VhostUser is a stream socket, as vhost-user uses.
	VhostUser Kind = "unix"
	// Memif is a sequential-packet socket, as memif uses.
	Memif Kind = "unixpacket"
)

// Server listens on a Unix socket and answers every connection with one line.
type Server struct {
	path     string
	kind     Kind
	reply    string
	listener *net.UnixListener
	answered atomic.Int64
	done     sync.WaitGroup
}

// Greeting is the line that a vswitch of that name answers with.
func Greeting(name string) string { return "hello from " + name }

// Listen creates the socket path, "@name" for an abstract one, and answers
// every connection with reply and a newline. Like a real vswitch it first
// removes a socket that an earlier run left there, but nothing else.
// The caller has to Close it.
func Listen(kind Kind, path, reply string) (*Server, error) {
	if !strings.HasPrefix(path, "@") {
		fi, err := os.Lstat(path)
		switch {
		case err == nil && fi.Mode().Type() != fs.ModeSocket:
			return nil, fmt.Errorf("listen on %q: a file that is no socket is in the way", path)
		case err == nil:
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("listen on %q: %w", path, err)
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("listen on %q: %w", path, err)
		}
	}
	l, err := net.ListenUnix(string(kind), &net.UnixAddr{Name: path, Net: string(kind)})
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	s := &Server{path: path, kind: kind, reply: reply, listener: l}
	s.done.Go(s.serve)
	return s, nil
}

// Path returns the socket's path.
func (s *Server) Path() string { return s.path }

// Answered returns how many connections got the whole answer.
func (s *Server) Answered() int { return int(s.answered.Load()) }

// Close stops the server and removes its socket.
func (s *Server) Close() error { return s.stop(true) }

// Crash stops the server and leaves its socket behind, as a killed vswitch does.
func (s *Server) Crash() error { return s.stop(false) }

func (s *Server) stop(unlink bool) error {
	s.listener.SetUnlinkOnClose(unlink)
	err := s.listener.Close()
	s.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) serve() {
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.done.Go(func() {
			defer c.Close()
			// A peer that does not read must not outlive the server for long.
			if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				return
			}
			if _, err := c.Write([]byte(s.reply + "\n")); err == nil {
				s.answered.Add(1)
			}
		})
	}
}

// Ask connects to a socket of either kind and returns the line it answers
// with, without the newline. A dead socket gives ECONNREFUSED.
func Ask(ctx context.Context, path string) (string, error) {
	answer, err := ask(ctx, VhostUser, path)
	// The kernel looks up an abstract name by type, so connecting with the other type fails as on a
	// dead socket.
	abstract := strings.HasPrefix(path, "@")
	if errors.Is(err, syscall.EPROTOTYPE) || abstract && errors.Is(err, syscall.ECONNREFUSED) {
		answer, err = ask(ctx, Memif, path)
	}
	return answer, err
}

func ask(ctx context.Context, kind Kind, path string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, string(kind), path)
	if err != nil {
		return "", fmt.Errorf("connect to %q: %w", path, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	// A packet socket truncates what does not fit into the first read, so one read of the whole
	// answer serves both kinds.
	buf := make([]byte, 4096)
	n := 0
	for n < len(buf) && !strings.HasSuffix(string(buf[:n]), "\n") {
		m, err := c.Read(buf[n:])
		n += m
		if errors.Is(err, io.EOF) || m == 0 {
			break
		}
		if err != nil {
			return "", fmt.Errorf("read from %q: %w", path, err)
		}
	}
	if n == 0 {
		return "", fmt.Errorf("read from %q: no answer: %w", path, io.ErrUnexpectedEOF)
	}
	return strings.TrimSuffix(string(buf[:n]), "\n"), nil
}
