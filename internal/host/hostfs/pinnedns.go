// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Owner is a user and a group of the host.
type Owner struct{ UID, GID uint32 }

// OwnerOutside returns the user and group of the host that a user and group of a user namespace are mapped to. path is
// the host path of a file on which the namespace is mounted. CRI-O keeps the namespace of a pod this way, so that no
// process needs to be in it.
//
// The kernel has no call that returns the mappings of such a namespace, and a Go program has too many threads to join
// it, setns(2). So a tmpfs with a directory of this owner is mounted with the mappings of the namespace, which takes
// Linux 6.3 and CAP_SYS_ADMIN, and its owner is read: mount_setattr(2), "ID-mapped mounts".
func (r Root) OwnerOutside(path string, inside Owner) (Owner, error) {
	ns, err := r.OpenFD(path, unix.O_RDONLY)
	if err != nil {
		return Owner{}, err
	}
	defer unix.Close(ns)
	if err := checkUserNamespace(ns); err != nil {
		return Owner{}, &os.PathError{Op: "read user namespace", Path: path, Err: err}
	}
	outside, err := ownerThroughIDMap(ns, inside)
	if err != nil {
		return Owner{}, fmt.Errorf("read the mappings of user namespace %q: %w", path, err)
	}
	if none := overflowUID(); outside.UID == none || outside.GID == none {
		return Owner{}, errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf(
			"user %d or group %d has no mapping to the host in %q", inside.UID, inside.GID, path))
	}
	return outside, nil
}

// checkUserNamespace returns an error unless a file is a user namespace, ioctl_ns(2).
func checkUserNamespace(fd int) error {
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWUSER {
		return errdefs.ErrInvalidArgument.WithMessage("not a user namespace")
	}
	return nil
}

// ownerThroughIDMap returns the owner on the host of an owner inside a user namespace. The kernel maps the IDs: a
// private tmpfs gets the owner inside, and its ID-mapped mount shows the owner outside. This needs no process in
// the namespace.
func ownerThroughIDMap(ns int, inside Owner) (Owner, error) {
	tree, err := NewFileSystem("tmpfs", "jackfield", []string{"size=4k", "nr_inodes=1"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return Owner{}, err
	}
	defer unix.Close(tree)
	if err := unix.Fchownat(tree, "", int(inside.UID), int(inside.GID), unix.AT_EMPTY_PATH); err != nil {
		return Owner{}, os.NewSyscallError("fchownat", err)
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)})
	if errors.Is(err, unix.EINVAL) {
		return Owner{}, errdefs.ErrNotImplemented.WithMessage("this kernel has no ID-mapped tmpfs; it needs Linux " +
			"6.3 or later")
	}
	if err != nil {
		return Owner{}, os.NewSyscallError("mount_setattr", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return Owner{}, os.NewSyscallError("fstat", err)
	}
	return Owner{UID: st.Uid, GID: st.Gid}, nil
}
