// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestDenialNamesClosestRuleAndLinesToAdd(t *testing.T) {
	p := mustNew(t, Enforce, rules()...)
	pod := func(namespace string) Subject {
		return Subject{Namespace: namespace, Pod: "fwd-0", Container: "app"}
	}
	for _, tc := range []struct {
		name string
		ask  func(*Policy) (Grant, error)
		want string
	}{
		{"another name of the kind", func(p *Policy) (Grant, error) { return p.Socket(pod("dpdk-a"), "/var/run/ovs/x.sock") },
			`deny socket "/var/run/ovs/x.sock": closest rule "dpdk-tenants": its allow.sockets has ["/var/run/vsw/**"]; to allow it, add to allow.sockets of rule "dpdk-tenants" in /etc/jackfield/config.yaml:
  - "/var/run/ovs/x.sock"`},
		{"nothing of the kind", func(p *Policy) (Grant, error) {
			s := pod("telco")
			s.Network = "telco/east"
			return p.Device(s, "/dev/vfio/3")
		},
			`deny device node "/dev/vfio/3": closest rule "memif": it has no allow.devices; to allow it, add to allow of rule "memif" in /etc/jackfield/config.yaml:
  devices: ["/dev/vfio/3"]`},
		{"another namespace", func(p *Policy) (Grant, error) { return p.CDI(pod("default"), "vendor.com/net=vf0") },
			`deny CDI device "vendor.com/net=vf0": closest rule "dpdk-tenants": is for the namespaces ["dpdk-*"], not for "default"; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: default-cdi
    for: {namespaces: ["default"]}
    allow: {cdi: ["vendor.com/net=vf0"]}`},
		{"another label", func(p *Policy) (Grant, error) { return p.CDI(pod("ml"), "nvidia.com/gpu=0") },
			`deny CDI device "nvidia.com/gpu=0": closest rule "gpu": is for pods labelled tier=gold*, and the pod has no such label; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: ml-cdi
    for: {namespaces: ["ml"]}
    allow: {cdi: ["nvidia.com/gpu=0"]}`},
		{"another label value", func(p *Policy) (Grant, error) {
			s := pod("ml")
			s.Labels = map[string]string{"tier": "tin"}
			return p.CDI(s, "nvidia.com/gpu=0")
		},
			`deny CDI device "nvidia.com/gpu=0": closest rule "gpu": is for pods labelled tier=gold*, and the pod has "tin"; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: ml-cdi
    for: {namespaces: ["ml"]}
    allow: {cdi: ["nvidia.com/gpu=0"]}`},
		{"another class", func(p *Policy) (Grant, error) {
			s := pod("ml")
			s.Labels = map[string]string{"tier": "gold"}
			return p.CDI(s, "nvidia.com/gpu=0")
		},
			`deny CDI device "nvidia.com/gpu=0": closest rule "gpu": is for the runtime classes ["kata", "nv*"], and the pod has the default one; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: ml-cdi
    for: {namespaces: ["ml"]}
    allow: {cdi: ["nvidia.com/gpu=0"]}`},
		{"another network", func(p *Policy) (Grant, error) {
			s := pod("telco")
			s.Network = "other/net"
			return p.Socket(s, "/run/vpp/a.sock")
		},
			`deny socket "/run/vpp/a.sock": closest rule "memif": allows it from the networks ["telco/*"], not from "other/net"; to allow it, add to allow.networks of rule "memif" in /etc/jackfield/config.yaml:
  - "other/net"`},
		{"no network", func(p *Policy) (Grant, error) { return p.Socket(pod("telco"), "/run/vpp/a.sock") },
			`deny socket "/run/vpp/a.sock": closest rule "memif": allows it from the networks ["telco/*"], and it comes from none here; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: telco-sockets
    for: {namespaces: ["telco"]}
    allow: {sockets: ["/run/vpp/a.sock"]}`},
		{"another name and network", func(p *Policy) (Grant, error) {
			s := pod("telco")
			s.Network = "other/net"
			return p.Socket(s, "/run/x.sock")
		},
			`deny socket "/run/x.sock": closest rule "memif": allows sockets from the networks ["telco/*"], not from "other/net"; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: telco-sockets
    for: {namespaces: ["telco"]}
    allow: {sockets: ["/run/x.sock"]}`},
		{"nobody's", func(p *Policy) (Grant, error) { return p.Socket(pod("default"), "/run/x.sock") },
			`deny socket "/run/x.sock": no rule is for this pod and none allows it to another; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: default-sockets
    for: {namespaces: ["default"]}
    allow: {sockets: ["/run/x.sock"]}`},
		{"network", func(p *Policy) (Grant, error) { return p.Network(pod("default"), "default/east") },
			`deny network "default/east": closest rule "dpdk-tenants": is for the namespaces ["dpdk-*"], not for "default"; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: default-networks
    for: {namespaces: ["default"]}
    allow: {sockets: ["/DIRECTORY/OF/ITS/SOCKETS/**"], networks: ["default/east"]}`},
		{"network, rule of others", func(p *Policy) (Grant, error) { return p.Network(pod("telco"), "default/east") },
			`deny network "default/east": closest rule "memif": its allow.networks has ["telco/*"]; to allow it, add to allow.networks of rule "memif" in /etc/jackfield/config.yaml:
  - "default/east"`},
		{"no rules", func(*Policy) (Grant, error) { return mustNew(t, Enforce).CDI(pod("default"), "a/b=c") },
			`deny CDI device "a/b=c": there are no rules, and what no rule allows is refused; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: default-cdi
    for: {namespaces: ["default"]}
    allow: {cdi: ["a/b=c"]}`},
		{"a star in the path", func(p *Policy) (Grant, error) { return p.Socket(pod("dpdk-a"), "/var/run/**") },
			`deny socket "/var/run/**": closest rule "dpdk-tenants": its allow.sockets has ["/var/run/vsw/**"]; a rule cannot match this name exactly, so no rule can allow only this name`},
		{"unclean", func(p *Policy) (Grant, error) { return p.Socket(pod("dpdk-a"), "/var/run/vsw/../x") },
			`deny socket "/var/run/vsw/../x": only an absolute path without //, /./, /../ and without / at the end is ever allowed`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.ask(p)
			if err == nil {
				t.Fatal("granted")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if n := len(err.Error()); n > 800 {
				t.Errorf("%d bytes: an event is cut after 1024", n)
			}
		})
	}
}

// The rule nearest to the name is the one shown.
func TestClosestRuleByName(t *testing.T) {
	p := mustNew(t, Enforce,
		Rule{Name: "far", For: Subjects{Namespaces: []string{"*"}}, Allow: Allow{Sockets: []string{"/srv/a/*"}}},
		Rule{Name: "near", For: Subjects{Namespaces: []string{"*"}}, Allow: Allow{Sockets: []string{"/run/vsw/*"}}},
		Rule{Name: "also-near", For: Subjects{Namespaces: []string{"*"}}, Allow: Allow{Sockets: []string{"/run/vsw/*"}}},
	)
	_, err := p.Socket(Subject{}, "/run/vsw/a/b")
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Rule != "near" {
		t.Errorf("got %v", err)
	}
}

// What a pod writes must not flood an event, nor draw on a terminal.
func TestRefusalTextIsBoundedAndPlain(t *testing.T) {
	var many []string
	for range 100 {
		many = append(many, "/"+strings.Repeat("z", 200)+"/**")
	}
	p := mustNew(t, Enforce, Rule{Name: "r", For: Subjects{Namespaces: []string{"*"}}, Allow: Allow{Sockets: many}})
	_, err := p.Socket(Subject{
		Namespace: strings.Repeat("n", 5000), Pod: strings.Repeat("\u202e", 5000), Container: strings.Repeat("\x1b", 5000),
	}, "/"+strings.Repeat("\u202e", 1000))
	if n := len(err.Error()); n > 1024 {
		t.Errorf("%d bytes: %v", n, err)
	}
	if strings.ContainsAny(err.Error(), "\u202e\x1b") {
		t.Error("control characters in the message")
	}
}

// yamlRule is a rule as the configuration file has it, for reading the lines
// of a refusal back.
type yamlRule struct {
	Name  string
	For   struct{ Namespaces []string }
	Allow yamlAllow
}

type yamlAllow struct {
	CDI, Sockets, Devices, Hooks, Networks []string
	Mounts                                 []yamlMount
	Ports                                  []yamlPort
	NamedSockets                           []string `yaml:"namedSockets"`
}

type yamlMount struct {
	Type, Source, Destination string
	ReadOnly                  bool `yaml:"readOnly"`
}

func (a yamlAllow) allow() Allow {
	out := Allow{CDI: a.CDI, Sockets: a.Sockets, Devices: a.Devices, Hooks: a.Hooks, Networks: a.Networks, NamedSockets: a.NamedSockets}
	for _, m := range a.Mounts {
		out.Mounts = append(out.Mounts, Mount(m))
	}
	for _, p := range a.Ports {
		out.Ports = append(out.Ports, PortPattern(p))
	}
	return out
}

// Adding the lines must grant what was refused, and nothing beside it.
func FuzzRefusalLines(f *testing.F) {
	f.Add(uint8(0), "dpdk-a", "vendor.com/gpu=0", "")
	f.Add(uint8(1), "default", "/run/x.sock", "a/b")
	f.Add(uint8(1), "telco", "/run/vpp/x.sock", "")
	f.Add(uint8(2), "telco", "/dev/\"x", "telco/a")
	f.Add(uint8(1), "a: b", "/run/vsw/*", "x")
	f.Add(uint8(1), "telco", "/run/vpp/xs.ock", "other/x")
	f.Add(uint8(3), "telco", "/srv/data", "")
	f.Add(uint8(4), "", "/usr/libexec/oci/hook", "")
	f.Add(uint8(5), "dpdk-a", "br-dpdk0:7", "")
	f.Add(uint8(5), "dpdk-a", "br-dpdk0", "")
	f.Add(uint8(5), "telco", "br:100", "")
	f.Add(uint8(6), "telco", "spire", "")
	f.Fuzz(func(t *testing.T, which uint8, namespace, name, network string) {
		all := rules()
		p := mustNew(t, Enforce, all...)
		ask := func(p *Policy, name string) (Grant, error) {
			s := Subject{Namespace: namespace, Network: network}
			mount := func(s Subject, name string) (Grant, error) { return p.Mount(s, name, "/data", which%2 == 0) }
			port := func(s Subject, name string) (Grant, error) {
				bridge, vlan, _ := strings.Cut(name, ":")
				number, err := strconv.Atoi(vlan)
				if err != nil {
					bridge = name
				}
				return p.Port(s, Port{Switch: "ovs0", Bridge: bridge, VLAN: number})
			}
			named := func(s Subject, name string) (Grant, error) { return p.NamedSocket(s, name, SocketPath{}) }
			return []func(Subject, string) (Grant, error){p.CDI, p.Socket, p.Device, mount, p.Hook, port, named}[which%7](s, name)
		}
		_, err := ask(p, name)
		var refused *RefusedError
		if !errors.As(err, &refused) || len(refused.Lines) == 0 {
			return
		}
		text := strings.Join(refused.Lines, "\n")
		var items []string
		switch under := refused.Under; under {
		case underRules:
			var added []yamlRule
			if err := yaml.Unmarshal([]byte(text), &added); err != nil || len(added) != 1 {
				t.Fatalf("%v:\n%s", err, text)
			}
			a := added[0]
			all = append(all, Rule{Name: a.Name, For: Subjects{Namespaces: a.For.Namespaces}, Allow: a.Allow.allow()})
		case underAllow:
			var added yamlAllow
			if err := yaml.Unmarshal([]byte(text), &added); err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			allow := &find(t, all, refused.Rule).Allow
			allow.CDI = append(allow.CDI, added.CDI...)
			allow.Sockets = append(allow.Sockets, added.Sockets...)
			allow.Devices = append(allow.Devices, added.Devices...)
			allow.Mounts = append(allow.Mounts, added.allow().Mounts...)
			allow.Hooks = append(allow.Hooks, added.Hooks...)
			allow.Ports = append(allow.Ports, added.allow().Ports...)
			allow.NamedSockets = append(allow.NamedSockets, added.NamedSockets...)
		default:
			allow := &find(t, all, refused.Rule).Allow
			if under == "allow.mounts" {
				var mounts []yamlMount
				if err := yaml.Unmarshal([]byte(text), &mounts); err != nil || len(mounts) != 1 {
					t.Fatalf("%v:\n%s", err, text)
				}
				allow.Mounts = append(allow.Mounts, Mount(mounts[0]))
				break
			}
			if under == "allow.ports" {
				var ports []yamlPort
				if err := yaml.Unmarshal([]byte(text), &ports); err != nil || len(ports) != 1 {
					t.Fatalf("%v:\n%s", err, text)
				}
				allow.Ports = append(allow.Ports, PortPattern(ports[0]))
				break
			}
			if err := yaml.Unmarshal([]byte(text), &items); err != nil || len(items) != 1 {
				t.Fatalf("%v:\n%s", err, text)
			}
			list := map[string]*[]string{
				"allow.cdi": &allow.CDI, "allow.hooks": &allow.Hooks, "allow.sockets": &allow.Sockets, "allow.devices": &allow.Devices, "allow.networks": &allow.Networks, "allow.namedSockets": &allow.NamedSockets,
			}[under]
			*list = append(*list, items...)
		}
		after, err := New(source, Enforce, all)
		if err != nil {
			t.Fatalf("the lines are refused: %v\n%s", err, text)
		}
		if _, err := ask(after, name); err != nil {
			t.Fatalf("the lines do not help: %v", err)
		}
		if refused.Under != "allow.networks" {
			if _, err := ask(after, name+"x"); err == nil {
				if _, before := ask(p, name+"x"); before != nil {
					t.Fatalf("the lines grant more than was asked for:\n%s", text)
				}
			}
		}
	})
}

func find(t *testing.T, rules []Rule, name string) *Rule {
	t.Helper()
	for i := range rules {
		if rules[i].Name == name {
			return &rules[i]
		}
	}
	t.Fatalf("no rule %q", name)
	return nil
}
