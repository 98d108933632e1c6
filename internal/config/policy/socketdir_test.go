// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/glob"
)

func TestPatternCoversWholeDirectory(t *testing.T) {
	for _, tc := range []struct {
		pattern, dir string
		want         bool
	}{
		{"/run/vsw/**", "/run/vsw", true},
		{"/run/vsw/**", "/run/vsw/pod-a", true},
		{"/run/vsw/**", "/run", false},
		{"/run/vsw/**", "/run/vsw2", false},
		{"/run/vsw**", "/run/vsw2", true},
		{"/run/vsw/*", "/run/vsw", false},
		{"/run/vsw/a-*", "/run/vsw", false},
		{"/run/vsw/a-*/**", "/run/vsw/a-1", true},
		{"/run/vsw/a-*/**", "/run/vsw/b-1", false},
		{"/run/vsw/**/x", "/run/vsw", false},
		{"/run/vsw/**/x/**", "/run/vsw", false},
		{"/run/vsw/**/x/**", "/run/vsw/1/x", true},
		{"/run/vsw/x.sock", "/run/vsw", false},
		{"/run/vsw", "/run/vsw", false},
		{"/**", "/run/vsw", true},
	} {
		g, err := glob.CompilePath(tc.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Covers(tc.dir); got != tc.want {
			t.Errorf("pattern %q of everything below %q: got %v, want %v", tc.pattern, tc.dir, got, tc.want)
		}
	}
}

// A directory is granted as a whole or not at all, by a single pattern, and no pattern may
// deny anything in it.
func TestSocketDirectoryIsGrantedWholeOrNotAtAll(t *testing.T) {
	allow := func(patterns ...string) Rule {
		return Rule{Name: "ports", For: everybody, Allow: Allow{Sockets: patterns}}
	}
	deny := func(patterns ...string) Rule {
		return Rule{Name: "never", For: everybody, Deny: Allow{Sockets: patterns}}
	}
	const dir = "/run/vsw/ports"
	for _, tc := range []struct {
		name    string
		rules   []Rule
		granted bool
		words   []string // of the refusal
		lines   []string
	}{
		{"all below", []Rule{allow(dir + "/**")}, true, nil, nil},
		{"all below a parent", []Rule{allow("/run/vsw/**")}, true, nil, nil},
		{"one socket", []Rule{allow(dir + "/a.sock")}, false, []string{`socket directory "/run/vsw/ports"`, "none of which covers everything below"}, []string{`- "/run/vsw/ports/**"`}},
		{"sockets of one name", []Rule{allow(dir+"/a-*", dir+"/b-*")}, false, []string{"allow.sockets of rule \"ports\""}, []string{`- "/run/vsw/ports/**"`}},
		{"no rule", []Rule{{Name: "other", For: Subjects{Namespaces: []string{"default"}}, Allow: Allow{CDI: []string{"*"}}}}, false, nil,
			[]string{"- name: telco-sockets", `  for: {namespaces: ["telco"]}`, `  allow: {sockets: ["/run/vsw/ports/**"]}`}},
		{"others", []Rule{{Name: "theirs", For: Subjects{Namespaces: []string{"default"}}, Allow: Allow{Sockets: []string{"/run/vsw/**"}}}}, false, []string{`not for "telco"`}, nil},
		{"denied below", []Rule{allow("/run/vsw/**"), deny(dir + "/secret/**")}, false, []string{`denied by rule "never"`, "within the directory"}, nil},
		{"denied by a star", []Rule{allow("/run/vsw/**"), deny("/run/*/ports/*.sock")}, false, []string{"denied"}, nil},
		{"denied itself", []Rule{allow("/run/vsw/**"), deny(dir)}, false, []string{"denied"}, nil},
		{"denied beside", []Rule{allow("/run/vsw/**"), deny("/run/vsw/secret/**", "/run/vsw/ports2/**", "/run/vsw/p")}, true, nil, nil},
		{"denied to others", []Rule{allow("/run/vsw/**"), {Name: "never", For: Subjects{Namespaces: []string{"default"}}, Deny: Allow{Sockets: []string{dir + "/x"}}}}, true, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			subject := tenant
			subject.Network = "telco/fast"
			grant, err := mustNew(t, Enforce, tc.rules...).SocketDir(subject, SocketPath{Path: dir})
			if tc.granted {
				if err != nil || grant.Rule != "ports" || grant.Audited {
					t.Errorf("got %+v, %v; want a grant of rule ports", grant, err)
				}
				return
			}
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("got %+v, %v; want a refusal", grant, err)
			}
			for _, w := range tc.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in %v", w, err)
				}
			}
			if tc.lines != nil && !slices.Equal(refused.Lines, tc.lines) {
				t.Errorf("lines to add: %q, want %q", refused.Lines, tc.lines)
			}
		})
	}
	if grant, err := mustNew(t, Audit, deny(dir+"/x")).SocketDir(tenant, SocketPath{Path: dir}); err != nil || !grant.Audited || !grant.Refusal.Denied {
		t.Errorf("in audit mode: %+v, %v", grant, err)
	}
	if _, err := mustNew(t, Enforce, allow("/run/**"), deny("/alias/x")).SocketDir(tenant, SocketPath{Path: dir, Aliases: []string{"/alias"}}); !isDenied(err) {
		t.Errorf("denied under an alias: %v", err)
	}
	if _, err := AllowAll().SocketDir(tenant, SocketPath{Path: dir}); err != nil {
		t.Errorf("the administrator: %v", err)
	}
	if _, err := mustNew(t, Audit, wide).SocketDir(tenant, SocketPath{Path: dir + "/../x"}); err == nil {
		t.Error("an unclean path was granted")
	}
}
