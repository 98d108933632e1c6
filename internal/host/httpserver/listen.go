// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// lossCheckInterval is the time between two checks that a socket is still in its place.
const lossCheckInterval = 2 * time.Second

// ListenUnix creates a socket to which only its owner can connect. It replaces a socket that an
// earlier process left behind, and nothing else: a socket with a listener is an error.
func ListenUnix(path string) (*UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("listen at %s: found a file that is not a socket; remove it or configure "+
				"another path: %w", path, errdefs.ErrAlreadyExists)
		}
		if err := removeStale(path); err != nil {
			return nil, err
		}
	}
	// A socket's mode before bind becomes its mode in the file system, so other users can never
	// connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	address, done, err := hostfs.SocketAddress(path)
	if err != nil {
		return nil, err
	}
	l, err := lc.Listen(context.Background(), "unix", address)
	done()
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	st, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &UnixListener{u, path, st}, nil
}

// removeStale removes a socket at which no process listens.
func removeStale(path string) error {
	address, done, err := hostfs.SocketAddress(path)
	if err != nil {
		return err
	}
	defer done()
	conn, err := net.DialTimeout("unix", address, time.Second)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("listen at %s: another process listens there; stop it or configure another path: %w", path,
			errdefs.ErrAlreadyExists)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// UnixListener removes its socket when it is closed, unless another process has replaced it.
type UnixListener struct {
	*net.UnixListener
	path string
	info os.FileInfo
}

// Accept implements net.Listener. It returns an error if another process removed or replaced the
// socket, because no client can connect any more.
func (s *UnixListener) Accept() (net.Conn, error) {
	for {
		if err := s.SetDeadline(time.Now().Add(lossCheckInterval)); err != nil {
			return nil, err
		}
		conn, err := s.UnixListener.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		if !s.isInPlace() {
			return nil, fmt.Errorf("listen at %s: another process removed the socket: %w", s.path, errdefs.ErrNotFound)
		}
	}
}

func (s *UnixListener) isInPlace() bool {
	st, err := os.Lstat(s.path)
	return err == nil && os.SameFile(st, s.info)
}

// Close implements net.Listener.
func (s *UnixListener) Close() error {
	if s.isInPlace() {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}
