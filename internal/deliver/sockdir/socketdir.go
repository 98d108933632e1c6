// SPDX-License-Identifier: Apache-2.0

// Package sockdir limits the size of directories in which applications create sockets, by a
// small tmpfs on each, and removes these directories. A claim records the tmpfs before it is
// mounted, so that removal finds it after a crash at any point.
package sockdir

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/claims"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Source is the source of the mounts, as mountinfo shows it.
const Source = "jackfield-sockets"

const (
	maxInodes  = "1024"
	attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
)

// Mount mounts a tmpfs of size bytes on the open directory dir, which was created for the
// sandbox that has claimed path. It returns a descriptor of the tmpfs' root.
func Mount(c *claims.Dir, path string, dir int, size uint64) (root int, err error) {
	created, err := claims.IdentityOf(dir)
	if err != nil {
		return -1, err
	}
	tree, err := newTmpfs(dir, size)
	if err != nil {
		return -1, fmt.Errorf("create a tmpfs of %d bytes for %q (this needs CAP_SYS_ADMIN): %w", size, path, err)
	}
	mounted, err := claims.IdentityOf(tree)
	if err == nil {
		err = c.SetCreated(path, created, &mounted)
	}
	if err == nil {
		err = os.NewSyscallError("move_mount", unix.MoveMount(tree, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	}
	if err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// newTmpfs returns a detached tmpfs. Its root has the owner, the mode and the SELinux label of an
// open directory.
func newTmpfs(dir int, size uint64) (tree int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return -1, os.NewSyscallError("fstat", err)
	}
	options := []string{fmt.Sprint("size=", size), "nr_inodes=" + maxInodes, fmt.Sprintf("mode=%o", st.Mode&0o777), fmt.Sprint("uid=", st.Uid), fmt.Sprint("gid=", st.Gid)}
	if tree, err = hostfs.NewFileSystem("tmpfs", Source, options, attributes); err != nil {
		return -1, err
	}
	if label := hostfs.SELinuxLabel(dir); label != "" {
		if err := hostfs.SetSELinuxLabel(tree, label); err != nil {
			unix.Close(tree)
			return -1, fmt.Errorf("set SELinux label %q of tmpfs: %w", label, err)
		}
	}
	return tree, nil
}

// Remove unmounts what Mount mounted on the directory name in the open directory parent, and removes
// the directory if it is the one that the claim says was created: with what is in it, unless onlyEmpty.
// If the claim does not say, after a crash, it removes only an empty directory. No directory, also a
// symlink, is no error.
func Remove(parent int, name string, claim *claims.Claim, onlyEmpty bool) error {
	found, err := unmountTmpfs(parent, name, claim)
	switch {
	case errdefs.IsNotFound(err), errdefs.IsPermissionDenied(err):
		return nil
	case err != nil:
		return err
	case claim.Created == nil, onlyEmpty && *claim.Created == found:
		return RemoveEmpty(parent, name)
	case *claim.Created == found:
		return hostfs.RemoveTreeAt(parent, name)
	}
	return nil // another directory has its place
}

// RemoveEmpty removes a directory in an open one if it is empty.
func RemoveEmpty(parent int, name string) error {
	err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	for _, kept := range []error{unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY, unix.ENOTDIR} {
		if errors.Is(err, kept) {
			return nil
		}
	}
	return err
}

// unmountTmpfs unmounts what Mount mounted on the directory name in the open directory parent. It
// returns the identity of the directory that has the name then. It unmounts nothing else.
func unmountTmpfs(parent int, name string, claim *claims.Claim) (claims.Identity, error) {
	found, err := unmount(parent, name, claim.Mounted)
	if err == nil && claim.Mounted != nil && found == *claim.Mounted {
		// The tmpfs is gone: open what it was mounted on.
		found, err = unmount(parent, name, nil)
	}
	return found, err
}

// unmount returns the identity of a directory, and unmounts it if it is the root of the tmpfs
// mounted.
func unmount(parent int, name string, mounted *claims.Identity) (found claims.Identity, err error) {
	fd, err := hostfs.OpenatBeneath(parent, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return found, err
	}
	defer unix.Close(fd)
	if found, err = claims.IdentityOf(fd); err != nil || mounted == nil || found != *mounted {
		return found, err
	}
	// EINVAL: the directory is not the root of a mount.
	if err := unix.Unmount(hostfs.DescriptorPath(fd), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return found, os.NewSyscallError("umount2", err)
	}
	return found, nil
}
