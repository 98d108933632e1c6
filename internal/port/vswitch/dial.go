// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
)

// dialPause is the pause between two connection attempts while the listen queue is full. VPP's
// queue holds five connections.
const dialPause = 10 * time.Millisecond

// Dial connects to the UNIX socket of a switch. While the listen queue is full it retries until ctx
// ends.
func Dial(ctx context.Context, socket string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if !errors.Is(err, unix.EAGAIN) || ctx.Err() != nil {
			return conn, err
		}
		deadline.Sleep(ctx, dialPause)
	}
}
