// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// replaceRules replaces the engine with one that has the given rules, in mode enforce.
func (h *host) replaceRules(policyYAML string, ledger *Ledger) {
	h.t.Helper()
	h.replaceRulesInMode("enforce", policyYAML, ledger)
}

// replaceRulesInMode replaces the engine with one that has the given rules and mode.
func (h *host) replaceRulesInMode(mode, policyYAML string, ledger *Ledger) {
	h.t.Helper()
	root, err := hostfs.New(h.dir)
	testkit.Must(h.t, err)
	cfg, err := config.Parse([]byte("sockets: {roots: [/var/run/vsw]}\npolicy:\n  mode: "+mode+"\n  rules:\n"+policyYAML), "/etc/jackfield/config.yaml")
	testkit.Must(h.t, err)
	e, err := New(root, cfg, Options{FindSocketDir: staging.SocketDirFinder(root, cfg.StateDir, ""), Ledger: ledger})
	testkit.Must(h.t, err)
	testkit.Must(h.t, h.e.Close())
	h.e = e
}

const allowAll = `
    - {name: wide, for: {namespaces: ["*"]}, allow: {cdi: ["*"], sockets: ["/var/run/vsw/**"], devices: ["/dev/**"]}}
`

func TestContainerLimitRefusesOneMore(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll+`
    - {name: quota, for: {namespaces: [ns]}, limits: {container: {cdi: 1}}}
`, nil)
	h.resolve(newRequest("vendor.com/net=a"))
	h.wantRefusal(newRequest("vendor.com/net=a,vendor.com/net=b"), errdefs.IsPermissionDenied, "2 CDI devices", `"quota"`, "limits.container.cdi: 1")
}

// A request name in an annotation can be very long. It is shortened for logs and the status.
func TestRequestsWithLongNames(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll, nil)
	long := "vendor.com/net=" + strings.Repeat("a", 60_000)
	var all *Error
	if err := h.wantRefusal(newRequest(long), errdefs.IsNotFound); !errors.As(err, &all) || len(all.Items) != 1 {
		t.Fatalf("got %v, want one item", err)
	}
	got := all.Items[0].Request
	if !strings.HasPrefix(got, `CDI device "vendor.com/net=aaa`) || !strings.HasSuffix(got, "a... (60028 bytes)") || len(got) > 600 {
		t.Errorf("the request is named %q", got)
	}
}

// A pod can request a thousand missing devices. The error explains only the first ones in detail.
func TestOnlyFirstMissingDevicesAreExplained(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll, nil)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("vendor.com/net=none%d", i))
	}
	err := h.wantRefusal(newRequest(strings.Join(names, ",")), errdefs.IsNotFound, "50 problems")
	var all *Error
	if !errors.As(err, &all) || len(all.Errs) != len(names) {
		t.Fatalf("found %v, want %d errors", err, len(names))
	}
	for i, err := range all.Errs {
		if text := err.Error(); !strings.Contains(text, strconv.Quote(names[i])+": kind") || !strings.Contains(text, "run `jackfield devices`") {
			t.Errorf("error %d is %q, without the device or the command to run", i, text)
		} else if has := strings.Contains(text, "searched: "); has != (i < maxExplained) {
			t.Errorf("error %d: explained is %v", i, has)
		}
	}
}

func TestPodLimitCountsAllContainers(t *testing.T) {
	h := newHost(t, "enforce")
	ledger := &Ledger{}
	h.replaceRules(allowAll+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {devices: 2}}}
`, ledger)
	newContainerRequest := func(name, devices string) *Request {
		r := newRequest(devices)
		r.Container = name
		return r
	}
	h.resolve(newContainerRequest("one", "vendor.com/net=a"))
	// A restarted container does not count twice.
	h.resolve(newContainerRequest("one", "vendor.com/net=a"))
	p := h.resolve(newContainerRequest("two", "vendor.com/net=a"))
	if p.Usage == nil || p.Usage.Devices != 1 {
		t.Errorf("usage %+v", p.Usage)
	}
	_, err := h.e.Resolve(context.Background(), newContainerRequest("three", "vendor.com/net=a"))
	if !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "3 device nodes in one pod") {
		t.Errorf("third container: %v", err)
	}
	// Another pod has a separate limit.
	other := newContainerRequest("three", "vendor.com/net=a")
	other.SandboxID = "another"
	// The end of a container does not release the usage of its replacement.
	ended, replacement := newContainerRequest("two", "vendor.com/net=a"), newContainerRequest("two", "vendor.com/net=a")
	ended.ContainerID, replacement.ContainerID = "ended", "replacement"
	h.resolve(ended)
	h.resolve(replacement)
	ledger.Drop("sb", "ended")
	if _, err := h.e.Resolve(context.Background(), newContainerRequest("three", "vendor.com/net=a")); err == nil {
		t.Error("the end of a container released the usage of its replacement")
	}
	ledger.Drop("sb", "replacement")
	h.resolve(newContainerRequest("three", "vendor.com/net=a"))
	h.resolve(other)
	ledger.Forget("sb")
	h.resolve(newContainerRequest("three", "vendor.com/net=a"))
	// Usage that is restored after a restart counts.
	ledger.RecordUsage("sb", "one", "old", policy.Usage{Devices: 1})
	if _, err := h.e.Resolve(context.Background(), newContainerRequest("two", "vendor.com/net=a")); err == nil {
		t.Error("usage from before the restart does not count")
	}
}

// The update of a container that has ended meanwhile leaves the usage of its replacement.
func TestUpdateOfEndedContainerKeepsUsageOfReplacement(t *testing.T) {
	h := newHost(t, "enforce")
	ledger := &Ledger{}
	h.replaceRules(allowAll+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {devices: 2}}}
`, ledger)
	ended, replacement := newRunningRequest(), newRequest("vendor.com/net=a")
	ended.ContainerID, replacement.ContainerID = "ended", "replacement"
	h.resolve(replacement)
	_, err := h.e.ResolveRunning(context.Background(), ended)
	testkit.Must(t, err)
	ledger.Drop(ended.SandboxID, ended.ContainerID) // as the adapter does then
	if u := ledger.usageOf(replacement.SandboxID, replacement.Container); u.Devices != 1 {
		t.Errorf("the replacement has %+v, want a device", u)
	}
}

// Without a ledger, as in adapters that see one container at a time, the pod's limits apply to each container
// alone.
func TestLimitOfPodWithoutLedger(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {cdi: 1}}}
`, nil)
	for _, name := range []string{"one", "two"} {
		r := newRequest("vendor.com/net=a")
		r.Container = name
		h.resolve(r)
	}
	h.wantRefusal(newRequest("vendor.com/net=a,vendor.com/net=b"), errdefs.IsPermissionDenied, "2 CDI devices in one pod", "limits.pod.cdi: 1")
}

func TestSocketsCountForLimits(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll+`
    - {name: quota, for: {namespaces: [ns]}, limits: {container: {sockets: 1}}}
`, nil)
	h.listen("/run/vsw/a/s.sock")
	h.writeInfo("a", "net1", vhostUserInfo("client", "/var/run/vsw/a/s.sock"))
	h.resolve(newRequest(""))
	h.listen("/run/vsw/b/s.sock")
	h.writeInfo("b", "net2", vhostUserInfo("client", "/var/run/vsw/b/s.sock"))
	h.wantRefusal(newRequest(""), errdefs.IsPermissionDenied, "2 sockets", "limits.container.sockets: 1")
}

// A deny rule for one path of a socket denies the socket under its other paths, too.
func TestDenyUnderEachSpelling(t *testing.T) {
	for _, denied := range []string{"/run/vsw/a/**", "/var/run/vsw/a/**"} {
		for _, announced := range []string{"/run/vsw/a/s.sock", "/var/run/vsw/a/s.sock"} {
			h := newHost(t, "enforce")
			h.replaceRules(allowAll+`
    - {name: wider, for: {namespaces: ["*"]}, allow: {sockets: ["/run/vsw/**"]}}
    - {name: never, for: {namespaces: ["*"]}, deny: {sockets: ["`+denied+`"]}}
`, nil)
			h.listen(filepath.Join("/run/vsw/a/s.sock"))
			h.writeInfo("a", "net1", vhostUserInfo("client", announced))
			r := newRequest("")
			r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
			h.wantRefusal(r, errdefs.IsPermissionDenied, `denied by rule "never"`)
		}
	}
}

// expiringContext is a context whose deadline expires after a number of calls of Err.
type expiringContext struct {
	context.Context
	checksLeft int
}

func (c *expiringContext) Err() error {
	if c.checksLeft--; c.checksLeft < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A request for all devices of a kind stops when the deadline expires.
func TestAllDevicesOfAKindStopAtDeadline(t *testing.T) {
	h := newHost(t, "enforce")
	var devices []string
	for i := range 10 {
		devices = append(devices, fmt.Sprintf(`{"name":"d%d","containerEdits":{"env":["D%d=1"]}}`, i, i))
	}
	h.write("/etc/cdi/gpu.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/gpu","devices":[`+strings.Join(devices, ",")+`]}`)
	h.replaceRules(allowAll, nil)
	p, err := h.e.Resolve(&expiringContext{context.Background(), 4}, newRequest("vendor.com/gpu=all"))
	if p != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"vendor.com/gpu=all", 4 of its 10 devices done: given up before the runtime's deadline`) {
		t.Errorf("got %v, %v", p, err)
	}
}

// The audit result says what mode enforce would deny. It is empty if an enforced rule grants the socket under
// one of its paths. A deny rule in audit mode is reported under each path.
func TestAuditUnderEachSpelling(t *testing.T) {
	for name, tc := range map[string]struct{ rules, rule, audit string }{
		"granted under the configured path": {rules: `
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/var/run/vsw/**"]}}`, rule: "r"},
		"granted under the resolved path": {rules: `
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`, rule: "r"},
		"granted by an audit rule and by an enforced rule": {rules: `
    - {name: trial, mode: audit, for: {namespaces: [ns]}, allow: {sockets: ["/var/run/vsw/**"]}}
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`, rule: "r"},
		"granted by an audit rule": {rules: `
    - {name: trial, mode: audit, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`, rule: "trial", audit: `no rule`},
		"denied by an audit rule under one path": {rules: `
    - {name: r, for: {namespaces: [ns]}, allow: {sockets: ["/var/run/vsw/**"]}}
    - {name: never, mode: audit, for: {namespaces: [ns]}, deny: {sockets: ["/run/vsw/**"]}}`, rule: "r", audit: `denied by rule "never"`},
	} {
		for _, mode := range []string{"enforce", "audit"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				h := newHost(t, "enforce")
				h.replaceRulesInMode(mode, tc.rules, nil)
				h.listen("/run/vsw/a/s.sock")
				h.writeInfo("a", "net1", vhostUserInfo("client", "/var/run/vsw/a/s.sock"))
				p := h.resolve(newRequest(""))
				if it := p.Items[0]; it.Outcome != Injected || it.Rule != tc.rule || (it.Audit != "") != (tc.audit != "") {
					t.Errorf("got %+v, want rule %q and audit %q", it, tc.rule, tc.audit)
				}
			})
		}
	}
}

// Without Multus' record, the author of a pod cannot choose the network's namespace that policy sees: neither by
// the networks annotation nor by the pod's namespace.
func TestAuthorDoesNotNameTheNetwork(t *testing.T) {
	const (
		record   = "/var/lib/cni/multus/sb"
		infoFile = "/run/k8s.cni.cncf.io/devinfo/cni/infra-mgmt-x-sb_net1"
	)
	deny := "\n    - {name: never, for: {namespaces: [\"*\"]}, deny: {networks: [\"infra/*\"]}}\n"
	narrow := strings.Replace(allowAll, "allow: {", "allow: {networks: [\"infra-mgmt/*\"], ", 1)
	for _, tc := range []struct{ name, rules, namespace, networks, record, want string }{
		{name: "deny, the annotation splits the name elsewhere", rules: allowAll + deny, namespace: "ns", networks: "infra-mgmt/x", want: `denied by rule "never"`},
		{name: "deny, the pod's namespace splits the name elsewhere", rules: allowAll + deny, namespace: "infra-mgmt", want: `denied by rule "never"`},
		{name: "allow, the annotation splits the name", rules: narrow, namespace: "ns", networks: "infra-mgmt/x", want: "Multus' record"},
		{name: "allow, the pod's namespace splits the name", rules: narrow, namespace: "infra-mgmt", want: "Multus' record"},
		{name: "deny, Multus' record", rules: allowAll + deny, namespace: "ns", networks: "infra-mgmt/x", record: "infra/mgmt-x", want: `denied by rule "never"`},
		{name: "allow, Multus' record", rules: narrow, namespace: "ns", networks: "infra/mgmt-x", record: "infra-mgmt/x"},
		{name: "not denied, Multus' record", rules: allowAll + deny, namespace: "ns", record: "infra-mgmt/x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, "enforce")
			h.replaceRules(tc.rules, nil)
			h.listen("/run/vsw/a/s.sock")
			h.write(infoFile, vhostUserInfo("client", "/var/run/vsw/a/s.sock"))
			if tc.record != "" {
				h.write(record, `[{"Name":"cbr0"},{"Name":"`+tc.record+`","ifnameRequest":"net1"}]`)
			}
			r := newRequest("")
			r.Namespace = tc.namespace
			r.Annotations = map[string]string{"networks.jackfield.dev": "net1", "k8s.v1.cni.cncf.io/networks": tc.networks}
			if tc.want != "" {
				if _, err := h.e.Resolve(t.Context(), r); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want a denial with %q", err, tc.want)
				}
				return
			}
			if p := h.resolve(r); planEnv(p)["JACKFIELD_NET1_TYPE"] == "" {
				t.Errorf("got %+v", p.Items)
			}
		})
	}
	// A discovered attachment stays unmanaged, and the reason names the missing record.
	h := newHost(t, "enforce")
	h.replaceRules(narrow, nil)
	h.listen("/run/vsw/a/s.sock")
	h.write(infoFile, vhostUserInfo("client", "/var/run/vsw/a/s.sock"))
	r := newRequest("")
	r.Namespace = "infra-mgmt"
	if p := h.resolve(r); p.Items[0].Outcome != Unmanaged || !strings.Contains(p.Items[0].Reason, "there is no record /var/lib/cni/multus/sb") {
		t.Errorf("got %+v", p.Items)
	}
}

// Explain does not count towards a pod's limits.
func TestExplainReservesNothing(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll+`
    - {name: quota, for: {namespaces: [ns]}, limits: {pod: {cdi: 1}}}
`, &Ledger{})
	first, second := newRequest("vendor.com/net=a"), newRequest("vendor.com/net=b")
	second.ContainerID, second.Container = "ctr2", "d"
	_, err := h.e.Explain(context.Background(), first)
	testkit.Must(t, err)
	h.resolve(second)
	if _, err := h.e.Explain(context.Background(), first); err == nil {
		t.Error("Explain ignores the usage of the pod's other container")
	}
}
