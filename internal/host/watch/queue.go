// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Queue collects the events of open directories until the caller drains them. It has no goroutine:
// the kernel queues an event before the system call that caused it returns. So Drain reports every
// change that was complete before the call of Drain.
//
// The zero value is ready for use. It opens its inotify descriptor at the first Add. A Queue is
// safe for concurrent use.
type Queue struct {
	mu     sync.Mutex
	fd     int  // inotify descriptor, non-blocking
	open   bool // fd is open
	closed bool
	buf    []byte
}

// Event is a change in a watched directory.
type Event struct {
	Dir  int    // the ID that Add returned, or AllDirs
	Name string // name of the entry, "" for the directory itself
	Gone bool   // the entry was removed or renamed away
	// Lost is set if the caller must open and list the directory again, because it was removed or
	// moved, or the kernel dropped events.
	Lost bool
	// Ended is set if the kernel ended the watch. No further event follows.
	Ended bool
}

// AllDirs is the Dir of an event that concerns every watched directory.
const AllDirs = -1

// The events of a directory that a Queue can report.
const (
	// Names reports entries that appear and disappear.
	Names = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// Contents additionally reports entries that are written or whose attributes change. It
	// includes IN_MODIFY, because truncate(2) causes no other event.
	Contents = Names | unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_ATTRIB
)

// Add watches an open directory for Names or Contents and returns its ID. A directory keeps one ID
// regardless of how often it is added. Callers add a directory before they list it, so that no
// change is missed in between.
//
// A directory on a file system without events is errdefs.ErrNotImplemented.
func (q *Queue) Add(dirfd int, mask uint32) (id int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return -1, os.ErrClosed
	}
	if isRemote(dirfd) {
		return -1, errdefs.ErrNotImplemented.WithMessage("the file system does not announce changes")
	}
	if !q.open {
		if q.fd, err = openInotify(); err != nil {
			return -1, err
		}
		q.open = true
	}
	wd, err := unix.InotifyAddWatch(q.fd, hostfs.DescriptorPath(dirfd), mask)
	if err != nil {
		return -1, fmt.Errorf("watch directory: %w", err)
	}
	return wd, nil
}

// Remove ends a watch. It accepts an ID whose watch has ended.
func (q *Queue) Remove(id int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open {
		_, _ = unix.InotifyRmWatch(q.fd, uint32(id))
	}
}

// Drain calls report for every queued event, in order. Later events are left for the next call, so
// that a busy directory does not block the caller. report must not call the Queue.
func (q *Queue) Drain(report func(Event)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open {
		return
	}
	if q.buf == nil {
		q.buf = make([]byte, 16<<10)
	}
	lost := Event{Dir: AllDirs, Lost: true}
	queued, err := unix.IoctlGetInt(q.fd, unix.TIOCINQ)
	if err != nil {
		report(lost)
		return
	}
	for queued > 0 {
		n, err := unix.Read(q.fd, q.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			report(lost)
			return
		}
		for ev := range inotifyEvents(q.buf[:n]) {
			report(eventOf(ev))
		}
		queued -= n
	}
}

func eventOf(ev inotifyEvent) Event {
	if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
		return Event{Dir: AllDirs, Lost: true}
	}
	return Event{
		Dir: int(ev.WD), Name: string(ev.Name),
		Gone:  ev.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0,
		Lost:  ev.Mask&directoryGone != 0,
		Ended: ev.Mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0,
	}
}

// Close ends all watches. Later calls of Add are os.ErrClosed.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if !q.open {
		return nil
	}
	q.open = false
	return unix.Close(q.fd)
}

// openInotify opens an inotify descriptor, non-blocking.
func openInotify() (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open inotify descriptor: %w (fs.inotify.max_user_instances limits how many a user has)",
			err)
	}
	return fd, nil
}
