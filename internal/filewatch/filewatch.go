// SPDX-License-Identifier: Apache-2.0

// Package filewatch notices that one file has changed, wherever the file is: a directory's events
// announce a change at once, and a check now and then finds what no event announces.
//
// Invariant: a change is reported once its directory is quiet, and at the latest after
// pollInterval.
package filewatch

import (
	"context"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/fswatch"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	// settleTime is how long a file's directory has to be quiet before the file is read, and
	// maxSettleTime how long the watch waits for that.
	settleTime, maxSettleTime = 50 * time.Millisecond, time.Second
	// pollInterval is how often the file is checked for changes without an event: on a
	// remote file system, or behind a symlink to another directory.
	pollInterval = 5 * time.Second
)

// Watch is the watch of one file.
type Watch struct {
	host   hostfs.Root
	file   string
	events chan struct{} // has one value after an event
	cancel context.CancelFunc
	done   chan struct{}
}

// Start calls changed at its start and whenever the file has changed. The file need not exist.
func Start(host hostfs.Root, file string, changed func()) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{host: host, file: file, events: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go w.run(ctx, changed)
	return w
}

// Close ends the watch, which may be nil. A watch that hangs on the file system ends with the
// process.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.cancel()
	_ = deadline.Within(maxSettleTime, func() error { <-w.done; return nil })
}

func (w *Watch) run(ctx context.Context, changed func()) {
	defer close(w.done)
	if watcher, err := fswatch.New(w.host, fswatch.Options{}); err == nil {
		defer watcher.Close()
		// What cannot be watched is still polled.
		_, _ = watcher.Add(w.host.Canonical(path.Dir(w.file)), "", fswatch.Written|fswatch.Removed|fswatch.Attributes, w.noteEvent)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var last unix.Stat_t
	for {
		st, _ := w.host.Stat(w.file) // zero where there is no file
		st.Atim = unix.Timespec{}    // reading the file changes it
		if st != last {
			last = st
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.events:
			w.settle(ctx)
		}
	}
}

// noteEvent takes the name of a directory entry that may have changed. Any name counts: the file of a ConfigMap
// is behind a symlink that the kubelet replaces.
func (w *Watch) noteEvent(string) {
	select {
	case w.events <- struct{}{}:
	default:
	}
}

// settle waits until the directory is quiet.
func (w *Watch) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxSettleTime)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(settleTime):
			return
		case <-w.events:
		}
	}
}
