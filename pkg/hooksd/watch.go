// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// watcher is a non-blocking inotify descriptor that nobody waits on: events stay
// in the kernel until a snapshot is asked for. It is used under the registry's
// lock.
type watcher struct {
	fd     int // -1 when there is none
	closed bool
	buf    []byte
}

func (w *watcher) close() error {
	w.closed = true
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// add watches the open directory fd. Where that cannot be, on a file system that
// announces nothing or when descriptors are used up, the directory is listed at
// each snapshot.
func (w *watcher) add(d *directory, fd int) {
	if w.closed || hostfs.Remote(fd) {
		w.remove(d)
		return
	}
	if w.fd < 0 {
		ifd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			d.wd = -1
			return
		}
		w.fd = ifd
	}
	// Through the descriptor, so that it is this inode and not what the path leads
	// to a moment later. The same inode has the same watch.
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", fd), hostfs.AnyChange)
	if err != nil {
		wd = -1
	}
	if d.wd >= 0 && d.wd != wd {
		w.remove(d)
	}
	d.wd = wd
}

func (w *watcher) remove(d *directory) {
	if w.fd >= 0 && d.wd >= 0 {
		// It fails when the kernel has ended the watch itself, which is as good.
		_, _ = unix.InotifyRmWatch(w.fd, uint32(d.wd))
	}
	d.wd = -1
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
