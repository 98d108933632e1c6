// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/policy"
)

// use gives the host an engine with other rules.
func (h *host) use(policyYAML string, ledger *Ledger) {
	h.t.Helper()
	h.useMode("enforce", policyYAML, ledger)
}

// useMode is use with a mode of the policy.
func (h *host) useMode(mode, policyYAML string, ledger *Ledger) {
	h.t.Helper()
	root, err := hostfs.New(h.dir)
	must(h.t, err)
	cfg, err := config.Parse([]byte("sockets: {roots: [/var/run/vsw]}\npolicy:\n  mode: "+mode+"\n  rules:\n"+policyYAML), "/etc/jackfield/config.yaml")
	must(h.t, err)
	e, err := New(root, cfg, Options{Ledger: ledger})
	must(h.t, err)
	must(h.t, h.e.Close())
	h.e = e
}

const wide = `
    - {name: wide, for: {namespaces: ["*"]}, allow: {cdi: ["*"], sockets: ["/var/run/vsw/**"], devices: ["/dev/**"]}}
`

func TestLimitOfContainer(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide+`
    - {name: quota, for: {namespaces: [ns]}, limits: {container: {cdi: 1}}}
`, nil)
	h.resolve(ask("vendor.com/net=a"))
	h.refuse(ask("vendor.com/net=a,vendor.com/net=b"), errdefs.IsPermissionDenied, "2 CDI devices", `"quota"`, "limits.container.cdi: 1")
}

// What a tenant calls a request may be as long as an annotation; logs and the status are not.
func TestRequestsWithLongNames(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide, nil)
	long := "vendor.com/net=" + strings.Repeat("a", 60_000)
	var all *Error
	if err := h.refuse(ask(long), errdefs.IsNotFound); !errors.As(err, &all) || len(all.Items) != 1 {
		t.Fatalf("found %v", err)
	}
	got := all.Items[0].Request
	if !strings.HasPrefix(got, `CDI device "vendor.com/net=aaa`) || !strings.HasSuffix(got, "a... (60028 bytes)") || len(got) > 600 {
		t.Errorf("the request is called %q", got)
	}
}

// A person reads a few explanations; a tenant can ask for a thousand.
func TestFewOfManyMissingAreExplained(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide, nil)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("vendor.com/net=none%d", i))
	}
	err := h.refuse(ask(strings.Join(names, ",")), errdefs.IsNotFound, "50 problems")
	var all *Error
	if !errors.As(err, &all) || len(all.Errs) != len(names) {
		t.Fatalf("found %v, want %d errors", err, len(names))
	}
	for i, err := range all.Errs {
		if text := err.Error(); !strings.Contains(text, strconv.Quote(names[i])+": kind") || !strings.Contains(text, "run `jackfield devices`") {
			t.Errorf("error %d is %q, without the device or what to run", i, text)
		} else if has := strings.Contains(text, "searched: "); has != (i < explained) {
			t.Errorf("error %d is explained: %v", i, has)
		}
	}
}

func TestLimitOfPod(t *testing.T) {
	h := newHost(t, "enforce")
	ledger := &Ledger{}
	h.use(wide+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {devices: 2}}}
`, ledger)
	of := func(name, devices string) *Request {
		r := ask(devices)
		r.Container = name
		return r
	}
	h.resolve(of("one", "vendor.com/net=a"))
	// A crash loop is no second container.
	h.resolve(of("one", "vendor.com/net=a"))
	p := h.resolve(of("two", "vendor.com/net=a"))
	if p.Usage == nil || p.Usage.Devices != 1 {
		t.Errorf("usage %+v", p.Usage)
	}
	_, err := h.e.Resolve(context.Background(), of("three", "vendor.com/net=a"))
	if !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "3 device nodes in one pod") {
		t.Errorf("a third container: %v", err)
	}
	// Another pod has a limit of its own, and one that ended has none.
	other := of("three", "vendor.com/net=a")
	other.SandboxID = "another"
	// One that has ended has nothing, and takes nothing from the one in its place.
	gone, anew := of("two", "vendor.com/net=a"), of("two", "vendor.com/net=a")
	gone.ContainerID, anew.ContainerID = "gone", "anew"
	h.resolve(gone)
	h.resolve(anew)
	ledger.Drop("sb", "gone")
	if _, err := h.e.Resolve(context.Background(), of("three", "vendor.com/net=a")); err == nil {
		t.Error("the end of a container took what the one in its place has")
	}
	ledger.Drop("sb", "anew")
	h.resolve(of("three", "vendor.com/net=a"))
	h.resolve(other)
	ledger.Forget("sb")
	h.resolve(of("three", "vendor.com/net=a"))
	// What is known after a restart counts.
	ledger.Note("sb", "one", "old", policy.Usage{Devices: 1})
	if _, err := h.e.Resolve(context.Background(), of("two", "vendor.com/net=a")); err == nil {
		t.Error("what the pod had before the restart does not count")
	}
}

// A door that sees one container, and knows nothing of the pod's others, holds it
// alone against the pod's limits.
func TestLimitOfPodWhereOneContainerIsSeen(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {cdi: 1}}}
`, nil)
	for _, name := range []string{"one", "two"} {
		r := ask("vendor.com/net=a")
		r.Container = name
		h.resolve(r)
	}
	h.refuse(ask("vendor.com/net=a,vendor.com/net=b"), errdefs.IsPermissionDenied, "2 CDI devices in one pod", "limits.pod.cdi: 1")
}

func TestSocketsCount(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide+`
    - {name: quota, for: {namespaces: [ns]}, limits: {container: {sockets: 1}}}
`, nil)
	h.listen("/run/vsw/a/s.sock")
	h.info("a", "net1", vhost("client", "/var/run/vsw/a/s.sock"))
	h.resolve(ask(""))
	h.listen("/run/vsw/b/s.sock")
	h.info("b", "net2", vhost("client", "/var/run/vsw/b/s.sock"))
	h.refuse(ask(""), errdefs.IsPermissionDenied, "2 sockets", "limits.container.sockets: 1")
}

// A socket that is denied by one of its paths is denied by the others.
func TestDenyUnderEachSpelling(t *testing.T) {
	for _, denied := range []string{"/run/vsw/a/**", "/var/run/vsw/a/**"} {
		for _, announced := range []string{"/run/vsw/a/s.sock", "/var/run/vsw/a/s.sock"} {
			h := newHost(t, "enforce")
			h.use(wide+`
    - {name: wider, for: {namespaces: ["*"]}, allow: {sockets: ["/run/vsw/**"]}}
    - {name: never, for: {namespaces: ["*"]}, deny: {sockets: ["`+denied+`"]}}
`, nil)
			h.listen(filepath.Join("/run/vsw/a/s.sock"))
			h.info("a", "net1", vhost("client", announced))
			r := ask("")
			r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
			h.refuse(r, errdefs.IsPermissionDenied, `denied by rule "never"`)
		}
	}
}

// passing is a context whose deadline passes behind so many looks at it.
type passing struct {
	context.Context
	looks int
}

func (c *passing) Err() error {
	if c.looks--; c.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// All devices of a kind may be many more than there is time for.
func TestDeadlineWithinAllDevices(t *testing.T) {
	h := newHost(t, "enforce")
	var devices []string
	for i := range 10 {
		devices = append(devices, fmt.Sprintf(`{"name":"d%d","containerEdits":{"env":["D%d=1"]}}`, i, i))
	}
	h.write("/etc/cdi/gpu.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/gpu","devices":[`+strings.Join(devices, ",")+`]}`)
	h.use(wide, nil)
	p, err := h.e.Resolve(&passing{context.Background(), 4}, ask("vendor.com/gpu=all"))
	if p != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"vendor.com/gpu=all", 4 of its 10 devices done: given up before the runtime's deadline`) {
		t.Errorf("got %v, %v", p, err)
	}
}

// What a rule in force grants under one spelling of a socket's path is not what mode
// enforce would refuse, whatever the other spellings are; what a rule on trial denies
// under any of them is.
func TestAuditUnderEachSpelling(t *testing.T) {
	for name, tc := range map[string]struct{ rules, rule, audit string }{
		"granted as it is configured": {rules: `
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/var/run/vsw/**"]}}`, rule: "r"},
		"granted as it resolves": {rules: `
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`, rule: "r"},
		"on trial under one, in force under the other": {rules: `
    - {name: trial, mode: audit, for: {namespaces: [ns]}, allow: {sockets: ["/var/run/vsw/**"]}}
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`, rule: "r"},
		"on trial": {rules: `
    - {name: trial, mode: audit, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`, rule: "trial", audit: `no rule`},
		"denied on trial under one": {rules: `
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/var/run/vsw/**"]}}
    - {name: never, mode: audit, for: {namespaces: [ns]}, deny: {sockets: ["/run/vsw/**"]}}`, rule: "r", audit: `denied by rule "never"`},
	} {
		for _, mode := range []string{"enforce", "audit"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				h := newHost(t, "enforce")
				h.useMode(mode, tc.rules, nil)
				h.listen("/run/vsw/a/s.sock")
				h.info("a", "net1", vhost("client", "/var/run/vsw/a/s.sock"))
				p := h.resolve(ask(""))
				if it := p.Items[0]; it.Outcome != Injected || it.Rule != tc.rule || (it.Audit != "") != (tc.audit != "") {
					t.Errorf("found %+v, want rule %q and audit %q", it, tc.rule, tc.audit)
				}
			})
		}
	}
}

// Without Multus' record a pod's author cannot choose the network's namespace for
// policy, neither by the networks annotation nor by the pod's own namespace.
func TestAuthorDoesNotNameTheNetwork(t *testing.T) {
	const (
		record   = "/var/lib/cni/multus/sb"
		infoFile = "/run/k8s.cni.cncf.io/devinfo/cni/infra-mgmt-x-sb_net1"
	)
	deny := "\n    - {name: never, for: {namespaces: [\"*\"]}, deny: {networks: [\"infra/*\"]}}\n"
	narrow := strings.Replace(wide, "allow: {", "allow: {networks: [\"infra-mgmt/*\"], ", 1)
	for _, tc := range []struct{ name, rules, namespace, networks, record, want string }{
		{name: "deny, the annotation splits the name elsewhere", rules: wide + deny, namespace: "ns", networks: "infra-mgmt/x", want: `denied by rule "never"`},
		{name: "deny, the pod's namespace splits the name elsewhere", rules: wide + deny, namespace: "infra-mgmt", want: `denied by rule "never"`},
		{name: "allow, the annotation splits the name", rules: narrow, namespace: "ns", networks: "infra-mgmt/x", want: "Multus' record"},
		{name: "allow, the pod's namespace splits the name", rules: narrow, namespace: "infra-mgmt", want: "Multus' record"},
		{name: "deny, Multus' record", rules: wide + deny, namespace: "ns", networks: "infra-mgmt/x", record: "infra/mgmt-x", want: `denied by rule "never"`},
		{name: "allow, Multus' record", rules: narrow, namespace: "ns", networks: "infra/mgmt-x", record: "infra-mgmt/x"},
		{name: "not denied, Multus' record", rules: wide + deny, namespace: "ns", record: "infra-mgmt/x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, "enforce")
			h.use(tc.rules, nil)
			h.listen("/run/vsw/a/s.sock")
			h.write(infoFile, vhost("client", "/var/run/vsw/a/s.sock"))
			if tc.record != "" {
				h.write(record, `[{"Name":"cbr0"},{"Name":"`+tc.record+`","ifnameRequest":"net1"}]`)
			}
			r := ask("")
			r.Namespace = tc.namespace
			r.Annotations = map[string]string{"networks.jackfield.dev": "net1", "k8s.v1.cni.cncf.io/networks": tc.networks}
			if tc.want != "" {
				if _, err := h.e.Resolve(t.Context(), r); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%v, want it refused: %s", err, tc.want)
				}
				return
			}
			if p := h.resolve(r); env(p)["JACKFIELD_NET1_TYPE"] == "" {
				t.Errorf("got %+v", p.Items)
			}
		})
	}
	// What nobody asked for is left alone, and the reason says what is missing.
	h := newHost(t, "enforce")
	h.use(narrow, nil)
	h.listen("/run/vsw/a/s.sock")
	h.write(infoFile, vhost("client", "/var/run/vsw/a/s.sock"))
	r := ask("")
	r.Namespace = "infra-mgmt"
	if p := h.resolve(r); p.Items[0].Outcome != LeftAlone || !strings.Contains(p.Items[0].Reason, "only Multus' record") {
		t.Errorf("got %+v", p.Items)
	}
}

// Explain is a question: it takes nothing of a pod's limits.
func TestExplainReservesNothing(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {cdi: 1}}}
`, &Ledger{})
	first, second := ask("vendor.com/net=a"), ask("vendor.com/net=b")
	second.ContainerID, second.Container = "ctr2", "d"
	_, err := h.e.Explain(context.Background(), first)
	must(t, err)
	h.resolve(second)
	if _, err := h.e.Explain(context.Background(), first); err == nil {
		t.Error("explain does not see what the pod's other container has")
	}
}
