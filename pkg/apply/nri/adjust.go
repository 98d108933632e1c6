// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/edits"
)

// Capabilities says what the runtime's NRI can carry beyond the raw fields that
// every version has (annotations, mounts, env, hooks, devices).
type Capabilities struct {
	DeviceRules bool // device cgroup rules in linux.resources: NRI 0.10
	NetDevices  bool // linux.net_devices: NRI 0.11
	RDT         bool // linux.rdt: NRI 0.11
	Validate    bool // the event in which a plugin sees what others adjust: NRI 0.10
	FailRequest bool // a request fails with its plugin, when that asks for it: NRI 0.12.4
	// UserNS says that the container has a user namespace: nodes cannot be made
	// there, and the OCI runtime binds them, from the path that they have inside.
	UserNS bool
}

// CapabilitiesOf gives the capabilities of an NRI version such as "v0.8.0". An
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

// Adjustment is the set as an adjustment, for a container that has these devices
// already. An edit that this runtime cannot be given is an *UnsupportedError; an
// empty set is nil.
func Adjustment(set *edits.Set, can Capabilities, have ...edits.Device) (*api.ContainerAdjustment, error) {
	if set.Empty() {
		return nil, nil
	}
	a := &api.ContainerAdjustment{}
	for _, e := range set.Env {
		a.AddEnv(e.Name, e.Value)
	}
	if err := Carries(set, can, ""); err != nil {
		return nil, err
	}
	for i := range set.Devices {
		if can.bound(&set.Devices[i]) {
			bindNode(a, set.Devices, i, can)
		}
		addDevice(a, set.Devices, i, have, can)
	}
	for _, m := range set.Mounts {
		a.AddMount(&api.Mount{Destination: m.Destination, Source: m.Source, Type: mountType(m), Options: mountOptions(m)})
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

// Carries is nil where an adjustment for this runtime can hold all edits of a
// request, by Origin.Request, or of the whole set for "". The error is an
// *UnsupportedError.
func Carries(set *edits.Set, can Capabilities, request string) error {
	of := func(o *edits.Origin) bool { return request == "" || o.Request == request }
	for i := range set.Devices {
		if d := &set.Devices[i]; of(&d.Origin) {
			if err := can.takesDevice(d); err != nil {
				return err
			}
		}
	}
	for i := range set.NetDevices {
		if n := &set.NetDevices[i]; !can.NetDevices && of(&n.Origin) {
			return &UnsupportedError{Edit: fmt.Sprintf("network device %q", n.HostName), Needs: "NRI 0.11 (containerd 2.2.1, CRI-O 1.35)", Origin: n.Origin}
		}
	}
	for i := range set.GIDs {
		if g := &set.GIDs[i]; of(&g.Origin) {
			return &UnsupportedError{Edit: fmt.Sprintf("additional group %d", g.ID), Origin: g.Origin,
				Remedy: "NRI has no field for it: set supplementalGroups in the pod's securityContext and drop additionalGids from the file"}
		}
	}
	if r := set.RDT; r != nil && !can.RDT && of(&r.Origin) {
		return &UnsupportedError{Edit: "Intel RDT configuration", Needs: "NRI 0.11 (containerd 2.2.1, CRI-O 1.35)", Origin: r.Origin}
	}
	return nil
}

// takesDevice refuses the nodes that NRI has no way for. The rule of the device
// cgroup has the type of the node, and OCI runtimes know rules for c and b alone:
// an unbuffered character device (u) goes as what it is to the kernel, and a FIFO
// cannot go.
func (can Capabilities) takesDevice(d *edits.Device) error {
	if d.Type == "p" {
		return &UnsupportedError{Edit: fmt.Sprintf("FIFO %q", d.Path), Origin: d.Origin,
			Remedy: "NRI makes a rule of the device cgroup of every device node, and the OCI runtime refuses one for a FIFO: " +
				"make the FIFO on the host and give it under mounts instead of deviceNodes"}
	}
	if !can.DeviceRules && d.Access != "" && (!strings.Contains(d.Access, "r") || !strings.Contains(d.Access, "w")) {
		return &UnsupportedError{Edit: fmt.Sprintf("device %q with the permissions %q", d.Path, d.Access), Origin: d.Origin,
			Needs: fmt.Sprintf("NRI 0.10 (containerd 2.2, CRI-O 1.34); this runtime would grant %q", derivedAccess(d))}
	}
	return nil
}

// addDevice adds the node devices[i]. NRI derives the cgroup rule itself: "rw" for a
// character device, "rwm" for a block device. What is asked beyond that, or
// less, is a rule of its own, where the runtime takes one.
func addDevice(a *api.ContainerAdjustment, devices []edits.Device, i int, have []edits.Device, can Capabilities) {
	d := &devices[i]
	dev := &api.LinuxDevice{Path: d.Path, Type: typeOf(d), Major: d.Major, Minor: d.Minor}
	if d.FileMode != nil {
		dev.FileMode = api.FileMode(*d.FileMode)
	}
	if d.UID != nil {
		dev.Uid = api.UInt32(*d.UID)
	}
	if d.GID != nil {
		dev.Gid = api.UInt32(*d.GID)
	}
	if !can.bound(d) {
		a.AddDevice(dev)
	}
	if d.Access == "" || !can.DeviceRules {
		// Before NRI 0.10 "m", the right to make the same node once more, is not
		// added for a character device nor taken from a block device: the container
		// has that very node either way.
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

// derivedAccess is the rule that NRI derives for a device.
func derivedAccess(d *edits.Device) string {
	if d.Type == "b" {
		return "rwm"
	}
	return "rw"
}

// grants reports whether a device brings a right, one of r, w and m.
func grants(d *edits.Device, right rune) bool {
	switch d.Access {
	case "":
		return strings.ContainsRune(derivedAccess(d), right)
	case edits.NoAccess:
		return false
	}
	return strings.ContainsRune(d.Access, right)
}

// othersGrant reports whether the container has a right to the number of devices[i]
// by another node: a rule is of a number, and what takes a right away takes it from
// all nodes of that number.
func othersGrant(right rune, devices []edits.Device, i int, have []edits.Device) bool {
	d := &devices[i]
	same := func(o *edits.Device) bool {
		return typeOf(o) == typeOf(d) && o.Major == d.Major && o.Minor == d.Minor
	}
	for j := range devices {
		if j != i && same(&devices[j]) && grants(&devices[j], right) {
			return true
		}
	}
	for j := range have {
		if same(&have[j]) && grants(&have[j], right) {
			return true
		}
	}
	return typeOf(d) == "c" && isDefault(d.Major, d.Minor)
}

// isDefault reports whether every container has a character device and all rights
// to it (OCI Runtime Specification, "Default Devices").
func isDefault(major, minor int64) bool {
	switch major {
	case 1:
		return minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9 // null, zero, full, random, urandom
	case 5:
		return minor == 0 || minor == 1 || minor == 2 // tty, console, ptmx
	}
	return major == 136 // the terminals of /dev/pts
}

// typeOf is the type of a node and of its rule.
func typeOf(d *edits.Device) string {
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
		Allow: allow, Type: typeOf(d), Major: api.Int64(d.Major), Minor: api.Int64(d.Minor), Access: access,
	})
}

func addHook(a *api.ContainerAdjustment, h edits.Hook) {
	hook := &api.Hook{Path: h.Path, Args: append([]string(nil), h.Args...), Env: append([]string(nil), h.Env...)}
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
	schemata := append([]string(nil), r.Schemata...)
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

// mountType is never empty: runtimes take "bind" for what CDI leaves out.
func mountType(m edits.Mount) string {
	if m.Type == "" {
		return "bind"
	}
	return m.Type
}

// mountOptions are those of the mount. What runtimes take for a bind mount is one by
// its options alone: runc fails on a type of that name without them.
func mountOptions(m edits.Mount) []string {
	options := append([]string(nil), m.Options...)
	if mountType(m) == "bind" && !slices.Contains(options, "bind") && !slices.Contains(options, "rbind") {
		options = append(options, "bind")
	}
	return options
}

// UnsupportedError is an edit that the runtime's NRI cannot carry. It unwraps to
// errdefs.ErrNotImplemented.
type UnsupportedError struct {
	Edit   string // what cannot be carried
	Needs  string // the version that can
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

// Unwrap makes the error an errdefs.ErrNotImplemented.
func (e *UnsupportedError) Unwrap() error { return errdefs.ErrNotImplemented }
