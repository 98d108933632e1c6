// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// RemoveStaleSocket removes a port's socket on which no process listens, because the switch left it
// behind. A missing socket is no error. Another type of file, and a socket with a listener, are
// errors with errdefs.ErrAlreadyExists.
//
// The check opens the directory first, so that a replaced parent cannot redirect the removal.
func RemoveStaleSocket(host hostfs.Root, protocol Type, socket string) error {
	dir, err := host.Open(path.Dir(socket), unix.O_PATH|unix.O_DIRECTORY)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the directory of the port's socket: %w", err)
	}
	defer dir.Close()
	name := path.Base(socket)
	var st unix.Stat_t
	err = unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("inspect the port's socket %q: %w", socket, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return errdefs.ErrAlreadyExists.WithMessage(fmt.Sprintf("%q exists and is not a socket", socket))
	}
	network := "unix"
	if protocol == Memif {
		network = "unixpacket"
	}
	conn, err := net.Dial(network, "/proc/self/fd/"+strconv.Itoa(int(dir.Fd()))+"/"+name)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return errdefs.ErrAlreadyExists.WithMessage(fmt.Sprintf("another process listens on %q", socket))
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the socket %q that the switch left behind: %w", socket, err)
	}
	return nil
}
