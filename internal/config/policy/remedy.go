// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// pathUnknown is the placeholder in the remedy for a network's sockets, whose directory is unknown
// until the network has one.
const pathUnknown = "/DIRECTORY/OF/ITS/SOCKETS/**"

// addRemedy adds to the refusal the smallest change of the rules that would grant the item: an
// entry of the closest rule's list, a new list, or a new rule.
func (p *Policy) addRemedy(e *RefusedError, s *Subject, it *item, c closeness) {
	k := it.kind
	nameless := it.fsType == "" && !nameable(k, it.name) || it.fsType != "" && !isFileSystemType(it.fsType) ||
		k == kindMount && !nameable(k, it.destination)
	if nameless || c < otherKind && s.Namespace != "" && !nameable(kindNetwork, s.Namespace) {
		e.Why += "; a rule cannot match this name exactly, so no rule can allow only this name"
		return
	}
	if s.NetworkGuessed && (c == otherNetwork || k == kindNetwork) {
		e.Why += "; make Multus' cache readable (multus.cacheDir), or add a rule without networks"
		return
	}
	entries := it.entries()
	text := strings.Join(entries, ", ")
	switch {
	case c == otherNetwork && nameable(kindNetwork, s.Network):
		e.Under, e.Lines = underAllow+"."+kindNetwork.listName(), []string{"- " + strconv.Quote(s.Network)}
	case c == otherName:
		e.Under, e.Lines = underAllow+"."+k.listName(), prefixed("- ", entries)
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

func prefixed(prefix string, list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = prefix + text
	}
	return out
}

// freeName returns an unused and valid name for a rule: the preferred one, or the preferred one
// with a number.
func freeName(preferred string, inUse func(name string) bool) string {
	if !validName(preferred + "-9999") {
		preferred = "new"
	}
	name := preferred
	for n := 2; inUse(name); n++ {
		name = fmt.Sprintf("%s-%d", preferred, n)
	}
	return name
}

// nameable reports whether a pattern can match s and nothing else. The remedy for a path that
// contains a star must not grant a wildcard.
func nameable(k kind, s string) bool {
	_, err := k.compile(s)
	return err == nil && !strings.Contains(s, "*") && strconv.CanBackquote(s) &&
		strconv.QuoteToASCII(s) == strconv.Quote(s)
}
