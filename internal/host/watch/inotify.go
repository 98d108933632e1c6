// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"

	"golang.org/x/sys/unix"
)

// inotifyEvent is one event of an inotify descriptor, inotify(7).
type inotifyEvent struct {
	WD   int32
	Mask uint32
	Name []byte // part of the buffer, without trailing NULs; empty for the directory itself
}

// inotifyEvents returns the events in a buffer from an inotify descriptor, in order. A truncated
// event, which the kernel never writes, counts as an overflow.
func inotifyEvents(buf []byte) iter.Seq[inotifyEvent] {
	return func(yield func(inotifyEvent) bool) {
		for len(buf) > 0 {
			if len(buf) < unix.SizeofInotifyEvent ||
				len(buf)-unix.SizeofInotifyEvent < int(binary.NativeEndian.Uint32(buf[12:])) {
				yield(inotifyEvent{WD: -1, Mask: unix.IN_Q_OVERFLOW})
				return
			}
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
			ev := inotifyEvent{WD: int32(binary.NativeEndian.Uint32(buf)), Mask: binary.NativeEndian.Uint32(buf[4:]),
				Name: buf[unix.SizeofInotifyEvent:end]}
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

// isRemote reports whether a descriptor belongs to a file system that other machines or processes
// can change without inotify events.
func isRemote(fd int) bool {
	remote := []uint32{
		unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC,
	}
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && slices.Contains(remote, uint32(st.Type))
}
