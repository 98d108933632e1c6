// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
)

// opened are the descriptors of what a container's mounts are made from, each
// opened below its root and looked at.
type opened struct {
	sockets, dirs []int // in the order of Container.Sockets and SocketDirs; -1 for none
}

func (o *opened) close() {
	for _, list := range [][]int{o.sockets, o.dirs} {
		for _, fd := range list {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
}

// openAll opens what the container's mounts are made from that are still to be made.
// Where mounts are not staged it looks at the sockets all the same.
func (s *Store) openAll(c *Container, done *progress) (_ *opened, err error) {
	o := &opened{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	for i := range c.Sockets {
		k := &c.Sockets[i]
		if i < done.sockets {
			o.sockets = append(o.sockets, -1)
			continue
		}
		fd, _, err := s.openSocket(c, k)
		if err != nil {
			return nil, asked(k.From, err)
		}
		o.sockets = append(o.sockets, fd)
	}
	for i := range c.SocketDirs {
		d := &c.SocketDirs[i]
		if d.At == "" || s.status.Mode != Mounts || done.filled {
			o.dirs = append(o.dirs, -1)
			continue
		}
		fd, err := s.openSocketDir(d)
		if err != nil {
			return nil, asked(d.From, err)
		}
		o.dirs = append(o.dirs, fd)
	}
	return o, nil
}

// openSocketDir opens the directory that makeSocketDirs checked, and no other.
func (s *Store) openSocketDir(d *SocketDir) (int, error) {
	fd, err := s.openIn(d.Root, d.Rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	found, err := claims.IdentityOf(fd)
	if err == nil && found != d.found {
		err = fmt.Errorf("directory %q was replaced while the container was being created: %w", filepath.Join(d.Root, d.Rel), errdefs.ErrConflict)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openSocket opens a socket below its root, checks it on the descriptor, records that the
// sandbox has it, and lets the container at it.
func (s *Store) openSocket(c *Container, k *Socket) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := s.openIn(k.Root, k.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("%w; the host side creates this socket, and has not yet: check the vswitch's port", err)
		}
		return -1, st, err
	}
	if st, err = isSocket(fd, k.path()); err == nil {
		err = s.holdSocket(c.SandboxID, k.path())
	}
	if err == nil {
		err = s.grantAccess(c.SandboxID, c.ID, k, fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// claimed reports whether some sandbox can write a directory on the way to the
// socket.
func (s *Store) claimed(k *Socket) bool { return s.claims.Claimants(k.path()).Any() }

// bindDirs makes the container's mounts of directories.
func (s *Store) bindDirs(c *Container, o *opened) error {
	dir := filepath.Join(s.containers(), c.ID)
	for _, d := range c.Dirs {
		if d.Scratch {
			uid, gid := c.owner(d.Path)
			if err := scratch(filepath.Join(dir, d.Path), uid, gid); err != nil {
				return err
			}
		}
	}
	for i := range c.SocketDirs {
		if o.dirs[i] < 0 {
			continue
		}
		if err := bind(o.dirs[i], filepath.Join(dir, c.SocketDirs[i].At), restricted); err != nil {
			return asked(c.SocketDirs[i].From, err)
		}
	}
	return nil
}

// bindSocket mounts the socket of a descriptor at all its places, or at none where it is
// lost: unlinked since it was opened.
func (s *Store) bindSocket(c *Container, k *Socket, fd int) (lost bool, err error) {
	dir := filepath.Join(s.containers(), c.ID)
	for i, at := range k.At {
		target := filepath.Join(dir, at)
		if err := placeholder(target); err != nil {
			return false, err
		}
		err := bind(fd, target, restricted|unix.MOUNT_ATTR_RDONLY)
		if err == nil {
			continue
		}
		if !gone(fd) {
			return false, asked(k.From, err)
		}
		// Else one place would have the old socket and another the new.
		for _, at := range k.At[:i] {
			if err := detach(filepath.Join(dir, at)); err != nil {
				return false, err
			}
		}
		return true, asked(k.From, err)
	}
	return false, nil
}

// owner is whose a directory for sockets is to be.
func (c *Container) owner(dir string) (uid, gid int) {
	for i := range c.Sockets {
		if a := &c.Sockets[i].Access; a.User != nil {
			for _, at := range c.Sockets[i].At {
				if strings.HasPrefix(at, dir+"/") {
					return int(a.User.UID), int(a.User.GID)
				}
			}
		}
	}
	return -1, -1
}

// bind mounts what a descriptor is of at target.
func bind(fd int, target string, attr uint64) error {
	tree, err := clone(fd, attr)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attach(tree, target, 0)
}

// bound is the inode that is mounted at target, a place of a socket; false when
// there is no socket.
func bound(target string) (inode, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(target, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return inode{}, false
	}
	return inode{uint64(st.Dev), st.Ino}, true
}

// inode tells one file from another while both exist, which a mount of it ensures.
type inode struct{ dev, ino uint64 }
