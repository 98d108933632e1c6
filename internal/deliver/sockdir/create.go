// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Create claims a directory for a sandbox, creates it if it is missing, and opens it. Unless size is 0 or mounts made
// there do not reach the host, a tmpfs of size bytes limits it. The caller creates one directory of a sandbox at a
// time.
func (d *Dirs) Create(h Holder, want *edit.SocketDir, size uint64) (fd int, err error) {
	rel := filepath.Clean(want.Rel)
	if !isLocal(rel) {
		return -1, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("%q is not below %q", want.Rel, want.Root))
	}
	dir := filepath.Join(want.Root, rel)
	c, fresh, err := d.claim(dir, h, false)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil && fresh {
			err = errors.Join(err, d.abandon(dir, h))
		}
	}()
	w := &walk{dirs: d, dir: dir, by: h, claim: c}
	found, created, err := w.open(want.Root, rel)
	if err != nil {
		return -1, err
	}
	if created {
		fd, err = d.finish(dir, found, w.creation, want.Access.User, size)
	} else {
		fd, err = d.reopen(dir, found, &w.claim, want, size)
	}
	if err != nil || fd != found {
		unix.Close(found)
	}
	return fd, err
}

// abandon removes the directories of a failed creation and releases the claim.
func (d *Dirs) abandon(dir string, h Holder) error {
	c, err := d.readClaim(dir)
	if err != nil {
		return err
	}
	if err := d.removeCreated([]namedClaim{{nameOfDirectory(dir), c}}, h); err != nil {
		return err
	}
	return d.ReleaseDirectory(dir, h)
}

// finish finishes a directory that was created just now. It returns the descriptor of the directory, or of the root of
// the tmpfs that it mounts there.
func (d *Dirs) finish(dir string, fd int, made creation, owner *edit.User, size uint64) (int, error) {
	if owner != nil {
		if err := unix.Fchown(fd, int(owner.UID), int(owner.GID)); err != nil {
			return -1, err
		}
	}
	limited, err := d.isLimited(dir, size)
	if err != nil {
		return -1, err
	}
	if !limited {
		size = 0
	}
	return d.limit(dir, fd, made, size)
}

// reopen returns a descriptor of an existing directory, if the sandbox can have it.
func (d *Dirs) reopen(dir string, fd int, c *claim, want *edit.SocketDir, size uint64) (int, error) {
	id, err := hostfs.IDOf(fd)
	if err != nil {
		return -1, err
	}
	switch {
	case c.Mounted != nil && c.Created != nil && *c.Created == id:
		return d.remount(dir, fd, c.creation, want, size)
	case c.isCreated(id):
		return fd, sockaccess.GrantDirectory(&want.Access, fd)
	case want.Granted:
		return fd, nil
	case want.Refusal != nil:
		return -1, want.Refusal
	}
	return -1, errdefs.ErrPermissionDenied.WithMessage("it existed before and was not created for this sandbox")
}

// remount mounts the tmpfs of a directory after a crash between its record and its mount.
func (d *Dirs) remount(dir string, fd int, made creation, want *edit.SocketDir, size uint64) (root int, err error) {
	limited, err := d.isLimited(dir, size)
	if err != nil {
		return -1, err
	}
	if !limited {
		return -1, errdefs.ErrFailedPrecondition.WithMessage("the file system that limits its size is not mounted here; " +
			"mount the socket root with mountPropagation HostToContainer, or re-create the pod")
	}
	if root, err = d.limit(dir, fd, made, size); err != nil {
		return -1, err
	}
	if err := sockaccess.GrantDirectory(&want.Access, root); err != nil {
		unix.Close(root)
		return -1, err
	}
	return root, nil
}

// isLimited reports whether a directory gets a tmpfs: the configuration has a size, and mounts made there reach the
// host.
func (d *Dirs) isLimited(dir string, size uint64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	return mountsReachHost(d.host.Path(filepath.Dir(dir)))
}

// walk opens a directory element by element from its socket root, and creates the missing elements. Before the first
// one is created, the claim has all of them.
type walk struct {
	dirs *Dirs
	dir  string // host path
	by   Holder
	claim
	recorded bool // the claim has the missing elements
}

// open opens the directory. Only root owns the directories that it creates.
func (w *walk) open(root, rel string) (fd int, created bool, err error) {
	at, err := w.dirs.host.OpenNoSymlinks(root, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, false, err
	}
	path := root
	for name := range strings.SplitSeq(rel, "/") {
		path = filepath.Join(path, name)
		var next int
		next, created, err = w.openElement(at, path)
		unix.Close(at)
		if err != nil {
			return -1, false, err
		}
		at = next
	}
	if w.recorded && !created {
		// Another process created the directory at the same time.
		w.Pending = false
		if err := w.dirs.setCreation(w.dir, w.creation); err != nil {
			unix.Close(at)
			return -1, false, err
		}
	}
	return at, created, nil
}

// openElement opens a directory in an open one, or creates it.
func (w *walk) openElement(parent int, path string) (fd int, created bool, err error) {
	name := filepath.Base(path)
	if path == w.dir && w.Pending && w.isCreatedBy(w.by) && !w.recorded {
		// A killed process can have created it.
		if err := removeEmpty(parent, name); err != nil {
			return -1, false, err
		}
	}
	fd, err = hostfs.OpenatBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) {
		return fd, false, err
	}
	if err := w.record(path); err != nil {
		return -1, false, err
	}
	fd, err = hostfs.MkdirAt(parent, name, 0o755)
	if errors.Is(err, unix.EEXIST) {
		w.Parents = slices.DeleteFunc(w.Parents, func(p parentDir) bool { return p.Path == path })
		fd, err = hostfs.OpenatBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
		return fd, false, err
	}
	if err != nil {
		return -1, false, err
	}
	id, err := hostfs.IDOf(fd)
	if err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	for i := range w.Parents {
		if w.Parents[i].Path == path {
			w.Parents[i].Identity = &id
		}
	}
	return fd, true, nil
}

// record adds the missing directories, from path to the directory itself, to the claim, once.
func (w *walk) record(path string) error {
	if w.recorded {
		return nil
	}
	var parents []parentDir
	if w.isCreatedBy(w.by) {
		parents = w.Parents
	}
	for dir := filepath.Dir(w.dir); within(path, dir); dir = filepath.Dir(dir) {
		if !slices.ContainsFunc(parents, func(p parentDir) bool { return p.Path == dir }) {
			parents = append(parents, parentDir{Path: dir})
		}
	}
	w.creation = creation{Creator: &w.by, Pending: true, Parents: parents}
	w.recorded = true
	return w.dirs.setCreation(w.dir, w.creation)
}

// isLocal reports whether a path is clean and does not leave the directory it begins in.
func isLocal(p string) bool {
	return p != "." && filepath.Clean(p) == p && filepath.IsLocal(p) && strings.IndexByte(p, 0) < 0
}
