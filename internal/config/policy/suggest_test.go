// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// askAgain asks the policy what was asked.
func askAgain(p *Policy, a Suggestion) error {
	s := Subject{Namespace: a.Namespace, Network: a.Network}
	dir, whole := strings.CutSuffix(a.Name, "/**")
	var err error
	switch {
	case a.List == "cdi":
		_, err = p.CDI(s, a.Name)
	case a.List == "sockets" && whole:
		_, err = p.SocketDir(s, SocketPath{Path: dir})
	case a.List == "sockets":
		_, err = p.Socket(s, a.Name)
	case a.List == "namedSockets":
		_, err = p.NamedSocket(s, a.Name, SocketPath{})
	case a.List == "devices":
		_, err = p.Device(s, a.Name)
	case a.List == "mounts":
		_, err = p.Mount(s, a.Name, a.Destination, a.ReadOnly)
	case a.List == "hooks":
		_, err = p.Hook(s, a.Name)
	}
	return err
}

func TestSuggestGrantsExactlyWhatWasAsked(t *testing.T) {
	of := func(namespace, list, name string) Suggestion {
		return Suggestion{namespace, Asked{List: list, Name: name}}
	}
	with := func(s Suggestion, change func(*Suggestion)) Suggestion { change(&s); return s }
	onNetwork := func(network string) func(*Suggestion) { return func(s *Suggestion) { s.Network = network } }
	asked := []Suggestion{
		of("b", "cdi", "vendor.com/net=1"), of("b", "cdi", "vendor.com/net=0"), of("b", "cdi", "vendor.com/net=0"),
		of("a", "namedSockets", "spire"), of("", "devices", "/dev/kvm"), of("a", "hooks", "/usr/libexec/h"),
		with(of("a", "sockets", "/run/vsw/x"), onNetwork("a/east")), with(of("a", "devices", "/dev/vfio/3"), onNetwork("a/east")),
		with(of("a", "sockets", "/run/vsw/y"), onNetwork("a/west")), of("a", "sockets", "/run/vsw/y"),
		of("a", "sockets", "/run/app/**"), of("a", "sockets", "/run/app/s.sock"),
		with(of("b", "mounts", "/srv/a"), func(s *Suggestion) { s.Destination, s.ReadOnly = "/data", true }),
		with(of("b", "mounts", "/srv/a"), func(s *Suggestion) { s.Destination = "/data" }),
		with(of("b", "mounts", "/srv/b"), func(s *Suggestion) { s.Destination, s.ReadOnly = "/b", true }),
	}
	denied := with(of("a", "cdi", "vendor.com/net=pf"), func(s *Suggestion) { s.DeniedBy = "never" })
	nameless, port := of("a", "sockets", "/run/vsw/*"), of("a", "ports", "ovs0/br0")
	rules, left := Suggest(append([]Suggestion{denied, nameless, port}, asked...))
	if d := cmp.Diff([]Suggestion{denied, port, nameless}, left); d != "" {
		t.Errorf("left out: -want +got\n%s", d)
	}
	want := []Rule{
		{Name: "suggested-host", For: Subjects{Namespaces: []string{""}}, Allow: Allow{Devices: []string{"/dev/kvm"}}},
		{Name: "suggested-a", For: Subjects{Namespaces: []string{"a"}}, Allow: Allow{Sockets: []string{"/run/app/**", "/run/vsw/y"}, NamedSockets: []string{"spire"}, Hooks: []string{"/usr/libexec/h"}}},
		{Name: "suggested-a-2", For: Subjects{Namespaces: []string{"a"}}, Allow: Allow{Sockets: []string{"/run/vsw/x"}, Devices: []string{"/dev/vfio/3"}, Networks: []string{"a/east"}}},
		{Name: "suggested-b", For: Subjects{Namespaces: []string{"b"}}, Allow: Allow{CDI: []string{"vendor.com/net=0", "vendor.com/net=1"},
			Mounts: []Mount{{Source: "/srv/a", Destination: "/data"}, {Source: "/srv/b", Destination: "/b", ReadOnly: true}}}},
	}
	if d := cmp.Diff(want, rules); d != "" {
		t.Errorf("rules: -want +got\n%s", d)
	}
	p := mustNew(t, Enforce, rules...)
	for _, a := range asked {
		if err := askAgain(p, a); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
		for name, other := range map[string]Suggestion{
			"another namespace": with(a, func(s *Suggestion) { s.Namespace += "x" }),
			"another name":      with(a, func(s *Suggestion) { s.Name += "x" }),
		} {
			if strings.HasPrefix(a.Name, "/run/app/") && name == "another name" {
				continue // the whole directory was asked for
			}
			if askAgain(p, other) == nil {
				t.Errorf("%s is granted: %+v", name, other)
			}
		}
	}
	for _, other := range []Suggestion{with(of("a", "sockets", "/run/vsw/x"), onNetwork("a/west")), with(of("b", "mounts", "/srv/b"), func(s *Suggestion) { s.Destination = "/b" }),
		with(of("b", "mounts", "/srv/a"), func(s *Suggestion) { s.Destination = "/else" }), of("a", "cdi", "vendor.com/net=0")} {
		if askAgain(p, other) == nil {
			t.Errorf("granted: %+v", other)
		}
	}
}

// Decisions say what was asked for, so that asking again is possible, whatever the outcome is.
func TestDecisionsSayWhatWasAsked(t *testing.T) {
	deny := Rule{Name: "never", For: everybody, Deny: Allow{Devices: []string{"/dev/mem"}}}
	some := Rule{Name: "some", For: everybody, Allow: Allow{CDI: []string{"v.com/*"}, Sockets: []string{"/run/**"}}}
	p, s := mustNew(t, Enforce, deny, some), Subject{Namespace: "a", Network: "a/n"}
	check := func(g Grant, err error, want Asked) {
		t.Helper()
		got := g.Asked
		if refused, ok := err.(*RefusedError); ok {
			got = refused.Asked
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	g, err := p.CDI(s, "v.com/x=1")
	check(g, err, Asked{List: "cdi", Name: "v.com/x=1"})
	g, err = p.SocketDir(s, SocketPath{Path: "/run/a"})
	check(g, err, Asked{List: "sockets", Name: "/run/a/**", Network: "a/n"})
	g, err = p.Mount(s, "/srv", "/d", true)
	check(g, err, Asked{List: "mounts", Name: "/srv", Destination: "/d", ReadOnly: true})
	g, err = p.Device(s, "/dev/mem")
	check(g, err, Asked{List: "devices", Name: "/dev/mem", Network: "a/n", DeniedBy: "never"})
	g, err = p.NamedSocket(s, "x", SocketPath{Path: "/run/x"})
	check(g, err, Asked{List: "namedSockets", Name: "x"})
	s.NetworkGuessed = true
	g, err = p.Socket(s, "/other")
	check(g, err, Asked{List: "sockets", Name: "/other"})
	g, err = mustNew(t, Audit).CDI(s, "v.com/x=2")
	check(g, err, Asked{List: "cdi", Name: "v.com/x=2"})
}
