// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// deviceOperation plans a device node for the container: a bind mount of the host's node, or a new
// node.
func (c *container) deviceOperation(host hostfs.Root, d *edit.Device) (operation, error) {
	o := operation{what: fmt.Sprintf("device node %q", d.Path), origin: d.Origin, tree: -1, node: d}
	var err error
	if o.destination, err = cleanDestination(d.Path); err != nil {
		return o, err
	}
	if d.FileType() == 0 {
		return o, fmt.Errorf("type: invalid value %q: must be b, c, u or p: %w", d.Type, errdefs.ErrInvalidArgument)
	}
	mode, dev := nodeNumbers(d)
	from := cmp.Or(d.HostPath, d.Path)
	f, err := host.Open(from, unix.O_PATH)
	if errdefs.IsNotFound(err) {
		if c.bindsDevices {
			return o, fmt.Errorf("a container with a user namespace can only get nodes that the host has: %w", err)
		}
		return o, nil
	}
	if err != nil {
		return o, err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &o.source); err != nil {
		return o, err
	}
	if o.source.Mode&unix.S_IFMT != mode&unix.S_IFMT || d.Type != "p" && o.source.Rdev != dev {
		// The CDI file sets a device number that differs from the host's node.
		if c.bindsDevices {
			return o, fmt.Errorf("host path %q: %w", from, typeConflict(from, &o.source))
		}
		return o, nil
	}
	if !c.bindsDevices && (o.source.Mode&0o7777 != mode&0o7777 || int(o.source.Uid) != ownerID(d.UID) ||
		int(o.source.Gid) != ownerID(d.GID)) {
		return o, nil
	}
	o.tree, err = unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return o, fmt.Errorf("clone the mount of host path %q: %w", from, err)
	}
	return o, setAttributes(o.tree, &unix.MountAttr{Propagation: unix.MS_PRIVATE, Attr_clr: unix.MOUNT_ATTR_NODEV,
		Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}, 0)
}

// nodeNumbers returns the type and mode, and the device number. The default mode is 0666.
func nodeNumbers(d *edit.Device) (mode uint32, dev uint64) {
	mode = d.FileType()
	if d.Type != "p" {
		dev = unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	}
	if d.FileMode != nil {
		return mode | uint32(*d.FileMode)&0o7777, dev
	}
	return mode | 0o666, dev
}

// setAttributes sets the attributes of a detached mount.
func setAttributes(tree int, attr *unix.MountAttr, flags uint) error {
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|flags, attr)
	if errors.Is(err, unix.EPERM) && attr.Attr_clr != 0 {
		// In a user namespace, the restrictions of the host's mount are locked.
		restricted := *attr
		restricted.Attr_clr = 0
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|flags, &restricted)
	}
	if err != nil {
		return fmt.Errorf("set the mount's options: %w", err)
	}
	return nil
}

func typeConflict(name string, st *unix.Stat_t) error {
	return fmt.Errorf("%q already exists as a %s with number %d:%d: %w",
		name, hostfs.TypeName(st.Mode), unix.Major(st.Rdev), unix.Minor(st.Rdev), errdefs.ErrConflict)
}

// makeNode creates a device node with the edit's properties.
func (o *operation) makeNode(root int) error {
	d := o.node
	mode, dev := nodeNumbers(d)
	belongsTo := &owner{uid: ownerID(d.UID), gid: ownerID(d.GID)}
	fd, err := openOrCreate(root, o.destination, belongsTo, func(parent int, base string) error {
		return unix.Mknodat(parent, base, mode, int(dev))
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == mode&unix.S_IFMT && (st.Rdev == dev || d.Type == "p") {
		return nil
	}
	return typeConflict(o.destination, &st)
}

// ownerID returns the owner of a device node; root if the edit names none.
func ownerID(id *uint32) int {
	if id == nil {
		return 0
	}
	return int(*id)
}
