// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"slices"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/edits"
)

// bound reports whether a node has to be bound by a mount: in a user namespace the
// OCI runtime cannot make it, and would bind a node of the host by the path that
// this one has inside.
func (can Capabilities) bound(d *edits.Device) bool {
	return can.UserNS && d.HostPath != "" && d.HostPath != d.Path && d.Type != "p"
}

// bindNode mounts the node of devices[i]. The rule of the device cgroup is one of
// its own where the runtime takes rules. Before NRI 0.10 only a device brings one, so
// that the container has the node a second time, by its path on the host.
func bindNode(a *api.ContainerAdjustment, devices []edits.Device, i int, can Capabilities) {
	d := &devices[i]
	a.AddMount(&api.Mount{Destination: d.Path, Source: d.HostPath, Type: "bind", Options: []string{"bind", "rw", "nosuid", "noexec"}})
	if can.DeviceRules {
		addRule(a, d, true, derivedAccess(d))
		return
	}
	has := func(o edits.Device) bool { return o.Path == d.HostPath }
	before := func(o edits.Device) bool { return o.HostPath == d.HostPath && can.bound(&o) }
	if !slices.ContainsFunc(devices, has) && !slices.ContainsFunc(devices[:i], before) {
		a.AddDevice(&api.LinuxDevice{Path: d.HostPath, Type: typeOf(d), Major: d.Major, Minor: d.Minor})
	}
}
