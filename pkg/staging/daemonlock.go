// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	// daemonFile is locked by the daemon of the state directory, and has its process ID.
	daemonFile = "daemon.lock"
	// daemonLockWait is how long a daemon waits for the end of its predecessor.
	daemonLockWait = 200 * time.Millisecond
)

// lockAsDaemon takes the lock of Options.Exclusive until Close: two daemons would remove what the other one
// keeps.
func (s *Store) lockAsDaemon() error {
	if !s.opts.Exclusive {
		return nil
	}
	file := filepath.Join(s.dir, daemonFile)
	// A descriptor for writing would keep the file system from being mounted read-only.
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("lock state directory: %w", &os.PathError{Op: "open", Path: file, Err: err})
	}
	err = hostfs.LockWithin(fd, daemonLockWait)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errdefs.ErrConflict.WithMessage(fmt.Sprintf("process %s is the daemon of state directory %s; stop it first, or set another stateDir", readPID(fd), s.hostDir))
	} else if err == nil {
		err = writePID(file)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("lock state directory: %w", err)
	}
	s.daemonLock = fd
	return nil
}

// writePID writes this process's ID to the file of a lock that it holds. The ID is for messages only.
func writePID(file string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// readPID returns the process ID in the file of a lock.
func readPID(fd int) string {
	text := make([]byte, 16)
	n, _ := unix.Pread(fd, text, 0)
	pid := strings.TrimSpace(string(text[:max(n, 0)]))
	if _, err := strconv.Atoi(pid); err != nil {
		pid = ""
	}
	return cmp.Or(pid, "(unknown)")
}
