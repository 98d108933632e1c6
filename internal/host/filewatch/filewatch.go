// SPDX-License-Identifier: Apache-2.0

// Package filewatch detects changes of one file, even on a remote file system or behind a symlink
// to another directory. inotify reports neither, so it polls.
//
// Invariant: a change is reported once the file has been stable for pollInterval, so that no
// partial write is read.
package filewatch

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// pollInterval is the time between two checks of the file.
	pollInterval = 500 * time.Millisecond
	// closeTimeout bounds the time that Close waits for the watch.
	closeTimeout = time.Second
)

// Watch is the watch of one file.
type Watch struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start calls changed for the current file, and whenever the file has changed or is removed. The
// file need not exist.
func Start(host hostfs.Root, file string, changed func()) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		pollFile(ctx, host, file, changed)
	}()
	return w
}

// Close ends the watch, which can be nil. A watch that hangs on the file system ends with the
// process.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.cancel()
	_ = deadline.Within(closeTimeout, func() error { <-w.done; return nil })
}

// pollFile calls changed when the file has changed and then stays the same for one interval: its writer has finished.
func pollFile(ctx context.Context, host hostfs.Root, file string, changed func()) {
	var reported unix.Stat_t
	seen := statOf(host, file)
	for {
		st := statOf(host, file)
		if st == seen && st != reported {
			reported = st
			changed()
		}
		seen = st
		deadline.Sleep(ctx, pollInterval)
		if ctx.Err() != nil {
			return
		}
	}
}

// statOf returns the stat of a file without the fields that reading changes. It is zero for a
// missing file.
func statOf(host hostfs.Root, file string) unix.Stat_t {
	st, _ := host.Stat(file)
	st.Atim = unix.Timespec{}
	return st
}
