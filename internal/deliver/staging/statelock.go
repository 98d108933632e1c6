// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// stateLock is the lock of everything that mounts, unmounts, or tracks containers: the lock of this process, and, in a
// shared state directory, that of all processes.
type stateLock struct {
	mu   sync.Mutex
	file string // locked by all processes, "" if the state directory is not shared
}

// run runs f under the lock.
func (l *stateLock) run(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != "" {
		fd, err := openLocked(l.file, unix.O_CREAT, unix.LOCK_EX)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	return f()
}

// openLocked opens a file or directory with additional flags, and locks it.
func openLocked(file string, flags, how int) (int, error) {
	// Read-only: a file system with a file open for writing cannot be remounted read-only.
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: file, Err: err}
	}
	if err := hostfs.Flock(fd, how); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "lock", Path: file, Err: err}
	}
	return fd, nil
}
