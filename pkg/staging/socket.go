// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// sourceFiles are the descriptors of the sockets and directories that a container's mounts are
// made from. Each was opened below its root and checked.
type sourceFiles struct {
	sockets, dirs []int // in the order of Container.Sockets and SocketDirs; -1 for none
}

func (o *sourceFiles) closeAll() {
	for _, list := range [][]int{o.sockets, o.dirs} {
		for _, fd := range list {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
}

// openSources opens the sources of the mounts that do not exist yet. It checks the sockets in
// ModeDirectory, too.
func (s *Store) openSources(c *Container, done *stageProgress) (_ *sourceFiles, err error) {
	o := &sourceFiles{}
	defer func() {
		if err != nil {
			o.closeAll()
		}
	}()
	for i := range c.Sockets {
		k := &c.Sockets[i]
		if i < done.boundSockets {
			o.sockets = append(o.sockets, -1)
			continue
		}
		fd, err := s.openForContainer(c, k)
		if k.Await && s.status.Mode == ModeMount && errdefs.IsNotFound(err) {
			fd, err = -1, s.holdSocket(c.SandboxID, k.hostPath())
		}
		if err != nil {
			return nil, withOrigin(k.From, err)
		}
		o.sockets = append(o.sockets, fd)
	}
	for i := range c.SocketDirs {
		d := &c.SocketDirs[i]
		if d.At == "" || s.status.Mode != ModeMount || done.directoryFilled {
			o.dirs = append(o.dirs, -1)
			continue
		}
		fd, err := s.openSocketDir(d)
		if err != nil {
			return nil, withOrigin(d.From, err)
		}
		o.dirs = append(o.dirs, fd)
	}
	return o, nil
}

// openSocketDir opens the directory that makeSocketDirs checked, and no other.
func (s *Store) openSocketDir(d *SocketDir) (int, error) {
	fd, err := openBelowRoot(s.host, d.Root, d.Rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	found, err := claims.IdentityOf(fd)
	if err == nil && found != d.identity {
		err = errdefs.ErrConflict.WithMessage(fmt.Sprintf("directory %q was replaced while the container was being created", filepath.Join(d.Root, d.Rel)))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openSocket opens the socket that is at its path now, below its root, and checks it on the
// descriptor.
func (s *Store) openSocket(k *Socket) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := openBelowRoot(s.host, k.Root, k.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = checkType(st.Mode, unix.S_IFSOCK, k.hostPath())
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// openForContainer opens a socket, claims it for the sandbox and grants the container's user
// access.
func (s *Store) openForContainer(c *Container, k *Socket) (int, error) {
	fd, st, err := s.openSocket(k)
	if errdefs.IsNotFound(err) {
		err = fmt.Errorf("%w; the vswitch has not created this socket yet: check its port", err)
	}
	if err != nil {
		return -1, err
	}
	if err = s.holdSocket(c.SandboxID, k.hostPath()); err == nil {
		err = s.grantAccess(c.SandboxID, c.ID, k, fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// bindDirs mounts the container's directories.
func (s *Store) bindDirs(c *Container, o *sourceFiles) error {
	dir := filepath.Join(s.containersDir(), c.ID)
	for _, d := range c.Dirs {
		if d.Scratch {
			uid, gid := c.scratchOwner(d.Path)
			if err := mountScratch(filepath.Join(dir, d.Path), uid, gid); err != nil {
				return err
			}
		}
	}
	for i := range c.SocketDirs {
		if o.dirs[i] < 0 {
			continue
		}
		if err := bindFD(o.dirs[i], filepath.Join(dir, c.SocketDirs[i].At), restrictedAttrs); err != nil {
			return withOrigin(c.SocketDirs[i].From, err)
		}
	}
	return nil
}

// bindSocket binds the socket of a descriptor at all its places. If the socket was unlinked
// since it was opened, it is lost and bound nowhere. A socket that is awaited has the descriptor
// -1, and placeholders.
func (s *Store) bindSocket(c *Container, k *Socket, fd int) (lost bool, err error) {
	dir := filepath.Join(s.containersDir(), c.ID)
	for i, at := range k.At {
		target := filepath.Join(dir, at)
		if err := createPlaceholder(target); err != nil {
			return false, err
		}
		if fd < 0 {
			continue
		}
		err := bindFD(fd, target, restrictedAttrs|unix.MOUNT_ATTR_RDONLY)
		if err == nil {
			continue
		}
		if !isUnlinked(fd) {
			return false, withOrigin(k.From, err)
		}
		// Otherwise one place would have the old socket, and another the new one.
		for _, at := range k.At[:i] {
			if err := unmountStack(filepath.Join(dir, at)); err != nil {
				return false, err
			}
		}
		return true, withOrigin(k.From, err)
	}
	return false, nil
}

// scratchOwner returns the user and group that own a scratch directory, -1 for the process's
// own.
func (c *Container) scratchOwner(dir string) (uid, gid int) {
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

// withOrigin puts the file and field that request something before an error.
func withOrigin(from string, err error) error {
	if err == nil || from == "" {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}

// openBelowRoot opens a path below a canonical socket root. It follows no symlink.
func openBelowRoot(host hostfs.Root, root, rel string, flags int) (int, error) {
	path := filepath.Join(root, rel)
	if !filepath.IsLocal(rel) {
		return -1, errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("open %q: it is not below %q", path, root))
	}
	return host.OpenNoSymlinks(path, flags)
}
