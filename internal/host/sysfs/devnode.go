// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// maxFile bounds a sysfs attribute, in bytes; the kernel's own limit is a page.
	maxFile = 4096
	// maxEntries bounds a sysfs directory; a PCI function's has about a hundred.
	maxEntries = 1024
)

// Node is one character device on the host that a container needs.
type Node struct {
	Path     string      // on the host, below the host root, and in the container: "/dev/vfio/42"
	Major    uint32      // of the host's node
	Minor    uint32      // of the host's node
	FileMode fs.FileMode // permission bits of the host's node
	UID      uint32      // owner of the host's node
	GID      uint32      // group of the host's node
	From     string      // the file that named this node, "/sys/bus/pci/devices/0000:03:00.3/iommu_group"
	// VFIO is the interface of VFIO that the node belongs to, "" for other nodes.
	VFIO VFIOInterface
	// PinsMemory is set for a node whose programs pin memory for the device, within RLIMIT_MEMLOCK.
	PinsMemory bool
	// Shared is set for a node that devices share, such as /dev/vfio/vfio.
	Shared bool
}

// statNode checks and describes the host's node p. from is the sysfs file that named
// it. dev is the sysfs file with its device number; where that file exists the numbers
// must agree, and required makes its absence an error.
func (l lookup) statNode(p, from, dev string, required bool) (Node, error) {
	st, err := l.host.Lstat(p)
	if err != nil {
		return Node{}, l.wrapError(p, err, "the kernel or udev has not created this node, which "+from+" refers to")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return Node{}, l.newError(p, errdefs.ErrInvalidArgument, from+" refers to it",
			"it is a %s, not a character device", hostfs.TypeName(st.Mode))
	}
	n := Node{
		Path: p, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev),
		FileMode: fs.FileMode(st.Mode & 0o777), UID: st.Uid, GID: st.Gid, From: from,
	}
	b, err := l.host.ReadFile(dev, maxFile)
	switch {
	case errdefs.IsNotFound(err) && !required:
		// A static node, which exists before its module is loaded, has no class entry.
		if from == dev {
			n.From = p
		}
		return n, nil
	case err != nil:
		return Node{}, l.wrapError(dev, err, "")
	}
	major, minor, err := parseDev(b)
	if err != nil {
		return Node{}, l.wrapError(dev, err, "")
	}
	if major != n.Major || minor != n.Minor {
		return Node{}, l.newError(dev, errdefs.ErrConflict, "the node is stale: remove it and let udev re-create it",
			"the kernel reports %d:%d, but %s is %d:%d", major, minor, p, n.Major, n.Minor)
	}
	return n, nil
}

// statFixedNode is like statNode, for a node with the same name on every host, such as
// /dev/vfio/vfio. class is its directory below /sys/class. from "" stands for the
// node's own sysfs file, or the node itself.
func (l lookup) statFixedNode(p, class, from string) (Node, error) {
	dev := path.Join("/sys/class", class, "dev")
	if from == "" {
		from = dev
	}
	n, err := l.statNode(p, from, dev, false)
	n.Shared = err == nil
	return n, err
}

// readLink returns the target of a sysfs symlink, or "" if it does not exist. A file
// of another type is an error.
func (l lookup) readLink(p string) (string, error) {
	target, err := l.host.Readlink(p)
	if err == nil {
		return target, nil
	}
	st, statErr := l.host.Lstat(p)
	switch {
	case errdefs.IsNotFound(statErr):
		return "", nil
	case statErr != nil:
		return "", l.wrapError(p, statErr, "")
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return "", l.newError(p, errdefs.ErrInvalidArgument, "", "it is a %s, not a symlink", hostfs.TypeName(st.Mode))
	}
	return "", l.wrapError(p, err, "")
}

// listDir returns the names in a sysfs directory that match, or nil if it does not
// exist.
func (l lookup) listDir(p string, match func(string) bool) ([]string, error) {
	names, err := l.host.ReadDir(p, maxEntries)
	if errdefs.IsNotFound(err) {
		if st, statErr := l.host.Stat(p); statErr == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil, l.newError(p, errdefs.ErrInvalidArgument, "", "it is a %s, not a directory",
				hostfs.TypeName(st.Mode))
		}
		return nil, nil
	}
	if err != nil {
		return nil, l.wrapError(p, err, "")
	}
	return slices.DeleteFunc(names, func(name string) bool { return !match(name) }), nil
}

// hasNumber returns a function that matches PREFIX<N> for one of the prefixes.
func hasNumber(prefixes ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool {
			_, ok := parseNumber(name, prefix)
			return ok
		})
	}
}

// readAttribute returns a one-line sysfs attribute without its newline; ok is false if
// it does not exist.
func (l lookup) readAttribute(p string) (text string, ok bool, err error) {
	b, err := l.host.ReadFile(p, maxFile)
	if errdefs.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, l.wrapError(p, err, "")
	}
	return strings.TrimSuffix(string(b), "\n"), true, nil
}

func sortByPath(nodes []Node) []Node {
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	return nodes
}
