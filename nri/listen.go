// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// listen opens HOST:PORT or unix:PATH.
func listen(host hostfs.Root, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, config.UnixListen); ok {
		return listenUnix(host.Path(path))
	}
	return net.Listen("tcp", address)
}

// listenUnix makes a socket that nobody but its owner can connect to and puts it in
// the place of what an earlier process left there. Anything but a socket stays.
func listenUnix(path string) (*ownSocket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen at %s: found something else than a socket; remove it or configure another path: %w", path, errdefs.ErrAlreadyExists)
	}
	// The mode that a socket has before it is bound is the one that it gets in the
	// file system: there is no moment at which others can connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	address, done, err := short(tmp)
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
	st, err := os.Lstat(tmp)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(tmp))
	}
	return &ownSocket{u, path, st}, nil
}

// maxSocket is the longest path of a socket, in bytes: sun_path without its NUL.
const maxSocket = 107

// short is a path by which the socket of a path can be made that is too long for a
// socket's address: below the directory's descriptor, which done closes.
func short(path string) (address string, done func(), err error) {
	if len(path) <= maxSocket {
		return path, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)), func() { unix.Close(fd) }, nil
}

// ownSocket removes its socket when it closes, unless another process has put its
// own there.
type ownSocket struct {
	*net.UnixListener
	path string
	info os.FileInfo
}

// Close implements net.Listener.
func (s *ownSocket) Close() error {
	if st, err := os.Lstat(s.path); err == nil && os.SameFile(st, s.info) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}
