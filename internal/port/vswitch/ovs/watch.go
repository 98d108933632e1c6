// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"time"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// reconnectDelay is the pause between two attempts to connect. A failed attempt is a single system call.
const reconnectDelay = 200 * time.Millisecond

// Watch implements vswitch.Watcher.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	return vswitch.WatchConnections(ctx, reconnectDelay, func() { d.watchConnection(ctx, changed) })
}

// watchConnection calls changed once the server has accepted the monitor, after each message of the
// server, and when the connection ends. Each call makes the caller list the ports, so no change is
// missed.
func (d *Driver) watchConnection(ctx context.Context, changed func()) {
	c, disconnect, err := d.connect(ctx)
	if err != nil {
		return
	}
	defer disconnect()
	late := time.AfterFunc(callTimeout, disconnect)
	_, err = c.call("monitor_cond", []any{database, "jackfield", monitorRequests()})
	late.Stop()
	if err != nil {
		return
	}
	defer changed()
	for err == nil {
		changed()
		_, err = c.receive()
	}
}

// monitorRequests requests changes of marked ports, of bridges, and of DPDK's state.
func monitorRequests() map[string]any {
	request := func(columns []string, where ...condition) any {
		r := map[string]any{"columns": columns, "select": map[string]bool{"initial": false}}
		if where != nil {
			r["where"] = where
		}
		return []any{r}
	}
	mark := condition{"external_ids", "includes", stringMap{managedKey: "true"}}
	return map[string]any{
		"Port": request([]string{"name", "tag", "interfaces", "external_ids"}, mark),
		"Interface": request([]string{"type", "options", "mtu_request", "ingress_policing_rate", "external_ids",
			"ofport", "error"}, mark),
		"Bridge":       request([]string{"name", "datapath_type"}),
		"Open_vSwitch": request([]string{"dpdk_initialized"}),
	}
}
