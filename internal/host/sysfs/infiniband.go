// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxRDMA bounds the RDMA devices named in one request.
const maxRDMA = 64

// RDMA returns the verbs nodes of RDMA devices of one PCI function, sorted by
// path: uverbs<N>, and umad<N>, issm<N> and rdma_cm where the kernel has them.
// names are the devices of device-info's rdma-device (Device Information
// Specification 3.1.3.3).
// A name of another function's device is ErrConflict, and the error names both.
func RDMA(host hostfs.Root, address string, names []string) ([]Node, error) {
	l := lookup{host, "find RDMA nodes of PCI device", address}
	if len(names) > maxRDMA {
		return nil, l.newError("", errdefs.ErrInvalidArgument, "", "%d RDMA devices are named, more than %d",
			len(names), maxRDMA)
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, l.newError("", err, "", "RDMA %v", err)
		}
	}
	dev, err := l.readPCI()
	if err != nil {
		return nil, err
	}
	chars, err := l.listRDMAChars(dev)
	if err != nil {
		return nil, err
	}
	names, err = l.selectRDMA(dev, chars, names)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, name := range names {
		verbs := false
		for _, c := range chars {
			if c.device != name {
				continue
			}
			n, err := l.statNode("/dev/infiniband/"+path.Base(c.file), c.file, path.Join(c.file, "dev"), true)
			if err != nil {
				return nil, err
			}
			n.PinsMemory = strings.HasPrefix(path.Base(c.file), "uverbs")
			nodes = append(nodes, n)
			verbs = verbs || n.PinsMemory
		}
		if !verbs {
			return nil, l.newError(path.Join(dev.Dir, "infiniband_verbs"), errdefs.ErrNotFound,
				"load the kernel module ib_uverbs",
				"RDMA device %q has no uverbs device", name)
		}
	}
	cm, err := l.statFixedNode("/dev/infiniband/rdma_cm", "misc/rdma_cm", "")
	switch {
	case err == nil:
		nodes = append(nodes, cm)
	case !errdefs.IsNotFound(err):
		return nil, err
	}
	return sortByPath(nodes), nil
}

// rdmaChar is one entry of infiniband_verbs or infiniband_mad.
type rdmaChar struct {
	file   string // its sysfs directory
	device string // RDMA device in its ibdev file
}

func (l lookup) listRDMAChars(dev PCIDevice) ([]rdmaChar, error) {
	var chars []rdmaChar
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		dir := path.Join(dev.Dir, class)
		entries, err := l.listDir(dir, hasNumber("uverbs", "umad", "issm"))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			file := path.Join(dir, entry)
			device, ok, err := l.readAttribute(path.Join(file, "ibdev"))
			if err != nil {
				return nil, err
			}
			if !ok || checkName(device) != nil {
				return nil, l.newError(path.Join(file, "ibdev"), errdefs.ErrInvalidArgument, "",
					"it holds %.64q, not the name of an RDMA device", device)
			}
			chars = append(chars, rdmaChar{file, device})
		}
	}
	return chars, nil
}

// selectRDMA checks that the names are the function's RDMA devices, and sorts them. The
// infiniband directory is empty on the host once a CNI plugin has moved the RDMA device
// into a pod's network namespace; the verbs entries still name it.
func (l lookup) selectRDMA(dev PCIDevice, chars []rdmaChar, names []string) ([]string, error) {
	dir := path.Join(dev.Dir, "infiniband")
	own, err := l.listDir(dir, func(name string) bool { return checkName(name) == nil })
	if err != nil {
		return nil, err
	}
	for _, c := range chars {
		if !slices.Contains(own, c.device) {
			own = append(own, c.device)
		}
	}
	slices.Sort(own)
	if len(own) == 0 {
		return nil, l.newError(dir, errdefs.ErrNotFound, "load the RDMA module of driver "+dev.Driver,
			"the device has no RDMA device")
	}
	wanted := slices.Compact(slices.Sorted(slices.Values(names)))
	for _, name := range wanted {
		if !slices.Contains(own, name) {
			return nil, l.newError(dir, errdefs.ErrConflict, "correct rdma-device or pci-address in the device-info",
				"RDMA device %q is not one of PCI device %q, which has %q", name, dev.Address, own)
		}
	}
	return wanted, nil
}
