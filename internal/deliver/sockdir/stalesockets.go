// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"errors"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxStaleEntries bounds the entries of a directory, which its application creates, that are checked.
const maxStaleEntries = 256

// RemoveStaleSockets removes the sockets on which no process listens from an open directory, if it was created for the
// sandbox. The application of a killed container left them, and its successor could not create its own.
func (d *Dirs) RemoveStaleSockets(path, sandbox string, fd int) error {
	if created, err := d.IsCreated(path, sandbox, fd); err != nil || !created {
		return err
	}
	dir, err := os.Open(hostfs.DescriptorPath(fd))
	if err != nil {
		return err
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxStaleEntries) // none at the end of the directory
	for _, name := range names {
		if isStaleSocket(fd, name) {
			if err := unix.Unlinkat(fd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "remove stale socket", Path: filepath.Join(path, name), Err: err}
			}
		}
	}
	return nil
}

// isStaleSocket reports whether an entry is a socket on which no process listens. It opens the entry first, because the
// container can replace it.
func isStaleSocket(dirfd int, name string) bool {
	fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false
	}
	conn, err := net.Dial("unix", hostfs.DescriptorPath(fd))
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}
