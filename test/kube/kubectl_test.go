// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/cluster"
)

// `kubectl jackfield` finds the node, the sandbox and the plugin of a pod.
func TestKubectlPluginAnswersForPod(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-kubectl", nil)
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	contains(t, k.Kubectl("jackfield", "status", "router", "--namespace", ns), ns+"/router/main", `CDI device "`+nic0+`": injected`, "rule    fast-path-tenants")
	contains(t, k.Kubectl("jackfield", "explain", ns+"/router"), "Container "+ns+"/router/main would be created with this", "on eth0: injected", "rule    fast-path-tenants")
	contains(t, k.Kubectl("jackfield", "sockets", ns+"/router", "--output", "wide"), ns+"/router/main  /var/run/jackfield/net/eth0/vhost.sock", "  bound  ", "CONTAINER ID")
	contains(t, k.Kubectl("jackfield", "sockets", ns+"/router", "--output=yaml", "--plugin-namespace", cluster.Namespace), "hostPath: ", "rebinds: 0", "peers: null")
	out, err := k.Cluster.Kubectl(k.ctx, "jackfield", "doctor", ns+"/router")
	if !strings.Contains(out, "plugin") || !strings.Contains(out, "registered") {
		t.Errorf("doctor: %v\n%s", err, out)
	}

	k.Kubectl("create", "clusterrolebinding", "fast-kubectl-jane", "--clusterrole=view", "--user=jane")
	t.Cleanup(func() { k.Kubectl("delete", "clusterrolebinding", "fast-kubectl-jane") })
	k.Create(object(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "nowhere", "namespace": ns},
		"spec": map[string]any{"nodeSelector": map[string]any{"example.com/none": "here"}, "containers": []any{Pod{}.container()}}}))
	k.WaitEvent(ns, "nowhere", "FailedScheduling")
	for args, want := range map[string][]string{
		"status router --as=jane":                {`resources: ["pods/exec"], verbs: [create]`, `namespace "` + cluster.Namespace + `"`},
		"status router --as=joe":                 {`"joe"`, `resources: ["pods"], verbs: [get]`},
		"status missing":                         {`pods "missing" not found`, "exit status 1"},
		"sockets nowhere":                        {"is not on a node yet: 0/", "exit status 3"},
		"status router --plugin-namespace=" + ns: {"no pod with the labels app.kubernetes.io/name=jackfield runs on node", "exit status 3"},
	} {
		_, err := k.Cluster.Kubectl(k.ctx, append([]string{"jackfield", "--namespace", ns}, strings.Fields(args)...)...)
		if err == nil {
			t.Errorf("%s: no error", args)
			continue
		}
		contains(t, err.Error(), want...)
	}
}

// `kubectl jackfield status` has a row for each node, and calls none healthy that it could not read.
func TestKubectlPluginShowsFleet(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-fleet", nil)
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	node := k.FirstNode().Name
	out := k.Kubectl("jackfield", "status")
	contains(t, out, "NODE ", node+" ", "containerd ", " yes ")
	contains(t, k.Kubectl("jackfield", "status", "--namespace", ns), "Node "+node+"\n", ns+"/router/main", nic0)
	contains(t, k.Kubectl("jackfield", "sockets", "-A"), "Node "+node+"\n", ns+"/router/main", "  bound")
	contains(t, k.Kubectl("jackfield", "sockets", "--all-namespaces", "-o", "yaml"), "- node: "+node, "hostPath: ")

	k.Create(object(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
		"name": "fleet-dark", "labels": map[string]string{"kubernetes.io/os": "linux"}}}))
	t.Cleanup(func() { k.Kubectl("delete", "node", "fleet-dark") })
	out, err := k.Cluster.Kubectl(k.ctx, "jackfield", "status", "--output=json")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("status with a node that cannot be read: %v", err)
	}
	var rows []struct {
		Node     string
		Healthy  *bool
		Problems []string
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, row := range rows {
		isDark, reason := row.Node == "fleet-dark", strings.Join(row.Problems, "")
		if isDark != (row.Healthy == nil) || isDark != strings.Contains(reason, "no pod of Jackfield runs here") {
			t.Errorf("the row of node %s is wrong: %s", row.Node, out)
		}
	}
}

// `kubectl jackfield explain -f FILE --node NODE` explains pods before they exist.
func TestKubectlPluginExplainsManifest(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-manifest", nil)
	template := map[string]any{"metadata": map[string]any{"labels": map[string]string{"app": "x"},
		"annotations": map[string]string{deviceKey: nic0}}, "spec": map[string]any{"containers": []any{Pod{}.container()}}}
	deployment := writeFile(t, object(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "fleet"}, "spec": map[string]any{"template": template,
			"selector": map[string]any{"matchLabels": map[string]string{"app": "x"}}}}))
	explain := func(namespace string) (string, error) {
		return k.Cluster.Kubectl(k.ctx, "jackfield", "explain", "-f", deployment, "--node", k.FirstNode().Name,
			"--namespace", namespace)
	}
	out, err := explain(ns)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "Deployment "+ns+"/fleet", `CDI device "`+nic0+`": injected`, "rule    fast-path-tenants")
	if out, err = explain("default"); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("in a namespace without a rule: %v\n%s", err, out)
	}
	if left := k.Kubectl("get", "deployments,pods", "--namespace", ns); strings.Contains(left, "fleet") {
		t.Errorf("explain created objects:\n%s", left)
	}
}

// The roles of deploy/rbac have the permissions that the page of `kubectl jackfield` describes: the operator can run every
// command, and a tenant can read its own pods and has no permission in Jackfield's namespace.
func TestRolesForTenantAndOperator(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-roles", nil)
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	k.Kubectl("apply", "--namespace", ns, "-f", "../../deploy/rbac/tenant.yaml")
	k.Kubectl("create", "rolebinding", "jackfield-tenant", "--namespace", ns, "--role=jackfield-tenant", "--user=tina")
	operator := []string{"-f", "../../deploy/rbac/operator.yaml", "--namespace", cluster.Namespace}
	k.Kubectl(append([]string{"apply"}, operator...)...)
	t.Cleanup(func() {
		k.Kubectl(append([]string{"delete"}, operator...)...)
		k.Kubectl("delete", "clusterrolebinding", "jackfield-operator")
		k.Kubectl("delete", "rolebinding", "jackfield-operator", "--namespace", cluster.Namespace)
	})
	k.Kubectl("create", "clusterrolebinding", "jackfield-operator", "--clusterrole=jackfield-operator", "--user=oscar")
	k.Kubectl("create", "rolebinding", "jackfield-operator", "--namespace", cluster.Namespace, "--role=jackfield-operator",
		"--user=oscar")

	as := func(user string, args ...string) (string, error) {
		flags := []string{args[0], "--as=" + user}
		if args[len(args)-1] != "-A" {
			flags = append(flags, "--namespace", ns)
		}
		return k.Cluster.Kubectl(k.ctx, append(flags, args[1:]...)...)
	}
	manifest := writeFile(t, object(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "next"},
		"spec": map[string]any{"containers": []any{Pod{}.container()}}}))
	node := k.FirstNode().Name
	for _, args := range [][]string{
		{"describe", "pod", "router"}, {"get", "events"}, {"logs", "router"},
		{"exec", "router", "--", "cat", "/var/run/jackfield/devices.json"},
	} {
		if out, err := as("tina", args...); err != nil {
			t.Errorf("the tenant cannot run %q: %v\n%s", args, err, out)
		}
	}
	for _, args := range [][]string{{"status"}, {"status", "-A"}, {"sockets", "-A"}, {"status", "router"}, {"sockets", "router"},
		{"explain", "router"}, {"explain", "-f", manifest, "--node", node}} {
		args = append([]string{"jackfield"}, args...)
		if out, err := as("oscar", args...); err != nil {
			t.Errorf("the operator cannot run %q: %v\n%s", args, err, out)
		}
		if _, err := as("tina", args...); err == nil || !strings.Contains(err.Error(), "is forbidden: User") {
			t.Errorf("the tenant can run %q: %v", args, err)
		}
	}
	if out, err := as("oscar", "jackfield", "doctor", "--node", node); !strings.Contains(out, "registered") {
		t.Errorf("the operator cannot run doctor: %v\n%s", err, out)
	}
}

// writeFile writes a text to a file of the test.
func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
