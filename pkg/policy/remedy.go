// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// pathUnknown stands in the remedy for the sockets of a network, which are
// known only when the network brings one.
const pathUnknown = "/DIRECTORY/OF/ITS/SOCKETS/**"

// remedy writes the lines that would grant it.
func (p *Policy) remedy(e *RefusedError, t thing, c closeness) {
	k := t.kind
	nameless := !nameable(k, t.name) || k == kindMount && !nameable(k, t.at)
	if nameless || c < otherKind && e.Subject.Namespace != "" && !nameable(kindNetwork, e.Subject.Namespace) {
		e.Why += "; no pattern can name it, so no rule can allow it alone"
		return
	}
	if e.Subject.NetworkGuessed && (c == otherNetwork || k == kindNetwork) {
		e.Why += "; make Multus' cache readable (multus.cacheDir), or have a rule without networks"
		return
	}
	text := strconv.Quote(t.name)
	if t.whole {
		text = strconv.Quote(t.name + "/**")
	}
	if k == kindMount {
		text = Mount{Source: t.name, Destination: t.at, ReadOnly: !t.writable}.text()
	}
	switch {
	case c == otherNetwork && nameable(kindNetwork, e.Subject.Network):
		e.Under, e.Lines = underAllow+"."+kindNetwork.field(), []string{"- " + strconv.Quote(e.Subject.Network)}
	case c == otherName:
		e.Under, e.Lines = underAllow+"."+k.field(), []string{"- " + text}
	case c == otherKind:
		field := k.field()
		if k == kindNetwork {
			field, text = kindSocket.field(), strconv.Quote(pathUnknown)
		}
		e.Under, e.Lines = underAllow, []string{field + ": [" + text + "]"}
	default:
		allow := k.field() + ": [" + text + "]"
		if k == kindNetwork {
			allow = kindSocket.field() + ": [" + strconv.Quote(pathUnknown) + "], " + allow
		}
		who := e.Subject.Namespace
		if who == "" {
			who = "host"
		}
		e.Under, e.Lines = underRules, []string{
			"- name: " + p.freeName(who+"-"+k.field()),
			"  for: {namespaces: [" + strconv.Quote(e.Subject.Namespace) + "]}",
			"  allow: {" + allow + "}",
		}
	}
}

// freeName returns a valid rule name that no rule has yet.
func (p *Policy) freeName(want string) string {
	if !validName(want) {
		want = "new"
	}
	name := want
	for n := 2; p.hasRule(name); n++ {
		name = fmt.Sprintf("%s-%d", want, n)
	}
	return name
}

func (p *Policy) hasRule(name string) bool {
	if p == nil {
		return false
	}
	for i := range p.rules {
		if p.rules[i].name == name {
			return true
		}
	}
	return false
}

// nameable reports whether a pattern can stand for s and nothing else. A pod
// that asks for a path with a star in it must not get a star suggested.
func nameable(k kind, s string) bool {
	compile := CompileName
	switch k {
	case kindCDI:
		compile = compileCDI
	case kindSocket, kindDevice, kindMount, kindHook:
		compile = CompilePath
	}
	_, err := compile(s)
	return err == nil && !strings.Contains(s, "*") && strconv.CanBackquote(s) && strconv.QuoteToASCII(s) == strconv.Quote(s)
}
