// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/vswitch"
)

// oneByOne makes the DaemonSet replace the plugin on one node after the other.
const oneByOne = "updateStrategy: {rollingUpdate: {maxUnavailable: 1}}\n"

// addNode adds a second node until the test ends. Its CDI device and its vswitch have the node's name.
func (k *K) addNode() *cluster.Node {
	k.t.Helper()
	n, err := k.AddNode(k.ctx)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		if err := k.RemoveNode(k.ctx); err != nil {
			k.t.Error(err)
		}
	})
	if err := os.WriteFile(n.HostPath(cdiFile), []byte(strings.Replace(cdiYAML, "ACME_NIC=nic0", "ACME_NIC="+n.Name, 1)), 0o644); err != nil {
		k.t.Fatal(err)
	}
	server, err := serveVswitch(n, n.Name)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = server.Close() })
	k.Wait("the plugin runs on "+n.Name, func() error {
		if p := k.plugins()[n.Name]; p.Ready.IsZero() {
			return fmt.Errorf("it is %+v", p)
		}
		return nil
	})
	return n
}

// plugin is the plugin's pod on a node.
type plugin struct {
	Name    string
	Created time.Time
	// Ready is when the pod became ready; the zero time if it is not.
	Ready time.Time
	// Restarts is the number of times its container ended.
	Restarts int
}

// plugins returns the plugin's pods by node. Pods that are being deleted are left out.
func (k *K) plugins() map[string]plugin {
	k.t.Helper()
	list, err := k.client(cluster.TestClient).CoreV1().Pods(cluster.Namespace).List(k.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=jackfield"})
	if err != nil {
		k.t.Fatal(err)
	}
	found := map[string]plugin{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		p := plugin{Name: pod.Name, Created: pod.CreationTimestamp.Time}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				p.Ready = c.LastTransitionTime.Time
			}
		}
		for _, c := range pod.Status.ContainerStatuses {
			p.Restarts = int(c.RestartCount)
		}
		found[pod.Spec.NodeName] = p
	}
	return found
}

// onNode is a pod that only the node can run.
func onNode(n *cluster.Node, p Pod) string {
	spec := p.spec()
	spec["nodeSelector"] = map[string]any{"kubernetes.io/hostname": n.Name}
	return object(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "annotations": p.Annotations},
	})
}

// singlePod returns the only pod of a Deployment, and its node; "" while it has none.
func (k *K) singlePod(namespace, deployment string) (pod, node string, err error) {
	out, err := k.Cluster.Kubectl(k.ctx, "--namespace", namespace, "get", "pods", "--selector=app="+deployment,
		"--output=jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{\"\\n\"}{end}")
	fields := strings.Fields(out)
	if err == nil && len(fields) != 2 {
		err = fmt.Errorf("the pods of %s are %q", deployment, out)
	}
	if err != nil {
		return "", "", err
	}
	return fields[0], fields[1], nil
}

// drain moves the pods of a Deployment off a node, which gets no new pods until the test ends.
func (k *K) drain(n *cluster.Node, namespace, deployment string) {
	k.t.Helper()
	k.t.Cleanup(func() { k.Kubectl("uncordon", n.Name) })
	k.Kubectl("drain", n.Name, "--ignore-daemonsets", "--pod-selector=app="+deployment, "--timeout="+cluster.Patience.String())
	k.Wait("the pod of "+deployment+" has left "+n.Name, func() error {
		_, node, err := k.singlePod(namespace, deployment)
		if err == nil && (node == "" || node == n.Name) {
			err = fmt.Errorf("it is on %q", node)
		}
		return err
	})
}

// checkHardware checks that a pod has the device and the vswitch of a node.
func (k *K) checkHardware(n *cluster.Node, namespace, pod string) {
	k.t.Helper()
	device, greeting := "ACME_NIC="+n.Name, vswitch.Greeting(n.Name)
	if n == k.FirstNode() {
		device, greeting = "ACME_NIC=nic0", vswitch.Greeting("the vswitch")
	}
	contains(k.t, k.Exec(namespace, pod, "sh", "-c", "env; head -c 4 /dev/acme0 | xxd -p; "+connect), device+"\n", "00000000", greeting)
}

// Two nodes with different devices. The parts share the second node, because its start takes time.
func TestNodesHaveTheirOwnDevices(t *testing.T) {
	k := Start(t)
	first, second := k.FirstNode(), k.addNode()
	nodes := []*cluster.Node{first, second}
	t.Cleanup(func() { k.Upgrade(values + fastRule) })

	t.Run("a pod moves", func(t *testing.T) {
		k := Start(t)
		ns := k.Namespace("fast-moves", nil)
		before := map[*cluster.Node]map[string]bool{first: k.inventory(first), second: k.inventory(second)}
		k.Create(deployment(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}}, 1))
		k.waitReplicas(ns, "router", 1)
		pod, node, err := k.singlePod(ns, "router")
		if err != nil {
			t.Fatal(err)
		}
		source, target := first, second
		if node == second.Name {
			source, target = second, first
		}
		k.checkHardware(source, ns, pod)
		k.drain(source, ns, "router")
		k.waitReplicas(ns, "router", 1)
		if pod, _, err = k.singlePod(ns, "router"); err != nil {
			t.Fatal(err)
		}
		k.checkHardware(target, ns, pod)
		k.nothingLeft(source, ns, before[source])
	})

	t.Run("one node after the other", func(t *testing.T) {
		k := Start(t)
		ns := k.Namespace("fast-onebyone", nil)
		for _, n := range nodes {
			k.Create(onNode(n, Pod{Namespace: ns, Name: n.Name, Annotations: map[string]string{deviceKey: nic0}}))
		}
		for _, n := range nodes {
			k.WaitPod(ns, n.Name)
		}
		pods, old := k.Pods(ns, ""), k.plugins()
		k.Upgrade(values + fastRule + oneByOne + "podLabels: {example.com/version: two}\n")
		updated := k.plugins()
		begins, follows := updated[first.Name], updated[second.Name]
		// Times are in whole seconds.
		if c := follows.Created.Compare(begins.Created); c < 0 || c == 0 && follows.Ready.Before(begins.Ready) {
			begins, follows = follows, begins
		}
		if begins.Ready.IsZero() || follows.Created.Before(begins.Ready) {
			t.Errorf("the second plugin was replaced before the first was ready: %+v, then %+v", begins, follows)
		}
		for _, n := range nodes {
			if updated[n.Name].Name == old[n.Name].Name {
				t.Errorf("the plugin on %s was not replaced", n.Name)
			}
			k.checkHardware(n, ns, n.Name)
			contains(t, k.Kubectl("jackfield", "status", n.Name, "--namespace", ns), ns+"/"+n.Name+"/main", `CDI device "`+nic0+`": injected`)
			if after := k.Pods(ns, "")[n.Name]; after != pods[n.Name] {
				t.Errorf("pod %s was %+v and is %+v", n.Name, pods[n.Name], after)
			}
		}
	})

	t.Run("a bad roll-out stops at its first node", func(t *testing.T) {
		k := Start(t)
		ns := k.Namespace("fast-broken", nil)
		if _, err := k.HelmInput(k.ctx, values+fastRule+oneByOne+"extraArgs: [--no-such-flag]\n", "upgrade", cluster.Release, k.Chart(),
			"--namespace", cluster.Namespace, "--values=-"); err != nil {
			t.Fatal(err)
		}
		var broken, healthy *cluster.Node
		k.Wait("the plugin ends on one node", func() error {
			for i, n := range nodes {
				if k.plugins()[n.Name].Restarts > 0 {
					broken, healthy = n, nodes[1-i]
					return nil
				}
			}
			return errors.New("it runs on both")
		})

		// The scheduler does not know of plugins. The pods wait, and one of them is moved.
		k.Kubectl("cordon", healthy.Name)
		t.Cleanup(func() { k.Kubectl("uncordon", healthy.Name) })
		requires := map[string]string{deviceKey: nic0, requiredKey: "[jackfield]"}
		k.Create(onNode(broken, Pod{Namespace: ns, Name: "waits", Annotations: requires}))
		k.Create(deployment(Pod{Namespace: ns, Name: "router", Annotations: requires}, 1))
		k.WaitEvent(ns, "waits", `required plugin "jackfield" not present`)
		var pod string
		k.Wait("the pod of router is on "+broken.Name, func() (err error) {
			var node string
			if pod, node, err = k.singlePod(ns, "router"); err == nil && node != broken.Name {
				err = fmt.Errorf("it is on %q", node)
			}
			return err
		})
		k.WaitEvent(ns, pod, `required plugin "jackfield" not present`)
		k.Kubectl("uncordon", healthy.Name)
		k.drain(broken, ns, "router")
		k.waitReplicas(ns, "router", 1)
		pod, _, err := k.singlePod(ns, "router")
		if err != nil {
			t.Fatal(err)
		}
		k.checkHardware(healthy, ns, pod)
		if p := k.plugins()[healthy.Name]; p.Ready.IsZero() || p.Restarts > 0 {
			t.Errorf("the roll-out reached the second node: %+v", p)
		}
		if s := k.State(ns, "waits"); s.Ready {
			t.Errorf("the pod that requires the plugin does not wait: %+v", s)
		}

		k.Upgrade(values + fastRule)
		k.WaitPod(ns, "waits")
		k.checkHardware(broken, ns, "waits")
	})

	t.Run("pools have policies of their own", func(t *testing.T) {
		k := Start(t)
		k.usePools(map[string]*cluster.Node{"cdi": first, "ports": second})
		ns := k.Namespace("fast-pools", nil)
		device := map[string]string{deviceKey: nic0}
		k.Create(onNode(first, Pod{Namespace: ns, Name: "granted", Annotations: device}))
		k.Create(onNode(second, Pod{Namespace: ns, Name: "denied", Annotations: device}))
		k.Create(onNode(second, Pod{Namespace: ns, Name: "attached"}))
		k.WaitPod(ns, "granted")
		k.WaitPod(ns, "attached")
		contains(t, k.Exec(ns, "granted", "sh", "-c", "env; ls /dev/acme0; echo socket=$JACKFIELD_ETH0_SOCKET."), "ACME_NIC=nic0", "/dev/acme0", "socket=.")
		contains(t, k.Exec(ns, "attached", "sh", "-c", connect), vswitch.Greeting(second.Name))
		contains(t, k.WaitEvent(ns, "denied", "deny CDI device"), `rule "ports"`, "config.yaml of ConfigMap jackfield-ports")
	})
}

// usePools labels a node for each pool, and upgrades to two pools of which one grants CDI devices and the other
// ports of the vswitch.
func (k *K) usePools(nodes map[string]*cluster.Node) {
	k.t.Helper()
	for pool, n := range nodes {
		k.Kubectl("label", "node", n.Name, "example.com/pool="+pool)
	}
	k.t.Cleanup(func() { k.Kubectl("label", "nodes", "--all", "example.com/pool-") })
	if _, err := k.HelmInput(k.ctx, `
config:
  sockets: {roots: [/var/run/vsw]}
pools:
  cdi:
    nodeSelector: {example.com/pool: cdi}
    config: {policy: {rules: [{name: cdi, for: {namespaces: ["fast-*"]}, allow: {cdi: ["acme.com/nic=*"]}}]}}
  ports:
    nodeSelector: {example.com/pool: ports}
    config: {policy: {rules: [{name: ports, for: {namespaces: ["fast-*"]}, allow: {sockets: ["/var/run/vsw/**"]}}]}}
`, "upgrade", cluster.Release, k.Chart(), "--namespace", cluster.Namespace, "--values=-"); err != nil {
		k.t.Fatal(err)
	}
	k.Wait("each pool has its plugin, and the one without a pool has ended", func() error {
		out, err := k.Cluster.Kubectl(k.ctx, "--namespace", cluster.Namespace, "get", "pods", "--selector=app.kubernetes.io/name=jackfield",
			"--output=jsonpath={range .items[*]}{.metadata.name} {end}")
		if err != nil {
			return err
		}
		plugins := k.plugins()
		for pool, n := range nodes {
			if p := plugins[n.Name]; p.Ready.IsZero() || !strings.HasPrefix(p.Name, cluster.Release+"-"+pool+"-") || len(strings.Fields(out)) != len(nodes) {
				return fmt.Errorf("the plugin on %s is %+v, and all are %s", n.Name, p, out)
			}
		}
		return nil
	})
}
