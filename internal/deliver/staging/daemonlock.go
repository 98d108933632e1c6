// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// pidFile has the process ID of the daemon, for messages.
	pidFile = "daemon.pid"
	// daemonLockWait is how long a daemon waits for the end of its predecessor.
	daemonLockWait = 200 * time.Millisecond
)

// lockAsDaemon takes the lock of Options.Exclusive: each of two daemons would remove the containers of the other one.
// It locks the directory, which needs no write access: a daemon with a read-only state directory runs, and refuses
// containers with sockets.
func lockAsDaemon(dir, hostDir string) (lock int, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("lock state directory: %w", &os.PathError{Op: "open", Path: dir, Err: err})
	}
	file := filepath.Join(dir, pidFile)
	err = hostfs.LockWithin(fd, daemonLockWait)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errdefs.ErrConflict.WithMessage(fmt.Sprintf(
			"process %s is the daemon of state directory %s; stop it first, or set another stateDir", readPID(file), hostDir))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("lock state directory: %w", err)
	}
	writePID(file)
	return fd, nil
}

// writePID writes this process's ID to a file as far as that is possible.
func writePID(file string) {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Pwrite(fd, fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0)
}

// readPID returns the process ID in a file.
func readPID(file string) string {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "(unknown)"
	}
	defer unix.Close(fd)
	text := make([]byte, 16)
	n, _ := unix.Pread(fd, text, 0)
	pid := strings.TrimSpace(string(text[:max(n, 0)]))
	if _, err := strconv.Atoi(pid); err != nil {
		return "(unknown)"
	}
	return pid
}
