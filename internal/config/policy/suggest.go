// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Asked is one thing that a decision is about, as a list of a rule's allow has it. Its JSON is in audit logs and in the
// daemon's status.
type Asked struct {
	List string `json:"list"` // of Allow: cdi, sockets, namedSockets, devices, mounts, hooks, networks or ports
	Name string `json:"name"` // with /** for a directory with everything below it
	// Type is of a mount that is no bind mount, and has no name.
	Type string `json:"type,omitempty"`
	// Destination and ReadOnly are of a mount.
	Destination string `json:"destination,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	// Network brings the socket or device; "" for none, and where the network's namespace is unknown.
	Network string `json:"network,omitempty"`
	// DeniedBy is the rule that denies it, or empty.
	DeniedBy string `json:"deniedBy,omitempty"`
}

// asked returns the item as a rule's list has it.
func (it *item) asked(s *Subject) Asked {
	a := Asked{List: it.kind.listName(), Name: it.name, Type: it.fsType, Destination: it.destination, ReadOnly: it.kind == kindMount && !it.writable}
	if it.whole {
		a.Name += "/**"
	}
	if (it.kind == kindSocket || it.kind == kindDevice) && !s.NetworkGuessed {
		a.Network = s.Network
	}
	return a
}

// Suggestion is what containers of a namespace asked for.
type Suggestion struct {
	Namespace string
	Asked
}

// Suggest returns the smallest rules that grant exactly what was asked for: for each namespace one rule, and one more for
// each network that brings sockets or devices. The second result has what no such rule can grant: what is denied, and
// names that no pattern can have. What comes twice is in neither twice.
func Suggest(asked []Suggestion) (rules []Rule, left []Suggestion) {
	order := func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Network, b.Network), cmp.Compare(a.List, b.List), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Type, b.Type), cmp.Compare(a.Destination, b.Destination), cmp.Compare(strconv.FormatBool(a.ReadOnly), strconv.FormatBool(b.ReadOnly)), cmp.Compare(a.DeniedBy, b.DeniedBy))
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
			rule.Allow.Mounts = append(rule.Allow.Mounts, Mount{Type: a.Type, Source: a.Name, Destination: a.Destination, ReadOnly: a.ReadOnly})
			continue
		}
		list := rule.Allow.list(k)
		*list = append(*list, a.Name)
	}
	return rules, left
}

// kindOf returns the kind that has a list of a rule's allow.
func kindOf(list string) (kind, bool) {
	for k := range kinds {
		if k.listName() == list {
			return k, true
		}
	}
	return 0, false
}

// isNameable reports whether patterns can match what was asked for, and nothing else.
func (a *Suggestion) isNameable(k kind) bool {
	name, _ := cutWhole(k, a.Name)
	return (nameable(k, name) || isFileSystemType(a.Type)) && (k != kindMount || nameable(k, a.Destination)) && (a.Namespace == "" || nameable(kindNetwork, a.Namespace)) &&
		(a.Network == "" || nameable(kindNetwork, a.Network))
}

// cutWhole returns the directory of a name that is for everything below it, and other names unchanged.
func cutWhole(k kind, name string) (dir string, whole bool) {
	if k != kindSocket || name == "/**" {
		return name, false
	}
	return strings.CutSuffix(name, "/**")
}

// covers reports whether the rule for a grants b too, which is of kind k.
func (a *Suggestion) covers(b *Suggestion, k kind) bool {
	if a.Namespace != b.Namespace || a.List != b.List || a.DeniedBy != "" || a.Network != "" && a.Network != b.Network || a.Destination != b.Destination || a.Type != b.Type ||
		a.ReadOnly && !b.ReadOnly || !a.isNameable(k) {
		return false
	}
	dir, whole := cutWhole(k, a.Name)
	return a.Name == b.Name || whole && strings.HasPrefix(b.Name, dir+"/")
}

// ruleFor returns the rule for the namespace and network, which it adds if there is none. The rules are in order.
func ruleFor(rules *[]Rule, a Suggestion) *Rule {
	var networks []string
	if a.Network != "" {
		networks = []string{a.Network}
	}
	if n := len(*rules); n > 0 {
		if last := &(*rules)[n-1]; last.For.Namespaces[0] == a.Namespace && slices.Equal(last.Allow.Networks, networks) {
			return last
		}
	}
	name := freeName("suggested-"+cmp.Or(a.Namespace, "host"), func(name string) bool {
		return slices.ContainsFunc(*rules, func(r Rule) bool { return r.Name == name })
	})
	*rules = append(*rules, Rule{Name: name, For: Subjects{Namespaces: []string{a.Namespace}}, Allow: Allow{Networks: networks}})
	return &(*rules)[len(*rules)-1]
}
