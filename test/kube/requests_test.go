// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/cluster"
)

var requestPods = flag.Int("requests.pods", 10, "pods of TestJackfieldMakesNoRequests; the documentation has the figures of 40")

// request is an entry of the API server's audit log.
type request struct {
	Stage, Verb, UserAgent string
	User                   struct{ Username string }
	ObjectRef              struct{ Resource, Subresource, Namespace string }
}

// program returns the name of the client.
func (r request) program() string {
	name, _, _ := strings.Cut(r.UserAgent, "/")
	return name
}

// String returns what requests are counted by.
func (r request) String() string {
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return r.program() + " " + r.Verb + " " + resource
}

// readRequests returns the requests of a part of the audit log. A watch counts when it begins, other requests
// when they end.
func readRequests(t testing.TB, log []byte) []request {
	t.Helper()
	var all []request
	for line := range bytes.Lines(log) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("the audit log has %q: %v", line, err)
		}
		if (r.Verb == "watch") == (r.Stage == "ResponseStarted") {
			all = append(all, r)
		}
	}
	return all
}

// auditMark makes a request and returns the audit log up to it.
func (k *K) auditMark() []byte {
	k.t.Helper()
	name := fmt.Sprintf("mark-%d", time.Now().UnixNano())
	var log []byte
	k.Wait("the audit log has a request", func() error {
		// The object does not exist.
		_, _ = k.Cluster.Kubectl(k.ctx, "get", "--raw", "/api/v1/namespaces/default/configmaps/"+name)
		data, err := os.ReadFile(cluster.AuditLog)
		if err != nil {
			return err
		}
		end := bytes.Index(data, []byte("/configmaps/"+name+`"`))
		if end < 0 {
			return fmt.Errorf("it has %d bytes", len(data))
		}
		log = data[:end]
		return nil
	})
	return log[:bytes.LastIndexByte(log, '\n')+1]
}

// requestsDuring returns the requests while f runs.
func (k *K) requestsDuring(f func()) []request {
	k.t.Helper()
	before := k.auditMark()
	f()
	return readRequests(k.t, k.auditMark()[len(before):])
}

// comeAndGo creates the Deployment "router" of a manifest, waits until its pods run, and scales it to none.
func (k *K) comeAndGo(namespace, manifest string, replicas int) {
	k.t.Helper()
	k.Create(manifest)
	k.waitReplicas(namespace, "router", replicas)
	k.Kubectl("--namespace", namespace, "scale", "deployment/router", "--replicas=0")
	k.waitReplicas(namespace, "router", 0)
}

// count counts the requests for the objects of a namespace, without the tests' own.
func count(all []request, namespace string) map[string]int {
	found := map[string]int{}
	for _, r := range all {
		if r.ObjectRef.Namespace == namespace && r.program() != "kubectl" && r.program() != cluster.TestClient {
			found[r.String()]++
		}
	}
	return found
}

// logCounts logs numbers of requests, divided by the number of pods.
func logCounts(t testing.TB, what string, found map[string]int, pods int) {
	var text strings.Builder
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(found)) {
		sum += found[name]
		fmt.Fprintf(&text, "\n%8.2f  %s", float64(found[name])/float64(pods), name)
	}
	t.Logf("requests %s: %.2f%s", what, float64(sum)/float64(pods), text.String())
}

// Jackfield makes no request to the API server: not for a node, not for a pod, and it causes no one else to
// make any. The audit log of the API server shows it.
func TestJackfieldMakesNoRequests(t *testing.T) {
	k := Start(t)
	const with, without = "fast-requests", "fast-requests-without"
	pods := *requestPods
	run := func(namespace string) []request {
		k.Namespace(namespace, nil)
		return k.requestsDuring(func() {
			k.comeAndGo(namespace, deployment(Pod{Namespace: namespace, Name: "router", Annotations: map[string]string{deviceKey: nic0}}, pods), pods)
		})
	}
	all := run(with)

	if _, err := k.Helm(k.ctx, "uninstall", cluster.Release, "--namespace", cluster.Namespace, "--wait"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.InstallJackfield(k.ctx, values+fastRule); err != nil {
			t.Error(err)
		}
	})
	baseline := count(run(without), without)

	for _, r := range all {
		switch r.program() {
		case "kubelet", "kube-scheduler", "kube-controller-manager", "kube-apiserver":
		case "kubectl", cluster.TestClient: // the tests
		default:
			t.Errorf("while pods come and go, %q (%s) makes the request %q", r.UserAgent, r.User.Username, r)
		}
	}
	found := count(all, with)
	logCounts(t, "for each pod with Jackfield", found, pods)
	logCounts(t, "for each pod without Jackfield", baseline, pods)
	for name, n := range found {
		// Kubernetes makes some requests by chance only, such as those after a conflict.
		if baseline[name] == 0 && n >= pods/2 {
			t.Errorf("with Jackfield there are %d requests %q for %d pods, and none without", n, name, pods)
		}
	}
	const bind = "kube-scheduler create pods/binding"
	if found[bind] < pods || baseline[bind] < pods {
		t.Errorf("the audit log has not all requests: %v, %v", found, baseline)
	}

	// All of the log, from the start of the cluster, with each installation and start of the plugin.
	whole := readRequests(t, k.auditMark())
	for _, r := range whole {
		if strings.HasPrefix(r.User.Username, "system:serviceaccount:"+cluster.Namespace+":") || strings.Contains(strings.ToLower(r.UserAgent), "jackfield") {
			t.Errorf("%q (%s) makes the request %q", r.UserAgent, r.User.Username, r)
		}
	}
	logCounts(t, "for the objects in Jackfield's namespace since the cluster started", count(whole, cluster.Namespace), 1)
}
