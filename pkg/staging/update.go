// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Change is what an update changed in a running container.
type Change struct {
	Added, Removed []string // places of sockets and socket directories, below the staging directory
	Files          bool
}

// Empty reports whether nothing was changed.
func (c *Change) Empty() bool { return len(c.Added) == 0 && len(c.Removed) == 0 && !c.Files }

// Update gives a running container what c names now, and takes away what it names no
// more; files are replaced atomically, after what came and before what goes, so that
// what they speak of is there. A socket that does not exist yet is bound when it does.
// Directories stay, since the container may have them mounted elsewhere.
//
// A container that is not held is errdefs.ErrNotFound. What could not be delivered is an
// error, and not among what was added; the rest is done. A socket that could not be
// opened, or that is refused, and a socket directory that could not be made are not part
// of the container then. A socket that was opened and could not be bound is: it is tried
// again at once in the background, which tells Events of a failure, and whenever the host
// side makes it anew.
func (s *Store) Update(c Container) (Change, error) {
	var ch Change
	if err := c.check(); err != nil {
		return ch, err
	}
	s.mu.Lock()
	was := s.held[c.ID]
	s.mu.Unlock()
	if was == nil || was.SandboxID != c.SandboxID {
		return ch, fmt.Errorf("update staging of container %q: %w", c.ID, errdefs.ErrNotFound)
	}
	// Only one updates a container at a time; whoever removes it meanwhile wins.
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
		if !slices.ContainsFunc(was.SocketDirs, d.same) {
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
	before := was.places()
	come := make(map[place]int) // descriptors, -1 for a socket that is not there yet
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	c.Sockets = slices.DeleteFunc(slices.Clone(c.Sockets), func(k Socket) bool {
		at := slices.DeleteFunc(slices.Clone(k.At), func(at string) bool { return before[place{k.path(), at}] })
		if len(at) == 0 {
			return false
		}
		fd, _, err := s.openSocket(&c, &k)
		if errdefs.IsNotFound(err) {
			err = s.holdSocket(c.SandboxID, k.path())
		}
		if err != nil {
			errs = append(errs, asked(k.From, err))
			return true
		}
		fds = append(fds, fd)
		for _, at := range at {
			come[place{k.path(), at}] = fd
		}
		return false
	})
	opened, err := s.openAll(&Container{SandboxID: c.SandboxID, SocketDirs: fresh}, &progress{})
	if err != nil {
		return ch, errors.Join(append(errs, err)...)
	}
	defer opened.close()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[c.ID] != was {
		return ch, fmt.Errorf("update staging of container %q: it is gone: %w", c.ID, errdefs.ErrNotFound)
	}
	err = s.update(was, &c, fresh, opened, come, &ch)
	return ch, errors.Join(append(errs, err)...)
}

// Loses reports whether an update would take something from the container: a socket, a
// socket directory, or a line of a file.
func (s *Store) Loses(c Container) bool {
	for _, f := range c.Files {
		have, err := os.ReadFile(filepath.Join(s.containers(), c.ID, f.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || losesLine(have, f.Data) {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.held[c.ID]
	if was == nil {
		return false
	}
	after := c.places()
	for p := range was.places() {
		if !after[p] {
			return true
		}
	}
	return slices.ContainsFunc(was.SocketDirs, func(d SocketDir) bool { return !slices.ContainsFunc(c.SocketDirs, d.same) })
}

// losesLine reports whether a line of a list is not in the list that replaces it. The
// comma behind an element is not part of the line.
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

// same tells a socket directory that is there already.
func (d SocketDir) same(o SocketDir) bool {
	return d.Root == o.Root && filepath.Clean(d.Rel) == filepath.Clean(o.Rel) && d.At == o.At
}

// place is where one socket is bound.
type place struct{ socket, at string }

func (c *Container) places() map[place]bool {
	all := make(map[place]bool)
	for i := range c.Sockets {
		for _, at := range c.Sockets[i].At {
			all[place{c.Sockets[i].path(), at}] = true
		}
	}
	return all
}

func (s *Store) update(was *record, c *Container, fresh []SocketDir, o *opened, come map[place]int, ch *Change) error {
	// What is there and what comes, until all is done.
	both := *c
	both.Sockets = append(slices.Clone(was.Sockets), c.Sockets...)
	both.SocketDirs = append(slices.Clone(was.SocketDirs), fresh...)
	if err := s.rewrite(&record{Owner: was.Owner, Container: both}); err != nil {
		return err
	}
	dir := filepath.Join(s.containers(), c.ID)
	var errs []error
	for _, d := range c.Dirs {
		errs = append(errs, s.makeDir(dir, d, was))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range fresh {
		if fresh[i].At == "" {
			continue
		}
		if err := bind(o.dirs[i], filepath.Join(dir, fresh[i].At), restricted); err != nil {
			errs = append(errs, asked(fresh[i].From, err))
			continue
		}
		ch.Added = append(ch.Added, fresh[i].At)
	}
	before, after := was.places(), c.places()
	for p, fd := range come {
		target := filepath.Join(dir, p.at)
		err := placeholder(target)
		if err == nil && fd >= 0 {
			err = bind(fd, target, restricted|unix.MOUNT_ATTR_RDONLY)
		}
		if err != nil {
			errs = append(errs, err)
			continue // the record has it: hold has it looked at again, and so does the host side when it makes it anew
		}
		ch.Added = append(ch.Added, p.at)
	}
	now := &record{Owner: was.Owner, Container: *c}
	s.hold(now)
	for _, f := range c.Files {
		if have, err := os.ReadFile(filepath.Join(dir, f.Name)); err == nil && bytes.Equal(have, f.Data) {
			continue
		}
		errs = append(errs, s.replace(dir, f.Name, f.Data))
		ch.Files = true
	}
	for p := range before {
		if !after[p] {
			target := filepath.Join(dir, p.at)
			errs = append(errs, detach(target))
			if err := unix.Unlink(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, &os.PathError{Op: "unlink", Path: target, Err: err})
			}
			ch.Removed = append(ch.Removed, p.at)
		}
	}
	for _, d := range was.SocketDirs {
		if d.At != "" && !slices.ContainsFunc(c.SocketDirs, d.same) {
			errs = append(errs, detach(filepath.Join(dir, d.At)))
			ch.Removed = append(ch.Removed, d.At)
		}
	}
	slices.Sort(ch.Added)
	slices.Sort(ch.Removed)
	if err := s.rewrite(now); err != nil {
		return errors.Join(append(errs, err)...)
	}
	dropped := slices.DeleteFunc(slices.Clone(was.Sockets), func(k Socket) bool {
		return slices.ContainsFunc(c.Sockets, func(o Socket) bool { return o.path() == k.path() })
	})
	return errors.Join(append(errs, s.revokeAccess(dropped, s.recordName(c.SandboxID, c.ID)))...)
}

// makeDir makes a directory that the container lacks.
func (s *Store) makeDir(base string, d Dir, was *record) error {
	if err := s.mkdirs(base, d.Path); err != nil {
		return err
	}
	if i := slices.IndexFunc(was.Dirs, func(o Dir) bool { return o.Path == d.Path }); !d.Scratch || i >= 0 && was.Dirs[i].Scratch {
		return nil
	}
	uid, gid := was.owner(d.Path)
	return scratch(filepath.Join(base, d.Path), uid, gid)
}

// rewrite replaces a container's record.
func (s *Store) rewrite(r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.replace(filepath.Join(s.sandboxes(), r.SandboxID), r.ID+containerSuffix, data)
}
