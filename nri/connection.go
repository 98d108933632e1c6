// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
)

// A container that is created while the plugin is not connected comes up without its
// devices. So the plugin tries the runtime's socket at a short and constant interval: a
// connect(2) that fails costs microseconds, and a doubling interval would keep the plugin
// away for as long as the runtime was.

const (
	// connectInterval is the time between two attempts to connect.
	connectInterval = 25 * time.Millisecond
	// maxRegisterDelay bounds the time between two attempts to register with a runtime
	// that accepts connections and refuses the plugin.
	maxRegisterDelay = time.Second
	// repeatWarningInterval is how often an unchanged failure is logged.
	repeatWarningInterval = time.Minute
)

// dialUntilConnected calls dial until it succeeds, and passes each failure to warn. It
// returns nil when ctx ends.
func dialUntilConnected(ctx context.Context, dial func() (net.Conn, error), warn func(error)) net.Conn {
	for ctx.Err() == nil {
		conn, err := dial()
		if err == nil {
			return conn
		}
		warn(err)
		wait(ctx, connectInterval)
	}
	return nil
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// connectToRuntime returns a connection to the NRI socket, or nil when ctx ends.
func (p *Plugin) connectToRuntime(ctx context.Context, warnings *connectionWarnings) net.Conn {
	socket := cmp.Or(p.opts.Socket, api.DefaultSocketPath)
	return dialUntilConnected(ctx, func() (net.Conn, error) { return p.drain.dial(socket) }, warnings.warn)
}

// connectionWarnings logs why there is no connection: when the reason changes, and once a
// minute while it stays.
type connectionWarnings struct {
	log    *logrus.Entry
	reason string
	logged time.Time
}

func (w *connectionWarnings) warn(err error) {
	reason := err.Error()
	if reason == w.reason && time.Since(w.logged) < repeatWarningInterval {
		return
	}
	w.reason, w.logged = reason, time.Now()
	w.log.WithField("hint", "is NRI on in the runtime's configuration? run `jackfield doctor`").Warnf("no connection to the runtime: %v", err)
}

// reset makes the next failure a new one.
func (w *connectionWarnings) reset() { w.reason = "" }
