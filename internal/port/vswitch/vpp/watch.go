// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"context"
	"os"
	"time"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// reconnectPause is between two attempts to connect.
	reconnectPause = 250 * time.Millisecond
	// startupTime is when a VPP that has just started has its bridge domains. VPP carries out its startup file two
	// seconds after it begins to answer (startup_config_process), and has no event for a bridge domain.
	startupTime = 2300 * time.Millisecond
)

// Watch implements vswitch.Watcher. It holds a connection, on which VPP reports interfaces that are deleted. VPP closes
// it when it ends, and has no ports when it is back.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	return vswitch.WatchConnections(ctx, reconnectPause, func() { d.readEvents(ctx, changed) })
}

// readEvents calls changed after it connects and again after startupTime, for each interface that is deleted or set
// down, and when the connection ends.
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
		// An application that connects or disconnects changes the link alone.
		if event.Deleted || event.Flags&adminUp == 0 {
			changed()
		}
	}
}
