// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// watcher is a non-blocking inotify descriptor that nobody waits on: events stay
// in the kernel until a snapshot is asked for. A rename is in the queue before
// it returns to the writer, so that what was renamed before is always seen.
type watcher struct {
	// mu keeps the descriptor open while queued looks at it; everything else runs
	// under the registry's lock, which Close takes too.
	mu  sync.RWMutex
	fd  int // -1 when there is none
	buf []byte
}

// open takes a descriptor, unless there is one already.
func (w *watcher) open() error {
	if w.fd >= 0 {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.fd = fd
	w.mu.Unlock()
	return nil
}

func (w *watcher) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// queued tells whether events wait.
func (w *watcher) queued() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.fd < 0 {
		return false
	}
	n, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ)
	return err != nil || n > 0
}

// add watches the open directory.
func (w *watcher) add(d *openDir) (int, error) {
	if hostfs.Remote(d.fd) {
		return -1, unix.EOPNOTSUPP
	}
	if err := w.open(); err != nil {
		return -1, err
	}
	// Through the descriptor, so that it is this inode and not what the path leads
	// to a moment later.
	return unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", d.fd), hostfs.AnyChange)
}

func (w *watcher) remove(wd int) {
	if w.fd >= 0 {
		// It fails when the kernel has ended the watch itself, which is as good.
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
	}
}

// drain hands over all events that are queued.
func (w *watcher) drain(f func(hostfs.InotifyEvent)) {
	if w.fd < 0 {
		return
	}
	if w.buf == nil {
		w.buf = make([]byte, 16<<10)
	}
	hostfs.DrainInotify(w.fd, w.buf, f)
}
