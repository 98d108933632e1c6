// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// watchMask is what can change a hook file or the directory itself. IN_MODIFY is
// among it because truncate(2) announces nothing else.
const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
	unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// overflow is the watch of an event that stands for lost ones.
const overflow = -2

// watcher is a non-blocking inotify descriptor that nobody waits on: events stay
// in the kernel until a snapshot is asked for. It is used under the registry's
// lock.
type watcher struct {
	fd     int // -1 when there is none
	closed bool
}

type event struct {
	wd   int
	mask uint32
	name string
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
	if w.closed || remote(fd) {
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
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", fd), watchMask)
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

// remote tells that the directory is on a file system that others can change
// behind the kernel's back, where nothing is announced.
func remote(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
	}
	return false
}

// drain hands over all events that are queued. The queue is bounded
// (fs.inotify.max_queued_events); a writer faster than this loop must not hold
// it here for ever.
func (w *watcher) drain(f func(event)) {
	if w.fd < 0 {
		return
	}
	var buf [16 << 10]byte
	for range 1 << 10 {
		n, err := unix.Read(w.fd, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			size := int(binary.NativeEndian.Uint32(b[12:]))
			name := b[unix.SizeofInotifyEvent:][:size]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			ev := event{wd: int(int32(binary.NativeEndian.Uint32(b))), mask: binary.NativeEndian.Uint32(b[4:]), name: string(name)}
			if ev.mask&unix.IN_Q_OVERFLOW != 0 {
				ev.wd = overflow
			}
			f(ev)
			b = b[unix.SizeofInotifyEvent+size:]
		}
	}
}
