// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// scratchOptions are those of a container's own small file system: room for the
// sockets and lock files of an application, and no more.
const scratchOptions = "size=64k,nr_inodes=64"

const (
	restricted = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	msFlags    = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

// clone makes a mount of what a descriptor is of, attached nowhere yet. It is in no
// peer group: what happens in the file system it comes from stays there.
func clone(fd int, attr uint64) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}); err != nil {
		unix.Close(tree)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return tree, nil
}

// attach mounts a clone at target. A symlink there is not followed.
func attach(tree int, target string, flags int) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|flags); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// detach unmounts all that is mounted at target, with what is mounted in it.
func detach(target string) error {
	// Nothing of ours stacks more than two.
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

// placeholder makes the empty file that a socket is mounted on. What else is there
// goes.
func placeholder(target string) error {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(target, flags, 0o444)
	if errors.Is(err, unix.EEXIST) {
		var st unix.Stat_t
		if unix.Lstat(target, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return nil
		}
		if err := os.Remove(target); err != nil {
			return err
		}
		fd, err = unix.Open(target, flags, 0o444)
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: target, Err: err}
	}
	return unix.Close(fd)
}

// scratch mounts a small file system at dir.
func scratch(dir string, uid, gid int) error {
	options := scratchOptions + ",mode=1777"
	if uid >= 0 && gid >= 0 {
		options = scratchOptions + ",mode=755,uid=" + strconv.Itoa(uid) + ",gid=" + strconv.Itoa(gid)
	}
	if err := unix.Mount("jackfield", dir, "tmpfs", msFlags, options); err != nil {
		return &os.PathError{Op: "mount", Path: dir, Err: err}
	}
	return nil
}

// mountsAt finds the mount that a path lies in, and the one that is on the path itself,
// when there is one.
func mountsAt(path string) (around hostfs.Mount, on *hostfs.Mount, err error) {
	mounts, err := hostfs.Mounts()
	for i := range mounts {
		switch m := &mounts[i]; {
		case m.Point == path:
			on = m // of several, the last is on top
		case (m.Point == "/" || strings.HasPrefix(path, m.Point+"/")) && len(m.Point) >= len(around.Point):
			around = *m
		}
	}
	return around, on, err
}

func wantType(mode, want uint32, name string) error {
	if mode&unix.S_IFMT == want {
		return nil
	}
	return fmt.Errorf("%q is a %s, want a %s: %w", name, hostfs.TypeName(mode), hostfs.TypeName(want), errdefs.ErrInvalidArgument)
}
