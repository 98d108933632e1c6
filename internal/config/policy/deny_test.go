// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

var (
	everybody = Subjects{Namespaces: []string{"*"}}
	tenant    = Subject{Namespace: "telco", Pod: "fwd-0", Container: "app"}
)

// wide allows everything there is.
var wide = Rule{Name: "wide", For: everybody, Allow: Allow{CDI: []string{"*"}, Sockets: []string{"/**"}, Devices: []string{"/**"},
	Mounts: []Mount{{Source: "/**"}}, Hooks: []string{"/**"}}}

// asked is one question to a policy, for tables.
type asked func(*Policy, Subject) (Grant, error)

func cdi(name string) asked {
	return func(p *Policy, s Subject) (Grant, error) { return p.CDI(s, name) }
}
func socket(name string) asked {
	return func(p *Policy, s Subject) (Grant, error) { return p.Socket(s, name) }
}
func device(name string) asked {
	return func(p *Policy, s Subject) (Grant, error) { return p.Device(s, name) }
}
func hook(name string) asked {
	return func(p *Policy, s Subject) (Grant, error) { return p.Hook(s, name) }
}
func mounted(source, destination string, readOnly bool) asked {
	return func(p *Policy, s Subject) (Grant, error) { return p.Mount(s, source, destination, readOnly) }
}
func network(name string) asked {
	return func(p *Policy, s Subject) (Grant, error) { return p.Network(s, name) }
}

// What one rule denies, no other allows, wherever it stands in the file.
func TestDenyWins(t *testing.T) {
	deny := Rule{Name: "never", For: Subjects{Namespaces: []string{"telco"}}, Deny: Allow{
		CDI: []string{"vendor.com/debug=*"}, Sockets: []string{"/run/docker.sock"}, Devices: []string{"/dev/mem"},
		Mounts: []Mount{{Source: "/etc/**"}, {Source: "/srv/**", Destination: "/data/secret"}}, Hooks: []string{"/tmp/**"}, Networks: []string{"infra/*"},
	}}
	other := tenant
	other.Namespace = "default"
	infra := tenant
	infra.Network = "infra/mgmt"
	for _, rules := range [][]Rule{{wide, deny}, {deny, wide}} {
		p := mustNew(t, Enforce, rules...)
		for _, tc := range []struct {
			name   string
			s      Subject
			ask    asked
			denied bool
		}{
			{"cdi", tenant, cdi("vendor.com/debug=0"), true},
			{"another cdi", tenant, cdi("vendor.com/net=0"), false},
			{"cdi elsewhere", other, cdi("vendor.com/debug=0"), false},
			{"socket", tenant, socket("/run/docker.sock"), true},
			{"device", tenant, device("/dev/mem"), true},
			{"another device", tenant, device("/dev/null"), false},
			{"mount", tenant, mounted("/etc/shadow", "/x", true), true},
			{"mount at another place", tenant, mounted("/srv/a", "/data/open", false), false},
			{"mount at the place", tenant, mounted("/srv/a", "/data/secret", true), true},
			{"hook", tenant, hook("/tmp/x/hook"), true},
			{"network", tenant, network("infra/mgmt"), true},
			{"the network's socket", infra, socket("/run/vsw/a.sock"), true},
			{"the network's device", infra, device("/dev/vfio/1"), true},
		} {
			g, err := tc.ask(p, tc.s)
			var refused *RefusedError
			if got := errors.As(err, &refused) && refused.Denied && refused.Rule == "never"; got != tc.denied {
				t.Errorf("%s: %+v, %v", tc.name, g, err)
			}
			if err == nil && g.Rule != "wide" {
				t.Errorf("%s: granted by %q", tc.name, g.Rule)
			}
		}
	}
	p := mustNew(t, Enforce, wide, deny)
	_, err := p.Socket(tenant, "/run/docker.sock")
	want := `deny socket "/run/docker.sock": denied by rule "never": its deny.sockets has "/run/docker.sock" in ` +
		source + `, and what one rule denies no other allows`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// A mount of a directory brings everything below it, so a denied path below the
// source denies the mount.
func TestDenyOfAMountBelowTheSource(t *testing.T) {
	deny := Rule{Name: "never", For: everybody, Deny: Allow{Mounts: []Mount{
		{Source: "/srv/t/secret/**"}, {Source: "/srv/x/key"}, {Source: "/opt/**", Destination: "/data/secret"}}}}
	p := mustNew(t, Enforce, wide, deny)
	for _, tc := range []struct {
		source, destination string
		denied              bool
	}{
		{"/srv/t/secret/a", "/x", true},
		{"/srv/t/secret", "/x", true},
		{"/srv/t", "/x", true},
		{"/srv", "/x", true},
		{"/srv/x", "/x", true},
		{"/srv/t/open", "/x", false},
		{"/srv/t/secret2", "/x", false},
		{"/opt", "/data", true},
		{"/opt", "/data/secret", true},
		{"/opt", "/data/open", false},
	} {
		_, err := p.Mount(tenant, tc.source, tc.destination, true)
		var refused *RefusedError
		if got := errors.As(err, &refused) && refused.Denied; got != tc.denied {
			t.Errorf("mount %s at %s: got %v, want denied %v", tc.source, tc.destination, err, tc.denied)
		}
	}
	_, err := p.Mount(tenant, "/srv/x", "/x", true)
	want := `deny mount "/srv/x" at "/x": denied by rule "never": its deny.mounts has {source: "/srv/x/key"}, ` +
		`which matches paths within the mount in ` + source + `, and what one rule denies no other allows`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// An alias of a socket's path denies what the alias itself would be denied, and nothing else.
func TestAliasIsDeniedAsSocketIs(t *testing.T) {
	never := Rule{Name: "never", For: everybody, Deny: Allow{Sockets: []string{"/run/docker.sock"}}}
	for name, p := range map[string]*Policy{
		"enforce": mustNew(t, Enforce, wide, never), "audit": mustNew(t, Audit, wide, never), "no deny": mustNew(t, Enforce, wide),
		"all": AllowAll(), "nil": nil,
	} {
		for _, path := range []string{"/run/docker.sock", "/run/vsw/a", "/srv/none", "relative", "/run/../run/docker.sock"} {
			g, err := p.Socket(tenant, path)
			refused := g.Refusal
			errors.As(err, &refused)
			want := refused != nil && refused.Denied
			alias, aliasErr := p.SocketAt(tenant, SocketPath{Path: "/run/vsw/b", Aliases: []string{path}})
			got := alias.Refusal
			errors.As(aliasErr, &got)
			denied := got != nil && got.Denied
			if denied != want || isDenied(aliasErr) != (want && err != nil) || want && got.Error() != refused.Error() {
				t.Errorf("%s: %s: got %+v, %v, want %v, %v", name, path, alias, aliasErr, refused, err)
			}
		}
	}
}

func TestDenyInAuditMode(t *testing.T) {
	deny := Rule{Name: "never", For: everybody, Deny: Allow{Devices: []string{"/dev/mem"}}}
	g, err := mustNew(t, Audit, wide, deny).Device(tenant, "/dev/mem")
	if err != nil || !g.Audited || g.Rule != "wide" || g.Refusal == nil || !g.Refusal.Denied {
		t.Errorf("got %+v, %v", g, err)
	}
}

// A rule on trial neither refuses, nor keeps another from refusing.
func TestAuditRuleGrantsAndReports(t *testing.T) {
	deny := Rule{Name: "never", For: everybody, Mode: Audit, Deny: Allow{Devices: []string{"/dev/mem"}}}
	g, err := mustNew(t, Enforce, deny, wide).Device(tenant, "/dev/mem")
	if err != nil || !g.Audited || g.Rule != "wide" || g.Refusal == nil || g.Refusal.Rule != "never" {
		t.Errorf("a deny on trial: %+v, %v", g, err)
	}
	// Without a grant, the denial says so and names the lines that would grant it.
	_, err = mustNew(t, Enforce, deny).Device(tenant, "/dev/mem")
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Denied || len(refused.Lines) == 0 {
		t.Errorf("a deny on trial of what no rule grants: %v", err)
	}
	trial := wide
	trial.Name, trial.Mode = "trial", Audit
	g, err = mustNew(t, Enforce, trial).CDI(tenant, "vendor.com/net=0")
	if err != nil || !g.Audited || g.Rule != "trial" || g.Refusal == nil {
		t.Errorf("an allow on trial: %+v, %v", g, err)
	}
	g, err = mustNew(t, Enforce, trial, wide).CDI(tenant, "vendor.com/net=0")
	if err != nil || g.Audited || g.Rule != "wide" {
		t.Errorf("a rule that is in force comes first: %+v, %v", g, err)
	}
	never := deny
	never.Mode = Enforce
	if _, err := mustNew(t, Enforce, trial, never).Device(tenant, "/dev/mem"); !errors.Is(err, errdefs.ErrPermissionDenied) {
		t.Errorf("an allow on trial over a deny in force: %v", err)
	}
}

func TestEnforcedDenialWinsOverAuditedDenial(t *testing.T) {
	trial := Rule{Name: "trial", For: everybody, Mode: Audit, Deny: Allow{CDI: []string{"*"}}}
	force := Rule{Name: "force", For: everybody, Deny: Allow{CDI: []string{"*"}}}
	_, err := mustNew(t, Enforce, trial, force, wide).CDI(tenant, "a/b=c")
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Rule != "force" {
		t.Errorf("got %v", err)
	}
}

func TestMountsAndHooksAreGrantedByPath(t *testing.T) {
	p := mustNew(t, Enforce, Rule{Name: "data", For: Subjects{Namespaces: []string{"telco"}}, Allow: Allow{
		Mounts: []Mount{{Source: "/srv/data/**", Destination: "/data/*", ReadOnly: true}, {Source: "/srv/any"}},
		Hooks:  []string{"/usr/libexec/oci/hooks.d/*"},
	}})
	for _, tc := range []struct {
		name string
		ask  asked
		ok   bool
	}{
		{"mount", mounted("/srv/data/a", "/data/a", true), true},
		{"writable", mounted("/srv/data/a", "/data/a", false), false},
		{"another place", mounted("/srv/data/a", "/etc/a", true), false},
		{"another source", mounted("/srv/b", "/data/a", true), false},
		{"anywhere", mounted("/srv/any", "/x/y", false), true},
		{"up", mounted("/srv/data/../x", "/data/a", true), false},
		{"up in the container", mounted("/srv/any", "/data/../etc", true), false},
		{"relative in the container", mounted("/srv/any", "data", true), false},
		{"hook", hook("/usr/libexec/oci/hooks.d/nvidia"), true},
		{"hook below", hook("/usr/libexec/oci/hooks.d/a/b"), false},
		{"hook up", hook("/usr/libexec/oci/hooks.d/../x"), false},
	} {
		if g, err := tc.ask(p, tenant); (err == nil) != tc.ok {
			t.Errorf("%s: %+v, %v", tc.name, g, err)
		}
	}
	_, err := p.Mount(tenant, "/srv/b", "/data/b", true)
	want := `deny mount "/srv/b" at "/data/b": closest rule "data": its allow.mounts has [{source: "/srv/data/**", destination: "/data/*", readOnly: true}, {source: "/srv/any"}]; to allow it, add to allow.mounts of rule "data" in ` + source + `:
  - {source: "/srv/b", destination: "/data/b", readOnly: true}`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestRuleAppliesToKnownImagesOnly(t *testing.T) {
	p := mustNew(t, Enforce, Rule{Name: "signed", For: Subjects{Images: []string{"registry.example.com/telco/*"}}, Allow: Allow{CDI: []string{"*"}}})
	for image, want := range map[string]bool{"registry.example.com/telco/vpp:1": true, "registry.example.com/x": false, "": false} {
		s := tenant
		s.Image = image
		if _, err := p.CDI(s, "a/b=c"); (err == nil) != want {
			t.Errorf("image %q: %v", image, err)
		}
	}
	_, err := p.CDI(tenant, "a/b=c")
	want := `deny CDI device "a/b=c": closest rule "signed": is for the images ["registry.example.com/telco/*"], and the image of this container is unknown; to allow it, add to policy.rules in ` + source + `:
  - name: telco-cdi
    for: {namespaces: ["telco"]}
    allow: {cdi: ["a/b=c"]}`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	// A pattern of any image is none for an unknown one.
	p = mustNew(t, Enforce, Rule{Name: "any", For: Subjects{Images: []string{"*"}}, Allow: Allow{CDI: []string{"*"}}})
	if _, err := p.CDI(tenant, "a/b=c"); err == nil {
		t.Error("an unknown image is granted something by a list of images")
	}
}

func TestEmptyNamespaceIsForContainersOutsideOfPods(t *testing.T) {
	p := mustNew(t, Enforce, Rule{Name: "podman", For: Subjects{Namespaces: []string{""}}, Allow: Allow{CDI: []string{"vendor.com/net=*"}}})
	if _, err := p.CDI(Subject{Container: "c"}, "vendor.com/net=0"); err != nil {
		t.Error(err)
	}
	if _, err := p.CDI(tenant, "vendor.com/net=0"); err == nil {
		t.Error("a pod is granted what is for containers outside of Kubernetes")
	}
	_, err := p.Device(Subject{Container: "c"}, "/dev/x")
	want := `deny device node "/dev/x": closest rule "podman": it has no allow.devices; to allow it, add to allow of rule "podman" in ` + source + `:
  devices: ["/dev/x"]`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestUsageAboveLimitIsRefused(t *testing.T) {
	limited := Rule{Name: "small", For: everybody, Limits: Limits{Container: Limit{Devices: 2}, Pod: Limit{Sockets: 3}}}
	p := mustNew(t, Enforce, limited, wide)
	if !p.HasPodLimits(tenant) || mustNew(t, Enforce, wide).HasPodLimits(tenant) {
		t.Error("HasPodLimits")
	}
	for _, tc := range []struct {
		name              string
		container, others Usage
		want              string
	}{
		{"within", Usage{Devices: 2, Sockets: 1}, Usage{Devices: 9, Sockets: 2}, ""},
		{"container", Usage{Devices: 3}, Usage{}, `deny 3 device nodes: rule "small" has limits.container.devices: 2; ask for fewer, or raise it in ` + source},
		{"pod", Usage{Sockets: 2}, Usage{Sockets: 2}, `deny 4 sockets in one pod: rule "small" has limits.pod.sockets: 3; ask for fewer, or raise it in ` + source},
		{"nothing added", Usage{Devices: 1}, Usage{Sockets: 5}, ""},
	} {
		refused, audited := p.Limit(tenant, tc.container, tc.others)
		if got := text(refused); got != tc.want || audited != nil {
			t.Errorf("%s: %v, %v", tc.name, refused, audited)
		}
		trial := limited
		trial.Mode = Audit
		for _, p := range []*Policy{mustNew(t, Audit, limited), mustNew(t, Enforce, trial)} {
			refused, audited := p.Limit(tenant, tc.container, tc.others)
			if got := text(audited); got != tc.want || refused != nil {
				t.Errorf("%s: audit: %v, %v", tc.name, refused, audited)
			}
		}
	}
	if _, err := New(source, Enforce, []Rule{{Name: "r", For: everybody, Limits: Limits{Pod: Limit{Mounts: -1}}}}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a negative limit: %v", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A network whose namespace is not known is denied under each name that the file's can
// stand for, and allowed under none of them.
func TestNetworkOfUnknownNamespaceIsDeniedUnderEachName(t *testing.T) {
	deny := Rule{Name: "never", For: everybody, Deny: Allow{Networks: []string{"infra-a/*", "*/mgmt"}}}
	p := mustNew(t, Enforce, wide, deny)
	for name, denied := range map[string]bool{
		"infra-a/x": true, "infra-a-x": true, "infra-a-x-y": true, "infra-a": false, "infra-a-": false, "infra/a-x": false, "infrax-a-x": false,
		"telco-mgmt": true, "a-b-mgmt": true, "-mgmt": false, "mgmt": false, "telco-mgmt-x": false, "": false, "--mgmt": true,
	} {
		s := tenant
		s.Network = name
		_, err := p.Socket(s, "/run/vsw/a")
		var refused *RefusedError
		if got := errors.As(err, &refused) && refused.Denied; got != denied {
			t.Errorf("a socket of %q: denied %t, want %t", name, got, denied)
		}
		if _, err := p.Network(tenant, name); name != "" && (err != nil) != denied {
			t.Errorf("network %q: %v, want it denied: %t", name, err, denied)
		}
		if got, enforced := p.denied(&s, &item{kind: kindSocket, name: "/run/vsw/a"}); (got != nil) != denied || enforced != denied {
			t.Errorf("a socket of %q: %v, want it denied: %t", name, got, denied)
		}
	}
	for pattern, granted := range map[string]bool{"infra/*": false, "infra-x": false, "*x": false, "infra*": false, "*": true} {
		narrow := Rule{Name: "narrow", For: everybody, Allow: Allow{Sockets: []string{"/**"}, Networks: []string{pattern}}}
		p := mustNew(t, Enforce, narrow)
		s := tenant
		s.Network, s.NetworkGuessed = "infra-x", true
		_, err := p.Socket(s, "/run/vsw/a")
		if (err == nil) != granted {
			t.Errorf("a network whose namespace is not known, allowed by %q: %v", pattern, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "Multus") || strings.Contains(err.Error(), "to allow it")) {
			t.Errorf("the refusal does not say what is unknown, or has a remedy that is none: %v", err)
		}
		if _, err := p.Network(s, "infra-x"); (err == nil) != granted {
			t.Errorf("pattern %q, the network itself: %v", pattern, err)
		}
	}
}

// Rules that select by an unknown property of a container grant it nothing, but deny and limit it.
// An unknown runtime class is not the default one.
func TestUnknownPropertiesGrantNothingAndRestrict(t *testing.T) {
	known := Subject{Namespace: "ns", Pod: "p", Container: "c", Labels: map[string]string{"tier": "gold"}, RuntimeHandler: "kata", Image: "app:1"}
	for name, tc := range map[string]struct {
		subjects Subjects
		hide     func(s *Subject)
		other    func(s *Subject) // known, and not what the rule is for
		text     string
	}{
		"the default runtime class": {Subjects{RuntimeClasses: []string{""}}, func(s *Subject) { s.RuntimeHandler, s.HandlerUnknown = "", true },
			func(s *Subject) { s.RuntimeHandler = "kata" }, "is unknown here"},
		"any runtime class": {Subjects{RuntimeClasses: []string{"*"}}, func(s *Subject) { s.RuntimeHandler, s.HandlerUnknown = "", true }, nil, "is unknown here"},
		"an image":          {Subjects{Images: []string{"app:*"}}, func(s *Subject) { s.Image = "" }, func(s *Subject) { s.Image = "other" }, "the image of this container is unknown"},
		"labels":            {Subjects{PodLabels: map[string]string{"tier": "gold"}}, func(s *Subject) { s.Labels, s.LabelsUnknown = nil, true }, func(s *Subject) { s.Labels = nil }, "the labels of the pod are unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			allow := mustNew(t, Enforce, Rule{Name: "r", For: tc.subjects, Allow: Allow{Sockets: []string{"/run/**"}}})
			deny := mustNew(t, Enforce, wide, Rule{Name: "r", For: tc.subjects, Deny: Allow{Sockets: []string{"/run/**"}}})
			limit := mustNew(t, Enforce, wide, Rule{Name: "r", For: tc.subjects, Limits: Limits{Container: Limit{CDI: 1}, Pod: Limit{CDI: 1}}})
			s := known
			tc.hide(&s)
			if _, err := allow.Socket(s, "/run/x"); err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("an allow rule for an unknown property: %v", err)
			}
			if _, err := deny.Socket(s, "/run/x"); err == nil || !strings.Contains(err.Error(), `denied by rule "r"`) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("a deny rule: %v", err)
			}
			if err, _ := limit.Limit(s, Usage{CDI: 2}, Usage{}); err == nil || !strings.Contains(err.Error(), tc.text) || !limit.HasPodLimits(s) {
				t.Errorf("a limit: %v", err)
			}
			if tc.other == nil {
				return
			}
			s = known
			tc.other(&s)
			if _, err := deny.Socket(s, "/run/x"); err != nil {
				t.Errorf("a deny rule for others: %v", err)
			}
			if err, _ := limit.Limit(s, Usage{CDI: 2}, Usage{}); err != nil || limit.HasPodLimits(s) {
				t.Errorf("a limit for others: %v", err)
			}
		})
	}
}
