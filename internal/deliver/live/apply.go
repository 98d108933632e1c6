// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Target is a container that has its namespaces and has not yet pivoted into its root.
type Target struct {
	// Pid is the container's first process, in this process's PID namespace.
	Pid int
	// Root is the absolute path of the container's root file system in the mount
	// namespace of Pid: root.path of its config.json.
	Root string
}

// Apply creates the mounts and device nodes of the set in the container, and allows the devices in
// its device cgroup. It skips the edits that [UndeliverableEdits] returns. After an error the
// container has some of the edits or none, and must not be started.
//
// Mounts come from descriptors that were opened on the host. Device nodes are bind mounts of the
// host's nodes, or new nodes if the set requests another mode or owner and the container has no
// user namespace.
func Apply(host hostfs.Root, t Target, set *edit.Set) error {
	if len(set.Mounts)+len(set.Devices) == 0 {
		return nil
	}
	c, err := openContainer(t)
	if err != nil {
		return err
	}
	defer c.close()
	operations, err := c.prepareOperations(host, set)
	defer func() {
		for i := range operations {
			operations[i].close()
		}
	}()
	if err != nil {
		return err
	}
	// The cgroup comes first: a rule without its node grants nothing, but a node without its rule
	// looks broken to the application.
	if err := allowDevices(t.Pid, set.Devices); err != nil {
		return err
	}
	return c.onDisposableThread(func(root int) error {
		for i := range operations {
			if err := operations[i].deliver(root); err != nil {
				return fmt.Errorf("%s: deliver %s to the container: %w", operations[i].origin, operations[i].what, err)
			}
		}
		return nil
	})
}

// prepareOperations opens every host object of the set. The caller closes the operations, even
// after an error.
func (c *container) prepareOperations(host hostfs.Root, set *edit.Set) ([]operation, error) {
	if len(set.Devices) > 0 {
		foreign, err := c.hasOtherUserNamespace()
		if err != nil {
			return nil, err
		}
		c.bindsDevices = foreign || rootless()
	}
	operations := make([]operation, 0, len(set.Devices)+len(set.Mounts))
	add := func(o operation, err error) error {
		operations = append(operations, o)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", o.origin, o.what, err)
		}
		return nil
	}
	for i := range set.Devices {
		if err := add(c.deviceOperation(host, &set.Devices[i])); err != nil {
			return operations, err
		}
	}
	for i := range set.Mounts {
		if err := add(c.mountOperation(host, &set.Mounts[i])); err != nil {
			return operations, err
		}
	}
	return operations, nil
}

// operation is one mount or device node to create in the container. All its host objects are open.
type operation struct {
	what        string // for messages
	origin      edit.Origin
	destination string // clean path in the container

	tree   int         // detached mount, -1 for a new device node
	isDir  bool        // the root of the mount is a directory
	source unix.Stat_t // root of the mount on the host; Ino 0 for a new file system

	node *edit.Device // nil for a mount
}

func (o *operation) close() {
	if o.tree >= 0 {
		unix.Close(o.tree)
	}
}

// deliver performs the operation. It changes nothing if the container has the result already.
func (o *operation) deliver(root int) error {
	if o.tree < 0 {
		return o.makeNode(root)
	}
	target, err := openTarget(root, o.destination, o.isDir)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if o.isMountedAt(target) {
		return nil
	}
	if err := unix.MoveMount(o.tree, "", target, "",
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %q: %w", o.destination, err)
	}
	return nil
}

// isMountedAt reports whether the hook of an earlier stage, or the runtime, has already mounted
// this object at target.
func (o *operation) isMountedAt(target int) bool {
	var st unix.Stat_t
	if unix.Fstat(target, &st) != nil || o.source.Ino == 0 {
		return false
	}
	if o.node != nil && st.Mode&unix.S_IFMT == o.source.Mode&unix.S_IFMT && st.Rdev == o.source.Rdev {
		return true // another file with the same device number
	}
	return hostfs.StatID(&st) == hostfs.StatID(&o.source)
}
