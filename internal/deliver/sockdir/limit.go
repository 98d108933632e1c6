// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// MountSource is the source of the mounts that limit directories, as mountinfo shows it.
const MountSource = "jackfield-sockets"

const (
	maxInodes  = "1024"
	attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
)

// Limit records that a holder created an open directory, which it has claimed. Unless size is 0, it mounts a tmpfs of
// size bytes on the directory. It returns a descriptor of the root of the tmpfs, or fd.
func (d *Dirs) Limit(dir string, fd int, h Holder, size uint64) (root int, err error) {
	return d.limit(dir, fd, creation{Creator: &h}, size)
}

// limit limits the size of a created directory by a tmpfs on it, and records both identities before the mount. It
// returns the descriptor in which sockets are created; without a limit it is fd.
func (d *Dirs) limit(dir string, fd int, made creation, size uint64) (root int, err error) {
	created, err := hostfs.IDOf(fd)
	if err != nil {
		return -1, err
	}
	made.Pending, made.Created = false, &created
	if size == 0 {
		return fd, d.setCreation(dir, made)
	}
	tree, err := newTmpfs(fd, size)
	if err != nil {
		return -1, fmt.Errorf("create a tmpfs of %d bytes for %q (this needs CAP_SYS_ADMIN): %w", size, dir, err)
	}
	mounted, err := hostfs.IDOf(tree)
	if err == nil {
		made.Mounted = &mounted
		err = d.setCreation(dir, made)
	}
	if err == nil {
		const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
		err = os.NewSyscallError("move_mount", unix.MoveMount(tree, "", fd, "", flags))
	}
	if err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// newTmpfs returns a detached tmpfs. Its root has the owner, the mode and the SELinux label of an open directory.
func newTmpfs(dir int, size uint64) (tree int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return -1, os.NewSyscallError("fstat", err)
	}
	options := []string{fmt.Sprint("size=", size), "nr_inodes=" + maxInodes, fmt.Sprintf("mode=%o", st.Mode&0o777),
		fmt.Sprint("uid=", st.Uid), fmt.Sprint("gid=", st.Gid)}
	if tree, err = hostfs.NewFileSystem("tmpfs", MountSource, options, attributes); err != nil {
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

// removeAt unmounts the tmpfs of the directory name in the open directory parent, and removes the directory if it is
// the one that was created: with its content, unless onlyEmpty. If the creation was not recorded, after a crash, it
// removes only an empty directory. A missing directory, also a symlink, is no error.
func removeAt(parent int, name string, made *creation, onlyEmpty bool) error {
	found, err := unmountTmpfs(parent, name, made.Mounted)
	switch {
	case isAbsent(err):
		return nil
	case err != nil:
		return err
	case made.Created == nil, onlyEmpty && *made.Created == found:
		return removeEmpty(parent, name)
	case *made.Created == found:
		return hostfs.RemoveTreeAt(parent, name)
	}
	return nil // another directory has its place
}

// removeEmpty removes a directory in an open one if it is empty.
func removeEmpty(parent int, name string) error {
	err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	for _, kept := range []error{unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY, unix.ENOTDIR} {
		if errors.Is(err, kept) {
			return nil
		}
	}
	return err
}

// unmountTmpfs unmounts the tmpfs mounted from the directory name in the open directory parent, and nothing else. It
// returns the identity of the directory that has the name then.
func unmountTmpfs(parent int, name string, mounted *hostfs.FileID) (hostfs.FileID, error) {
	found, err := unmount(parent, name, mounted)
	if err == nil && mounted != nil && found == *mounted {
		// The tmpfs is gone: open the directory on which it was mounted.
		found, err = unmount(parent, name, nil)
	}
	return found, err
}

// unmount returns the identity of a directory, and unmounts it if it is the root of the tmpfs mounted.
func unmount(parent int, name string, mounted *hostfs.FileID) (found hostfs.FileID, err error) {
	fd, err := hostfs.OpenatBeneath(parent, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return found, err
	}
	defer unix.Close(fd)
	if found, err = hostfs.IDOf(fd); err != nil || mounted == nil || found != *mounted {
		return found, err
	}
	// EINVAL: the directory is not the root of a mount.
	if err := unix.Unmount(hostfs.DescriptorPath(fd), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return found, os.NewSyscallError("umount2", err)
	}
	return found, nil
}
