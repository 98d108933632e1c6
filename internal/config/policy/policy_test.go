// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/diag"
)

const source = "/etc/jackfield/config.yaml"

func rules() []Rule {
	return []Rule{
		{
			Name:  "dpdk-tenants",
			For:   Subjects{Namespaces: []string{"dpdk-*"}},
			Allow: Allow{CDI: []string{"vendor.com/net=*"}, Sockets: []string{"/var/run/vsw/**"}, Devices: []string{"/dev/vfio/*", "/dev/vhost-vdpa-*"}},
		},
		{
			Name:  "gpu",
			For:   Subjects{Namespaces: []string{"ml", "dpdk-a"}, PodLabels: map[string]string{"tier": "gold*"}, RuntimeClasses: []string{"kata", "nv*"}},
			Allow: Allow{CDI: []string{"nvidia.com/gpu=*"}},
		},
		{
			Name:  "memif",
			For:   Subjects{Namespaces: []string{"telco"}},
			Allow: Allow{Sockets: []string{"/run/vpp/*.sock"}, Networks: []string{"telco/*"}},
		},
	}
}

func mustNew(t *testing.T, mode Mode, rules ...Rule) *Policy {
	t.Helper()
	p, err := New(source, mode, rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRulesGrantBySubjectAndName(t *testing.T) {
	p := mustNew(t, Enforce, rules()...)
	dpdk := Subject{Namespace: "dpdk-a", Pod: "p", Container: "c"}
	gold := Subject{Namespace: "dpdk-a", Labels: map[string]string{"tier": "gold-1", "x": "y"}, RuntimeHandler: "nvidia"}
	telco := Subject{Namespace: "telco", Network: "telco/east"}
	for _, tc := range []struct {
		name string
		rule string // empty for a refusal
		ask  func() (Grant, error)
	}{
		{"cdi", "dpdk-tenants", func() (Grant, error) { return p.CDI(dpdk, "vendor.com/net=vf0") }},
		{"cdi, another kind", "", func() (Grant, error) { return p.CDI(dpdk, "vendor.com/gpu=0") }},
		{"cdi, another namespace", "", func() (Grant, error) { return p.CDI(Subject{Namespace: "default"}, "vendor.com/net=vf0") }},
		{"cdi, labels and class", "gpu", func() (Grant, error) { return p.CDI(gold, "nvidia.com/gpu=0") }},
		{"cdi, no label", "", func() (Grant, error) {
			s := gold
			s.Labels = nil
			return p.CDI(s, "nvidia.com/gpu=0")
		}},
		{"cdi, default class", "", func() (Grant, error) {
			s := gold
			s.RuntimeHandler = ""
			return p.CDI(s, "nvidia.com/gpu=0")
		}},
		{"socket", "dpdk-tenants", func() (Grant, error) { return p.Socket(dpdk, "/var/run/vsw/x/y.sock") }},
		{"socket, from a network", "dpdk-tenants", func() (Grant, error) {
			s := dpdk
			s.Network = "any/net"
			return p.Socket(s, "/var/run/vsw/x/y.sock")
		}},
		{"socket, outside", "", func() (Grant, error) { return p.Socket(dpdk, "/var/run/docker.sock") }},
		{"socket, up", "", func() (Grant, error) { return p.Socket(dpdk, "/var/run/vsw/../docker.sock") }},
		{"socket, double slash", "", func() (Grant, error) { return p.Socket(dpdk, "/var/run/vsw//x") }},
		{"socket, relative", "", func() (Grant, error) { return p.Socket(dpdk, "var/run/vsw/x") }},
		{"socket, empty", "", func() (Grant, error) { return p.Socket(dpdk, "") }},
		{"device", "dpdk-tenants", func() (Grant, error) { return p.Device(dpdk, "/dev/vfio/3") }},
		{"device as socket", "", func() (Grant, error) { return p.Socket(dpdk, "/dev/vfio/3") }},
		{"its network's socket", "memif", func() (Grant, error) { return p.Socket(telco, "/run/vpp/a.sock") }},
		{"another network's socket", "", func() (Grant, error) {
			s := telco
			s.Network = "other/east"
			return p.Socket(s, "/run/vpp/a.sock")
		}},
		{"no network's socket", "", func() (Grant, error) {
			s := telco
			s.Network = ""
			return p.Socket(s, "/run/vpp/a.sock")
		}},
		{"network", "memif", func() (Grant, error) { return p.Network(telco, "telco/west") }},
		{"network, not listed", "", func() (Grant, error) { return p.Network(telco, "other/west") }},
		{"network, no list", "dpdk-tenants", func() (Grant, error) { return p.Network(dpdk, "any/net") }},
		{"network, rule of CDI only", "", func() (Grant, error) { return p.Network(Subject{Namespace: "ml"}, "any/net") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, err := tc.ask()
			if g.Rule != tc.rule || g.Audited || (err == nil) != (tc.rule != "") {
				t.Fatalf("got %+v, %v; want rule %q", g, err, tc.rule)
			}
			var refused *RefusedError
			if err != nil && (!errors.As(err, &refused) || !errors.Is(err, errdefs.ErrPermissionDenied)) {
				t.Errorf("not a refusal: %#v", err)
			}
		})
	}
}

func TestFirstRuleInFileOrderGrants(t *testing.T) {
	all := Rule{Name: "all", For: Subjects{Namespaces: []string{"*"}}, Allow: Allow{CDI: []string{"*"}}}
	s := Subject{Namespace: "dpdk-a"}
	for _, tc := range []struct {
		rules []Rule
		want  string
	}{{append([]Rule{all}, rules()...), "all"}, {append(rules(), all), "dpdk-tenants"}} {
		if g, err := mustNew(t, Enforce, tc.rules...).CDI(s, "vendor.com/net=a"); err != nil || g.Rule != tc.want {
			t.Errorf("got %+v, %v; want %s", g, err, tc.want)
		}
	}
}

func TestDefaultDeny(t *testing.T) {
	for name, p := range map[string]*Policy{"nil": nil, "zero": {}, "no rules": mustNew(t, Enforce)} {
		for _, ask := range []func(Subject, string) (Grant, error){p.CDI, p.Socket, p.Device, p.Network} {
			if g, err := ask(Subject{Namespace: "a"}, "/x"); !errors.Is(err, errdefs.ErrPermissionDenied) {
				t.Errorf("%s: got %+v, %v", name, g, err)
			}
		}
	}
}

func TestAllowAllGrantsEveryCleanPath(t *testing.T) {
	p := AllowAll()
	for _, ask := range []func(Subject, string) (Grant, error){p.CDI, p.Socket, p.Device, p.Network} {
		if g, err := ask(Subject{}, "/x"); err != nil || g.Rule != Administrator || g.Audited {
			t.Errorf("got %+v, %v", g, err)
		}
	}
	if _, err := p.Socket(Subject{}, "/x/../y"); !errors.Is(err, errdefs.ErrPermissionDenied) {
		t.Errorf("an unclean path: %v", err)
	}
}

func TestAuditGrantsAndReportsRefusal(t *testing.T) {
	p := mustNew(t, Audit, rules()...)
	s := Subject{Namespace: "default", Pod: "p", Container: "c"}
	g, err := p.Socket(s, "/var/run/vsw/a")
	if err != nil || !g.Audited || g.Rule != "" || g.Refusal == nil {
		t.Fatalf("got %+v, %v", g, err)
	}
	_, want := mustNew(t, Enforce, rules()...).Socket(s, "/var/run/vsw/a")
	if g.Refusal.Error() != want.Error() {
		t.Errorf("audit says %q, enforce %q", g.Refusal, want)
	}
	if g, err := p.Socket(Subject{Namespace: "dpdk-a"}, "/var/run/vsw/a"); err != nil || g.Audited || g.Rule == "" {
		t.Errorf("what a rule grants: %+v, %v", g, err)
	}
	if _, err := p.Socket(s, "/var/run/vsw/../a"); err == nil {
		t.Error("an unclean path is let through")
	}
}

func TestNewReportsFaultsWithTheirField(t *testing.T) {
	ok := rules()[0]
	with := func(change func(*Rule)) []Rule {
		r := ok
		change(&r)
		return []Rule{ok, r}
	}
	other := func(change func(*Rule)) []Rule {
		return with(func(r *Rule) { r.Name = "other"; change(r) })
	}
	for _, tc := range []struct {
		name  string
		rules []Rule
		want  string
	}{
		{"same name", with(func(*Rule) {}), `FILE: policy.rules[1].name: found "dpdk-tenants": policy.rules[0] has this name already`},
		{"no name", with(func(r *Rule) { r.Name = "" }), `FILE: policy.rules[1].name: a rule needs a name`},
		{"bad name", with(func(r *Rule) { r.Name = "a b" }), `FILE: policy.rules[1].name: invalid value "a b": must be 1 to 63 letters, digits, '_', '-', '.', the first a letter or digit`},
		{"for nobody", other(func(r *Rule) { r.For = Subjects{} }),
			`FILE: policy.rules[1].for: must have namespaces, podLabels, runtimeClasses or images; a rule for every container has namespaces ["*"]`},
		{"allows nothing", other(func(r *Rule) { r.Allow = Allow{} }), `FILE: policy.rules[1].allow: must have cdi, sockets, namedSockets, devices, mounts, hooks or ports, unless the rule has deny or limits`},
		{"memlock of nothing", other(func(r *Rule) {
			r.Allow, r.Limits.Memlock = Allow{Sockets: []string{"/run/x/*"}}, 1<<30
		}), `FILE: policy.rules[1].limits.memlock: the rule allows no devices that need the limit; add allow.devices or allow.cdi`},
		{"networks of nothing", other(func(r *Rule) { r.Allow = Allow{CDI: []string{"*"}, Networks: []string{"*"}} }),
			`FILE: policy.rules[1].allow.networks: networks narrow sockets and devices, but the rule allows neither`},
		{"namespace", other(func(r *Rule) { r.For.Namespaces = []string{"a", "[b]"} }),
			`FILE: policy.rules[1].for.namespaces[1]: found "[b]": a pattern holds no space, no control character and none of ? [ ] { } \ ; only * and ** are special`},
		{"label", other(func(r *Rule) { r.For.PodLabels = map[string]string{"x": "a?"} }),
			`FILE: policy.rules[1].for.podLabels.x: found "a?": a pattern holds no space, no control character and none of ? [ ] { } \ ; only * and ** are special`},
		{"cdi kind", other(func(r *Rule) { r.Allow.CDI = []string{"vendor.com/net"} }),
			`FILE: policy.rules[1].allow.cdi[0]: invalid value "vendor.com/net": must be vendor.com/class=name, with * for any characters`},
		{"relative socket", other(func(r *Rule) { r.Allow.Sockets = []string{"run/*"} }),
			`FILE: policy.rules[1].allow.sockets[0]: invalid value "run/*": must be an absolute path without //, /./, /../ and without / at the end`},
		{"unclean device", other(func(r *Rule) { r.Allow.Devices = []string{"/dev/../etc/*"} }),
			`FILE: policy.rules[1].allow.devices[0]: invalid value "/dev/../etc/*": must be an absolute path without //, /./, /../ and without / at the end`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := New("FILE", Enforce, tc.rules)
			if err == nil || p != nil {
				t.Fatalf("got %v, %v", p, err)
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			var fault *diag.Diagnostic
			if !errors.As(err, &fault) || !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("not a *diag.Diagnostic: %#v", err)
			}
		})
	}
	if _, err := New("FILE", "maybe", nil); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), `"maybe"`) {
		t.Errorf("mode: %v", err)
	}
}

func BenchmarkGrant(b *testing.B) {
	p, err := New(source, Enforce, rules())
	if err != nil {
		b.Fatal(err)
	}
	s := Subject{Namespace: "dpdk-a", Network: "a/b"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Socket(s, "/var/run/vsw/a/b.sock"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefusal(b *testing.B) {
	p, err := New(source, Enforce, rules())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Socket(Subject{Namespace: "default"}, "/var/run/vsw/a/b.sock"); err == nil {
			b.Fatal("granted")
		}
	}
}

// A device without an IOMMU can access all memory of the host. A rule for VFIO groups does not grant it by accident.
func TestNoIOMMUNeedsPatternOfItsOwn(t *testing.T) {
	const node = "/dev/vfio/noiommu-3"
	for pattern, granted := range map[string]bool{
		"/dev/vfio/*": false, "/dev/**": false, "/**": false, "/dev/vfio/n*": false,
		"/dev/vfio/noiommu-*": true, node: true, "/dev/vfio/noiommu-4": false,
	} {
		p := mustNew(t, Enforce, Rule{Name: "vfio", For: everybody, Allow: Allow{Devices: []string{pattern}}})
		_, err := p.Device(tenant, node)
		if (err == nil) != granted {
			t.Errorf("%s: %v", pattern, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "without an IOMMU") || !strings.Contains(err.Error(), `"`+node+`"`)) {
			t.Errorf("%s: %v, want the reason and the line to add", pattern, err)
		}
	}
	p := mustNew(t, Enforce, wide, Rule{Name: "never", For: everybody, Deny: Allow{Devices: []string{"/dev/vfio/*"}}},
		Rule{Name: "test", For: everybody, Allow: Allow{Devices: []string{"/dev/vfio/noiommu-*"}}})
	if _, err := p.Device(tenant, node); err == nil {
		t.Error("a denial of all groups does not deny groups without an IOMMU")
	}
}
