// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/mountopt"
	"github.com/jackfield/jackfield/pkg/edits"
)

// Capabilities says what the runtime's NRI supports beyond the fields that
// every version has (annotations, mounts, env, hooks, devices).
type Capabilities struct {
	DeviceRules bool // device cgroup rules in linux.resources: NRI 0.10
	NetDevices  bool // linux.net_devices: NRI 0.11
	RDT         bool // linux.rdt: NRI 0.11
	Validate    bool // the event in which a plugin sees the adjustments of others: NRI 0.10
	FailRequest bool // a plugin can require that requests fail without it: NRI 0.12.4
	// UserNS means that the container has a user namespace. The OCI runtime cannot create nodes
	// there. It binds the host's node with the same path.
	UserNS bool
}

// CapabilitiesOf returns the capabilities of an NRI version such as "v0.8.0". An
// unknown version has none.
func CapabilitiesOf(version string) Capabilities {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return Capabilities{}
	}
	atLeast := func(m int) bool { return major > 0 || minor >= m }
	return Capabilities{DeviceRules: atLeast(10), Validate: atLeast(10), NetDevices: atLeast(11), RDT: atLeast(11),
		FailRequest: atLeast(13) || minor == 12 && patch >= 4}
}

// Adjustment returns the set as an adjustment, for a container that has these devices
// already. An edit that this runtime does not support is an *UnsupportedError. For an
// empty set it returns nil.
func Adjustment(set *edits.Set, can Capabilities, have ...edits.Device) (*api.ContainerAdjustment, error) {
	if set.Empty() {
		return nil, nil
	}
	a := &api.ContainerAdjustment{}
	for _, e := range set.Env {
		a.AddEnv(e.Name, e.Value)
	}
	if err := CheckSupported(set, can, ""); err != nil {
		return nil, err
	}
	for i := range set.Devices {
		if can.needsBind(&set.Devices[i]) {
			bindNode(a, set.Devices, i, can)
		}
		addDevice(a, set.Devices, i, have, can)
	}
	for _, m := range set.Mounts {
		a.AddMount(&api.Mount{Destination: m.Destination, Source: m.Source, Type: cmp.Or(m.Type, "bind"), Options: mountOptions(m)})
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
	return a, nil
}

// CheckSupported returns an *UnsupportedError if an adjustment for this runtime cannot hold all
// edits of a request, by Origin.Request. The request "" stands for the whole set.
func CheckSupported(set *edits.Set, can Capabilities, request string) error {
	isOfRequest := func(o *edits.Origin) bool { return request == "" || o.Request == request }
	for i := range set.Devices {
		if d := &set.Devices[i]; isOfRequest(&d.Origin) {
			if err := can.checkDevice(d); err != nil {
				return err
			}
		}
	}
	for i := range set.NetDevices {
		if n := &set.NetDevices[i]; !can.NetDevices && isOfRequest(&n.Origin) {
			return &UnsupportedError{Edit: fmt.Sprintf("network device %q", n.HostName), Needs: "NRI 0.11 (containerd 2.2.1, CRI-O 1.35)", Origin: n.Origin}
		}
	}
	for i := range set.GIDs {
		if g := &set.GIDs[i]; isOfRequest(&g.Origin) {
			return &UnsupportedError{Edit: fmt.Sprintf("additional group %d", g.ID), Origin: g.Origin,
				Remedy: "NRI has no field for it: set supplementalGroups in the pod's securityContext and drop additionalGids from the file"}
		}
	}
	if r := set.RDT; r != nil && !can.RDT && isOfRequest(&r.Origin) {
		return &UnsupportedError{Edit: "Intel RDT configuration", Needs: "NRI 0.11 (containerd 2.2.1, CRI-O 1.35)", Origin: r.Origin}
	}
	return nil
}

// checkDevice refuses a node that NRI cannot deliver. The rule of the device
// cgroup has the type of the node, and OCI runtimes accept only rules for c and b.
// An unbuffered character device (u) is a character device to the kernel; a FIFO has no rule.
func (can Capabilities) checkDevice(d *edits.Device) error {
	if d.Type == "p" {
		return &UnsupportedError{Edit: fmt.Sprintf("FIFO %q", d.Path), Origin: d.Origin,
			Remedy: "NRI derives a device cgroup rule from every device node, and the OCI runtime refuses a rule for a FIFO: " +
				"create the FIFO on the host and list it under mounts instead of deviceNodes"}
	}
	if !can.DeviceRules && d.Access != "" && (!strings.Contains(d.Access, "r") || !strings.Contains(d.Access, "w")) {
		return &UnsupportedError{Edit: fmt.Sprintf("device %q with the permissions %q", d.Path, d.Access), Origin: d.Origin,
			Needs: fmt.Sprintf("NRI 0.10 (containerd 2.2, CRI-O 1.34); this runtime would grant %q", derivedAccess(d))}
	}
	return nil
}

// addDevice adds the node devices[i]. NRI derives the cgroup rule itself: "rw" for a
// character device, "rwm" for a block device. Other permissions need further rules, where the
// runtime supports them.
func addDevice(a *api.ContainerAdjustment, devices []edits.Device, i int, have []edits.Device, can Capabilities) {
	d := &devices[i]
	dev := &api.LinuxDevice{Path: d.Path, Type: ruleType(d), Major: d.Major, Minor: d.Minor}
	if d.FileMode != nil {
		dev.FileMode = api.FileMode(*d.FileMode)
	}
	if d.UID != nil {
		dev.Uid = api.UInt32(*d.UID)
	}
	if d.GID != nil {
		dev.Gid = api.UInt32(*d.GID)
	}
	if !can.needsBind(d) {
		a.AddDevice(dev)
	}
	if d.Access == "" || !can.DeviceRules {
		// Before NRI 0.10, "m" cannot be added to a character device nor removed from a block
		// device. That is harmless: the right to create the node again gives nothing new.
		return
	}
	derived := derivedAccess(d)
	deny := ""
	for _, c := range derived {
		if !grants(d, c) && !othersGrant(c, devices, i, have) {
			deny += string(c)
		}
	}
	allow := ""
	if d.Type != "b" && grants(d, 'm') {
		allow = "m"
	}
	addRule(a, d, false, deny)
	addRule(a, d, true, allow)
}

// derivedAccess returns the permissions of the rule that NRI derives for a device.
func derivedAccess(d *edits.Device) string {
	if d.Type == "b" {
		return "rwm"
	}
	return "rw"
}

// grants reports whether a device has a permission, one of r, w and m.
func grants(d *edits.Device, permission rune) bool {
	switch d.Access {
	case "":
		return strings.ContainsRune(derivedAccess(d), permission)
	case edits.NoAccess:
		return false
	}
	return strings.ContainsRune(d.Access, permission)
}

// othersGrant reports whether another node with the numbers of devices[i] has a permission. Rules
// are by number, so a rule that denies the permission would deny it to all these nodes.
func othersGrant(permission rune, devices []edits.Device, i int, have []edits.Device) bool {
	d := &devices[i]
	same := func(o *edits.Device) bool {
		return ruleType(o) == ruleType(d) && o.Major == d.Major && o.Minor == d.Minor
	}
	for j := range devices {
		if j != i && same(&devices[j]) && grants(&devices[j], permission) {
			return true
		}
	}
	for j := range have {
		if same(&have[j]) && grants(&have[j], permission) {
			return true
		}
	}
	return ruleType(d) == "c" && isDefaultDevice(d.Major, d.Minor)
}

// isDefaultDevice reports whether every container has a character device with all permissions
// (OCI Runtime Specification, "Default Devices").
func isDefaultDevice(major, minor int64) bool {
	switch major {
	case 1:
		return minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9 // null, zero, full, random, urandom
	case 5:
		return minor == 0 || minor == 1 || minor == 2 // tty, console, ptmx
	}
	return major == 136 // the terminals of /dev/pts
}

// ruleType returns the type of a node and of its rule.
func ruleType(d *edits.Device) string {
	if d.Type == "u" {
		return "c"
	}
	return d.Type
}

func addRule(a *api.ContainerAdjustment, d *edits.Device, allow bool, access string) {
	if access == "" {
		return
	}
	if a.Linux == nil {
		a.Linux = &api.LinuxContainerAdjustment{}
	}
	if a.Linux.Resources == nil {
		a.Linux.Resources = &api.LinuxResources{}
	}
	a.Linux.Resources.Devices = append(a.Linux.Resources.Devices, &api.LinuxDeviceCgroup{
		Allow: allow, Type: ruleType(d), Major: api.Int64(d.Major), Minor: api.Int64(d.Minor), Access: access,
	})
}

func addHook(a *api.ContainerAdjustment, h edits.Hook) {
	hook := &api.Hook{Path: h.Path, Args: slices.Clone(h.Args), Env: slices.Clone(h.Env)}
	if h.Timeout != nil {
		hook.Timeout = api.Int(*h.Timeout)
	}
	hooks := &api.Hooks{}
	switch h.Stage {
	case edits.Prestart:
		hooks.Prestart = []*api.Hook{hook}
	case edits.CreateRuntime:
		hooks.CreateRuntime = []*api.Hook{hook}
	case edits.CreateContainer:
		hooks.CreateContainer = []*api.Hook{hook}
	case edits.StartContainer:
		hooks.StartContainer = []*api.Hook{hook}
	case edits.Poststart:
		hooks.Poststart = []*api.Hook{hook}
	case edits.Poststop:
		hooks.Poststop = []*api.Hook{hook}
	}
	a.AddHooks(hooks)
}

func setRDT(a *api.ContainerAdjustment, r *edits.RDT) {
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

// mountOptions returns the options of a mount, whose default type is "bind". A bind mount needs the
// option: runc fails on the type alone.
func mountOptions(m edits.Mount) []string {
	options := slices.Clone(m.Options)
	if cmp.Or(m.Type, "bind") == "bind" && !mountopt.Parse(options).Bind {
		options = append(options, "bind")
	}
	return options
}

// UnsupportedError is an edit that the runtime's NRI does not support. It unwraps to
// errdefs.ErrNotImplemented.
type UnsupportedError struct {
	Edit   string
	Needs  string // the version that supports it
	Remedy string
	Origin edits.Origin
}

func (e *UnsupportedError) Error() string {
	s := fmt.Sprintf("%s: %s cannot be delivered by this runtime's NRI", e.Origin, e.Edit)
	if e.Needs != "" {
		s += "; it needs " + e.Needs
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap returns errdefs.ErrNotImplemented.
func (e *UnsupportedError) Unwrap() error { return errdefs.ErrNotImplemented }

// needsBind reports whether a node must be bound by a mount: in a user namespace the
// OCI runtime cannot create it, and would bind the host's node with the path that
// this node has in the container.
func (can Capabilities) needsBind(d *edits.Device) bool {
	return can.UserNS && d.HostPath != "" && d.HostPath != d.Path && d.Type != "p"
}

// bindNode mounts the node of devices[i] and adds its device cgroup rule. Before NRI 0.10 only a
// device has a rule, so the container gets the node a second time, at its path on the host.
func bindNode(a *api.ContainerAdjustment, devices []edits.Device, i int, can Capabilities) {
	d := &devices[i]
	a.AddMount(&api.Mount{Destination: d.Path, Source: d.HostPath, Type: "bind", Options: []string{"bind", "rw", "nosuid", "noexec"}})
	if can.DeviceRules {
		addRule(a, d, true, derivedAccess(d))
		return
	}
	has := func(o edits.Device) bool { return o.Path == d.HostPath }
	before := func(o edits.Device) bool { return o.HostPath == d.HostPath && can.needsBind(&o) }
	if !slices.ContainsFunc(devices, has) && !slices.ContainsFunc(devices[:i], before) {
		a.AddDevice(&api.LinuxDevice{Path: d.HostPath, Type: ruleType(d), Major: d.Major, Minor: d.Minor})
	}
}
