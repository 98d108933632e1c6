// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/edit"
)

// Capabilities are the features of the runtime's NRI beyond the fields of every version (annotations, mounts, env,
// hooks, devices).
type Capabilities struct {
	DeviceRules bool // device cgroup rules in linux.resources: NRI 0.10
	NetDevices  bool // linux.net_devices: NRI 0.11
	RDT         bool // linux.rdt: NRI 0.11
	Rlimits     bool // rlimits: NRI 0.4
	Validate    bool // the event in which a plugin sees the adjustments of others: NRI 0.10
	FailRequest bool // a plugin can require that requests fail without it: NRI 0.12.4
	// SyncPreinstalled means that the runtime calls Synchronize for plugins that it started itself: NRI 0.8.
	SyncPreinstalled bool
	// UserNS means that the container has a user namespace. The OCI runtime cannot create nodes there. It binds
	// the host's node with the same path.
	UserNS bool
	// UID is the user of the container's process, nil if the runtime does not report it (NRI before 0.11).
	UID *uint32
}

// ForVersion returns the capabilities of an NRI version such as "v0.8.0". An unknown version has none.
func ForVersion(version string) Capabilities {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return Capabilities{}
	}
	atLeast := func(m int) bool { return major > 0 || minor >= m }
	return Capabilities{DeviceRules: atLeast(10), Validate: atLeast(10), NetDevices: atLeast(11), RDT: atLeast(11),
		Rlimits: atLeast(4), FailRequest: atLeast(13) || minor == 12 && patch >= 4, SyncPreinstalled: atLeast(8)}
}

// Check returns an errdefs.ErrNotImplemented if an adjustment for this runtime cannot hold all
// edits of a request, by Origin.Request. The request "" stands for the whole set.
func Check(set *edit.Set, can Capabilities, request string) error {
	isOfRequest := func(o *edit.Origin) bool { return request == "" || o.Request == request }
	for i := range set.Devices {
		if d := &set.Devices[i]; isOfRequest(&d.Origin) {
			if err := can.checkDevice(d); err != nil {
				return err
			}
		}
	}
	for i := range set.NetDevices {
		if n := &set.NetDevices[i]; !can.NetDevices && isOfRequest(&n.Origin) {
			return unsupported(n.Origin, fmt.Sprintf("network device %q", n.HostName), needsNRI11)
		}
	}
	for i := range set.GIDs {
		if g := &set.GIDs[i]; isOfRequest(&g.Origin) && can.UnneededGroup(set, g) == "" {
			return can.undeliverableGroup(g)
		}
	}
	if r := set.RDT; r != nil && !can.RDT && isOfRequest(&r.Origin) {
		return unsupported(r.Origin, "Intel RDT configuration", needsNRI11)
	}
	return nil
}

// LimitMemlock returns the value of engine.Request.LimitMemlock: the limit of locked memory that an adjustment can
// have.
func (can Capabilities) LimitMemlock() func(wanted quantity.Memory) (possible quantity.Memory, why string) {
	if can.Rlimits {
		return nil
	}
	return func(quantity.Memory) (quantity.Memory, string) {
		return 0, "this runtime's NRI cannot set it; it needs NRI 0.4 (containerd 1.7.7, CRI-O 1.29)"
	}
}

// checkDevice refuses a node that NRI cannot deliver. The rule of the device
// cgroup has the type of the node, and OCI runtimes accept only rules for c and b.
// An unbuffered character device (u) is a character device to the kernel; a FIFO has no rule.
func (can Capabilities) checkDevice(d *edit.Device) error {
	if d.Type == "p" {
		return unsupported(d.Origin, fmt.Sprintf("FIFO %q", d.Path), "NRI derives a device cgroup rule "+
			"from every device node, and the OCI runtime refuses a rule for a FIFO: create the FIFO on the host and list it under mounts instead of deviceNodes")
	}
	if !can.DeviceRules && d.Access != "" && (!strings.Contains(d.Access, "r") || !strings.Contains(d.Access, "w")) {
		return unsupported(d.Origin, fmt.Sprintf("device %q with the permissions %q", d.Path, d.Access),
			fmt.Sprintf("it needs NRI 0.10 (containerd 2.2, CRI-O 1.34); this runtime would grant %q", DerivedAccess(d)))
	}
	return nil
}

// DerivedAccess returns the permissions of the rule that NRI derives for a device.
func DerivedAccess(d *edit.Device) string {
	if d.Type == "b" {
		return "rwm"
	}
	return "rw"
}

const needsNRI11 = "it needs NRI 0.11 (containerd 2.2.1, CRI-O 1.35)"

// unsupported returns the error of an edit that the runtime's NRI does not support.
func unsupported(origin edit.Origin, edit, advice string) error {
	return errdefs.ErrNotImplemented.WithMessage(
		fmt.Sprintf("%s: %s cannot be delivered by this runtime's NRI; %s", origin, edit, advice))
}
