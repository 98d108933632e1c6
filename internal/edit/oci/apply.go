// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/edit"
)

// Apply returns the text with the edits, with the semantics of CDI's own library:
//
//   - A variable replaces the last one of its name, or is appended.
//   - A device node replaces those at its path, at the end of the list. Character and block devices
//     get a rule of the device cgroup: "rwm" unless the edit has another access, none for
//     edit.NoAccess. A rule that exists and is not followed by a denying rule is not repeated.
//   - A mount replaces the first one at its destination. Then all mounts are sorted by depth, stably.
//     In a user namespace with mappings CDI's bind mounts get "idmap" or "ridmap" unless they have either.
//   - If a mount of Jackfield's own is "rslave", a private root becomes "rslave" too. Otherwise
//     runtimes would cut the mount off from the host's.
//   - The limit of locked memory replaces the one that the process has. The OCI Runtime Specification
//     forbids a second entry of a type.
//   - Hooks and groups are appended. The RDT configuration is replaced. A network device replaces
//     the one of its host name.
//
// The receiver does not change. If nothing changes, the text is the original one. The error is an
// [edit.NewConflict], or errdefs.ErrInvalidArgument for an unknown hook stage.
func (c *Config) Apply(set *edit.Set) ([]byte, error) {
	if set == nil || set.Empty() {
		return []byte(c.text), nil
	}
	changes, err := c.changedMembers(set)
	if err != nil {
		return nil, fmt.Errorf("edit OCI configuration: %w", err)
	}
	if len(changes) == 0 {
		return []byte(c.text), nil
	}
	var out bytes.Buffer
	c.writeObject(&out, c.root, changes)
	return formatLike(c, out.Bytes())
}

// member is a member of an object that changes: its new value, or, if it stays an object, its
// members that change.
type member struct {
	key     string
	value   []byte
	members []member
}

// changedMembers returns the members of the configuration that a set of edits changes.
func (c *Config) changedMembers(set *edit.Set) ([]member, error) {
	linux := cmp.Or(c.spec.Linux, &rspec.Linux{})
	if err := checkNetDevices(linux.NetDevices, set.NetDevices); err != nil {
		return nil, err
	}
	for _, h := range set.Hooks {
		if !slices.Contains(edit.Stages(), h.Stage) {
			return nil, fmt.Errorf("%s: hook %q: invalid stage %q: must be one of %v: %w", h.Origin, h.Path, h.Stage,
				edit.Stages(), errdefs.ErrInvalidArgument)
		}
	}
	var hooks, netDevices, rdt, propagation []member
	for _, stage := range edit.Stages() {
		hooks = append(hooks, changedList(string(stage), c.hooks[stage],
			planHooks(c.hooks[stage], set.Hooks, stage))...)
	}
	for _, n := range set.NetDevices {
		netDevices = append(netDevices, member{key: n.HostName, value: marshal(rspec.LinuxNetDevice{Name: n.Name})})
	}
	if r := set.RDT; r != nil {
		rdt = []member{{key: "intelRdt", value: marshal(rspec.LinuxIntelRdt{ClosID: r.ClosID,
			L3CacheSchema: r.L3CacheSchema,
			MemBwSchema:   r.MemBwSchema, Schemata: r.Schemata, EnableMonitoring: r.EnableMonitoring})}}
	}
	if needsSlaveRoot(linux.RootfsPropagation, set.Mounts) {
		propagation = []member{{key: "rootfsPropagation", value: marshal("rslave")}}
	}
	mounts := planMounts(c.mounts, withBoundDevices(set), hasMappedUserNamespace(linux))
	devices, rules := planDevices(c.devices, c.rules, set.Devices)
	return slices.Concat(
		changedObject("process",
			changedObject("user", changedList("additionalGids", c.gids, planGIDs(c.gids, set.GIDs))),
			changedList("env", c.env, planEnv(c.env, set.Env)),
			changedList("rlimits", c.rlimits, planRlimits(c.rlimits, set.Memlock))),
		changedList("mounts", c.mounts, mounts),
		changedObject("hooks", hooks),
		changedObject("linux",
			changedList("devices", c.devices, devices),
			changedObject("netDevices", netDevices),
			changedObject("resources", changedList("devices", c.rules, rules)),
			rdt, propagation)), nil
}

func changedObject(key string, members ...[]member) []member {
	if all := slices.Concat(members...); len(all) > 0 {
		return []member{{key: key, members: all}}
	}
	return nil
}

// changedList returns a list if it differs from the one before. Elements that stay keep their text.
func changedList[T any](key string, before, after []element[T]) []member {
	if slices.EqualFunc(before, after, func(a, b element[T]) bool { return a.text == b.text }) {
		return nil
	}
	texts := make([][]byte, len(after))
	for i, e := range after {
		if texts[i] = []byte(e.text); e.text == "" {
			texts[i] = marshal(e.value)
		}
	}
	return []member{{key: key, value: slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]"))}}
}

// marshal encodes a value as runtimes do, without escapes for HTML.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // strings, numbers and lists of them, which cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// writeObject writes the object n with changed members. The order of its members stays, new members
// follow. A null n is a missing object.
func (c *Config) writeObject(out *bytes.Buffer, n *jsontree.Node, changes []member) {
	members := slices.Clip(n.Children)
	for _, m := range changes {
		if n.Member(m.key) == nil {
			members = append(members, &jsontree.Node{Key: m.key})
		}
	}
	for i, child := range members {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		out.WriteByte(separator)
		out.Write(marshal(child.Key))
		out.WriteByte(':')
		switch at := slices.IndexFunc(changes, func(m member) bool { return m.key == child.Key }); {
		case at < 0:
			out.WriteString(c.text[child.Start:child.End])
		case changes[at].value != nil:
			out.Write(changes[at].value)
		default:
			c.writeObject(out, child, changes[at].members)
		}
	}
	out.WriteByte('}')
}

// formatLike formats text like the configuration: in one line, or with the indentation of its first
// member.
func formatLike(c *Config, text []byte) ([]byte, error) {
	var out bytes.Buffer
	format := json.Compact
	if indent, ok := indentation(c); ok {
		format = func(dst *bytes.Buffer, src []byte) error { return json.Indent(dst, src, "", indent) }
	}
	err := format(&out, text)
	out.WriteString(c.text[c.root.End:])
	return out.Bytes(), err
}

// indentation returns the white space before the first member. ok is false if the member does not
// begin its line.
func indentation(c *Config) (indent string, ok bool) {
	const maxIndent = 8
	first := strings.IndexByte(c.text[c.root.Start:], '"')
	if first < 0 {
		return "", false
	}
	_, indent, ok = strings.Cut(c.text[c.root.Start+1:c.root.Start+first], "\n")
	indent = indent[strings.LastIndexByte(indent, '\n')+1:]
	return indent, ok && len(indent) <= maxIndent
}
