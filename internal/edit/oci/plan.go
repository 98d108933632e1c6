// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/edit"
)

// hasMappedUserNamespace reports whether the container has a user namespace with mappings of its own. runc rejects an
// idmapped mount without both mappings, as in a pod that joins another user namespace.
func hasMappedUserNamespace(linux *rspec.Linux) bool {
	return len(linux.UIDMappings) > 0 && len(linux.GIDMappings) > 0 &&
		slices.ContainsFunc(linux.Namespaces, func(n rspec.LinuxNamespace) bool {
			return n.Type == rspec.UserNamespace
		})
}

// planEnv replaces the last variable of the same name, which is the one that takes effect, or
// appends.
func planEnv(have []element[string], set []edit.Env) []element[string] {
	out := slices.Clone(have)
	last := make(map[string]int, len(have)+len(set))
	for i, e := range have {
		name, _, _ := strings.Cut(e.value, "=")
		last[name] = i
	}
	for i := range set {
		text := set[i].Text()
		at, ok := last[set[i].Name]
		switch {
		case !ok:
			last[set[i].Name] = len(out)
			out = append(out, element[string]{value: text})
		case out[at].value != text:
			out[at] = element[string]{value: text}
		}
	}
	return out
}

// planGIDs adds the groups that the container lacks. Group 0 is never added.
func planGIDs(have []element[uint32], set []edit.GID) []element[uint32] {
	out := slices.Clone(have)
	for _, g := range set {
		if g.ID != 0 && !slices.ContainsFunc(out, func(e element[uint32]) bool { return e.value == g.ID }) {
			out = append(out, element[uint32]{value: g.ID})
		}
	}
	return out
}

// planMounts replaces the first mount at the same destination, or appends. Then it sorts all mounts
// by depth, stably, as CRI-O, Docker and CDI's library do.
func planMounts(have []element[rspec.Mount], set []edit.Mount, userNamespace bool) []element[rspec.Mount] {
	out := slices.Clone(have)
	if len(set) == 0 {
		return out
	}
	positions := make(map[string][]int, len(have)+len(set)) // by destination
	for i, e := range have {
		destination := path.Clean(e.value.Destination)
		positions[destination] = append(positions[destination], i)
	}
	replaced := make(map[int]bool)
	for _, m := range set {
		destination := path.Clean(m.Destination)
		at := positions[destination]
		if len(at) > 0 {
			replaced[at[0]] = true
			at = at[1:]
		}
		positions[destination] = append(at, len(out))
		options := m.Options
		if userNamespace && m.Origin.Source == edit.CDI {
			options = withIDMap(m.Type, options)
		}
		out = append(out, element[rspec.Mount]{value: rspec.Mount{Destination: m.Destination, Source: m.Source,
			Type: m.Type, Options: options}})
	}
	kept := out[:0]
	for i, e := range out {
		if !replaced[i] {
			kept = append(kept, e)
		}
	}
	slices.SortStableFunc(kept, func(a, b element[rspec.Mount]) int {
		return edit.Depth(a.value.Destination) - edit.Depth(b.value.Destination)
	})
	return kept
}

// withBoundDevices returns the mounts of a set, followed by bind mounts for its bound device nodes.
func withBoundDevices(set *edit.Set) []edit.Mount {
	mounts := slices.Clone(set.Mounts)
	for _, d := range set.Devices {
		if !d.Bind {
			continue
		}
		origin := d.Origin
		origin.Source = edit.SourceJackfield // the node's owner is not mapped
		mounts = append(mounts, edit.Mount{Destination: d.Path, Source: d.HostPath, Type: "bind",
			Options: []string{"bind", "rprivate", "nosuid", "noexec"}, Origin: origin})
	}
	return mounts
}

// withIDMap adds the option by which a bind mount in a user namespace shows the owners that the
// files have on the host, unless the options have it already.
func withIDMap(mountType string, options []string) []string {
	option := ""
	if mountType == "bind" {
		option = "idmap"
	}
	for _, o := range options {
		switch o {
		case "idmap", "ridmap":
			return options
		case "bind":
			option = "idmap"
		case "rbind":
			option = "ridmap"
		}
	}
	if option == "" {
		return options
	}
	return append(slices.Clone(options), option)
}

// needsSlaveRoot reports whether a private root of the container must become a slave of the host's. Only
// then does a mount of Jackfield's own with rslave receive later mounts of the host. crun makes the root
// private by default.
func needsSlaveRoot(propagation string, set []edit.Mount) bool {
	isPrivate := slices.Contains([]string{"", "private", "rprivate", "unbindable", "runbindable"}, propagation)
	return isPrivate && slices.ContainsFunc(set, func(m edit.Mount) bool {
		return m.Origin.Source != edit.CDI && slices.Contains(m.Options, "rslave")
	})
}

// planDevices removes the device nodes at the same path and appends the new one. Character and block
// devices get a rule of the device cgroup, unless a rule that allows the access exists and no
// later rule denies anything.
func planDevices(haveDevices []element[rspec.LinuxDevice], haveRules []element[rspec.LinuxDeviceCgroup],
	set []edit.Device) ([]element[rspec.LinuxDevice], []element[rspec.LinuxDeviceCgroup]) {
	last := make(map[string]int, len(set)) // of the set, by path
	for i := range set {
		last[path.Clean(set[i].Path)] = i
	}
	devices := slices.DeleteFunc(slices.Clone(haveDevices), func(e element[rspec.LinuxDevice]) bool {
		_, replaced := last[path.Clean(e.value.Path)]
		return replaced
	})
	rules := slices.Clone(haveRules)
	allowed := allowedDevices(rules)
	for i := range set {
		d := &set[i]
		if !d.Bind && last[path.Clean(d.Path)] == i {
			devices = append(devices, element[rspec.LinuxDevice]{value: rspec.LinuxDevice{
				Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: d.FileMode, UID: d.UID, GID: d.GID}})
		}
		if d.Type != "b" && d.Type != "c" || d.Access == edit.NoAccess {
			continue
		}
		access := allowedDevice{d.Type, d.Major, d.Minor, cmp.Or(d.Access, "rwm")}
		if !allowed[access] {
			allowed[access] = true
			rules = append(rules, element[rspec.LinuxDeviceCgroup]{value: rspec.LinuxDeviceCgroup{
				Allow: true, Type: d.Type, Major: &d.Major, Minor: &d.Minor, Access: access.access}})
		}
	}
	return devices, rules
}

// allowedDevice is a rule of the device cgroup that allows one device.
type allowedDevice struct {
	deviceType   string
	major, minor int64
	access       string
}

// allowedDevices returns the rules after the last one that denies anything.
func allowedDevices(rules []element[rspec.LinuxDeviceCgroup]) map[allowedDevice]bool {
	allowed := make(map[allowedDevice]bool)
	for i := len(rules) - 1; i >= 0 && rules[i].value.Allow; i-- {
		if r := &rules[i].value; r.Major != nil && r.Minor != nil {
			allowed[allowedDevice{r.Type, *r.Major, *r.Minor, r.Access}] = true
		}
	}
	return allowed
}

// planRlimits replaces the limit of locked memory, or appends it.
func planRlimits(have []element[rspec.POSIXRlimit], m *edit.Memlock) []element[rspec.POSIXRlimit] {
	if m == nil {
		return have
	}
	out := slices.DeleteFunc(slices.Clone(have),
		func(e element[rspec.POSIXRlimit]) bool { return e.value.Type == edit.RlimitMemlock })
	return append(out, element[rspec.POSIXRlimit]{value: rspec.POSIXRlimit{
		Type: edit.RlimitMemlock, Soft: uint64(m.Soft), Hard: uint64(m.Hard)}})
}

// planHooks appends the hooks of a stage.
func planHooks(have []element[rspec.Hook], set []edit.Hook, stage edit.Stage) []element[rspec.Hook] {
	out := slices.Clip(have)
	for _, h := range set {
		if h.Stage == stage {
			out = append(out, element[rspec.Hook]{value: rspec.Hook{Path: h.Path, Args: h.Args, Env: h.Env,
				Timeout: h.Timeout}})
		}
	}
	return out
}

// checkNetDevices refuses two host devices with one name in the container.
func checkNetDevices(have map[string]rspec.LinuxNetDevice, set []edit.NetDevice) error {
	names := make(map[string]edit.NetDevice, len(have)+len(set))
	for _, host := range slices.Sorted(maps.Keys(have)) {
		if !slices.ContainsFunc(set, func(n edit.NetDevice) bool { return n.HostName == host }) {
			names[cmp.Or(have[host].Name, host)] = edit.NetDevice{HostName: host,
				Origin: edit.Origin{Request: "the configuration before the edits"}}
		}
	}
	for _, n := range set {
		name := cmp.Or(n.Name, n.HostName)
		if other, taken := names[name]; taken && other.HostName != n.HostName {
			return edit.NewConflict("network device", name, other.Origin, n.Origin,
				fmt.Sprintf("host device %q against %q", other.HostName, n.HostName))
		}
		names[name] = n
	}
	return nil
}
