// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// watch is an inotify descriptor for the names in one directory.
type watch struct {
	fd     int // -1 when there is none
	wd     int32
	active bool // wd watches the directory that was added last
	buf    []byte
}

const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watchLost are the events behind which the watch tells nothing any more.
const watchLost = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT

// add watches the open directory, and drops the events of what was watched
// before. The inotify descriptor is made once and kept, since freeing one makes
// the kernel wait.
func (w *watch) add(dirfd int) error {
	if w.fd < 0 {
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("make inotify descriptor: %w", err)
		}
		w.fd = fd
		w.buf = make([]byte, 64<<10)
	}
	// By way of the descriptor, the watch is on the very directory that is
	// listed afterwards, whatever its path leads to by now.
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", dirfd), watchMask)
	if err != nil {
		return fmt.Errorf("watch directory: %w", err)
	}
	w.wd, w.active = int32(wd), true
	for {
		_, err := unix.Read(w.fd, w.buf)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil // EAGAIN: nothing is left
		}
	}
}

// remove ends the watch of the current directory.
func (w *watch) remove() {
	if w.active {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(w.wd)) // gone by itself with the directory
		w.active = false
	}
}

func (w *watch) close() error {
	w.active = false
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// drain calls apply for each name that came or went before the call, in order.
// It is false when events were lost or the directory is gone; what came before
// has been applied then or not, and the directory must be listed again.
func (w *watch) drain(apply func(name string, there bool)) bool {
	// What is queued now is what happened before; what comes in meanwhile is for
	// the next time, so that a busy directory does not keep us here.
	queued, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ)
	if err != nil {
		return false
	}
	for queued > 0 {
		n, err := unix.Read(w.fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || !w.apply(w.buf[:n], apply) {
			return false
		}
		queued -= n
	}
	return true
}

func (w *watch) apply(events []byte, apply func(name string, there bool)) bool {
	for ev := range hostfs.InotifyEvents(events) {
		switch {
		case ev.Mask&unix.IN_Q_OVERFLOW != 0:
			return false
		case ev.WD != w.wd: // of a directory watched before
		case ev.Mask&watchLost != 0:
			w.active = w.active && ev.Mask&(unix.IN_IGNORED|unix.IN_UNMOUNT|unix.IN_DELETE_SELF) == 0
			return false
		case ev.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			apply(string(ev.Name), true)
		case ev.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			apply(string(ev.Name), false)
		}
	}
	return true
}
