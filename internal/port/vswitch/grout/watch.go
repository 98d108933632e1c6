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
	// connectPause is the pause between two checks whether grout is back. A check is one
	// connect(2).
	connectPause = 50 * time.Millisecond
	// streamPause is the pause before grcli is restarted if its event stream ended within that time.
	// Such a grcli cannot read the events of this grout.
	streamPause = time.Second
	// settleTime bounds the time that grcli takes to subscribe to events on a busy machine. grcli
	// does not report that it has subscribed, so Watch reports a change after this time.
	settleTime = 2 * time.Second
)

// Watch implements vswitch.Watcher. It reads the stream of interface events that "grcli events"
// prints until grout ends. A restarted grout has no ports; the end of the stream and the start of
// the next one report that.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	return vswitch.WatchConnections(ctx, connectPause, func() {
		if !d.accepts(ctx) {
			return
		}
		started := time.Now()
		if d.readEvents(ctx, changed); time.Since(started) < streamPause {
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

// readEvents runs "grcli events" until it ends. It calls changed immediately, after settleTime,
// after each event that concerns one of Jackfield's ports, and when the stream ends.
func (d *Driver) readEvents(ctx context.Context, changed func()) {
	changed()
	defer changed()
	settled := time.AfterFunc(settleTime, changed)
	defer settled.Stop()
	cmd := d.command(ctx, "-s", d.Socket(), "events", "show", "type", "iface")
	// The kernel kills grcli together with this process. Pdeathsig depends on the thread that
	// started grcli, so the goroutine must stay on it.
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
	_ = cmd.Cancel() // a line that exceeds the scanner's buffer also ends the loop
	_ = cmd.Wait()
}

// concernsPort reports whether an event can mean that one of Jackfield's ports is missing or
// different, or can now be created: grout's startup file creates the bridges some time after grout
// begins to respond. Events for added ports, and for links that go up and down with the
// application, are ignored.
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
