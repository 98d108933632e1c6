// SPDX-License-Identifier: Apache-2.0

// Package filewatch notices that one file has changed, wherever the file is: also on a remote file system,
// and behind a symlink to another directory.
//
// Invariant: a change is reported once the file has stayed the same for pollInterval, so that no half
// of a write is read.
package filewatch

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// pollInterval is how often the file is checked.
	pollInterval = 500 * time.Millisecond
	// closeTimeout is how long Close waits for the watch.
	closeTimeout = time.Second
)

// Watch is the watch of one file.
type Watch struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start calls changed for the file that is there, and whenever it has changed or is removed. The file need
// not exist.
func Start(host hostfs.Root, file string, changed func()) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		pollFile(ctx, host, file, changed)
	}()
	return w
}

// Close ends the watch, which may be nil. A watch that hangs on the file system ends with the
// process.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.cancel()
	_ = deadline.Within(closeTimeout, func() error { <-w.done; return nil })
}

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

// statOf returns the stat of a file without what reading it changes, zero where there is no file.
func statOf(host hostfs.Root, file string) unix.Stat_t {
	st, _ := host.Stat(file)
	st.Atim = unix.Timespec{}
	return st
}
