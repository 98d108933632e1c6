// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// yamlPort is a port in a rule, a pattern or an object.
type yamlPort PortPattern

func (p *yamlPort) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&p.Port)
	}
	var object struct {
		Port  string
		VLANs []string `yaml:"vlans"`
	}
	err := node.Decode(&object)
	p.Port, p.VLANs = object.Port, object.VLANs
	return err
}

func portRules() []Rule {
	return []Rule{
		{
			Name: "dpdk", For: Subjects{Namespaces: []string{"dpdk-*"}},
			Allow: Allow{Ports: []PortPattern{{Port: "ovs0/br-dpdk0"}, {Port: "*/br-tenant-*", VLANs: []string{"100-199", "300"}}}},
		},
		{
			Name: "never", For: Subjects{Namespaces: []string{"*"}},
			Deny: Allow{Ports: []PortPattern{{Port: "ovs0/br-mgmt"}, {Port: "*", VLANs: []string{"4000-4094"}}}},
		},
		{Name: "labelled", For: Subjects{PodLabels: map[string]string{"tier": "gold"}}, Allow: Allow{Ports: []PortPattern{{Port: "grout0/*"}}}},
	}
}

func TestPortsAreGrantedByBridgeAndVLAN(t *testing.T) {
	p := mustNew(t, Enforce, portRules()[0], portRules()[2])
	for _, tc := range []struct {
		namespace string
		port      Port
		granted   bool
	}{
		{"dpdk-a", Port{"ovs0", "br-dpdk0", 0}, true},
		{"dpdk-a", Port{"ovs0", "br-dpdk0", 4094}, true},
		{"dpdk-a", Port{"ovs1", "br-dpdk0", 0}, false},
		{"dpdk-a", Port{"ovs0", "br-dpdk01", 0}, false},
		{"default", Port{"ovs0", "br-dpdk0", 0}, false},
		{"", Port{"ovs0", "br-dpdk0", 0}, false},
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 100}, true},
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 199}, true},
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 300}, true},
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 99}, false},
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 200}, false},
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 0}, false}, // a trunk
		{"dpdk-a", Port{"grout0", "br0", 0}, false},       // the CNI plugin does not know labels
	} {
		g, err := p.Port(Subject{Namespace: tc.namespace, Labels: map[string]string{"tier": "gold"}}, tc.port)
		if (err == nil) != tc.granted || tc.granted && g.Rule != "dpdk" {
			t.Errorf("%+v in %q: %+v, %v", tc.port, tc.namespace, g, err)
		}
	}
}

// An untagged port can be a trunk, which carries the denied VLANs, too.
func TestPortsAreDeniedByBridgeAndVLAN(t *testing.T) {
	everything := Rule{Name: "everything", For: everybody, Allow: Allow{Ports: []PortPattern{{Port: "*"}}}}
	labelled := Rule{Name: "labelled", For: Subjects{PodLabels: map[string]string{"tier": "tin"}}, Deny: Allow{Ports: []PortPattern{{Port: "vpp0/*"}}}}
	p := mustNew(t, Enforce, everything, portRules()[1], labelled)
	for port, want := range map[Port]string{
		{"ovs0", "br0", 1}:     "",
		{"grout0", "", 7}:      "",
		{"ovs0", "br-mgmt", 7}: `deny port "ovs0/br-mgmt" with VLAN 7: denied by rule "never": its deny.ports has "ovs0/br-mgmt" in ` + source + `, and what one rule denies no other allows`,
		{"ovs0", "br0", 4000}:  `deny port "ovs0/br0" with VLAN 4000: denied by rule "never": its deny.ports has {port: "*", vlans: ["4000-4094"]} in ` + source + `, and what one rule denies no other allows`,
		{"ovs0", "br0", 0}: `deny port "ovs0/br0" without a VLAN: denied by rule "never": its deny.ports has {port: "*", vlans: ["4000-4094"]}, which matches VLANs that an untagged port can carry in ` +
			source + `, and what one rule denies no other allows`,
		{"vpp0", "1", 5}: `deny port "vpp0/1" with VLAN 5: denied by rule "labelled": its deny.ports has "vpp0/*" (it is for pods labelled tier=tin, and the labels of the pod are unknown here) in ` +
			source + `, and what one rule denies no other allows`,
	} {
		_, err := p.Port(Subject{Namespace: "dpdk-a"}, port)
		if d := cmp.Diff(want, text(err)); d != "" {
			t.Errorf("%+v: -want +got\n%s", port, d)
		}
	}
}

func TestDeniedPortNamesClosestRuleAndLinesToAdd(t *testing.T) {
	p := mustNew(t, Enforce, portRules()...)
	for _, tc := range []struct {
		namespace string
		port      Port
		want      string
	}{
		{"dpdk-a", Port{"ovs1", "br-tenant-a", 200}, `deny port "ovs1/br-tenant-a" with VLAN 200: closest rule "dpdk": its allow.ports has ["ovs0/br-dpdk0", {port: "*/br-tenant-*", vlans: ["100-199", 300]}]; ` +
			`to allow it, add to allow.ports of rule "dpdk" in /etc/jackfield/config.yaml:
  - {port: "ovs1/br-tenant-a", vlans: [200]}`},
		{"default", Port{"ovs0", "br-dpdk0", 7}, `deny port "ovs0/br-dpdk0" with VLAN 7: closest rule "dpdk": is for the namespaces ["dpdk-*"], not for "default"; to allow it, add to policy.rules in /etc/jackfield/config.yaml:
  - name: default-ports
    for: {namespaces: ["default"]}
    allow: {ports: [{port: "ovs0/br-dpdk0", vlans: [7]}]}`},
		{"dpdk-a", Port{"ovs0", "a/b", 7}, `deny port "ovs0/a/b" with VLAN 7: only a vswitch and a bridge without / in their names and a VLAN from 1 to 4094 are ever allowed`},
		{"dpdk-a", Port{"ovs0", "br-dpdk0", 4095}, `deny port "ovs0/br-dpdk0" with VLAN 4095: only a vswitch and a bridge without / in their names and a VLAN from 1 to 4094 are ever allowed`},
		{"dpdk-a", Port{"", "br-dpdk0", 0}, `deny port "/br-dpdk0" without a VLAN: only a vswitch and a bridge without / in their names and a VLAN from 1 to 4094 are ever allowed`},
	} {
		_, err := p.Port(Subject{Namespace: tc.namespace}, tc.port)
		if d := cmp.Diff(tc.want, text(err)); d != "" {
			t.Errorf("%+v: -want +got\n%s", tc.port, d)
		}
	}
}

func TestAuditGrantsPorts(t *testing.T) {
	for name, p := range map[string]*Policy{
		"policy": mustNew(t, Audit, portRules()...),
		"rule":   mustNew(t, Enforce, Rule{Name: "trial", Mode: Audit, For: everybody, Allow: Allow{Ports: []PortPattern{{Port: "*"}}}}),
	} {
		g, err := p.Port(Subject{Namespace: "default"}, Port{"ovs0", "br0", 0})
		if err != nil || !g.Audited || g.Refusal == nil || !strings.HasPrefix(g.Refusal.Error(), `deny port "ovs0/br0" without a VLAN: `) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		if _, err := p.Port(Subject{Namespace: "default"}, Port{"ovs0", "a/b", 0}); err == nil {
			t.Errorf("%s: a malformed name is granted", name)
		}
	}
}

func TestPortPatternsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		pattern PortPattern
		want    string
	}{
		{PortPattern{Port: "ovs0"}, `allow.ports[0]: invalid value "ovs0": must be vswitch/bridge, with * for any characters`},
		{PortPattern{Port: "/br0"}, `allow.ports[0]: invalid value "/br0": must be vswitch/bridge, with * for any characters`},
		{PortPattern{Port: "a/*/b"}, `allow.ports[0]: invalid value "a/*/b": must be vswitch/bridge, with * for any characters`},
		{PortPattern{Port: "a/**"}, `allow.ports[0]: found "a/**": ** is for paths; in a name * stands for any characters`},
		{PortPattern{Port: "a/b", VLANs: []string{"1", "0"}}, `allow.ports[0].vlans[1]: invalid value "0": must be a VLAN from 1 to 4094, or a range such as "100-199"`},
		{PortPattern{Port: "a/b", VLANs: []string{"4095"}}, `allow.ports[0].vlans[0]: invalid value "4095": must be a VLAN from 1 to 4094, or a range such as "100-199"`},
		{PortPattern{Port: "a/b", VLANs: []string{"9-8"}}, `allow.ports[0].vlans[0]: invalid value "9-8": must be a VLAN from 1 to 4094, or a range such as "100-199"`},
		{PortPattern{Port: "a/b", VLANs: []string{"1-2-3"}}, `allow.ports[0].vlans[0]: invalid value "1-2-3": must be a VLAN from 1 to 4094, or a range such as "100-199"`},
		{PortPattern{Port: "a/b", VLANs: []string{"-5"}}, `allow.ports[0].vlans[0]: invalid value "-5": must be a VLAN from 1 to 4094, or a range such as "100-199"`},
		{PortPattern{Port: "a/b", VLANs: []string{"1-4094"}}, ""},
		{PortPattern{Port: "grout0/"}, ""},
		{PortPattern{Port: "*"}, ""},
	} {
		_, err := New("FILE", Enforce, []Rule{{Name: "r", For: everybody, Allow: Allow{Ports: []PortPattern{tc.pattern}}}})
		want := tc.want
		if want != "" {
			want = "FILE: policy.rules[0]." + want
		}
		if d := cmp.Diff(want, text(err)); d != "" {
			t.Errorf("%+v: -want +got\n%s", tc.pattern, d)
		}
	}
}

// A rule that selects by labels limits the ports of every pod in its namespaces: labels are unknown when a port is created.
func TestPortsOfPodAreLimited(t *testing.T) {
	quota := Limits{Pod: Limit{Ports: 2}}
	for name, tc := range map[string]struct {
		rule    Rule
		mode    Mode
		subject Subject
		others  int
		refused string
		audited bool
	}{
		"one more":         {Rule{For: everybody, Limits: quota}, Enforce, Subject{Namespace: "a"}, 1, "", false},
		"too many":         {Rule{For: everybody, Limits: quota}, Enforce, Subject{Namespace: "a"}, 2, `deny 3 ports in one pod: rule "r" has limits.pod.ports: 2; ask for fewer, or raise it in FILE`, false},
		"other namespace":  {Rule{For: Subjects{Namespaces: []string{"b"}}, Limits: quota}, Enforce, Subject{Namespace: "a"}, 9, "", false},
		"labels":           {Rule{For: Subjects{PodLabels: map[string]string{"tier": "gold"}}, Limits: quota}, Enforce, Subject{Namespace: "a", Labels: map[string]string{"tier": "iron"}}, 2, "the labels of the pod are unknown here", false},
		"audit mode":       {Rule{For: everybody, Limits: quota}, Audit, Subject{Namespace: "a"}, 2, "", true},
		"of other kinds":   {Rule{For: everybody, Limits: Limits{Pod: Limit{Sockets: 1}}}, Enforce, Subject{Namespace: "a"}, 9, "", false},
		"audit-only rules": {Rule{For: everybody, Mode: Audit, Limits: quota}, Enforce, Subject{Namespace: "a"}, 2, "", true},
	} {
		tc.rule.Name = "r"
		p, err := New("FILE", tc.mode, []Rule{tc.rule})
		if err != nil {
			t.Fatal(err)
		}
		refused, audited := p.LimitPorts(tc.subject, tc.others)
		if (refused == nil) != (tc.refused == "") || !strings.Contains(text(refused), tc.refused) || (audited != nil) != tc.audited {
			t.Errorf("%s: refused %v, audited %v, want %q, %v", name, refused, audited, tc.refused, tc.audited)
		}
		if got, want := p.HasPortLimits(tc.subject), tc.rule.Limits == quota && name != "other namespace"; got != want {
			t.Errorf("%s: HasPortLimits is %v, want %v", name, got, want)
		}
	}
	if _, err := New("FILE", Enforce, []Rule{{Name: "r", For: everybody, Limits: Limits{Container: Limit{Ports: 1}}}}); err == nil || !strings.Contains(err.Error(), "limits.pod.ports") {
		t.Errorf("a limit of a container's ports: %v", err)
	}
}
