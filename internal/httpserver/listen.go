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

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// ListenUnix creates a socket that only its owner can connect to. It replaces a socket that an
// earlier process left there, and nothing else.
func ListenUnix(path string) (*UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("listen at %s: found a file that is not a socket; remove it or configure another path: %w", path, errdefs.ErrAlreadyExists)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// The mode that a socket has before it is bound is its mode in the file system: at no
	// moment can others connect.
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

// UnixListener removes its socket when it is closed, unless another process has replaced it.
type UnixListener struct {
	*net.UnixListener
	path string
	info os.FileInfo
}

// Close implements net.Listener.
func (s *UnixListener) Close() error {
	if st, err := os.Lstat(s.path); err == nil && os.SameFile(st, s.info) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}
