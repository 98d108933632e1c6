// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// NumberedDevice is the device to which a device number leads at this moment. The kernel gives the number to another
// device after this one was removed.
type NumberedDevice struct {
	// Class is the kernel's class or bus of the node: "vfio", "vfio-dev", "vdpa", "infiniband_verbs", "tty".
	Class string
	// Name is the kernel's name of the node: "13", "vfio0", "vhost-vdpa-0", "uverbs0", "ttyUSB0".
	Name string
	// Function is the PCI function, vDPA device or RDMA device that the node gives access to. It is "" for other
	// nodes. An IOMMU group has one name for all of its functions, joined by ",".
	Function string
}

// The classes of nodes whose programs pin memory for the device, and account for it by RLIMIT_MEMLOCK.
const (
	classVFIO      = "vfio"             // /dev/vfio/<group>
	classVFIODev   = "vfio-dev"         // /dev/vfio/devices/vfio<N>
	classVDPA      = "vdpa"             // the bus; its nodes are in a class without a name
	classVerbs     = "infiniband_verbs" // /dev/infiniband/uverbs<N>
	classMAD       = "infiniband_mad"   // /dev/infiniband/{umad,issm}<N>
	prefixVhost    = "vhost-vdpa-"
	deviceNumbers  = "/sys/dev"
	groupDirectory = "/sys/kernel/iommu_groups"
)

// PinsMemory reports whether programs that use the device pin memory.
func (d *NumberedDevice) PinsMemory() bool {
	switch d.Class {
	case classVFIO, classVFIODev, classVDPA, classVerbs:
		return true
	}
	return false
}

// String names the device in messages.
func (d *NumberedDevice) String() string {
	switch {
	case d.Function == "" && d.Class == "":
		return fmt.Sprintf("device %q", d.Name)
	case d.Function == "":
		return fmt.Sprintf("%s device %q", d.Class, d.Name)
	}
	switch d.Class {
	case classVDPA:
		return fmt.Sprintf("vDPA device %q", d.Function)
	case classVerbs, classMAD:
		return fmt.Sprintf("RDMA device %q", d.Function)
	}
	return fmt.Sprintf("PCI function %s", d.Function)
}

// DeviceOf returns the device of a character or block device number. The error is ErrNotFound if the number leads to no
// device.
func DeviceOf(host hostfs.Root, block bool, major, minor uint32) (NumberedDevice, error) {
	kind := "char"
	if block {
		kind = "block"
	}
	number := fmt.Sprintf("%d:%d", major, minor)
	l := lookup{host, "read the device of number", number}
	dir, err := l.host.Resolve(path.Join(deviceNumbers, kind, number))
	if err != nil {
		return NumberedDevice{}, l.wrapError(path.Join(deviceNumbers, kind, number), err, "")
	}
	d := NumberedDevice{Name: path.Base(dir)}
	subsystem, err := l.readLink(path.Join(dir, "subsystem"))
	if err != nil {
		return d, err
	}
	if subsystem != "" {
		d.Class = path.Base(subsystem)
	}
	d.Function, err = l.functionOf(&d, dir)
	return d, err
}

// functionOf returns NumberedDevice.Function. It also sets the class of a vhost-vdpa node, whose own class the kernel
// does not show in all versions.
func (l lookup) functionOf(d *NumberedDevice, dir string) (string, error) {
	switch {
	case strings.HasPrefix(d.Name, prefixVhost):
		d.Class = classVDPA
		return path.Base(path.Dir(dir)), nil
	case d.Class == classVerbs || d.Class == classMAD:
		name, _, err := l.readAttribute(path.Join(dir, "ibdev"))
		return name, err
	case d.Class == classVFIO:
		names, err := l.listDir(path.Join(groupDirectory, strings.TrimPrefix(d.Name, "noiommu-"), "devices"), isPCIAddress)
		slices.Sort(names)
		return strings.Join(names, ","), err
	case d.Class == classVFIODev || d.Class == "uio":
		return lastPCIAddress(dir), nil
	}
	return "", nil
}

// IsGone reports whether an error of DeviceOf means that the number leads to no device.
func IsGone(err error) bool { return errdefs.IsNotFound(err) }
