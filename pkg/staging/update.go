// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Change is what an update changed in a running container.
type Change struct {
	Added, Removed []string // places of sockets and socket directories in the staging directory
	Files          bool
}

// Empty reports whether nothing was changed.
func (c *Change) Empty() bool { return len(c.Added) == 0 && len(c.Removed) == 0 && !c.Files }

// Update changes a running container to what c names. It adds sockets and socket directories
// first, then replaces files atomically, and then removes what c does not name. So everything
// that a file names exists. A socket that does not exist yet is bound once it does. Directories
// stay, since the container may have them mounted elsewhere.
//
// A container that is not tracked is errdefs.ErrNotFound. An item that cannot be delivered is an
// error, and is not in Change.Added; the others are delivered. A socket that cannot be opened or
// is denied, and a socket directory that cannot be created, are not part of the container then.
// A socket that was opened and cannot be bound is part of it: it is tried again at once in the
// background, which reports a failure to Events, and whenever the host re-creates the socket.
func (s *Store) Update(c Container) (Change, error) {
	var ch Change
	if err := c.validate(); err != nil {
		return ch, err
	}
	s.mu.Lock()
	was := s.tracked[c.ID]
	s.mu.Unlock()
	if was == nil || was.SandboxID != c.SandboxID {
		return ch, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it is not staged", c.ID))
	}
	// One caller at a time updates a container; a concurrent removal wins.
	for _, d := range was.Dirs {
		if i := slices.IndexFunc(c.Dirs, func(o Dir) bool { return o.Path == d.Path }); i < 0 {
			c.Dirs = append(slices.Clip(c.Dirs), d)
		} else {
			c.Dirs = slices.Clone(c.Dirs)
			c.Dirs[i].Scratch = c.Dirs[i].Scratch || d.Scratch
		}
	}
	var errs []error
	var added []newMount
	defer func() {
		for _, m := range added {
			if m.fd >= 0 {
				unix.Close(m.fd)
			}
		}
	}()
	c.SocketDirs = slices.DeleteFunc(slices.Clone(c.SocketDirs), func(d SocketDir) bool {
		if slices.ContainsFunc(was.SocketDirs, d.isSame) {
			return false
		}
		m, err := s.openNewDir(c.SandboxID, &d)
		if err != nil {
			errs = append(errs, err)
			return true
		}
		added = append(added, m)
		return false
	})
	c.Sockets = slices.DeleteFunc(slices.Clone(c.Sockets), func(k Socket) bool {
		m, err := s.openNewSocket(was, &c, &k)
		if err != nil {
			errs = append(errs, err)
			return true
		}
		added = append(added, m)
		return false
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracked[c.ID] != was {
		return ch, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it was removed", c.ID))
	}
	err := s.applyUpdate(was, &c, added, &ch)
	return ch, errors.Join(append(errs, err)...)
}

// newMount is a socket or a socket directory to mount in a running container.
type newMount struct {
	fd       int // -1 for a socket that does not exist yet
	isSocket bool
	at       []string // places in the staging directory
	from     string   // file and field that request it, for messages
}

// openNewDir creates a socket directory that the container does not have, and opens it.
func (s *Store) openNewDir(sandboxID string, d *SocketDir) (newMount, error) {
	m := newMount{from: d.From}
	if d.At != "" {
		m.at = []string{d.At}
	}
	var err error
	m.fd, err = s.makeSocketDir(sandboxID, d)
	return m, err
}

// openNewSocket opens a socket for the places at which the container does not have it.
func (s *Store) openNewSocket(was *record, c *Container, k *Socket) (newMount, error) {
	m := newMount{fd: -1, isSocket: true, from: k.From}
	m.at = slices.DeleteFunc(slices.Clone(k.At), func(at string) bool { return was.hasSocketAt(at, k.hostPath()) })
	if len(m.at) == 0 {
		return m, nil
	}
	if err := s.holdSockets(c.SandboxID, []Socket{*k}); err != nil {
		return m, err
	}
	fd, err := s.openForContainer(c, k)
	if m.fd = fd; errdefs.IsNotFound(err) {
		err = nil // it is bound once it exists
	}
	return m, withOrigin(k.From, err)
}

// UpdateRemoves reports whether an update would remove a socket, a socket directory or a line of
// a file from the container.
func (s *Store) UpdateRemoves(c Container) bool {
	for _, f := range c.Files {
		have, err := os.ReadFile(filepath.Join(s.containersDir(), c.ID, f.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || losesLine(have, f.Data) {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.tracked[c.ID]
	if was == nil {
		return false
	}
	for i := range was.Sockets {
		if k := &was.Sockets[i]; slices.ContainsFunc(k.At, func(at string) bool { return !c.hasSocketAt(at, k.hostPath()) }) {
			return true
		}
	}
	return slices.ContainsFunc(was.SocketDirs, func(d SocketDir) bool { return !slices.ContainsFunc(c.SocketDirs, d.isSame) })
}

// losesLine reports whether a line of a list is missing in the list that replaces it. The comma
// after an element is not part of the line.
func losesLine(was, is []byte) bool {
	lines := make(map[string]bool)
	for line := range bytes.Lines(is) {
		lines[string(bytes.TrimRight(line, ",\n"))] = true
	}
	for line := range bytes.Lines(was) {
		if !lines[string(bytes.TrimRight(line, ",\n"))] {
			return true
		}
	}
	return false
}

// isSame reports whether two socket directories are the same, at the same place.
func (d SocketDir) isSame(o SocketDir) bool {
	return d.Root == o.Root && filepath.Clean(d.Rel) == filepath.Clean(o.Rel) && d.At == o.At
}

// hasSocketAt reports whether the container has a socket at a place: the socket with this host
// path, or any for "".
func (c *Container) hasSocketAt(at, hostPath string) bool {
	return slices.ContainsFunc(c.Sockets, func(k Socket) bool {
		return slices.Contains(k.At, at) && (hostPath == "" || hostPath == k.hostPath())
	})
}

// applyUpdate makes the changes of an update. The lock is held.
func (s *Store) applyUpdate(was *record, c *Container, added []newMount, ch *Change) error {
	// Until all is done the record has both the old and the new.
	both := *c
	both.Sockets = slices.Concat(was.Sockets, c.Sockets)
	both.SocketDirs = slices.Concat(was.SocketDirs, c.SocketDirs)
	if err := s.rewriteRecord(&record{Owner: was.Owner, Container: both}); err != nil {
		return err
	}
	dir := filepath.Join(s.containersDir(), c.ID)
	var errs []error
	for _, d := range c.Dirs {
		err := makeDirs(dir, d.Path)
		if err == nil && d.Scratch && !slices.Contains(was.Dirs, d) {
			err = c.mountScratch(dir, d.Path)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range added {
		for _, at := range m.at {
			if err := m.attach(filepath.Join(dir, at), was.hasSocketAt(at, "")); err != nil {
				errs = append(errs, withOrigin(m.from, err))
				continue // the record has it, so that trackContainer checks it again
			}
			ch.Added = append(ch.Added, at)
		}
	}
	now := &record{Owner: was.Owner, Container: *c}
	s.trackContainer(now)
	for _, f := range c.Files {
		if have, err := os.ReadFile(filepath.Join(dir, f.Name)); err == nil && bytes.Equal(have, f.Data) {
			continue
		}
		errs = append(errs, hostfs.ReplaceFile(filepath.Join(dir, f.Name), f.Data, viewFile))
		ch.Files = true
	}
	var dropped []Socket
	for _, k := range was.Sockets {
		for _, at := range k.At {
			if !c.hasSocketAt(at, "") {
				errs = append(errs, removeSocketAt(filepath.Join(dir, at)))
				ch.Removed = append(ch.Removed, at)
			}
		}
		if !slices.ContainsFunc(c.Sockets, func(o Socket) bool { return o.hostPath() == k.hostPath() }) {
			dropped = append(dropped, k)
		}
	}
	for _, d := range was.SocketDirs {
		if d.At != "" && !slices.ContainsFunc(c.SocketDirs, d.isSame) {
			errs = append(errs, unmountStack(filepath.Join(dir, d.At)))
			ch.Removed = append(ch.Removed, d.At)
		}
	}
	slices.Sort(ch.Added)
	slices.Sort(ch.Removed)
	ch.Removed = slices.Compact(ch.Removed) // the record of an interrupted update names a socket twice
	if err := s.rewriteRecord(now); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, s.revokeAccess(dropped, s.recordName(c.SandboxID, c.ID)))...)
}

// attach mounts at target. If another socket has the place, the new socket replaces it. One that does
// not exist yet does so once it is created.
func (m *newMount) attach(target string, occupied bool) error {
	switch {
	case !m.isSocket:
		return bindFD(m.fd, target, restrictedAttrs)
	case occupied && m.fd >= 0:
		return replaceMount(m.fd, target)
	case occupied:
		return nil
	}
	if err := createPlaceholder(target); err != nil || m.fd < 0 {
		return err
	}
	return bindFD(m.fd, target, restrictedAttrs|unix.MOUNT_ATTR_RDONLY)
}

// removeSocketAt unmounts a socket and removes the file that it was mounted on.
func removeSocketAt(target string) error {
	err := unmountStack(target)
	if e := os.Remove(target); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
