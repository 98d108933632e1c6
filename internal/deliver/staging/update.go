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

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Change is the result of an update of a running container.
type Change struct {
	Added, Removed []string // places of sockets and socket directories in the staging directory
	Files          bool
}

// Empty reports whether nothing was changed.
func (c *Change) Empty() bool { return len(c.Added) == 0 && len(c.Removed) == 0 && !c.Files }

// update is one update of a running container.
type update struct {
	sockets    *hostSockets
	records    *records
	containers *containerDirs
	tracker    *tracker
	was        *record
	now        *record // has the delivered items
	added      []newMount
	change     Change
	errs       []error // of items that are not delivered

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
		fd, err := u.sockets.makeDir(u.now.SandboxID, &d)
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
		at := slices.DeleteFunc(slices.Clone(k.At), func(at string) bool {
			return hasSocketAt(&u.was.Container, at, k.HostPath())
		})
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
	if err := u.sockets.hold(u.now.SandboxID, []edit.Socket{*k}); err != nil {
		return -1, err
	}
	fd, err := u.sockets.openFor(&u.now.Container, k)
	if errdefs.IsNotFound(err) {
		return -1, nil // it is bound once it exists
	}
	return fd, edit.WithOrigin(k.From, err)
}

// apply makes the changes of the update in the container's directory and in its record.
func (u *update) apply() error {
	id := u.now.ID
	u.tracker.lock.mu.Lock()
	defer u.tracker.lock.mu.Unlock()
	if u.tracker.tracked[id] != u.was {
		u.dropped = u.now.Sockets // its removal did not know of the access that was granted since
		return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it was removed", id))
	}
	// Until all is done the record has both the old and the new.
	both := *u.now
	both.Sockets = slices.Concat(u.was.Sockets, u.now.Sockets)
	both.SocketDirs = slices.Concat(u.was.SocketDirs, u.now.SocketDirs)
	if err := u.records.rewrite(&both); err != nil {
		u.dropNew()
		return err
	}
	dir := u.containers.placePath(id, "")
	if err := u.containers.create(&u.now.Container, u.was.Dirs); err != nil {
		u.dropNew()
		return err
	}
	u.mountAdded(dir)
	u.tracker.track(u.now)
	u.writeFiles(dir)
	u.dropped, u.droppedBy = u.unmountDropped(dir), u.records.name(u.now.SandboxID, id)
	return u.records.rewrite(u.now)
}

// dropNew schedules the revocation of access to the sockets that only this update adds. Without a
// record, nothing else revokes this access.
func (u *update) dropNew() {
	u.dropped = slices.DeleteFunc(slices.Clone(u.now.Sockets), func(k edit.Socket) bool {
		return slices.ContainsFunc(u.was.Sockets, func(o edit.Socket) bool { return o.HostPath() == k.HostPath() })
	})
	u.droppedBy = u.records.name(u.now.SandboxID, u.now.ID)
}

// mountAdded mounts the new sockets and socket directories. One that cannot be mounted stays in the
// record, so that track checks it again.
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

// unmountDropped unmounts everything that the container does not have any more, and returns the sockets that it
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

// hasSocketAt reports whether the container has a socket at a place: the socket with this host path, or any for "".
func hasSocketAt(c *edit.Container, at, hostPath string) bool {
	return slices.ContainsFunc(c.Sockets, func(k edit.Socket) bool {
		return slices.Contains(k.At, at) && (hostPath == "" || hostPath == k.HostPath())
	})
}
