// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/edits"
)

// job is one thing to be done in the container, with all that it needs of the host
// open.
type job struct {
	what   string // for messages
	origin edits.Origin
	dst    string // clean path in the container

	tree int         // a detached mount, -1 for none
	dir  bool        // its root is a directory
	from unix.Stat_t // what its root is on the host; Ino 0 for a new file system

	node *edits.Device // to be made, when there is no tree
}

func (j *job) close() {
	if j.tree >= 0 {
		unix.Close(j.tree)
	}
}

// do does the job, unless it was done before.
func (j *job) do(root int) error {
	if j.tree < 0 {
		return j.makeNode(root)
	}
	at, err := place(root, j.dst, j.dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if j.there(at) {
		return nil
	}
	if err := unix.MoveMount(j.tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it at %q: %w", j.dst, err)
	}
	return nil
}

// there reports that the place has what is to be mounted there: an earlier stage's
// hook put it there, or the runtime did.
func (j *job) there(at int) bool {
	var st unix.Stat_t
	if unix.Fstat(at, &st) != nil || j.from.Ino == 0 {
		return false
	}
	if j.node != nil && st.Mode&unix.S_IFMT == j.from.Mode&unix.S_IFMT && st.Rdev == j.from.Rdev {
		return true // a device is its number, whatever file it is
	}
	return st.Dev == j.from.Dev && st.Ino == j.from.Ino
}

// makeNode makes a device node as the edit describes it.
func (j *job) makeNode(root int) error {
	d := j.node
	mode, dev := nodeNumbers(d)
	fd, err := lookup(root, j.dst)
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == mode&unix.S_IFMT && (st.Rdev == dev || d.Type == "p") {
			return nil
		}
		return conflict(j.dst, &st)
	}
	if !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("find %q in the container: %w", j.dst, err)
	}
	_, err = makeIn(root, j.dst, func(parent int, base string) error {
		return unix.Mknodat(parent, base, mode, int(dev))
	})
	if err != nil {
		return err
	}
	fd, err = lookup(root, j.dst)
	if err != nil {
		return fmt.Errorf("find %q in the container: %w", j.dst, err)
	}
	defer unix.Close(fd)
	return unix.Fchownat(fd, "", owner(d.UID), owner(d.GID), unix.AT_EMPTY_PATH)
}

func owner(id *uint32) int {
	if id == nil {
		return 0
	}
	return int(*id)
}
