// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// NRISocket is the default NRI socket of containerd and CRI-O.
const NRISocket = "/var/run/nri/nri.sock"

// IsSocketBound reports whether a process has a socket open. It connects a datagram socket: the
// kernel rejects the wrong type before the listener notices, so that the runtime does not log a
// plugin that failed to register.
func IsSocketBound(host hostfs.Root, file string) (bool, error) {
	f, err := host.Open(file, unix.O_PATH)
	if err != nil {
		return false, err
	}
	defer f.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	// Connect by descriptor, because a path below the root can exceed a socket address.
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: hostfs.DescriptorPath(int(f.Fd()))}); err {
	case unix.EPROTOTYPE:
		return true, nil
	case unix.ECONNREFUSED:
		return false, nil
	case nil:
		return false, fmt.Errorf("connect to %q: a datagram socket: must be a stream socket: %w", file,
			errdefs.ErrInvalidArgument)
	default:
		return false, &os.PathError{Op: "connect", Path: file, Err: err}
	}
}
