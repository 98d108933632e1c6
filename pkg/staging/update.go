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
	var fresh []SocketDir
	kept := c.SocketDirs[:0:0]
	for _, d := range c.SocketDirs {
		if !slices.ContainsFunc(was.SocketDirs, d.isSame) {
			one := []SocketDir{d}
			if err := s.makeSocketDirs(c.SandboxID, one); err != nil {
				errs = append(errs, err)
				continue
			}
			fresh = append(fresh, one[0])
		}
		kept = append(kept, d)
	}
	c.SocketDirs = kept
	before := was.socketPlaces()
	incoming := make(map[socketPlace]int) // descriptors, -1 for a socket that does not exist yet
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	c.Sockets = slices.DeleteFunc(slices.Clone(c.Sockets), func(k Socket) bool {
		at := slices.DeleteFunc(slices.Clone(k.At), func(at string) bool { return before[socketPlace{k.hostPath(), at}] })
		if len(at) == 0 {
			return false
		}
		fd, err := s.openForContainer(&c, &k)
		if errdefs.IsNotFound(err) {
			err = s.holdSocket(c.SandboxID, k.hostPath())
		}
		if err != nil {
			errs = append(errs, withOrigin(k.From, err))
			return true
		}
		fds = append(fds, fd)
		for _, at := range at {
			incoming[socketPlace{k.hostPath(), at}] = fd
		}
		return false
	})
	opened, err := s.openSources(&Container{SandboxID: c.SandboxID, SocketDirs: fresh}, &stageProgress{})
	if err != nil {
		return ch, errors.Join(append(errs, err)...)
	}
	defer opened.closeAll()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracked[c.ID] != was {
		return ch, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it was removed", c.ID))
	}
	err = s.applyUpdate(was, &c, fresh, opened, incoming, &ch)
	return ch, errors.Join(append(errs, err)...)
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
	after := c.socketPlaces()
	for p := range was.socketPlaces() {
		if !after[p] {
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

// socketPlace is a socket and one place at which it is bound.
type socketPlace struct{ socket, at string }

func (c *Container) socketPlaces() map[socketPlace]bool {
	all := make(map[socketPlace]bool)
	for i := range c.Sockets {
		for _, at := range c.Sockets[i].At {
			all[socketPlace{c.Sockets[i].hostPath(), at}] = true
		}
	}
	return all
}

// placesOf returns the places of sockets, whichever socket each has.
func placesOf(sockets map[socketPlace]bool) map[string]bool {
	places := make(map[string]bool)
	for p := range sockets {
		places[p.at] = true
	}
	return places
}

// applyUpdate makes the changes of an update. The lock is held.
func (s *Store) applyUpdate(was *record, c *Container, fresh []SocketDir, o *sourceFiles, incoming map[socketPlace]int, ch *Change) error {
	// Until all is done the record has both the old and the new.
	both := *c
	both.Sockets = append(slices.Clone(was.Sockets), c.Sockets...)
	both.SocketDirs = append(slices.Clone(was.SocketDirs), fresh...)
	if err := s.rewriteRecord(&record{Owner: was.Owner, Container: both}); err != nil {
		return err
	}
	dir := filepath.Join(s.containersDir(), c.ID)
	var errs []error
	for _, d := range c.Dirs {
		errs = append(errs, s.addDir(dir, d, was))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range fresh {
		if fresh[i].At == "" {
			continue
		}
		if err := bindFD(o.dirs[i], filepath.Join(dir, fresh[i].At), restrictedAttrs); err != nil {
			errs = append(errs, withOrigin(fresh[i].From, err))
			continue
		}
		ch.Added = append(ch.Added, fresh[i].At)
	}
	before, after := was.socketPlaces(), c.socketPlaces()
	occupied, needed := placesOf(before), placesOf(after)
	for p, fd := range incoming {
		target := filepath.Join(dir, p.at)
		if occupied[p.at] {
			// Another socket takes the place; one that does not exist yet does so once it is created.
			if fd >= 0 {
				errs = append(errs, replaceMount(fd, target))
			}
			ch.Added = append(ch.Added, p.at)
			continue
		}
		err := createPlaceholder(target)
		if err == nil && fd >= 0 {
			err = bindFD(fd, target, restrictedAttrs|unix.MOUNT_ATTR_RDONLY)
		}
		if err != nil {
			errs = append(errs, err)
			continue // the record has it, so that trackContainer checks it again
		}
		ch.Added = append(ch.Added, p.at)
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
	for p := range before {
		if !after[p] && !needed[p.at] {
			target := filepath.Join(dir, p.at)
			errs = append(errs, unmountStack(target))
			if err := unix.Unlink(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, &os.PathError{Op: "unlink", Path: target, Err: err})
			}
			ch.Removed = append(ch.Removed, p.at)
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
	if err := s.rewriteRecord(now); err != nil {
		return errors.Join(append(errs, err)...)
	}
	dropped := slices.DeleteFunc(slices.Clone(was.Sockets), func(k Socket) bool {
		return slices.ContainsFunc(c.Sockets, func(o Socket) bool { return o.hostPath() == k.hostPath() })
	})
	return errors.Join(append(errs, s.revokeAccess(dropped, s.recordName(c.SandboxID, c.ID)))...)
}

// addDir creates a directory that the container does not have.
func (s *Store) addDir(base string, d Dir, was *record) error {
	if err := makeDirs(base, d.Path); err != nil {
		return err
	}
	if i := slices.IndexFunc(was.Dirs, func(o Dir) bool { return o.Path == d.Path }); !d.Scratch || i >= 0 && was.Dirs[i].Scratch {
		return nil
	}
	uid, gid := was.scratchOwner(d.Path)
	return mountScratch(filepath.Join(base, d.Path), uid, gid)
}
