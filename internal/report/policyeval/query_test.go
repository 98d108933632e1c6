// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// On a node a rule denies a socket under each spelling of its path.
func TestRuleDeniesSocketsBelowRunAndVarRun(t *testing.T) {
	cfg, err := config.Parse([]byte(`
sockets: {named: {db: {path: /var/run/vsw/db.sock}}}
policy:
  rules:
    - {name: all, for: {namespaces: [a]}, allow: {sockets: ["/**"], namedSockets: [db]}}
    - {name: never, for: {namespaces: [a]}, deny: {sockets: ["/run/vsw/**", "/var/run/other/**"]}}
`), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Sockets: []string{"/run/vsw/a", "/var/run/vsw/a", "/run/other/a", "/var/run/other/a", "/run/x", "/var/run/x"}, NamedSockets: []string{"db"}}
	var got []string
	for _, d := range compiled.Evaluate(&q, policy.Subject{Namespace: "a"}) {
		got = append(got, d.Name+" "+string(d.Outcome)+" "+d.Rule)
	}
	const want = "/run/vsw/a refused never, /var/run/vsw/a refused never, /run/other/a refused never, /var/run/other/a refused never, " +
		"/run/x granted all, /var/run/x granted all, db refused never"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("found %s\nwant %s", got, want)
	}
}

// The JSON output has a list for every container.
func TestEmptyQueryHasEmptyListOfDecisions(t *testing.T) {
	cfg, err := config.Parse(nil, "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := compiled.Evaluate(&Query{}, policy.Subject{}); got == nil || len(got) > 0 {
		t.Errorf("found %#v, want an empty list", got)
	}
}
