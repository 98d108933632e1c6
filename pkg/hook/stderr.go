// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Stderr is where an error is printed: standard error, or, where a runtime has that
// lead nowhere (crun does), the runtime's own, which is the terminal of whoever
// started the container.
func Stderr() io.Writer {
	var st unix.Stat_t
	null := unix.Mkdev(1, 3)
	if unix.Fstat(2, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != null {
		return os.Stderr
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(os.Getppid())+"/fd/2", unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		// A socket, or what is another user's: rootless Podman in a terminal of root's.
		fd, err = parentStderr()
	}
	if err != nil {
		return os.Stderr
	}
	return os.NewFile(uintptr(fd), "the runtime's standard error")
}

// parentStderr is the runtime's own descriptor, when something can be written to it at
// once: unlike one that is opened it may not be made non-blocking.
func parentStderr() (int, error) {
	parent, err := unix.PidfdOpen(os.Getppid(), 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	fd, err := unix.PidfdGetfd(parent, 2, 0)
	if err != nil {
		return -1, err
	}
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(ready, 0); err != nil || n != 1 || ready[0].Revents&unix.POLLOUT == 0 {
		unix.Close(fd)
		return -1, unix.EAGAIN
	}
	return fd, nil
}
