// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"

	"github.com/containerd/errdefs"
)

// findUIO returns the node /dev/uio<N> of a PCI function bound to a UIO driver.
func (l lookup) findUIO(dev PCIDevice) ([]Node, error) {
	dir := path.Join(dev.Dir, "uio")
	names, err := l.listDir(dir, hasNumber("uio"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, l.newError(dir, errdefs.ErrNotFound, "bind it again, or bind it to vfio-pci",
			"driver %q has registered no uio device", dev.Driver)
	}
	nodes := make([]Node, 0, len(names))
	for _, name := range names {
		from := path.Join(dir, name)
		n, err := l.statNode("/dev/"+name, from, path.Join(from, "dev"), false)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return sortByPath(nodes), nil
}
