// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Asked is one requested item, as an entry of a list in a rule's allow. Its JSON is part of audit
// logs and of the daemon's status.
type Asked struct {
	List string `json:"list"` // of Allow: cdi, sockets, namedSockets, devices, mounts, hooks, networks or ports
	Name string `json:"name"` // with /** for a directory with everything below it
	// Type is the type of a mount that is not a bind mount. Such a mount has no name.
	Type string `json:"type,omitempty"`
	// Destination and ReadOnly belong to a mount.
	Destination string `json:"destination,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	// Network is the network of a socket or device. It is "" without one, and if the network's
	// namespace is unknown.
	Network string `json:"network,omitempty"`
	// DeniedBy is the rule that denies the item, or empty.
	DeniedBy string `json:"deniedBy,omitempty"`
}

// asked returns the item as an entry of a rule's list.
func (it *item) asked(s *Subject) Asked {
	a := Asked{List: it.kind.listName(), Name: it.name, Type: it.fsType, Destination: it.destination,
		ReadOnly: it.kind == kindMount && !it.writable}
	if it.whole {
		a.Name += "/**"
	}
	if (it.kind == kindSocket || it.kind == kindDevice) && !s.NetworkGuessed {
		a.Network = s.Network
	}
	return a
}

// Suggestion is an item that containers of a namespace requested.
type Suggestion struct {
	Namespace string
	Asked
}

// Suggest returns the smallest rules that grant exactly the requested items: one rule a namespace,
// and one more for each network of sockets or devices. left holds the items that no such rule can
// grant: denied ones, and names that no pattern matches exactly. Duplicates are dropped.
func Suggest(asked []Suggestion) (rules []Rule, left []Suggestion) {
	order := func(a, b Suggestion) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Network, b.Network), cmp.Compare(a.List, b.List),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Destination, b.Destination),
			cmp.Compare(strconv.FormatBool(a.ReadOnly), strconv.FormatBool(b.ReadOnly)),
			cmp.Compare(a.DeniedBy, b.DeniedBy))
	}
	asked = slices.SortedFunc(slices.Values(asked), order)
	asked = slices.Compact(asked)
	for _, a := range asked {
		k, ok := kindOf(a.List)
		switch {
		case !ok || k == kindNetwork || k == kindPort || a.DeniedBy != "" || !a.isNameable(k):
			left = append(left, a)
			continue
		case slices.ContainsFunc(asked, func(b Suggestion) bool { return a != b && b.covers(&a, k) }):
			continue
		}
		rule := ruleFor(&rules, a)
		if k == kindMount {
			rule.Allow.Mounts = append(rule.Allow.Mounts,
				Mount{Type: a.Type, Source: a.Name, Destination: a.Destination, ReadOnly: a.ReadOnly})
			continue
		}
		list := rule.Allow.list(k)
		*list = append(*list, a.Name)
	}
	return rules, left
}

// kindOf returns the kind of a list in a rule's allow.
func kindOf(list string) (kind, bool) {
	for k := range kinds {
		if k.listName() == list {
			return k, true
		}
	}
	return 0, false
}

// isNameable reports whether patterns can match the item and nothing else.
func (a *Suggestion) isNameable(k kind) bool {
	name, _ := cutWhole(k, a.Name)
	return (nameable(k, name) || isFileSystemType(a.Type)) && (k != kindMount || nameable(k, a.Destination)) &&
		(a.Namespace == "" || nameable(kindNetwork, a.Namespace)) &&
		(a.Network == "" || nameable(kindNetwork, a.Network))
}

// cutWhole returns the directory of a name that covers everything below it. Other names are
// returned unchanged.
func cutWhole(k kind, name string) (dir string, whole bool) {
	if k != kindSocket || name == "/**" {
		return name, false
	}
	return strings.CutSuffix(name, "/**")
}

// covers reports whether the rule for a also grants b, which has kind k.
func (a *Suggestion) covers(b *Suggestion, k kind) bool {
	if a.Namespace != b.Namespace || a.List != b.List || a.DeniedBy != "" ||
		a.Network != "" && a.Network != b.Network || a.Destination != b.Destination || a.Type != b.Type ||
		a.ReadOnly && !b.ReadOnly || !a.isNameable(k) {
		return false
	}
	dir, whole := cutWhole(k, a.Name)
	return a.Name == b.Name || whole && strings.HasPrefix(b.Name, dir+"/")
}

// ruleFor returns the rule for the namespace and network, and adds it if it is missing. The rules
// are sorted.
func ruleFor(rules *[]Rule, a Suggestion) *Rule {
	var networks []string
	if a.Network != "" {
		networks = []string{a.Network}
	}
	if n := len(*rules); n > 0 {
		if last := &(*rules)[n-1]; last.For.Namespaces[0] == a.Namespace &&
			slices.Equal(last.Allow.Networks, networks) {
			return last
		}
	}
	name := freeName("suggested-"+cmp.Or(a.Namespace, "host"), func(name string) bool {
		return slices.ContainsFunc(*rules, func(r Rule) bool { return r.Name == name })
	})
	*rules = append(*rules, Rule{Name: name, For: Subjects{Namespaces: []string{a.Namespace}},
		Allow: Allow{Networks: networks}})
	return &(*rules)[len(*rules)-1]
}
