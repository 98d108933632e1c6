// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamedSocketsAreGrantedByName(t *testing.T) {
	p := mustNew(t, Enforce,
		Rule{Name: "workloads", For: Subjects{Namespaces: []string{"team-*"}}, Allow: Allow{NamedSockets: []string{"spire", "log-*"}}},
		Rule{Name: "paths", For: Subjects{Namespaces: []string{"infra"}}, Allow: Allow{Sockets: []string{"/run/**"}}},
		Rule{Name: "never", For: everybody, Deny: Allow{NamedSockets: []string{"*-admin"}}})
	for _, tc := range []struct{ namespace, name, want string }{
		{"team-a", "spire", ""},
		{"team-a", "log-x", ""},
		{"team-a", "spir", `deny named socket "spir": closest rule "workloads": its allow.namedSockets has ["spire", "log-*"]; to allow it, add to allow.namedSockets of rule "workloads" in ` + source + `:
  - "spir"`},
		{"infra", "spire", `deny named socket "spire": closest rule "paths": it has no allow.namedSockets; to allow it, add to allow of rule "paths" in ` + source + `:
  namedSockets: ["spire"]`},
		{"other", "spire", `deny named socket "spire": closest rule "workloads": is for the namespaces ["team-*"], not for "other"; to allow it, add to policy.rules in ` + source + `:
  - name: other-namedSockets
    for: {namespaces: ["other"]}
    allow: {namedSockets: ["spire"]}`},
		{"team-a", "log-admin", `deny named socket "log-admin": denied by rule "never": its deny.namedSockets has "*-admin" in ` + source + `, and what one rule denies no other allows`},
	} {
		g, err := p.NamedSocket(Subject{Namespace: tc.namespace}, tc.name, SocketPath{})
		if d := cmp.Diff(tc.want, text(err)); d != "" {
			t.Errorf("%+v: -want +got\n%s", tc, d)
		}
		if err == nil && (g.Rule != "workloads" || g.Audited) {
			t.Errorf("%+v: %+v", tc, g)
		}
	}
}

// What networks narrow are sockets and devices. A rule that allows named sockets alone has nothing to narrow.
func TestNetworksDoNotNarrowNamedSockets(t *testing.T) {
	_, err := New("FILE", Enforce, []Rule{{Name: "r", For: everybody, Allow: Allow{NamedSockets: []string{"a"}, Networks: []string{"ns/*"}}}})
	if text(err) != "FILE: policy.rules[0].allow.networks: networks narrow sockets and devices, but the rule allows neither" {
		t.Errorf("got %v", err)
	}
	p := mustNew(t, Enforce, Rule{Name: "r", For: everybody, Allow: Allow{NamedSockets: []string{"a"}, Sockets: []string{"/run/a/**"}, Networks: []string{"ns/*"}}})
	if g, err := p.NamedSocket(Subject{Namespace: "x"}, "a", SocketPath{}); err != nil || g.Rule != "r" {
		t.Errorf("got %+v, %v", g, err)
	}
}

// Either the name or the path grants, and either denies, whichever rule is first.
func TestNamedSocketsAreGrantedAndDeniedByPath(t *testing.T) {
	at := SocketPath{Path: "/var/run/spire/a.sock", Spellings: []string{"/run/spire/a.sock"}, Aliases: []string{"/alias/a.sock"}}
	byName := Rule{Name: "by-name", For: everybody, Allow: Allow{NamedSockets: []string{"spire"}}}
	byPath := Rule{Name: "by-path", For: everybody, Allow: Allow{Sockets: []string{"/run/spire/*"}}}
	byAlias := Rule{Name: "by-alias", For: everybody, Allow: Allow{Sockets: []string{"/alias/*"}}}
	ofNetworks := Rule{Name: "networks", For: everybody, Allow: Allow{Sockets: []string{"/run/spire/*"}, Networks: []string{"ns/*"}}}
	trial := Rule{Name: "trial", Mode: Audit, For: everybody, Allow: Allow{NamedSockets: []string{"*"}}}
	denyName := Rule{Name: "deny-name", For: everybody, Deny: Allow{NamedSockets: []string{"spire"}}}
	denyPath := Rule{Name: "deny-path", For: everybody, Deny: Allow{Sockets: []string{"/var/run/spire/**"}}}
	denyAlias := Rule{Name: "deny-alias", For: everybody, Deny: Allow{Sockets: []string{"/alias/**"}}}
	trialDeny := Rule{Name: "trial-deny", Mode: Audit, For: everybody, Deny: Allow{Sockets: []string{"/alias/**"}}}
	for name, tc := range map[string]struct {
		rules   []Rule
		rule    string // that grants
		audited bool
		denied  string // by this rule
	}{
		"nothing":                      {rules: []Rule{denyName}, denied: "deny-name"},
		"no rule":                      {},
		"by name":                      {rules: []Rule{byName}, rule: "by-name"},
		"by path":                      {rules: []Rule{byPath}, rule: "by-path"},
		"an alias grants nothing":      {rules: []Rule{byAlias}},
		"the sockets of networks":      {rules: []Rule{ofNetworks}},
		"denied name":                  {rules: []Rule{byName, byPath, denyName}, denied: "deny-name"},
		"denied path":                  {rules: []Rule{byName, byPath, denyPath}, denied: "deny-path"},
		"denied alias":                 {rules: []Rule{byName, byPath, denyAlias}, denied: "deny-alias"},
		"a rule on trial":              {rules: []Rule{trial}, rule: "trial", audited: true},
		"a rule in force beside it":    {rules: []Rule{trial, byPath}, rule: "by-path"},
		"a denial on trial is noted":   {rules: []Rule{byName, trialDeny}, rule: "by-name", audited: true},
		"a denial on trial, no allow":  {rules: []Rule{trialDeny}},
		"a rule on trial, denied path": {rules: []Rule{trial, denyPath}, denied: "deny-path"},
	} {
		g, err := mustNew(t, Enforce, tc.rules...).NamedSocket(Subject{Namespace: "x", Network: "ns/a"}, "spire", at)
		var refused *RefusedError
		switch {
		case err == nil && (g.Rule != tc.rule || g.Audited != tc.audited || tc.denied != "" || tc.audited && g.Refusal == nil):
			t.Errorf("%s: %+v", name, g)
		case err != nil && (tc.rule != "" || !errors.As(err, &refused) || refused.Denied != (tc.denied != "") || refused.Denied && refused.Rule != tc.denied):
			t.Errorf("%s: %v", name, err)
		}
	}
	g, err := mustNew(t, Audit, denyPath).NamedSocket(Subject{Namespace: "x"}, "spire", at)
	if err != nil || g.Rule != "" || !g.Audited || g.Refusal == nil || !g.Refusal.Denied {
		t.Errorf("policy in audit mode: %+v, %v", g, err)
	}
}
