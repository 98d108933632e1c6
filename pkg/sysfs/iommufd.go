// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const iommuNode = "/dev/iommu"

// iommufd gives the device's own VFIO node and /dev/iommu, both or none: the one
// is of no use without the other. Most kernels have neither.
func (l lookup) iommufd(host hostfs.Root, dev PCIDevice) ([]Node, error) {
	names, err := l.vfioDevs(host, dev)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	dir := path.Join(dev.Dir, "vfio-dev")
	if len(names) > 1 {
		return nil, l.fail(dir, errdefs.ErrInvalidArgument, "", "it holds %d devices, %q and %q among them, where one is expected",
			len(names), names[0], names[1])
	}
	from := path.Join(dir, names[0])
	// A kernel without CONFIG_VFIO_DEVICE_CDEV, and a device without an IOMMU, has
	// the directory but no numbers in it.
	if _, ok, err := l.read(host, path.Join(from, "dev")); err != nil || !ok {
		return nil, err
	}
	device, err := l.node(host, path.Join("/dev/vfio/devices", names[0]), from, path.Join(from, "dev"), true)
	if err != nil {
		return nil, unlessAbsent(err)
	}
	iommu, err := l.fixed(host, iommuNode, "misc/iommu", from)
	if err != nil {
		return nil, unlessAbsent(err)
	}
	return []Node{device, iommu}, nil
}

// vfioDevs is the names in the function's vfio-dev directory.
func (l lookup) vfioDevs(host hostfs.Root, dev PCIDevice) ([]string, error) {
	return l.list(host, path.Join(dev.Dir, "vfio-dev"), numbered("vfio"))
}

func unlessAbsent(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
