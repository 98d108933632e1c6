// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// mountJob makes the mount, detached: a clone of what is on the host, or a new file
// system.
func (c *container) mountJob(host hostfs.Root, m *edits.Mount) (job, error) {
	j := job{what: fmt.Sprintf("mount %q", m.Destination), origin: m.Origin, tree: -1}
	var err error
	if j.dst, err = clean(m.Destination); err != nil {
		return j, err
	}
	o := parseOptions(m.Options)
	if m.Type != "" && m.Type != "bind" && !o.bind {
		j.dir = true
		j.tree, err = newFileSystem(m, &o)
		return j, err
	}
	if len(o.data) > 0 {
		return j, fmt.Errorf("options: found %q, which a bind mount does not have: %w", o.data[0], errdefs.ErrInvalidArgument)
	}
	f, err := openSource(host, m)
	if err != nil {
		return j, fmt.Errorf("source: %w", err)
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &j.from); err != nil {
		return j, err
	}
	j.dir = j.from.Mode&unix.S_IFMT == unix.S_IFDIR
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if o.recursive {
		flags |= unix.AT_RECURSIVE
	}
	j.tree, err = unix.OpenTree(int(f.Fd()), "", flags)
	if err != nil {
		return j, fmt.Errorf("take host path %q: %w", m.Source, err)
	}
	return j, c.setOptions(j.tree, &o)
}

// openSource opens what is to be mounted. The sources of CDI files are host paths;
// those that resolve found are canonical paths of the machine: a symlink on the way
// is somebody's who came later.
func openSource(host hostfs.Root, m *edits.Mount) (*os.File, error) {
	if m.Origin.Source == edits.CDI {
		return host.Open(m.Source, unix.O_PATH)
	}
	return hostfs.Host().OpenBeneath("/", strings.TrimPrefix(m.Source, "/"), unix.O_PATH)
}

// setOptions sets the options of a cloned mount: those of itself, and those of all
// below it.
func (c *container) setOptions(tree int, o *options) error {
	all := unix.MountAttr{Attr_set: o.setAll, Attr_clr: o.clearAll, Propagation: o.propagation}
	if o.mapped {
		ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", c.target.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("map the mount's owners: %w", err)
		}
		defer unix.Close(ns)
		apart, err := c.userNS()
		if err != nil {
			return err
		}
		if apart {
			all.Attr_set |= unix.MOUNT_ATTR_IDMAP
			all.Userns_fd = uint64(ns)
		}
	}
	if err := detach(tree, &all, unix.AT_RECURSIVE); err != nil {
		return err
	}
	if o.set|o.clear == 0 {
		return nil
	}
	return detach(tree, &unix.MountAttr{Attr_set: o.set, Attr_clr: o.clear}, 0)
}

// newFileSystem makes a mount that is no bind mount.
func newFileSystem(m *edits.Mount, o *options) (int, error) {
	fs, err := unix.Fsopen(m.Type, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("type: found %q: %w", m.Type, err)
	}
	defer unix.Close(fs)
	if m.Source != "" {
		if err := unix.FsconfigSetString(fs, "source", m.Source); err != nil {
			return -1, fmt.Errorf("source: found %q: %w", m.Source, err)
		}
	}
	for _, option := range o.data {
		key, value, valued := strings.Cut(option, "=")
		if valued {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, key)
		}
		if err != nil {
			return -1, fmt.Errorf("options: found %q: %w", option, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a file system of type %q: %w", m.Type, err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(o.set|o.setAll))
	if err != nil {
		return -1, fmt.Errorf("mount a file system of type %q: %w", m.Type, err)
	}
	return tree, nil
}

// options are a mount's options, of the OCI runtime specification's list.
type options struct {
	bind, recursive, mapped bool
	set, clear              uint64 // of the mount itself
	setAll, clearAll        uint64 // of those below it, too
	propagation             uint64
	data                    []string // of the file system
}

// attributes are by option; what is cleared has the option "no" takes away.
func attribute(option string) (set, clear uint64, known bool) {
	switch option {
	case "ro":
		return unix.MOUNT_ATTR_RDONLY, 0, true
	case "rw":
		return 0, unix.MOUNT_ATTR_RDONLY, true
	case "nosuid":
		return unix.MOUNT_ATTR_NOSUID, 0, true
	case "suid":
		return 0, unix.MOUNT_ATTR_NOSUID, true
	case "nodev":
		return unix.MOUNT_ATTR_NODEV, 0, true
	case "dev":
		return 0, unix.MOUNT_ATTR_NODEV, true
	case "noexec":
		return unix.MOUNT_ATTR_NOEXEC, 0, true
	case "exec":
		return 0, unix.MOUNT_ATTR_NOEXEC, true
	case "noatime":
		return unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME, true
	case "relatime", "atime":
		return unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME, true
	case "strictatime":
		return unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME, true
	case "nodiratime":
		return unix.MOUNT_ATTR_NODIRATIME, 0, true
	case "diratime":
		return 0, unix.MOUNT_ATTR_NODIRATIME, true
	case "nosymfollow":
		return unix.MOUNT_ATTR_NOSYMFOLLOW, 0, true
	case "symfollow":
		return 0, unix.MOUNT_ATTR_NOSYMFOLLOW, true
	}
	return 0, 0, false
}

func parseOptions(list []string) options {
	// Nothing that is mounted on the host later is to appear in the container, nor
	// the other way round, unless that is asked for.
	o := options{propagation: unix.MS_PRIVATE}
	for _, option := range list {
		if set, clear, ok := attribute(option); ok {
			o.set, o.clear = o.set&^clear|set, o.clear&^set|clear
			continue
		}
		if set, clear, ok := attribute(strings.TrimPrefix(option, "r")); ok {
			o.setAll, o.clearAll = o.setAll&^clear|set, o.clearAll&^set|clear
			continue
		}
		switch option {
		case "", "defaults":
		case "bind":
			o.bind = true
		case "rbind":
			o.bind, o.recursive = true, true
		case "idmap", "ridmap":
			o.mapped = true
		case "private", "rprivate":
			o.propagation = unix.MS_PRIVATE
		case "slave", "rslave":
			o.propagation = unix.MS_SLAVE
		case "shared", "rshared":
			o.propagation = unix.MS_SHARED
		case "unbindable", "runbindable":
			o.propagation = unix.MS_UNBINDABLE
		default:
			if !slices.Contains(o.data, option) {
				o.data = append(o.data, option)
			}
		}
	}
	// Atime settings replace each other and are cleared as one.
	if o.set&unix.MOUNT_ATTR__ATIME != 0 {
		o.clear |= unix.MOUNT_ATTR__ATIME
	}
	return o
}
