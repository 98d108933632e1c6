// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// MaxAnswer is the longest answer that is read, in bytes.
const MaxAnswer = 64 << 20

// Get asks the daemon of a state directory. Where none answers the error is
// errdefs.ErrUnavailable; where the caller may not ask, errdefs.ErrPermissionDenied.
func Get(ctx context.Context, host hostfs.Root, stateDir string) (*Node, error) {
	path := Socket(stateDir)
	fail := func(err error) error {
		kind := error(errdefs.ErrUnavailable)
		if errors.Is(err, os.ErrPermission) {
			kind = errdefs.ErrPermissionDenied
		}
		return fmt.Errorf("ask jackfield-nri at %s: %w: %w", path, err, kind)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, host.Path(path))
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jackfield/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			return nil, fail(op.Err)
		}
		return nil, fail(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err != nil {
		return nil, fail(err)
	}
	if resp.StatusCode != http.StatusOK || len(data) > MaxAnswer {
		return nil, fail(fmt.Errorf("the answer is %s with %d bytes", resp.Status, len(data)))
	}
	var n Node
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fail(err)
	}
	return &n, nil
}

// dial connects by way of the directory's descriptor, so that a path that is too
// long for a socket's address can be asked, too.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) < 108 {
		return d.DialContext(ctx, "unix", path)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
	}
	defer unix.Close(fd)
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// Listener lets root and the user of this process in, and closes every other
// connection, whatever the mode of the socket says.
type Listener struct {
	Unix interface {
		net.Listener
		AcceptUnix() (*net.UnixConn, error)
	}
}

// Addr implements net.Listener.
func (l Listener) Addr() net.Addr { return l.Unix.Addr() }

// Close implements net.Listener.
func (l Listener) Close() error { return l.Unix.Close() }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Unix.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(c); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return c, nil
		}
		c.Close()
	}
}

// peer is the user at the other end, as it was when it connected (SO_PEERCRED).
func peer(c syscall.Conn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(cerr, err); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
