// SPDX-License-Identifier: Apache-2.0

// Package sysfs goes from a PCI address or a vDPA device to the device nodes a
// container needs for it.
//
// Its invariant: every answer is what the kernel says at that moment. Nothing
// is cached, because IOMMU groups and minor numbers change across a rebind or a
// reboot; nothing is guessed, because a node is named only after a sysfs file
// named it and after the host's own node was looked at. Each [Node] says which
// file that was, and each [Error] names the file that stood in the way.
//
// There is one file per kernel class:
//
//	pci.go         /sys/bus/pci/devices/<address>: driver, group, physical function
//	vfio.go        /dev/vfio/<group>, /dev/vfio/noiommu-<group>, /dev/vfio/vfio
//	iommufd.go     /dev/vfio/devices/vfio<N>, /dev/iommu
//	uio.go         /dev/uio<N>
//	vhostnet.go    /dev/vhost-net, /dev/net/tun
//	infiniband.go  /dev/infiniband/{uverbs,umad,issm}<N>, rdma_cm
//	vdpa.go        /dev/vhost-vdpa-<N>
//	devnode.go     what every class does with a node
//
// Addresses and names come from device-info, which a pod can steer: they are
// checked before the file system is touched. All paths are host paths below a
// [hostfs.Root]; symlinks are followed inside it only, directory listings are
// bounded, and nothing blocks.
package sysfs
