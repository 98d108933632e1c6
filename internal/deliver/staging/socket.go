// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// openSocket opens the socket that is at its path now, below its root, and checks it on the
// descriptor.
func (s *Store) openSocket(k *edit.Socket) (int, error) {
	fd, err := sockdir.OpenBelowRoot(s.host, k.Root, k.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("%q is a %s: must be a socket", k.HostPath(), hostfs.TypeName(st.Mode)))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openForContainer opens a socket that the sandbox holds, and grants the container's user access.
func (s *Store) openForContainer(c *edit.Container, k *edit.Socket) (int, error) {
	fd, err := s.openSocket(k)
	if errdefs.IsNotFound(err) {
		err = fmt.Errorf("%w; the vswitch has not created this socket yet: check its port", err)
	}
	if err != nil {
		return -1, err
	}
	request := sockaccess.Request{Container: s.recordName(c.SandboxID, c.ID), Access: &k.Access}
	if err := s.rights.Grant(k.HostPath(), fd, []sockaccess.Request{request}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// stageSocketDir creates a socket directory, and mounts it at its place.
func (s *Store) stageSocketDir(c *edit.Container, d *edit.SocketDir) error {
	fd, err := s.makeSocketDir(c.SandboxID, d)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if c.Successor {
		if err := s.dirs.RemoveStaleSockets(filepath.Join(d.Root, d.Rel), c.SandboxID, fd); err != nil {
			return s.stagingError(c, edit.WithOrigin(d.From, err))
		}
	}
	if d.At == "" || s.status.Mode != ModeMount {
		return nil
	}
	err = s.locked(func() error { return bindFD(fd, filepath.Join(s.containersDir(), c.ID, d.At), restrictedAttrs) })
	if err != nil {
		return s.stagingError(c, edit.WithOrigin(d.From, err))
	}
	return nil
}

// maxMisses limits how often a socket that is missing is opened, a millisecond apart. maxLosses is
// the limit for a socket that was opened and disappeared before it was bound: each attempt is as
// likely to lose as the one before.
const maxMisses, maxLosses = 5, 100

// stageSocket binds a socket of the host at its places. A vswitch that is re-creating the socket
// gets some time.
func (s *Store) stageSocket(c *edit.Container, k *edit.Socket) error {
	for misses, losses := 0, 0; ; time.Sleep(time.Millisecond) {
		lost, err := s.openAndBindSocket(c, k)
		switch {
		case lost:
			losses++
		case errors.Is(err, unix.ENOENT):
			misses++
		default:
			return err
		}
		if misses == maxMisses || losses == maxLosses {
			return err
		}
	}
}

// openAndBindSocket opens the socket that is at its path now, and binds it at its places. It reports
// a socket as lost that disappeared in between.
func (s *Store) openAndBindSocket(c *edit.Container, k *edit.Socket) (lost bool, err error) {
	fd, err := s.openForContainer(c, k)
	switch {
	case err == nil:
		defer unix.Close(fd)
	case !k.Await || s.status.Mode != ModeMount || !errdefs.IsNotFound(err):
		return false, edit.WithOrigin(k.From, err)
	}
	if err := s.locked(func() error { return s.bindSocket(c, k, fd) }); err != nil {
		return isUnlinked(fd), s.stagingError(c, err)
	}
	return false, nil
}

// bindSocket binds the socket of a descriptor at all its places, in place of an older one. A socket
// that is awaited has the descriptor -1, and placeholders. In ModeDirectory every socket has
// placeholders: the runtime mounts on them. The lock is held.
func (s *Store) bindSocket(c *edit.Container, k *edit.Socket, fd int) error {
	dir := filepath.Join(s.containersDir(), c.ID)
	for _, at := range k.At {
		target := filepath.Join(dir, at)
		if err := createPlaceholder(target); err != nil {
			return err
		}
		if fd < 0 || s.status.Mode != ModeMount {
			continue
		}
		if err := bindFD(fd, target, restrictedAttrs|unix.MOUNT_ATTR_RDONLY); err != nil {
			return edit.WithOrigin(k.From, err)
		}
	}
	return nil
}

// scratchOwner returns the user who owns a scratch directory, nil for the process's own.
func scratchOwner(c *edit.Container, dir string) *edit.User {
	isIn := func(at string) bool { return strings.HasPrefix(at, dir+"/") }
	for i := range c.Sockets {
		if k := &c.Sockets[i]; k.Access.User != nil && slices.ContainsFunc(k.At, isIn) {
			return k.Access.User
		}
	}
	return nil
}
