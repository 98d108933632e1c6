// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/retry"
)

// dialPause is the pause between two connection attempts while the listen queue is full. VPP's
// queue holds five connections.
const dialPause = 10 * time.Millisecond

// Dial connects to the UNIX socket of a switch. While the listen queue is full it retries until ctx ends.
func Dial(ctx context.Context, socket string) (conn net.Conn, err error) {
	err = retry.Every(dialPause).Retry(ctx, IsQueueFull, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", socket)
		return err
	})
	return conn, err
}

// IsQueueFull reports whether a connection failed because the listen queue of the socket was full.
func IsQueueFull(err error) bool { return errors.Is(err, unix.EAGAIN) }
