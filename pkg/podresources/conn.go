// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// socketID tells a socket file from the one that replaces it when the kubelet
// restarts. Inode numbers are used again at once on some file systems; the
// change time is not.
type socketID struct {
	dev, ino uint64
	ctime    unix.Timespec
}

// conn is a connection to one socket file. Its fields but the atomic ones are
// guarded by Client.mu.
type conn struct {
	cc      *grpc.ClientConn
	id      socketID
	users   int
	retired bool // to be closed when the last user is done

	worked atomic.Bool // a call was answered over it
	noGet  atomic.Bool // the kubelet has no Get, or has it off
	dial   atomic.Pointer[error]
	line   atomic.Pointer[line] // the last that dial gave
}

// line takes note of how far a connection came, which grpc only puts into words.
type line struct {
	net.Conn
	heard atomic.Bool           // the other side has sent something
	broke atomic.Pointer[error] // the first that failed
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(true)
	}
	return n, l.note(err)
}

func (l *line) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	return n, l.note(err)
}

func (l *line) note(err error) error {
	if err != nil {
		l.broke.CompareAndSwap(nil, &err)
	}
	return err
}

// acquire gives a connection to the socket as it is now. The caller releases it.
func (c *Client) acquire(q question) (*conn, error) {
	st, err := c.host.Stat(c.socket)
	if err == nil {
		err = isSocket(st.Mode)
	}
	id := socketID{dev: uint64(st.Dev), ino: st.Ino, ctime: st.Ctim}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, q.fail(errdefs.ErrUnavailable, "", "the client is closed")
	}
	if c.conn != nil && (err != nil || c.conn.id != id) {
		c.retireLocked(c.conn)
	}
	if err != nil {
		return nil, q.file(err)
	}
	if c.conn == nil {
		k := &conn{id: id}
		// The target is a label only: the dialer knows the way. Opening the socket
		// below the host root keeps symlinks inside it and has no limit of 107 bytes.
		k.cc, err = grpc.NewClient("passthrough:///kubelet-pod-resources",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				nc, err := dialSocket(ctx, c.host, c.socket)
				k.dial.Store(&err)
				if err != nil {
					return nil, err
				}
				l := &line{Conn: nc}
				k.line.Store(l)
				return l, nil
			}),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxAnswer)),
			grpc.WithMaxHeaderListSize(64<<10),
			grpc.WithAuthority("localhost"),
			grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(),
			// Idle connections are closed whole, goroutines and all, by this package.
			grpc.WithIdleTimeout(0),
		)
		if err != nil {
			return nil, q.fail(errdefs.ErrUnavailable, "", "%v", err)
		}
		c.conn = k
	}
	c.conn.users++
	c.idle.Stop()
	return c.conn, nil
}

// retireLocked makes the next question connect anew; a connection in use is
// closed by its last user.
func (c *Client) retireLocked(k *conn) {
	if c.conn == k {
		c.conn = nil
	}
	k.retired = true
	if k.users == 0 {
		c.closeLocked(k)
	}
}

// release gives a connection back; a broken one is not used again.
func (c *Client) release(k *conn, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.users--
	switch {
	case broken || k.retired:
		c.retireLocked(k)
	case k.users == 0:
		c.idle.Reset(c.opts.IdleTimeout)
	}
}

// closeIdle runs when the connection has had no user for a while.
func (c *Client) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.users == 0 {
		c.retireLocked(c.conn)
	}
}

// closeLocked closes in the background: saying goodbye to a hung kubelet takes time.
func (c *Client) closeLocked(k *conn) {
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		k.cc.Close()
	}()
}

// dialSocket connects to the very file that it has looked at.
func dialSocket(ctx context.Context, host hostfs.Root, socket string) (net.Conn, error) {
	f, err := host.Open(socket, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if err := isSocket(st.Mode); err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

func isSocket(mode uint32) error {
	if mode&unix.S_IFMT == unix.S_IFSOCK {
		return nil
	}
	return fmt.Errorf("it is a %s, not a socket: %w", hostfs.TypeName(mode), errdefs.ErrInvalidArgument)
}
