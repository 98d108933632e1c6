// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// watchMask is what can change a spec file or the directory itself. IN_MODIFY is
// among it because truncate(2) announces nothing else.
const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
	unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

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

// event is one announcement. An overflow has wd -1.
type event struct {
	wd   int
	mask uint32
	name string
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
	if d.remote() {
		return -1, unix.EOPNOTSUPP
	}
	if err := w.open(); err != nil {
		return -1, err
	}
	// Through the descriptor, so that it is this inode and not what the path leads
	// to a moment later.
	return unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", d.fd), watchMask)
}

// remote tells that the directory is on a file system that others can change behind
// the kernel's back, where nothing is announced.
func (d *openDir) remote() bool {
	var st unix.Statfs_t
	if unix.Fstatfs(d.fd, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
	}
	return false
}

func (w *watcher) remove(wd int) {
	if w.fd >= 0 {
		// It fails when the kernel has ended the watch itself, which is as good.
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
	}
}

// drain hands over all events that are queued.
func (w *watcher) drain(f func(event)) {
	if w.fd < 0 {
		return
	}
	if w.buf == nil {
		w.buf = make([]byte, 16<<10)
	}
	// The queue is bounded (fs.inotify.max_queued_events, 16384 by default); a
	// writer faster than this loop must not hold it here for ever.
	for range 1 << 12 {
		n, err := unix.Read(w.fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for b := w.buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			size := int(binary.NativeEndian.Uint32(b[12:]))
			name := b[unix.SizeofInotifyEvent:][:size]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			f(event{
				wd:   int(int32(binary.NativeEndian.Uint32(b))),
				mask: binary.NativeEndian.Uint32(b[4:]),
				name: string(name),
			})
			b = b[unix.SizeofInotifyEvent+size:]
		}
		if n < len(w.buf)-unix.SizeofInotifyEvent-unix.NAME_MAX-1 {
			return // the kernel had no more than this
		}
	}
}
