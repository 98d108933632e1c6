// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"context"
	"os"
	"time"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// reconnectPause is the pause between two connection attempts.
	reconnectPause = 250 * time.Millisecond
	// startupTime is the time after which a restarted VPP has its bridge domains. VPP runs its
	// startup file two seconds after it begins to respond (startup_config_process), and has no
	// event for bridge domains.
	startupTime = 2300 * time.Millisecond
)

// Watch implements vswitch.Watcher. It holds a connection on which VPP reports deleted interfaces.
// A VPP that stops closes the connection, and has no ports when it starts again.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	return vswitch.WatchConnections(ctx, reconnectPause, func() { d.readEvents(ctx, changed) })
}

// readEvents calls changed after it connects, again after startupTime, for each interface that is
// deleted or set down, and when the connection ends.
func (d *Driver) readEvents(ctx context.Context, changed func()) {
	c, err := connect(ctx, d.Socket())
	if err != nil {
		return
	}
	defer c.close()
	request := wantInterfaceEventsMessage{Enable: 1, PID: uint32(os.Getpid())}
	if err := c.call(wantInterfaceEvents, new(retvalReply), request); err != nil {
		return
	}
	changed()
	defer changed()
	started := time.AfterFunc(startupTime, changed)
	defer started.Stop()
	_ = c.conn.SetDeadline(time.Time{})
	for {
		id, _, body, err := c.receiveReply()
		if err != nil {
			return
		}
		var event swInterfaceEventMessage
		if id != c.ids[swInterfaceEvent] {
			continue
		}
		if _, err := decode(body, &event); err != nil {
			return
		}
		// A connecting or disconnecting application changes only the link state.
		if event.Deleted || event.Flags&adminUp == 0 {
			changed()
		}
	}
}
