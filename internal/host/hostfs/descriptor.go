// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// DescriptorPath returns a path to the file of a descriptor, for system calls that do not accept
// O_PATH descriptors. It refers to this file even if the file's name was reused.
func DescriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// SocketAddress returns an address for a socket at a path of this process. A path that is too long
// for an address becomes a path below the directory's descriptor, which done closes.
func SocketAddress(path string) (address string, done func(), err error) {
	if len(path) <= MaxSocketPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	return filepath.Join(DescriptorPath(fd), filepath.Base(path)), func() { unix.Close(fd) }, nil
}

// Flock applies flock(2) to a descriptor and retries when a signal interrupts the wait. The kernel
// releases the lock when the descriptor is closed.
func Flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// LockWithin takes the exclusive lock of a descriptor, waiting for at most the given time. If
// another process still holds the lock, the error is unix.EWOULDBLOCK.
func LockWithin(fd int, wait time.Duration) error {
	for end := time.Now().Add(wait); ; time.Sleep(2 * time.Millisecond) {
		if err := Flock(fd, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
	}
}

const selinuxXattr = "security.selinux"

// SELinuxLabel returns the label of a descriptor's file, or "".
func SELinuxLabel(fd int) string {
	label := make([]byte, 256)
	n, err := unix.Getxattr(DescriptorPath(fd), selinuxXattr, label)
	if err != nil {
		return ""
	}
	return string(bytes.TrimRight(label[:n], "\x00"))
}

// SELinuxEnabled reports whether SELinux is enabled.
func SELinuxEnabled() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// SetSELinuxLabel sets the label of a descriptor's file, unless the file has that label already.
func SetSELinuxLabel(fd int, label string) error {
	if SELinuxLabel(fd) == label {
		return nil
	}
	return unix.Setxattr(DescriptorPath(fd), selinuxXattr, []byte(label), 0)
}
