// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/pkg/devices"
)

// A program that uses a device of VFIO, vhost-vdpa or RDMA pins the memory that the device accesses. The kernel
// accounts for it by RLIMIT_MEMLOCK, which is 8 MiB by default. The capability IPC_LOCK lifts the limit for VFIO and
// RDMA only, and only for root in the host's user namespace.

// raiseMemlock raises the container's limit of locked memory to limits.memlock of the rule that granted a device. o is
// the origin of the device's node. A running container keeps its limit.
func (in *inputs) raiseMemlock(d *delta, o edit.Origin) {
	limit := in.policy.Memlock(o.Rule)
	if limit == 0 || in.running {
		return
	}
	var inherited *edit.Rlimit
	if in.req.Have.Memlock == nil && in.req.InheritedMemlock != nil {
		inherited = in.req.InheritedMemlock()
	} // the container's own limit overrides it
	if inherited != nil {
		limit = max(limit, inherited.Soft)
	}
	if in.req.LimitMemlock != nil {
		possible, why := in.req.LimitMemlock(limit)
		note := fmt.Sprintf("limits.memlock %s of rule %q: %s", limit, o.Rule, why)
		if why != "" && !slices.Contains(d.item.Notes, note) {
			d.addNotes(note)
		}
		limit = possible
	}
	d.edits.RaiseMemlock(limit, inherited, o)
}

// raiseMemlockForEdits raises the limit for the device nodes of CDI files and annotations. For an attachment, the limit
// is raised when its nodes are added.
func (in *inputs) raiseMemlockForEdits(d *delta) {
	for i := range d.edits.Edits().Devices {
		n := &d.edits.Edits().Devices[i]
		if n.Origin.Source == edit.Attachment || in.policy.Memlock(n.Origin.Rule) == 0 {
			continue
		}
		device, err := sysfs.DeviceOf(in.host, n.Type == "b", uint32(n.Major), uint32(n.Minor))
		if err == nil && device.PinsMemory() {
			in.raiseMemlock(d, n.Origin)
		}
	}
}

// viewedMemlock returns the limit of locked memory for the elements of devices.json whose devices pin memory; "" if it
// is unknown. A running container keeps the limit that its present devices.json has.
func (p *draft) viewedMemlock() string {
	if !p.in.running {
		if limit := p.edits.Memlock(); limit > 0 {
			return limit.String()
		}
		return ""
	}
	var present []devices.Device
	view, err := ReadView(p.in.host, p.in.cfg.StateDir, p.in.req.ContainerID)
	if err != nil || json.Unmarshal(view, &present) != nil {
		return ""
	}
	for i := range present {
		if m, ok := quantity.ParseMemory(present[i].Jackfield.Memlock); ok {
			return m.String()
		}
	}
	return ""
}
