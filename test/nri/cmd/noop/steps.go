// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// step is one line of a file of steps, below the container's directory:
//
//	dir PATH
//	file PATH SIZE
//	bind PATH SOCKET
//	tmpfs PATH
type step struct {
	what, path, from string
	size             int
}

// readSteps reads the steps. Where one of them mounts, dir is made a shared mount,
// as a staging directory is.
func readSteps(file, dir string) ([]step, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var steps []step
	mounts := false
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		s := step{what: f[0], path: f[1]}
		switch s.what {
		case "dir":
		case "file":
			if _, err := fmt.Sscan(f[2], &s.size); err != nil {
				return nil, err
			}
		case "bind":
			s.from = f[2]
			mounts = true
		case "tmpfs":
			mounts = true
		default:
			return nil, fmt.Errorf("unknown step %q", line)
		}
		steps = append(steps, s)
	}
	if mounts {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return nil, err
		}
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func (s *step) do(at string) error {
	switch s.what {
	case "dir":
		return unix.Mkdir(at+s.path, 0o755)
	case "file":
		fd, err := unix.Open(at+s.path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		if s.size > 0 {
			_, err = unix.Write(fd, make([]byte, s.size))
		}
		return errors.Join(err, unix.Close(fd))
	case "tmpfs":
		return unix.Mount("floor", at+s.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,nr_inodes=64,mode=1777")
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, s.from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return errors.Join(err, unix.Close(tree))
	}
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, at+s.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return errors.Join(err, unix.Close(tree))
}

func (s *step) undo(at string) error {
	if s.what == "bind" || s.what == "tmpfs" {
		return unix.Unmount(at+s.path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	return nil
}
