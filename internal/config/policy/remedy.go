// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// pathUnknown stands in the remedy for the sockets of a network, which are known only once the
// network has one.
const pathUnknown = "/DIRECTORY/OF/ITS/SOCKETS/**"

// addRemedy adds the lines that would grant the item to the refusal.
func (p *Policy) addRemedy(e *RefusedError, s *Subject, it *item, c closeness) {
	k := it.kind
	nameless := it.fsType == "" && !nameable(k, it.name) || it.fsType != "" && !isFileSystemType(it.fsType) || k == kindMount && !nameable(k, it.destination)
	if nameless || c < otherKind && s.Namespace != "" && !nameable(kindNetwork, s.Namespace) {
		e.Why += "; a rule cannot match this name exactly, so no rule can allow it alone"
		return
	}
	if s.NetworkGuessed && (c == otherNetwork || k == kindNetwork) {
		e.Why += "; make Multus' cache readable (multus.cacheDir), or add a rule without networks"
		return
	}
	text := it.formatYAML()
	switch {
	case c == otherNetwork && nameable(kindNetwork, s.Network):
		e.Under, e.Lines = underAllow+"."+kindNetwork.listName(), []string{"- " + strconv.Quote(s.Network)}
	case c == otherName:
		e.Under, e.Lines = underAllow+"."+k.listName(), []string{"- " + text}
	case c == otherKind:
		field := k.listName()
		if k == kindNetwork {
			field, text = kindSocket.listName(), strconv.Quote(pathUnknown)
		}
		e.Under, e.Lines = underAllow, []string{field + ": [" + text + "]"}
	default:
		allow := k.listName() + ": [" + text + "]"
		if k == kindNetwork {
			allow = kindSocket.listName() + ": [" + strconv.Quote(pathUnknown) + "], " + allow
		}
		who := cmp.Or(s.Namespace, "host")
		isInUse := func(name string) bool {
			return slices.ContainsFunc(p.rules, func(r *rule) bool { return r.name == name })
		}
		e.Under, e.Lines = underRules, []string{
			"- name: " + freeName(who+"-"+k.listName(), isInUse),
			"  for: {namespaces: [" + strconv.Quote(s.Namespace) + "]}",
			"  allow: {" + allow + "}",
		}
	}
}

// freeName returns a valid name of a rule that is not in use: the wanted one, or that with a number behind it.
func freeName(want string, inUse func(name string) bool) string {
	if !validName(want + "-9999") {
		want = "new"
	}
	name := want
	for n := 2; inUse(name); n++ {
		name = fmt.Sprintf("%s-%d", want, n)
	}
	return name
}

// nameable reports whether a pattern can match s and nothing else. The remedy for a path with a
// star in it must not suggest a star.
func nameable(k kind, s string) bool {
	_, err := k.compile(s)
	return err == nil && !strings.Contains(s, "*") && strconv.CanBackquote(s) && strconv.QuoteToASCII(s) == strconv.Quote(s)
}
