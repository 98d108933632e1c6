// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"io/fs"
	"path"
	"sort"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	// maxFile bounds a sysfs attribute, in bytes; the kernel's own limit is a page.
	maxFile = 4096
	// maxEntries bounds a sysfs directory; a PCI function's has about a hundred.
	maxEntries = 1024
)

// Node is one character device on the host that a container needs.
type Node struct {
	Path     string      // where applications look for it, "/dev/vfio/42"
	HostPath string      // where it is on the host, taken below the host root
	Type     string      // "c"
	Major    uint32      // as the host's node has it
	Minor    uint32      //
	FileMode fs.FileMode // permission bits of the host's node
	UID      uint32      // owner of the host's node
	GID      uint32      // group of the host's node
	From     string      // the file that named this node, "/sys/bus/pci/devices/0000:03:00.3/iommu_group"
}

// node looks at the host's node. from is the file that named it. dev is the
// sysfs file with its numbers; where it exists it must agree, and it need exist
// only when required is set.
func (l lookup) node(host hostfs.Root, p, from, dev string, required bool) (Node, error) {
	st, err := host.Lstat(p)
	if err != nil {
		hint := ""
		if errdefs.IsNotFound(err) {
			hint = "the kernel or udev has not made this node; " + from + " calls for it"
		}
		return Node{}, l.wrap(p, err, hint)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return Node{}, l.fail(p, errdefs.ErrInvalidArgument, from+" calls for it",
			"it is a %s, not a character device", hostfs.TypeName(st.Mode))
	}
	n := Node{
		Path: p, HostPath: p, Type: "c",
		Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev),
		FileMode: fs.FileMode(st.Mode & 0o777), UID: st.Uid, GID: st.Gid, From: from,
	}
	b, err := host.ReadFile(dev, maxFile)
	switch {
	case errdefs.IsNotFound(err) && !required:
		// A node made before its module is loaded (static nodes) has no class entry.
		if from == dev {
			n.From = p
		}
		return n, nil
	case err != nil:
		return Node{}, l.wrap(dev, err, "")
	}
	major, minor, err := parseDev(b)
	if err != nil {
		return Node{}, l.wrap(dev, err, "")
	}
	if major != n.Major || minor != n.Minor {
		return Node{}, l.fail(dev, errdefs.ErrConflict, "the node is stale: remove it and let udev make it again",
			"the kernel says %d:%d, but %s is %d:%d", major, minor, p, n.Major, n.Minor)
	}
	return n, nil
}

// fixed looks at a node that has one name on every host, such as /dev/vfio/vfio.
// class is its directory below /sys/class. from is the file that makes it
// necessary; "" takes the node's own sysfs file, or the node itself.
func (l lookup) fixed(host hostfs.Root, p, class, from string) (Node, error) {
	dev := path.Join("/sys/class", class, "dev")
	if from == "" {
		from = dev
	}
	return l.node(host, p, from, dev, false)
}

// link is the text of a sysfs symlink, "" when there is none. Anything else in
// its place is an error.
func (l lookup) link(host hostfs.Root, p string) (string, error) {
	target, err := host.Readlink(p)
	if err == nil {
		return target, nil
	}
	st, statErr := host.Lstat(p)
	switch {
	case errdefs.IsNotFound(statErr):
		return "", nil
	case statErr != nil:
		return "", l.wrap(p, statErr, "")
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return "", l.fail(p, errdefs.ErrInvalidArgument, "", "it is a %s, not a symlink", hostfs.TypeName(st.Mode))
	}
	return "", l.wrap(p, err, "")
}

// list is the names in a sysfs directory that match, nil when there is no such
// directory.
func (l lookup) list(host hostfs.Root, p string, match func(string) bool) ([]string, error) {
	names, err := host.ReadDir(p, maxEntries)
	if errdefs.IsNotFound(err) {
		if st, statErr := host.Stat(p); statErr == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil, l.fail(p, errdefs.ErrInvalidArgument, "", "it is a %s, not a directory", hostfs.TypeName(st.Mode))
		}
		return nil, nil
	}
	if err != nil {
		return nil, l.wrap(p, err, "")
	}
	var kept []string
	for _, name := range names {
		if match(name) {
			kept = append(kept, name)
		}
	}
	return kept, nil
}

// numbered matches prefix+N.
func numbered(prefixes ...string) func(string) bool {
	return func(name string) bool {
		for _, p := range prefixes {
			if _, ok := number(name, p); ok {
				return true
			}
		}
		return false
	}
}

// read is a one-line sysfs attribute without its newline; ok is false when there is none.
func (l lookup) read(host hostfs.Root, p string) (text string, ok bool, err error) {
	b, err := host.ReadFile(p, maxFile)
	if errdefs.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, l.wrap(p, err, "")
	}
	return strings.TrimSuffix(string(b), "\n"), true, nil
}

func sorted(nodes []Node) []Node {
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Path < nodes[j].Path })
	return nodes
}

// module turns "not found" into the advice to load the kernel module that makes
// the node.
func (l lookup) module(err error, name string) error {
	var e *Error
	if errdefs.IsNotFound(err) && errors.As(err, &e) {
		hinted := *e
		hinted.Hint = "load the kernel module " + name
		return &hinted
	}
	return err
}
