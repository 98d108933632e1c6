// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/edit"
)

// Adjustment returns the set as an adjustment of a container that already has the devices have. It returns nil
// for an empty set, and an errdefs.ErrNotImplemented for an edit that this runtime does not support.
func Adjustment(set *edit.Set, can capability.Capabilities, have ...edit.Device) (*api.ContainerAdjustment, error) {
	if set.Empty() {
		return nil, nil
	}
	a := &api.ContainerAdjustment{}
	for _, e := range set.Env {
		a.AddEnv(e.Name, e.Value)
	}
	if err := capability.Check(set, can, ""); err != nil {
		return nil, err
	}
	for i := range set.Devices {
		if needsBind(&set.Devices[i], can) {
			bindNode(a, set.Devices, i, can)
		}
		addDevice(a, set.Devices, i, have, can)
	}
	for _, m := range set.Mounts {
		if m.Replaces != "" {
			a.RemoveMount(m.Replaces)
		}
		a.AddMount(&api.Mount{
			Destination: m.Destination, Source: m.Source, Type: cmp.Or(m.Type, "bind"), Options: mountOptions(m)})
	}
	for _, h := range set.Hooks {
		addHook(a, h)
	}
	for _, n := range set.NetDevices {
		a.AddLinuxNetDevice(n.HostName, &api.LinuxNetDevice{Name: n.Name})
	}
	if set.RDT != nil {
		setRDT(a, set.RDT)
	}
	if m := set.Memlock; m != nil {
		a.AddRlimit(edit.RlimitMemlock, uint64(m.Hard), uint64(m.Soft))
	}
	return a, nil
}

// addDevice adds the node devices[i]. NRI derives the cgroup rule itself: "rw" for a character device, "rwm" for
// a block device. Other permissions need further rules, if the runtime supports them.
func addDevice(a *api.ContainerAdjustment, devices []edit.Device, i int, have []edit.Device,
	can capability.Capabilities) {
	d := &devices[i]
	if !needsBind(d, can) {
		a.AddDevice(&api.LinuxDevice{Path: d.Path, Type: ruleType(d), Major: d.Major, Minor: d.Minor,
			FileMode: api.FileMode(d.FileMode), Uid: api.UInt32(d.UID), Gid: api.UInt32(d.GID)})
	}
	if d.Access == "" || !can.DeviceRules {
		// Before NRI 0.10, "m" can neither be added to a character device nor removed from a block device. That
		// is harmless: the container has the node already.
		return
	}
	granted := permissions(devices, have, d)
	isMissing := func(permission rune) bool { return !strings.ContainsRune(granted, permission) }
	if strings.ContainsFunc(capability.DerivedAccess(d), isMissing) {
		// crun on cgroup v2 compares all permissions of an open with one rule: after "allow rw" and "deny w" it
		// still allows an open for reading and writing.
		addRule(a, d, false, "rwm")
		addRule(a, d, true, granted)
	} else if d.Type != "b" && grants(d, 'm') {
		addRule(a, d, true, "m")
	}
}

// permissions returns the union of the permissions of all nodes with the numbers of d. The device cgroup has rules
// for numbers, not for nodes.
func permissions(devices, have []edit.Device, d *edit.Device) string {
	if ruleType(d) == "c" && isDefaultDevice(d.Major, d.Minor) {
		return "rwm"
	}
	var union string
	for _, permission := range "rwm" {
		for _, o := range slices.Concat(devices, have) {
			if ruleType(&o) == ruleType(d) && o.Major == d.Major && o.Minor == d.Minor && grants(&o, permission) {
				union += string(permission)
				break
			}
		}
	}
	return union
}

// grants reports whether a device has a permission, one of r, w and m.
func grants(d *edit.Device, permission rune) bool {
	access := cmp.Or(d.Access, capability.DerivedAccess(d))
	return access != edit.NoAccess && strings.ContainsRune(access, permission)
}

// isDefaultDevice reports whether every container has a character device with all permissions (OCI Runtime
// Specification, "Default Devices").
func isDefaultDevice(major, minor int64) bool {
	switch major {
	case 1:
		return minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9 // null, zero, full, random, urandom
	case 5:
		return minor == 0 || minor == 1 || minor == 2 // tty, console, ptmx
	}
	return major == 136 // the terminals of /dev/pts
}

// ruleType returns the type of a node in its rule.
func ruleType(d *edit.Device) string {
	if d.Type == "u" {
		return "c"
	}
	return d.Type
}

func addRule(a *api.ContainerAdjustment, d *edit.Device, allow bool, access string) {
	if access == "" {
		return
	}
	a.Linux = cmp.Or(a.Linux, &api.LinuxContainerAdjustment{})
	a.Linux.Resources = cmp.Or(a.Linux.Resources, &api.LinuxResources{})
	a.Linux.Resources.Devices = append(a.Linux.Resources.Devices, &api.LinuxDeviceCgroup{
		Allow: allow, Type: ruleType(d), Major: api.Int64(d.Major), Minor: api.Int64(d.Minor), Access: access,
	})
}

func addHook(a *api.ContainerAdjustment, h edit.Hook) {
	hook := &api.Hook{Path: h.Path, Args: slices.Clone(h.Args), Env: slices.Clone(h.Env), Timeout: api.Int(h.Timeout)}
	hooks := &api.Hooks{}
	stages := map[edit.Stage]*[]*api.Hook{
		edit.Prestart: &hooks.Prestart, edit.CreateRuntime: &hooks.CreateRuntime,
		edit.CreateContainer: &hooks.CreateContainer, edit.StartContainer: &hooks.StartContainer,
		edit.Poststart: &hooks.Poststart, edit.Poststop: &hooks.Poststop,
	}
	if list := stages[h.Stage]; list != nil {
		*list = []*api.Hook{hook}
	}
	a.AddHooks(hooks)
}

func setRDT(a *api.ContainerAdjustment, r *edit.RDT) {
	if r.ClosID != "" {
		a.SetLinuxRDTClosID(r.ClosID)
	}
	schemata := slices.Clone(r.Schemata)
	for _, s := range []string{r.L3CacheSchema, r.MemBwSchema} {
		if s != "" {
			schemata = append(schemata, s)
		}
	}
	if len(schemata) > 0 {
		a.SetLinuxRDTSchemata(schemata)
	}
	if r.EnableMonitoring {
		a.SetLinuxRDTEnableMonitoring(true)
	}
}

// mountOptions returns the options of a mount, whose default type is "bind". A bind mount needs the option: runc
// fails on the type alone.
func mountOptions(m edit.Mount) []string {
	options := slices.Clone(m.Options)
	if cmp.Or(m.Type, "bind") == "bind" && !mountopt.Parse(options).Bind {
		options = append(options, "bind")
	}
	return options
}

// needsBind reports whether a node must be bound by a mount: in a user namespace the OCI runtime cannot create
// the node, and would bind the host's node at the path that the node has in the container.
func needsBind(d *edit.Device, can capability.Capabilities) bool {
	return can.UserNS && d.HostPath != "" && d.HostPath != d.Path && d.Type != "p"
}

// bindNode mounts the node of devices[i] and adds its device cgroup rule. Before NRI 0.10 only a device has a
// rule, so the container also gets the node at its path on the host.
func bindNode(a *api.ContainerAdjustment, devices []edit.Device, i int, can capability.Capabilities) {
	d := &devices[i]
	a.AddMount(&api.Mount{
		Destination: d.Path, Source: d.HostPath, Type: "bind", Options: []string{"bind", "rw", "nosuid", "noexec"}})
	if can.DeviceRules {
		addRule(a, d, true, capability.DerivedAccess(d))
		return
	}
	has := func(o edit.Device) bool { return o.Path == d.HostPath }
	before := func(o edit.Device) bool { return o.HostPath == d.HostPath && needsBind(&o, can) }
	if !slices.ContainsFunc(devices, has) && !slices.ContainsFunc(devices[:i], before) {
		a.AddDevice(&api.LinuxDevice{Path: d.HostPath, Type: ruleType(d), Major: d.Major, Minor: d.Minor})
	}
}
