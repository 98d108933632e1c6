// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

// list is a list of a spec after the edits: its items, and, where somebody wants
// to know, where each stood in the list before, or added. A list that no edit
// reaches is not set.
type list[T any] struct {
	items []T
	from  []int
	set   bool
}

// added stands for an item that was not in the list before.
const added = -1

// listOf is a copy of have with room for n items more.
func listOf[T any](have []T, n int, track bool) list[T] {
	l := list[T]{items: make([]T, len(have), len(have)+n), set: true}
	copy(l.items, have)
	if track {
		l.from = make([]int, len(have), len(have)+n)
		for i := range l.from {
			l.from[i] = i
		}
	}
	return l
}

func (l *list[T]) add(item T) {
	l.items = append(l.items, item)
	if l.from != nil {
		l.from = append(l.from, added)
	}
}

func (l *list[T]) remove(i int) {
	l.items = slices.Delete(l.items, i, i+1)
	if l.from != nil {
		l.from = slices.Delete(l.from, i, i+1)
	}
}

// replace puts another item in the place of one.
func (l *list[T]) replace(i int, item T) {
	l.items[i] = item
	if l.from != nil {
		l.from[i] = added
	}
}

// changes are the parts of a spec that edits reach, as they will be.
type changes struct {
	track bool // where items stood before is wanted

	env        list[string]
	gids       list[uint32]
	mounts     list[rspec.Mount]
	hooks      [stages]list[rspec.Hook]
	devices    list[rspec.LinuxDevice]
	rules      list[rspec.LinuxDeviceCgroup]
	netDevices []edits.NetDevice
	rdt        *rspec.LinuxIntelRdt

	propagation string // of the root; "" leaves it

	strings []string // room for the copies of lists
}

// room makes room for the lists of strings that mounts and hooks bring.
func (c *changes) room(mounts []edits.Mount, hooks []edits.Hook) {
	n := 0
	for i := range mounts {
		n += len(mounts[i].Options)
	}
	for i := range hooks {
		n += len(hooks[i].Args) + len(hooks[i].Env)
	}
	if n > 0 {
		c.strings = make([]string, 0, n)
	}
}

// copy is a copy of a list, with no room to grow into another.
func (c *changes) copy(list []string) []string {
	if list == nil {
		return nil
	}
	from := len(c.strings)
	c.strings = append(c.strings, list...)
	return c.strings[from:len(c.strings):len(c.strings)]
}

// plan works out the changes, and changes nothing.
func (c *changes) plan(spec *rspec.Spec, set *edits.Set) error {
	process, linux := spec.Process, spec.Linux
	if process == nil {
		process = &rspec.Process{}
	}
	if linux == nil {
		linux = &rspec.Linux{}
	}
	mounts := withBound(set)
	c.room(mounts, set.Hooks)
	c.planEnv(process.Env, set.Env)
	c.planGIDs(process.User.AdditionalGids, set.GIDs)
	c.planMounts(spec.Mounts, mounts, hasUserNamespace(spec))
	c.planDevices(linux, set.Devices)
	c.propagation = propagation(linux.RootfsPropagation, set.Mounts)
	if r := set.RDT; r != nil {
		c.rdt = &rspec.LinuxIntelRdt{ClosID: r.ClosID, L3CacheSchema: r.L3CacheSchema, MemBwSchema: r.MemBwSchema,
			Schemata: slices.Clone(r.Schemata), EnableMonitoring: r.EnableMonitoring}
	}
	if err := c.planHooks(spec, set.Hooks); err != nil {
		return err
	}
	return c.planNetDevices(linux.NetDevices, set.NetDevices)
}

func (c *changes) planEnv(have []string, set []edits.Env) {
	if len(set) == 0 {
		return
	}
	l := listOf(have, len(set), c.track)
	names := edits.NamesOf(l.items)
	for i := range set {
		kv := set[i].Text()
		at := names.Last(set[i].Name)
		switch {
		case at < 0:
			l.add(kv)
			names.Grown(l.items)
		case l.items[at] != kv:
			l.replace(at, kv)
		}
	}
	c.env = l
}

func (c *changes) planGIDs(have []uint32, set []edits.GID) {
	if len(set) == 0 {
		return
	}
	l := listOf(have, len(set), c.track)
	for _, g := range set {
		if g.ID != 0 && !slices.Contains(l.items, g.ID) {
			l.add(g.ID)
		}
	}
	c.gids = l
}

func (c *changes) planDevices(have *rspec.Linux, set []edits.Device) {
	if len(set) == 0 {
		return
	}
	devices := listOf(have.Devices, len(set), c.track)
	var rules list[rspec.LinuxDeviceCgroup]
	var haveRules []rspec.LinuxDeviceCgroup
	if have.Resources != nil {
		haveRules = have.Resources.Devices
	}
	numbers := make([]struct {
		major, minor int64
		mode         os.FileMode
		uid, gid     uint32
	}, len(set))
	for i := range set {
		d := &set[i]
		for j := len(devices.items) - 1; j >= 0; j-- {
			if edits.SameSpelling(devices.items[j].Path, d.Path) {
				devices.remove(j)
			}
		}
		n := &numbers[i]
		if !d.Bind {
			devices.add(rspec.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor,
				FileMode: cloneTo(&n.mode, d.FileMode), UID: cloneTo(&n.uid, d.UID), GID: cloneTo(&n.gid, d.GID)})
		}
		if d.Type != "b" && d.Type != "c" || d.Access == edits.NoAccess {
			continue
		}
		if !rules.set {
			rules = listOf(haveRules, len(set)-i, c.track)
		}
		n.major, n.minor = d.Major, d.Minor
		rule := rspec.LinuxDeviceCgroup{Allow: true, Type: d.Type, Major: &n.major, Minor: &n.minor, Access: d.Access}
		if rule.Access == "" {
			rule.Access = "rwm"
		}
		if !granted(rules.items, &rule) {
			rules.add(rule)
		}
	}
	c.devices, c.rules = devices, rules
}

// granted reports whether a rule is there already and still holds.
func granted(rules []rspec.LinuxDeviceCgroup, rule *rspec.LinuxDeviceCgroup) bool {
	same := func(a, b *int64) bool { return a != nil && *a == *b }
	for i := len(rules) - 1; i >= 0 && rules[i].Allow; i-- {
		if r := &rules[i]; r.Type == rule.Type && r.Access == rule.Access && same(r.Major, rule.Major) && same(r.Minor, rule.Minor) {
			return true
		}
	}
	return false
}

func (c *changes) planHooks(spec *rspec.Spec, set []edits.Hook) error {
	for i := range set {
		h := &set[i]
		at := slices.Index(stageNames[:], h.Stage)
		if at < 0 {
			return fmt.Errorf("%s: hook %q: found stage %q, want one of %v: %w", h.Origin, h.Path, h.Stage, stageNames, errdefs.ErrInvalidArgument)
		}
		l := &c.hooks[at]
		if !l.set {
			*l = listOf(hooksOf(spec, at), len(set)-i, c.track)
		}
		l.add(rspec.Hook{Path: h.Path, Args: c.copy(h.Args), Env: c.copy(h.Env), Timeout: clone(h.Timeout)})
	}
	return nil
}

// planNetDevices looks for two host devices that would have one name in the
// container: no runtime can make that.
func (c *changes) planNetDevices(have map[string]rspec.LinuxNetDevice, set []edits.NetDevice) error {
	if len(set) == 0 {
		return nil
	}
	hosts := make(map[string]edits.Origin, len(set))
	for _, n := range set {
		hosts[n.HostName] = n.Origin
	}
	names := make(map[string]edits.NetDevice, len(have)+len(set))
	for _, host := range slices.Sorted(maps.Keys(have)) {
		if _, replaced := hosts[host]; !replaced {
			names[nameOr(have[host].Name, host)] = edits.NetDevice{HostName: host, Origin: edits.Origin{Request: "the spec as it was"}}
		}
	}
	for _, n := range set {
		name := nameOr(n.Name, n.HostName)
		if other, taken := names[name]; taken && other.HostName != n.HostName {
			return &edits.ConflictError{What: "network device", Name: name, First: other.Origin, Second: n.Origin,
				Detail: fmt.Sprintf("host device %q against %q", other.HostName, n.HostName)}
		}
		names[name] = n
	}
	c.netDevices = set
	return nil
}

// nameOr is a network device's name in the container.
func nameOr(name, host string) string {
	if name == "" {
		return host
	}
	return name
}

// commit puts the changes into spec.
func (c *changes) commit(spec *rspec.Spec) {
	if (c.env.set || c.gids.set) && spec.Process == nil {
		spec.Process = &rspec.Process{}
	}
	if c.env.set {
		spec.Process.Env = c.env.items
	}
	if c.gids.set {
		spec.Process.User.AdditionalGids = c.gids.items
	}
	if c.mounts.set {
		spec.Mounts = c.mounts.items
	}
	for i := range c.hooks {
		if !c.hooks[i].set {
			continue
		}
		if spec.Hooks == nil {
			spec.Hooks = &rspec.Hooks{}
		}
		*stageField(spec.Hooks, i) = c.hooks[i].items
	}
	c.commitLinux(spec)
}

func (c *changes) commitLinux(spec *rspec.Spec) {
	if !c.devices.set && len(c.netDevices) == 0 && c.rdt == nil && c.propagation == "" {
		return
	}
	if spec.Linux == nil {
		spec.Linux = &rspec.Linux{}
	}
	if c.propagation != "" {
		spec.Linux.RootfsPropagation = c.propagation
	}
	if c.devices.set {
		spec.Linux.Devices = c.devices.items
	}
	if c.rules.set {
		if spec.Linux.Resources == nil {
			spec.Linux.Resources = &rspec.LinuxResources{}
		}
		spec.Linux.Resources.Devices = c.rules.items
	}
	if len(c.netDevices) > 0 {
		devices := make(map[string]rspec.LinuxNetDevice, len(spec.Linux.NetDevices)+len(c.netDevices))
		maps.Copy(devices, spec.Linux.NetDevices)
		for _, n := range c.netDevices {
			devices[n.HostName] = rspec.LinuxNetDevice{Name: n.Name}
		}
		spec.Linux.NetDevices = devices
	}
	if c.rdt != nil {
		spec.Linux.IntelRdt = c.rdt
	}
}

// cloneTo is a copy of p at a place of its own; nil for nil.
func cloneTo[T any](place, p *T) *T {
	if p == nil {
		return nil
	}
	*place = *p
	return place
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
