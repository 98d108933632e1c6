// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// NumberedDevice is the device to which a device number leads at this moment. The kernel gives the number to another
// device after this one was removed.
type NumberedDevice struct {
	// Class is the kernel's class or bus of the node: "vfio", "vfio-dev", "vdpa", "infiniband_verbs", "tty".
	Class string `json:"class,omitempty"`
	// Name is the kernel's name of the node: "13", "vfio0", "vhost-vdpa-0", "uverbs0", "ttyUSB0".
	Name string `json:"name"`
	// Functions are the PCI functions, or the vDPA or RDMA device, that the node gives access to. An IOMMU group can have
	// several functions. Other nodes have none.
	Functions []string `json:"functions,omitempty"`
}

// The classes of nodes that give access to a function, and of which the first four pin memory within RLIMIT_MEMLOCK.
const (
	classVFIO    = "vfio"             // /dev/vfio/<group>
	classVFIODev = "vfio-dev"         // /dev/vfio/devices/vfio<N>
	classVDPA    = "vdpa"             // the bus: vhost-vdpa-<N> has no class
	classVerbs   = "infiniband_verbs" // /dev/infiniband/uverbs<N>
	classMAD     = "infiniband_mad"   // /dev/infiniband/{umad,issm}<N>
	classUIO     = "uio"              // /dev/uio<N>
)

// PinsMemory reports whether programs that use the device pin memory.
func (d *NumberedDevice) PinsMemory() bool {
	return slices.Contains([]string{classVFIO, classVFIODev, classVDPA, classVerbs}, d.Class)
}

// IsRDMA reports whether the device is of RDMA, which several programs can use at a time.
func (d *NumberedDevice) IsRDMA() bool { return d.Class == classVerbs || d.Class == classMAD }

// IsAnother reports whether a number that led to d leads to another device now.
func (d *NumberedDevice) IsAnother(now *NumberedDevice) bool {
	if len(d.Functions) == 0 || len(now.Functions) == 0 {
		return d.Class != now.Class || d.Name != now.Name
	}
	return slices.ContainsFunc(now.Functions, func(f string) bool { return !slices.Contains(d.Functions, f) })
}

// UdevRule returns a udev rule that makes the nodes of this kind accessible to every user. The kernel sends no events
// for the nodes of vhost-vdpa, so that rule acts on the event of the vDPA device.
func (d *NumberedDevice) UdevRule() string {
	switch d.Class {
	case classVDPA:
		return `SUBSYSTEM=="vdpa", DRIVER=="vhost_vdpa", RUN+="/bin/sh -c 'chmod 0666 /dev/vhost-vdpa-*'"`
	case "", "misc", "mem":
		return NodeUdevRule(d.Name)
	}
	return fmt.Sprintf("SUBSYSTEM==%q, MODE=\"0666\"", d.Class)
}

// NodeUdevRule returns a udev rule that makes a node accessible to every user. name is the kernel's name of the node.
func NodeUdevRule(name string) string { return fmt.Sprintf("KERNEL==%q, MODE=\"0666\"", name) }

// String names the device in messages.
func (d *NumberedDevice) String() string {
	kind := map[string]string{classVDPA: "vDPA device", classVerbs: "RDMA device", classMAD: "RDMA device"}[d.Class]
	switch {
	case len(d.Functions) > 0:
		return cmp.Or(kind, "PCI function") + " " + strings.Join(d.Functions, " and ")
	case d.Class == "":
		return "device " + d.Name
	}
	return d.Class + " device " + d.Name
}

// DeviceOf returns the device of a character or block device number. The error is ErrNotFound if the number leads to no
// device.
func DeviceOf(host hostfs.Root, block bool, major, minor uint32) (NumberedDevice, error) {
	kind := "char"
	if block {
		kind = "block"
	}
	number := strconv.Itoa(int(major)) + ":" + strconv.Itoa(int(minor))
	l := lookup{host, "read device of number", number}
	link := "/sys/dev/" + kind + "/" + number
	target, err := l.host.Readlink(link) // relative, and no directory on its way is a symlink
	if err != nil {
		return NumberedDevice{}, l.wrapError(link, err, "")
	}
	dir := path.Join(path.Dir(link), target)
	d := NumberedDevice{Name: path.Base(dir)}
	subsystem, err := l.readLink(dir + "/subsystem")
	if err != nil {
		return d, err
	}
	if subsystem != "" {
		d.Class = path.Base(subsystem)
	} else if _, err := l.host.Lstat(dir); err != nil {
		return d, l.wrapError(dir, err, "") // the device was removed meanwhile
	}
	err = l.readFunctions(&d, dir)
	return d, err
}

// readFunctions sets NumberedDevice.Functions, and the class of a vhost-vdpa node. dir is its directory in
// /sys/devices.
func (l lookup) readFunctions(d *NumberedDevice, dir string) error {
	withAddress := func(name string) []string {
		if address := lastPCIAddress(dir); address != "" {
			name += " (" + address + ")" // the kernel also reuses the names
		}
		return []string{name}
	}
	switch {
	case strings.HasPrefix(d.Name, "vhost-vdpa-"):
		d.Class, d.Functions = classVDPA, withAddress(path.Base(path.Dir(dir)))
	case d.IsRDMA():
		name, ok, err := l.readAttribute(path.Join(dir, "ibdev"))
		if err != nil || !ok {
			return err
		}
		d.Functions = withAddress(name)
	case d.Class == classVFIO:
		group := strings.TrimPrefix(d.Name, "noiommu-")
		names, err := l.listDir(path.Join("/sys/kernel/iommu_groups", group, "devices"), isPCIAddress)
		if err != nil {
			return err
		}
		slices.Sort(names)
		d.Functions = names
	case d.Class == classVFIODev || d.Class == classUIO:
		if address := lastPCIAddress(dir); address != "" {
			d.Functions = []string{address}
		}
	}
	return nil
}
