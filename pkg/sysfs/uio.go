// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// UIO gives the node of a PCI function that is bound to igb_uio or
// uio_pci_generic, /dev/uio<N>. Bound to another driver, or to none, it is
// ErrFailedPrecondition.
func UIO(host hostfs.Root, address string) ([]Node, error) {
	l := lookup{"find UIO nodes of PCI device", address}
	dev, err := l.pci(host)
	if err != nil {
		return nil, err
	}
	return l.uio(host, dev)
}

func (l lookup) uio(host hostfs.Root, dev PCIDevice) ([]Node, error) {
	if dev.Kind != KindUIO {
		return nil, l.unbound(dev, "bind it to uio_pci_generic")
	}
	dir := path.Join(dev.Dir, "uio")
	names, err := l.list(host, dir, numbered("uio"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, l.fail(dir, errdefs.ErrNotFound, "bind it again, or bind it to vfio-pci", "driver %q has registered no uio device", dev.Driver)
	}
	nodes := make([]Node, 0, len(names))
	for _, name := range names {
		from := path.Join(dir, name)
		n, err := l.node(host, "/dev/"+name, from, path.Join(from, "dev"), false)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return sorted(nodes), nil
}
