// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// deviceJob finds how a device node is given: bound from the host's, or made.
func (c *container) deviceJob(host hostfs.Root, d *edits.Device) (job, error) {
	j := job{what: fmt.Sprintf("device node %q", d.Path), origin: d.Origin, tree: -1, node: d}
	var err error
	if j.dst, err = clean(d.Path); err != nil {
		return j, err
	}
	mode, dev := nodeNumbers(d)
	if mode&unix.S_IFMT == 0 {
		return j, fmt.Errorf("type: found %q, want b, c, u or p: %w", d.Type, errdefs.ErrInvalidArgument)
	}
	from := d.HostPath
	if from == "" {
		from = d.Path
	}
	f, err := host.Open(from, unix.O_PATH)
	if errdefs.IsNotFound(err) {
		if c.bound {
			return j, fmt.Errorf("in a user namespace only a node of the host can be had: %w", err)
		}
		return j, nil
	}
	if err != nil {
		return j, err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &j.from); err != nil {
		return j, err
	}
	if j.from.Mode&unix.S_IFMT != mode&unix.S_IFMT || d.Type != "p" && j.from.Rdev != dev {
		// The file has numbers of its own, and whatever is on the host is another thing.
		if c.bound {
			return j, fmt.Errorf("host path %q: %w", from, conflict(from, &j.from))
		}
		return j, nil
	}
	if !c.bound && (j.from.Mode&0o7777 != mode&0o7777 || int(j.from.Uid) != owner(d.UID) || int(j.from.Gid) != owner(d.GID)) {
		return j, nil
	}
	j.tree, err = unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return j, fmt.Errorf("take host path %q: %w", from, err)
	}
	return j, detach(j.tree, &unix.MountAttr{Propagation: unix.MS_PRIVATE, Attr_clr: unix.MOUNT_ATTR_NODEV, Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}, 0)
}

// nodeNumbers are type and mode, and the device's number. The mode is 0666 unless
// the edit says another.
func nodeNumbers(d *edits.Device) (mode uint32, dev uint64) {
	switch d.Type {
	case "c", "u":
		mode = unix.S_IFCHR
	case "b":
		mode = unix.S_IFBLK
	case "p":
		mode = unix.S_IFIFO
	default:
		return 0, 0
	}
	if d.Type != "p" {
		dev = unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	}
	if d.FileMode != nil {
		return mode | uint32(*d.FileMode)&0o7777, dev
	}
	return mode | 0o666, dev
}

// detach sets what a mount that is nowhere yet is to be like.
func detach(tree int, attr *unix.MountAttr, flags uint) error {
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|flags, attr)
	if errors.Is(err, unix.EPERM) && attr.Attr_clr != 0 {
		// In a user namespace what the host took away cannot be had again.
		again := *attr
		again.Attr_clr = 0
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|flags, &again)
	}
	if err != nil {
		return fmt.Errorf("set the mount's options: %w", err)
	}
	return nil
}

func conflict(name string, st *unix.Stat_t) error {
	return fmt.Errorf("%q is a %s there already, number %d:%d: %w",
		name, hostfs.TypeName(st.Mode), unix.Major(st.Rdev), unix.Minor(st.Rdev), errdefs.ErrConflict)
}
