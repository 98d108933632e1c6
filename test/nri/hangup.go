// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// hangUp shuts down every connection that this process accepted on a socket path. The adaptation
// leaves them open when it stops; the exit of a real runtime closes them.
func hangUp(path string) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("hang up on NRI plugins: %w", err)
	}
	var errs []error
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A duplicate cannot be closed and reused by others meanwhile.
		fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			continue
		}
		if sa, err := unix.Getsockname(fd); err == nil {
			if un, ok := sa.(*unix.SockaddrUnix); ok && un.Name == path {
				if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil && !errors.Is(err, unix.ENOTCONN) {
					errs = append(errs, fmt.Errorf("hang up on NRI plugin: %w", err))
				}
			}
		}
		unix.Close(fd)
	}
	return errors.Join(errs...)
}
