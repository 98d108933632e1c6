// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// AnyChange is what can change a file of a directory or the directory itself. IN_MODIFY
// is among it because truncate(2) announces nothing else.
const AnyChange = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
	unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// InotifyEvent is one event of an inotify descriptor, inotify(7).
type InotifyEvent struct {
	WD   int32
	Mask uint32
	Name []byte // without the NULs behind it, of the buffer; empty for the directory itself
}

// InotifyEvents are the events in what was read from an inotify descriptor, in order.
// One that is cut short, as the kernel writes none, is one that was lost: it comes as
// an overflow.
func InotifyEvents(buf []byte) iter.Seq[InotifyEvent] {
	return func(yield func(InotifyEvent) bool) {
		for len(buf) > 0 {
			if len(buf) < unix.SizeofInotifyEvent || len(buf)-unix.SizeofInotifyEvent < int(binary.NativeEndian.Uint32(buf[12:])) {
				yield(InotifyEvent{WD: -1, Mask: unix.IN_Q_OVERFLOW})
				return
			}
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
			ev := InotifyEvent{WD: int32(binary.NativeEndian.Uint32(buf)), Mask: binary.NativeEndian.Uint32(buf[4:]), Name: buf[unix.SizeofInotifyEvent:end]}
			if i := bytes.IndexByte(ev.Name, 0); i >= 0 {
				ev.Name = ev.Name[:i]
			}
			buf = buf[end:]
			if !yield(ev) {
				return
			}
		}
	}
}

// DrainInotify hands over the events that are queued at a non-blocking descriptor,
// read by way of buf. The queue is bounded (fs.inotify.max_queued_events, 16384 by
// default); a writer faster than this does not hold it here for ever.
func DrainInotify(fd int, buf []byte, f func(InotifyEvent)) {
	for range 1 << 12 {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for ev := range InotifyEvents(buf[:n]) {
			f(ev)
		}
		if n < len(buf)-unix.SizeofInotifyEvent-unix.NAME_MAX-1 {
			return // the kernel had no more than this
		}
	}
}

// Remote reports that a descriptor is of a file system that others can change behind
// the kernel's back, where inotify announces nothing.
func Remote(fd int) bool {
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
