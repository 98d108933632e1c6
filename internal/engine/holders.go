// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
)

// A device cgroup grants numbers, and the kernel gives the number of a removed device to the next one. A container that
// was granted a virtual function can therefore open another function after the functions were created again.

// HeldDevice is a device node that a container was given, and the device to which its number led at that moment.
type HeldDevice struct {
	Path   string               `json:"path"` // in the container
	Type   string               `json:"type"` // c or b
	Major  uint32               `json:"major"`
	Minor  uint32               `json:"minor"`
	Device sysfs.NumberedDevice `json:"device"`
}

// Number returns the device number for messages.
func (h *HeldDevice) Number() string { return fmt.Sprintf("%d:%d", h.Major, h.Minor) }

// FindDevice returns the device to which the number leads now; errdefs.ErrNotFound for none.
func (h *HeldDevice) FindDevice(host hostfs.Root) (sysfs.NumberedDevice, error) {
	return sysfs.DeviceOf(host, h.Type == "b", h.Major, h.Minor)
}

// Holder is a living container with its devices.
type Holder struct {
	Namespace, Pod, PodUID string
	SandboxID, ContainerID string
	Container              string // its name in the pod
	Devices                []HeldDevice
}

// title names the container for messages.
func (h *Holder) title() string {
	return strings.Trim(h.Namespace+"/"+h.Pod+"/"+h.Container, "/")
}

// isPredecessor reports whether a holder is the container of the request itself, or the one that it replaces. A
// runtime can report the end of a container late.
func (h *Holder) isPredecessor(req *Request) bool {
	switch {
	case h.ContainerID == req.ContainerID:
		return true
	case req.FromManifest && h.Namespace == req.Namespace && h.Pod == req.Pod:
		return true // explain describes a pod that runs
	}
	return h.Container == req.Container && (h.SandboxID == req.SandboxID || h.PodUID != "" && h.PodUID == req.PodUID)
}

// checkHolders adds the devices of the delta's nodes to the delta. It refuses a function that another living container
// can open: by a number that has come to lead to the function, or because the container was given the function.
func (in *inputs) checkHolders(d *delta) error {
	if in.running {
		return nil // it gets no nodes
	}
	for _, nodes := range [][]edit.Device{d.present, d.edits.Edits().Devices} {
		for i := range nodes {
			if err := in.checkHoldersOf(&nodes[i], d); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHoldersOf is checkHolders for one node.
func (in *inputs) checkHoldersOf(n *edit.Device, d *delta) error {
	if n.FileType() == 0 || n.Type == "p" {
		return nil
	}
	held := HeldDevice{Path: n.Path, Type: n.Type, Major: uint32(n.Major), Minor: uint32(n.Minor)}
	if n.Type == "u" {
		held.Type = "c"
	}
	var err error
	held.Device, err = held.FindDevice(in.host)
	switch {
	case errdefs.IsNotFound(err):
		return nil // the module of a static node is not loaded, or the tree is a test's
	case err != nil:
		return err
	}
	d.held = append(d.held, held)
	return in.checkFunctions(&held, n.Origin.Source != edit.Attachment)
}

// openableDevice is a device that a living container can open at this moment.
type openableDevice struct {
	holder *Holder
	had    *HeldDevice          // the node and its device when the container was given it
	now    sysfs.NumberedDevice // the device to which the number leads now
}

// findOpenable returns the devices that other living containers can open.
func (in *inputs) findOpenable() (found []openableDevice, err error) {
	holders := in.opts.Holders()
	for i := range holders {
		holder := &holders[i]
		if holder.isPredecessor(in.req) {
			continue
		}
		for j := range holder.Devices {
			had := &holder.Devices[j]
			now, err := had.FindDevice(in.host)
			if errdefs.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = append(found, openableDevice{holder, had, now})
		}
	}
	return found, nil
}

// checkFunctions refuses the functions of a node that another living container can open. Programs share an RDMA device
// only if the administrator's files or annotations give it to several containers.
func (in *inputs) checkFunctions(wanted *HeldDevice, isShareable bool) error {
	if len(wanted.Device.Functions) == 0 || in.opts.Holders == nil {
		return nil
	}
	openable, err := in.openable()
	if err != nil {
		return err
	}
	isWanted := func(f string) bool { return slices.Contains(wanted.Device.Functions, f) }
	for i := range openable {
		holder, had, now := openable[i].holder, openable[i].had, &openable[i].now
		switch {
		case !slices.ContainsFunc(now.Functions, isWanted):
			continue
		case had.Device.IsAnother(now):
			return fmt.Errorf("%s: container %q can still open it through device number %s, which was that of %s; "+
				"delete that pod, and drain the node before devices are re-created: %w",
				&wanted.Device, holder.title(), had.Number(), &had.Device, errdefs.ErrFailedPrecondition)
		case holder.SandboxID == in.req.SandboxID, isShareable && now.IsRDMA():
			continue // the kubelet decides between containers of a pod
		}
		return fmt.Errorf("%s: container %q has it as %s and runs, and a function belongs to one container; "+
			"delete that pod, or correct the allocation: %w",
			&wanted.Device, holder.title(), had.Path, errdefs.ErrFailedPrecondition)
	}
	return nil
}
