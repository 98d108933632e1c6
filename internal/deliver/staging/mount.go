// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// scratchOptions limit the file system of a container's own to the sockets and lock files of an application.
const scratchOptions = "size=64k,nr_inodes=64"

const (
	restrictedAttrs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	restrictedFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

// cloneMount returns a detached mount of the file of a descriptor. It is in no peer group, so
// that mounts made in the source do not propagate to it.
func cloneMount(fd int, attr uint64) (int, error) {
	tree, err := openTree(fd)
	if err != nil {
		return -1, err
	}
	private := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &private); err != nil {
		unix.Close(tree)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return tree, nil
}

// openTree returns a detached clone of a descriptor's mount, in the same peer group, with the descriptor's file as
// its root.
func openTree(fd int) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	return tree, os.NewSyscallError("open_tree", err)
}

// attachMount mounts a detached mount at target. It follows no symlink there.
func attachMount(tree int, target string, flags int) error {
	err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|flags)
	return pathError("move_mount", target, err)
}

// pathError adds operation and path to the error of a system call, as os.NewSyscallError adds the call.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// unmountStack unmounts everything at target, with the mounts below it.
func unmountStack(target string) error {
	// Jackfield stacks two mounts at most.
	for range 64 {
		switch err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil
		default:
			return &os.PathError{Op: "unmount", Path: target, Err: err}
		}
	}
	return nil
}

// createPlaceholder creates the empty file that a socket is mounted on. It unmounts and removes
// anything else at its path.
func createPlaceholder(target string) error {
	err := unix.Mknod(target, unix.S_IFREG|0o444, 0)
	if errors.Is(err, unix.EEXIST) {
		var st unix.Stat_t
		if unix.Lstat(target, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return nil
		}
		if err := errors.Join(unmountStack(target), os.Remove(target)); err != nil {
			return err
		}
		err = unix.Mknod(target, unix.S_IFREG|0o444, 0)
	}
	return pathError("create", target, err)
}

// mountScratch mounts a small tmpfs on a directory of the container, which is below base.
func mountScratch(c *edit.Container, base, dir string) error {
	target := filepath.Join(base, dir)
	options := scratchOptions + ",mode=1777"
	if u := scratchOwner(c, dir); u != nil {
		options = fmt.Sprintf("%s,mode=755,uid=%d,gid=%d", scratchOptions, u.UID, u.GID)
	}
	return pathError("mount", target, unix.Mount("jackfield", target, "tmpfs", restrictedFlags, options))
}

// bindFD binds the file of a descriptor at target.
func bindFD(fd int, target string, attr uint64) error {
	tree, err := cloneMount(fd, attr)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attachMount(tree, target, 0)
}

// boundSocket returns the identity of the socket that is mounted at target, false for none.
func boundSocket(target string) (hostfs.FileID, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(target, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return hostfs.FileID{}, false
	}
	return hostfs.StatID(&st), true
}

// scratchOwner returns the user who owns a scratch directory, nil for the process's own.
func scratchOwner(c *edit.Container, dir string) *edit.User {
	isIn := func(at string) bool { return strings.HasPrefix(at, dir+"/") }
	for i := range c.Sockets {
		if k := &c.Sockets[i]; k.Access.User != nil && slices.ContainsFunc(k.At, isIn) {
			return k.Access.User
		}
	}
	return nil
}
