// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"bufio"
	"context"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// connectPause is between two checks whether grout is back. A check is one connect(2).
	connectPause = 250 * time.Millisecond
	// streamPause is before grcli is started again after its event stream ended.
	streamPause = time.Second
	// settleTime is how long grcli takes at most to subscribe to events on a busy machine. It does not print when it
	// has subscribed, so what changed meanwhile is reported then.
	settleTime = 2 * time.Second
)

// Watch implements vswitch.Watcher. It reads the events of interfaces, a stream that "grcli events" prints until grout
// ends. So a restart, after which grout has no ports, is the end of one stream and the start of the next.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	return vswitch.WatchConnections(ctx, connectPause, func() {
		if d.accepts(ctx) {
			d.readEvents(ctx, changed)
			deadline.Sleep(ctx, streamPause)
		}
	})
}

// accepts reports whether a grout listens on the API socket.
func (d *Driver) accepts(ctx context.Context) bool {
	conn, err := vswitch.Dial(ctx, d.Socket())
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// readEvents runs "grcli events" until it ends. It calls changed at once, after settleTime, after each event that
// concerns one of Jackfield's ports, and when the stream ends.
func (d *Driver) readEvents(ctx context.Context, changed func()) {
	changed()
	defer changed()
	settled := time.AfterFunc(settleTime, changed)
	defer settled.Stop()
	cmd := d.command(ctx, "-s", d.Socket(), "events", "show", "type", "iface")
	// The kernel ends grcli when this process is killed. It goes by the thread that started grcli.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	stdout, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if concernsPort(lines.Text()) {
			changed()
		}
	}
	_ = cmd.Cancel() // after a line that is too long
	_ = cmd.Wait()
}

// concernsPort reports whether an event may mean that a port of Jackfield's is missing or different, or can be created
// now: grout's startup file creates the bridges some time after grout answers. A port is added by Jackfield, and goes
// up and down with the application.
func concernsPort(line string) bool {
	if strings.Contains(line, " type=bridge ") {
		return true
	}
	for _, action := range []string{" add: ", " up: ", " down: "} {
		if strings.Contains(line, action) {
			return false
		}
	}
	for word := range strings.FieldsSeq(line) {
		if name.IsPort(word) {
			return true
		}
	}
	return false
}
