// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// mountOperation creates a detached mount: a clone of a host path, or a new file system.
func (c *container) mountOperation(host hostfs.Root, m *edit.Mount) (operation, error) {
	o := operation{what: fmt.Sprintf("mount %q", m.Destination), origin: m.Origin, tree: -1}
	var err error
	if o.destination, err = cleanDestination(m.Destination); err != nil {
		return o, err
	}
	opts := mountopt.Parse(m.Options)
	if m.Type != "" && m.Type != "bind" && !opts.Bind {
		o.isDir = true
		o.tree, err = hostfs.NewFileSystem(m.Type, m.Source, opts.Data, opts.Set|opts.SetAll)
		return o, err
	}
	if len(opts.Data) > 0 {
		return o, fmt.Errorf("options: invalid value %q: must be options of bind mounts: %w", opts.Data[0],
			errdefs.ErrInvalidArgument)
	}
	f, err := openSource(host, m)
	if err != nil {
		return o, fmt.Errorf("source: %w", err)
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &o.source); err != nil {
		return o, err
	}
	o.isDir = o.source.Mode&unix.S_IFMT == unix.S_IFDIR
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if opts.Recursive {
		flags |= unix.AT_RECURSIVE
	}
	o.tree, err = unix.OpenTree(int(f.Fd()), "", flags)
	if err != nil {
		return o, fmt.Errorf("clone the mount of host path %q: %w", m.Source, err)
	}
	return o, c.setOptions(o.tree, &opts)
}

// openSource opens the source of a mount. CDI files contain host paths, in which symlinks are
// followed. All other sources are canonical paths from internal/engine: a symlink in one of them
// was created later, and is an error.
func openSource(host hostfs.Root, m *edit.Mount) (*os.File, error) {
	if m.Origin.Source == edit.CDI {
		return host.Open(m.Source, unix.O_PATH)
	}
	return hostfs.Host().OpenBeneath("/", strings.TrimPrefix(m.Source, "/"), unix.O_PATH)
}

// setOptions sets the options of a cloned mount: the options of its root, and the recursive options
// of all mounts below it.
func (c *container) setOptions(tree int, o *mountopt.Options) error {
	// By default, later mounts do not propagate between host and container, in either direction.
	all := unix.MountAttr{Attr_set: o.SetAll, Attr_clr: o.ClearAll, Propagation: cmp.Or(o.Propagation, unix.MS_PRIVATE)}
	if o.IDMap {
		ns, err := unix.Open(c.procPath("ns/user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("map the owners of the mount's files: %w", err)
		}
		defer unix.Close(ns)
		foreign, err := c.hasOtherUserNamespace()
		if err != nil {
			return err
		}
		if foreign {
			all.Attr_set |= unix.MOUNT_ATTR_IDMAP
			all.Userns_fd = uint64(ns)
		}
	}
	if err := setAttributes(tree, &all, unix.AT_RECURSIVE); err != nil {
		return err
	}
	if o.Set|o.Clear == 0 {
		return nil
	}
	return setAttributes(tree, &unix.MountAttr{Attr_set: o.Set, Attr_clr: o.Clear}, 0)
}
