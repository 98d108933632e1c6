// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// moveMountBeneath is MOVE_MOUNT_BENEATH of linux/mount.h.
const moveMountBeneath = 0x200

// maxCovered is at how many places an old mount is above a new one at a time. It is then a mount on
// the new socket, and the kernel lets nobody unlink the socket (EBUSY).
const maxCovered = 32

// bindPlace is a place at which a socket is bound.
type bindPlace struct {
	container string
	target    string // path
	from      string // file and field that request it, for messages
}

// replaceMounts binds the socket of a descriptor at all places that have another one. It returns the
// containers of these places.
//
// All new mounts are clones of the first, and thus its peers: when the kernel unmounts the old mount
// above one of them, it unmounts those above the others, too. Each unmount waits for an RCU grace
// period, so that one for each place would take several times longer.
func replaceMounts(fd int, places []bindPlace) (rebound map[string]bool, err error) {
	now, err := hostfs.IDOf(fd)
	if err != nil {
		return nil, err
	}
	rebound = make(map[string]bool)
	var errs []error
	first := noMount
	for batch := range slices.Chunk(places, maxCovered) {
		var covered []bindPlace
		for _, p := range batch {
			if isBound(p.target, now) {
				continue
			}
			tree, isCovered, err := mountBeneath(fd, first, p.target)
			if err != nil {
				errs = append(errs, edit.WithOrigin(p.from, err))
				continue
			}
			if isCovered {
				covered = append(covered, p)
			} else {
				rebound[p.container] = true
			}
			if isCovered && first == noMount {
				first = tree
				defer unix.Close(first)
			} else {
				unix.Close(tree)
			}
		}
		for _, p := range covered {
			// The unmount at another place may have reached this one.
			if !isBound(p.target, now) {
				if err := unmountTop(p.target); err != nil {
					errs = append(errs, edit.WithOrigin(p.from, err))
					continue
				}
			}
			rebound[p.container] = true
		}
	}
	return rebound, errors.Join(errs...)
}

func isBound(target string, socket hostfs.FileID) bool {
	have, ok := boundSocket(target)
	return ok && have == socket
}

// noMount stands for no descriptor of a mount.
const noMount = -1

// mountBeneath binds the file of a descriptor at target, beneath the mount there, so that the
// path always has a socket. The new mount is a clone of peer, unless that is noMount. It is returned
// as a descriptor, with whether an older mount covers it now. Kernels before 6.5 cannot mount
// beneath: there the older mount is unmounted first, and the path has no socket for a moment.
func mountBeneath(fd, peer int, target string) (tree int, covered bool, err error) {
	tree = noMount
	if peer != noMount {
		tree, err = openTree(peer) // fails where the peer's container has removed its place
	}
	if tree == noMount {
		if tree, err = cloneMount(fd, restrictedAttrs|unix.MOUNT_ATTR_RDONLY); err != nil {
			return noMount, false, err
		}
	}
	defer func() {
		if err != nil {
			unix.Close(tree)
			tree = noMount
		}
	}()
	if err = attachMount(tree, target, moveMountBeneath); err == nil {
		return tree, true, nil
	}
	if isUnlinked(fd) {
		return tree, false, err // the new socket is gone, too: keep the old mount
	}
	if err = unmountStack(target); err != nil {
		return tree, false, err
	}
	err = attachMount(tree, target, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		// The container removed the placeholder, in a directory that it can write.
		if err = createPlaceholder(target); err == nil {
			err = attachMount(tree, target, 0)
		}
	}
	return tree, false, err
}

// unmountTop unmounts the upper of two mounts.
func unmountTop(target string) error {
	return pathError("unmount", target, unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// isUnlinked reports whether the file of a descriptor has been unlinked. The kernel does not mount such a file.
func isUnlinked(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink == 0
}
