// SPDX-License-Identifier: Apache-2.0

// Package sysfs maps a PCI address or a vDPA device to the device nodes that a container needs for
// it.
//
// Every result is the kernel's current state. Nothing is cached, because IOMMU groups and minor
// numbers change with a rebind or a reboot. Nothing is guessed: a node is returned only after a
// sysfs file named it and the host's own node was checked. Each [Node] records that sysfs file.
//
// Each error wraps a diagnostic with the sysfs file or node at fault, and a sentinel of
// github.com/containerd/errdefs: ErrInvalidArgument (the address or name, or a host file that is
// unlike the kernel's), ErrNotFound (no such device, file or node),
// ErrFailedPrecondition (the device is bound to a driver without such a node), ErrConflict (sysfs
// and the host's node disagree, or a name belongs to another device), ErrResourceExhausted,
// ErrPermissionDenied.
//
// There is one file per kernel class:
//
//	pci.go         /sys/bus/pci/devices/<address>: driver, group, physical function
//	vfio.go        /dev/vfio/<group>, /dev/vfio/noiommu-<group>, /dev/vfio/vfio, and of
//	               iommufd /dev/vfio/devices/vfio<N> and /dev/iommu
//	uio.go         /dev/uio<N>
//	vhostnet.go    /dev/vhost-net, /dev/net/tun
//	infiniband.go  /dev/infiniband/{uverbs,umad,issm}<N>, rdma_cm
//	vdpa.go        /dev/vhost-vdpa-<N>
//	numbers.go     the device of a device number
//	interfaces.go  whether the host has a network interface
//	devnode.go     checking a node and reading sysfs attributes, for all classes
//
// Addresses and names come from device-info, which a pod can influence. They are
// checked before the file system is accessed. All paths are host paths below a
// [hostfs.Root]; symlinks are followed inside it only, directory listings are
// bounded, and nothing blocks.
package sysfs
