// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// run runs the jackfield command.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(context.Background(), args, cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	return code, out.String(), errs.String()
}

// What was created in mode audit is created under the suggested rules in mode enforce, and nothing else is.
func TestSuggestedRulesReplayTheAuditLog(t *testing.T) {
	const common = `
sockets: {roots: [/var/run/vsw], named: {agent: {path: /run/agent/a.sock}, other: {path: /run/agent/o.sock}, third: {path: /run/agent/a.sock}}}
audit: {file: /run/audit.log}
`
	devices := map[string]string{"devices.jackfield.dev": `[vendor.com/net=all, socket:agent, {device: "socket:other", optional: true}]`}
	network := map[string]string{"networks.jackfield.dev": "net1"}
	prepare := func(rules string) *node {
		n := newNode(t, common+rules, nritest.Options{})
		n.write("/etc/cdi/vendor.json", cdiSpec)
		for _, s := range []string{"/run/agent/a.sock", "/run/vsw/p1/a.sock", "/run/vsw/p2/b.sock"} {
			n.listen(vswitch.VhostUser, s)
		}
		return n
	}
	socket := func(n *node, namespace, nad, path string) *api.PodSandbox {
		pod := n.pod(namespace, network)
		n.devinfo(pod, nad, "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"`+path+`"}}`)
		return pod
	}
	n := prepare("policy: {mode: audit, rules: [{name: never, for: {namespaces: [\"*\"]}, mode: audit, deny: {namedSockets: [nothing]}}]}")
	n.mustCreate(n.pod("apps", devices))
	n.mustCreate(socket(n, "telco", "east", "/var/run/vsw/p1/a.sock"))
	n.auditLines("/run/audit.log", 2)

	file := n.path("/run/audit.log")
	code, rules, stderr := run(t, "policy", "suggest", file, "--since", "1h")
	if code != 0 || stderr != "" {
		t.Fatalf("suggest: status %d, %q\n%s", code, stderr, rules)
	}
	suggested := n.path("/suggested.yaml")
	check(t, os.WriteFile(suggested, []byte(rules), 0o644))
	if code, stdout, stderr := run(t, "validate", "--no-host", "--as", "config", suggested); code != 0 {
		t.Errorf("validate: status %d, %s%s in\n%s", code, stdout, stderr, rules)
	}
	if strings.Contains(rules, "*") || strings.Contains(rules, "third") || !strings.Contains(rules, "other") {
		t.Errorf("the rules grant more or less than was asked for:\n%s", rules)
	}
	if code, only, _ := run(t, "policy", "suggest", file, "--namespace", "telco"); code != 0 || strings.Contains(only, "apps") || !strings.Contains(only, "/var/run/vsw/p1/a.sock") {
		t.Errorf("of one namespace: status %d\n%s", code, only)
	}
	if code, none, stderr := run(t, "policy", "suggest", file, "--namespace", "nobody"); code != 3 || none != "" || !strings.Contains(stderr, "nothing that a container asked for") {
		t.Errorf("of another namespace: status %d, %q, %q", code, none, stderr)
	}

	n = prepare(rules)
	n.mustCreate(n.pod("apps", devices))
	n.mustCreate(socket(n, "telco", "east", "/var/run/vsw/p1/a.sock"))
	for i, line := range n.auditLines("/run/audit.log", 2) {
		if _, audited := line["requests"].([]any)[0].(map[string]any)["audit"]; line["event"] != "injected" || audited {
			t.Errorf("line %d: %v", i, line)
		}
	}
	for name, pod := range map[string]*api.PodSandbox{
		"devices in another namespace": n.pod("telco", devices),
		"another socket":               socket(n, "telco", "east", "/var/run/vsw/p2/b.sock"),
		"the socket elsewhere":         socket(n, "apps", "east", "/var/run/vsw/p1/a.sock"),
		"another named socket":         n.pod("apps", map[string]string{"devices.jackfield.dev": "socket:third"}),
	} {
		if _, err := n.create(pod, nil); err == nil || !strings.Contains(err.Error(), "deny ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
