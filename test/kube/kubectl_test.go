// SPDX-License-Identifier: Apache-2.0

package kube

import (
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
