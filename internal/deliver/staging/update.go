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

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
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
func (s *Store) Update(c edit.Container) (Change, error) {
	if err := validateContainer(&c); err != nil {
		return Change{}, err
	}
	s.mu.Lock()
	was := s.tracked[c.ID]
	s.mu.Unlock()
	if was == nil || was.SandboxID != c.SandboxID {
		return Change{}, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it is not staged", c.ID))
	}
	// One caller at a time updates a container; a concurrent removal wins.
	u := &update{store: s, was: was, now: &record{Owner: was.Owner, Container: c}}
	defer u.close()
	u.keepDirs()
	u.openNewDirs()
	u.openNewSockets()
	err := u.apply()
	// Without the store's lock: the host's file systems may be slow.
	err = errors.Join(err, s.rights.Revoke(u.dropped, u.droppedBy))
	return u.change, errors.Join(append(u.errs, err)...)
}

// update is one update of a running container.
type update struct {
	store  *Store
	was    *record
	now    *record // has what is delivered
	added  []newMount
	change Change
	errs   []error // of items that are not delivered

	dropped   []edit.Socket // to which access ends
	droppedBy string        // the record of the container that has them no longer, "" for a removed container
}

// newMount is a socket or a socket directory to mount in a running container.
type newMount struct {
	fd       int // -1 for a socket that does not exist yet
	isSocket bool
	at       []string // places in the staging directory
	from     string   // file and field that request it, for messages
}

func (u *update) close() {
	for _, m := range u.added {
		if m.fd >= 0 {
			unix.Close(m.fd)
		}
	}
}

// keepDirs adds the directories that the container has already.
func (u *update) keepDirs() {
	dirs := slices.Clone(u.now.Dirs)
	for _, d := range u.was.Dirs {
		if i := slices.IndexFunc(dirs, func(o edit.Dir) bool { return o.Path == d.Path }); i < 0 {
			dirs = append(dirs, d)
		} else {
			dirs[i].Scratch = dirs[i].Scratch || d.Scratch
		}
	}
	u.now.Dirs = dirs
}

// openNewDirs creates the socket directories that the container does not have, and opens them.
func (u *update) openNewDirs() {
	u.now.SocketDirs = slices.DeleteFunc(slices.Clone(u.now.SocketDirs), func(d edit.SocketDir) bool {
		if slices.ContainsFunc(u.was.SocketDirs, d.IsSame) {
			return false
		}
		fd, err := u.store.makeSocketDir(u.now.SandboxID, &d)
		if err != nil {
			u.errs = append(u.errs, err)
			return true
		}
		m := newMount{fd: fd, from: d.From}
		if d.At != "" {
			m.at = []string{d.At}
		}
		u.added = append(u.added, m)
		return false
	})
}

// openNewSockets opens each socket for the places at which the container does not have it.
func (u *update) openNewSockets() {
	u.now.Sockets = slices.DeleteFunc(slices.Clone(u.now.Sockets), func(k edit.Socket) bool {
		at := slices.DeleteFunc(slices.Clone(k.At), func(at string) bool { return hasSocketAt(&u.was.Container, at, k.HostPath()) })
		if len(at) == 0 {
			return false
		}
		fd, err := u.openSocket(&k)
		if err != nil {
			u.errs = append(u.errs, err)
			return true
		}
		u.added = append(u.added, newMount{fd: fd, isSocket: true, at: at, from: k.From})
		return false
	})
}

// openSocket opens a socket that the sandbox may have. It returns -1 for a socket that does not exist yet.
func (u *update) openSocket(k *edit.Socket) (int, error) {
	if err := u.store.holdSockets(u.now.SandboxID, []edit.Socket{*k}); err != nil {
		return -1, err
	}
	fd, err := u.store.openForContainer(&u.now.Container, k)
	if errdefs.IsNotFound(err) {
		return -1, nil // it is bound once it exists
	}
	return fd, edit.WithOrigin(k.From, err)
}

// apply makes the changes of the update in the container's directory and in its record.
func (u *update) apply() error {
	s, id := u.store, u.now.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracked[id] != u.was {
		u.dropped = u.now.Sockets // its removal did not know of the access that was granted since
		return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it was removed", id))
	}
	// Until all is done the record has both the old and the new.
	both := *u.now
	both.Sockets = slices.Concat(u.was.Sockets, u.now.Sockets)
	both.SocketDirs = slices.Concat(u.was.SocketDirs, u.now.SocketDirs)
	if err := s.rewriteRecord(&both); err != nil {
		u.dropNew()
		return err
	}
	dir := filepath.Join(s.containersDir(), id)
	if err := s.makeDirs(&u.now.Container, u.was.Dirs); err != nil {
		u.dropNew()
		return err
	}
	u.mountAdded(dir)
	s.trackContainer(u.now)
	u.writeFiles(dir)
	u.dropped, u.droppedBy = u.unmountDropped(dir), s.recordName(u.now.SandboxID, id)
	return s.rewriteRecord(u.now)
}

// dropNew schedules the revocation of access to the sockets that only this update adds. Without a
// record, nothing else revokes this access.
func (u *update) dropNew() {
	u.dropped = slices.DeleteFunc(slices.Clone(u.now.Sockets), func(k edit.Socket) bool {
		return slices.ContainsFunc(u.was.Sockets, func(o edit.Socket) bool { return o.HostPath() == k.HostPath() })
	})
	u.droppedBy = u.store.recordName(u.now.SandboxID, u.now.ID)
}

// mountAdded mounts the new sockets and socket directories. What cannot be mounted stays in the
// record, so that trackContainer checks it again.
func (u *update) mountAdded(dir string) {
	for _, m := range u.added {
		for _, at := range m.at {
			if err := m.attach(filepath.Join(dir, at), hasSocketAt(&u.was.Container, at, "")); err != nil {
				u.errs = append(u.errs, edit.WithOrigin(m.from, err))
				continue
			}
			u.change.Added = append(u.change.Added, at)
		}
	}
	slices.Sort(u.change.Added)
}

// attach mounts at target. If another socket has the place, the new socket replaces it. One that does
// not exist yet does so once it is created.
func (m *newMount) attach(target string, occupied bool) error {
	switch {
	case !m.isSocket:
		return bindFD(m.fd, target, restrictedAttrs)
	case occupied && m.fd >= 0:
		_, err := replaceMounts(m.fd, []bindPlace{{target: target}})
		return err
	case occupied:
		return nil
	}
	if err := createPlaceholder(target); err != nil || m.fd < 0 {
		return err
	}
	return bindFD(m.fd, target, restrictedAttrs|unix.MOUNT_ATTR_RDONLY)
}

// writeFiles replaces the files that changed.
func (u *update) writeFiles(dir string) {
	for _, f := range u.now.Files {
		if have, err := os.ReadFile(filepath.Join(dir, f.Name)); err == nil && bytes.Equal(have, f.Data) {
			continue
		}
		if err := hostfs.ReplaceFile(filepath.Join(dir, f.Name), f.Data, viewFile); err != nil {
			u.errs = append(u.errs, err)
			continue
		}
		u.change.Files = true
	}
}

// unmountDropped unmounts what the container does not have any more, and returns the sockets that it
// has at no place.
func (u *update) unmountDropped(dir string) (dropped []edit.Socket) {
	for _, k := range u.was.Sockets {
		for _, at := range k.At {
			if !hasSocketAt(&u.now.Container, at, "") {
				u.errs = append(u.errs, removeSocketAt(filepath.Join(dir, at)))
				u.change.Removed = append(u.change.Removed, at)
			}
		}
		if !slices.ContainsFunc(u.now.Sockets, func(o edit.Socket) bool { return o.HostPath() == k.HostPath() }) {
			dropped = append(dropped, k)
		}
	}
	for _, d := range u.was.SocketDirs {
		if d.At != "" && !slices.ContainsFunc(u.now.SocketDirs, d.IsSame) {
			u.errs = append(u.errs, unmountStack(filepath.Join(dir, d.At)))
			u.change.Removed = append(u.change.Removed, d.At)
		}
	}
	slices.Sort(u.change.Removed)
	u.change.Removed = slices.Compact(u.change.Removed) // the record of an interrupted update names a socket twice
	return dropped
}

// removeSocketAt unmounts a socket and removes the file that it was mounted on.
func removeSocketAt(target string) error {
	err := unmountStack(target)
	if e := os.Remove(target); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// UpdateRemoves reports whether an update would remove a socket, a socket directory or a part of a
// JSON file from the container.
func (s *Store) UpdateRemoves(c edit.Container) bool {
	for _, f := range c.Files {
		have, err := os.ReadFile(filepath.Join(s.containersDir(), c.ID, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var was, is any
		if err != nil || json.Unmarshal(have, &was) != nil || json.Unmarshal(f.Data, &is) != nil || losesValue(was, is) {
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
		if k := &was.Sockets[i]; slices.ContainsFunc(k.At, func(at string) bool { return !hasSocketAt(&c, at, k.HostPath()) }) {
			return true
		}
	}
	return slices.ContainsFunc(was.SocketDirs, func(d edit.SocketDir) bool { return !slices.ContainsFunc(c.SocketDirs, d.IsSame) })
}

// losesValue reports whether a part of a decoded JSON value is missing in the value that replaces it:
// a member of an object, or an element of a list, whose order does not count.
func losesValue(was, is any) bool {
	switch was := was.(type) {
	case map[string]any:
		is, _ := is.(map[string]any)
		for key, value := range was {
			if losesValue(value, is[key]) {
				return true
			}
		}
		return false
	case []any:
		is, _ := is.([]any)
		return slices.ContainsFunc(was, func(old any) bool {
			return !slices.ContainsFunc(is, func(other any) bool { return !losesValue(old, other) })
		})
	}
	return was != is
}

// hasSocketAt reports whether the container has a socket at a place: the socket with this host
// path, or any for "".
func hasSocketAt(c *edit.Container, at, hostPath string) bool {
	return slices.ContainsFunc(c.Sockets, func(k edit.Socket) bool {
		return slices.Contains(k.At, at) && (hostPath == "" || hostPath == k.HostPath())
	})
}
