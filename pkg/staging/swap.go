// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// beneath is MOVE_MOUNT_BENEATH of linux/mount.h.
const beneath = 0x200

// swap binds the socket of a descriptor at target, in the place of what is mounted
// there: beneath it, and then that one away, so that there is one all the time; where
// the kernel (before 6.5) cannot, or where there is none, one after the other.
//
// While the old mount is above the new one it is a mount on the new socket, which the
// kernel then lets nobody unlink (EBUSY). So one container is done after the other:
// mounting in all of them first would be no faster for the last one, and would leave
// more behind of a process that is killed.
func swap(fd int, target string) error {
	covered, err := slip(fd, target)
	if err != nil || !covered {
		return err
	}
	return uncover(target)
}

// slip binds what a descriptor is of at target, and says whether what was mounted
// there before covers it.
func slip(fd int, target string) (covered bool, err error) {
	tree, err := clone(fd, restricted|unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return false, err
	}
	defer unix.Close(tree)
	err = attach(tree, target, beneath)
	if err == nil {
		return true, nil
	}
	if gone(fd) {
		return false, err // what is there is no worse
	}
	if err := detach(target); err != nil {
		return false, err
	}
	err = attach(tree, target, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		// The container removed the file below the mount, in a directory it can write.
		if err := placeholder(target); err != nil {
			return false, err
		}
		err = attach(tree, target, 0)
	}
	return false, err
}

// uncover takes away the upper of two mounts.
func uncover(target string) error {
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	return nil
}

// gone reports whether what a descriptor is of has been unlinked: the kernel mounts it
// no more.
func gone(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink == 0
}

// settle does what a process left to do that was killed between slip and uncover. It
// is for the one process that binds anew, before it begins. The lock is held.
func (s *Store) settle() error {
	mounts, err := hostfs.Mounts()
	if err != nil {
		return err
	}
	count := make(map[string]int)
	for i := range mounts {
		if point := mounts[i].Point; strings.HasPrefix(point, s.containers()+"/") {
			count[point]++
		}
	}
	var errs []error
	for point, n := range count {
		if _, ok := bound(point); !ok {
			continue
		}
		for ; n > 1; n-- { // the lowest is the newest
			errs = append(errs, uncover(point))
		}
	}
	return errors.Join(errs...)
}
