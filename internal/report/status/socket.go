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

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// maxAnswer is the longest answer that is read, in bytes.
const maxAnswer = 64 << 20

// Find is like Get, but tries several state directories and returns the status of the first daemon that responds. If
// none does, the error is about the first directory.
func Find(ctx context.Context, host hostfs.Root, stateDirs []string) (node *Node, err error) {
	for i, dir := range stateDirs {
		n, failed := Get(ctx, host, dir)
		if failed == nil {
			return n, nil
		}
		if i == 0 {
			err = failed
		}
	}
	return nil, err
}

// Get gets the status from the daemon of a state directory. Where no daemon answers the error is
// errdefs.ErrUnavailable; where the caller has no permission, errdefs.ErrPermissionDenied.
func Get(ctx context.Context, host hostfs.Root, stateDir string) (*Node, error) {
	path := Socket(stateDir)
	fail := func(err error) error {
		kind := error(errdefs.ErrUnavailable)
		if errors.Is(err, os.ErrPermission) {
			kind = errdefs.ErrPermissionDenied
		}
		return fmt.Errorf("ask jackfield-nri at %s: %w: %w", path, err, kind)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		address, done, err := hostfs.SocketAddress(host.Path(path))
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
		}
		defer done()
		return new(net.Dialer).DialContext(ctx, "unix", address)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jackfield/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			return nil, fail(op.Err)
		}
		return nil, fail(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fail(err)
	}
	if resp.StatusCode != http.StatusOK || len(data) > maxAnswer {
		return nil, fail(fmt.Errorf("found an answer of status %s and %d bytes", resp.Status, len(data)))
	}
	var n Node
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fail(err)
	}
	n.addRemedies()
	return &n, nil
}

// Listener is a listener of a UNIX socket that accepts connections of root and of this process's user, and closes all
// others, whatever the mode of the socket is.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if u, ok := c.(*net.UnixConn); ok {
			if peer, err := trust.Peer(u); err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid()) {
				return c, nil
			}
		}
		c.Close()
	}
}
