// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/vswitch"
)

const requiredKey = "required-plugins.noderesource.dev"

// Reboot cuts the node's power and starts it again, with the vswitch.
func (k *K) Reboot() {
	k.t.Helper()
	if err := shared.vswitch.Crash(); err != nil {
		k.t.Fatal(err)
	}
	if err := k.Cluster.Reboot(k.ctx); err != nil {
		k.t.Fatal(err)
	}
	var err error
	if shared.vswitch, err = serveVswitch(k.FirstNode(), "the vswitch"); err != nil {
		k.t.Fatal(err)
	}
}

// withDevice returns the pods in whose containers the device is.
func (k *K) withDevice() map[string]bool {
	k.t.Helper()
	devices, err := filepath.Glob("/proc/[0-9]*/root/dev/acme0")
	if err != nil {
		k.t.Fatal(err)
	}
	pods := map[string]bool{}
	for _, d := range devices {
		// Containers have the name of their pod there.
		if name, err := os.ReadFile(filepath.Join(filepath.Dir(d), "../etc/hostname")); err == nil {
			pods[strings.TrimSpace(string(name))] = true
		}
	}
	return pods
}

// missed returns the pods of a namespace that the plugin reports as missed.
func (k *K) missed(namespace string) map[string]bool {
	k.t.Helper()
	found := map[string]bool{}
	for line := range strings.Lines(k.Jackfield("status")) {
		container, ok := strings.CutSuffix(strings.TrimRight(line, "\n"), "  lacks what it requested")
		if _, path, inside := strings.Cut(container, namespace+"/"); ok && inside {
			pod, _, _ := strings.Cut(path, "/")
			found[pod] = true
		}
	}
	return found
}

// After a power cut, the node's pods start before the plugin does. Those that require the plugin wait for it. The
// others run without their devices, and the plugin reports exactly those.
func TestRebootReportsMissedContainers(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-reboot", nil)
	const pods = 4
	for i := range pods {
		k.Create(Pod{Namespace: ns, Name: fmt.Sprint("required", i), Annotations: map[string]string{deviceKey: nic0, requiredKey: "[jackfield]"}}.Manifest())
		k.Create(Pod{Namespace: ns, Name: fmt.Sprint("other", i), Annotations: map[string]string{deviceKey: nic0}}.Manifest())
	}
	k.Kubectl("--namespace", ns, "wait", "--for=condition=Ready", "pods", "--all", "--timeout="+cluster.Patience.String())
	before := k.Pods(ns, "")
	// The kubelet starts pods in any order. Without a node for it, the plugin is certainly the last one.
	k.Upgrade(values + fastRule + "nodeSelector: {jackfield.example/late: \"true\"}\n")
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	k.Reboot()
	k.waitStarted(ns, "other", before)
	if with := k.withDevice(); len(with) > 0 {
		t.Errorf("without the plugin, these pods have the device: %v", with)
	}
	k.WaitEvent(ns, "required0", `required plugin "jackfield" not present`)

	k.Upgrade(values + fastRule)
	k.waitStarted(ns, "required", before)
	missed, with := k.missed(ns), k.withDevice()
	for i := range pods {
		if name := fmt.Sprint("required", i); !with[name] || missed[name] {
			t.Errorf("pod %s has its device: %v; it is reported as missed: %v", name, with[name], missed[name])
		}
		if name := fmt.Sprint("other", i); with[name] || !missed[name] {
			t.Errorf("pod %s has its device: %v; it is reported as missed: %v", name, with[name], missed[name])
		}
	}
	contains(t, k.Exec(ns, "required0", "sh", "-c", connect), vswitch.Greeting("the vswitch"))
}

// waitStarted waits until the pods whose names have a prefix run in other containers than before.
func (k *K) waitStarted(namespace, prefix string, before map[string]podState) {
	k.t.Helper()
	k.Wait("the pods "+prefix+" run in new containers", func() error {
		for name, now := range k.Pods(namespace, "") {
			if strings.HasPrefix(name, prefix) && (now.Container == before[name].Container || !now.Ready) {
				return fmt.Errorf("pod %s is %+v", name, now)
			}
		}
		return nil
	})
}

// A pod of the Pod Security level "restricted" gets a device and a socket: no root, no capability, no writable
// root file system.
func TestRestrictedPodGetsDeviceAndSocket(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-restricted", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	_, err := k.KubectlInput(k.ctx, Pod{Namespace: ns, Name: "root"}.Manifest(), "apply", "--filename=-")
	if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("a pod without a security context: %v", err)
	}
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}, Container: map[string]any{
		"securityContext": map[string]any{
			"runAsNonRoot": true, "runAsUser": 4711, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": map[string]any{"drop": []string{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
	}})
	contains(t, k.Exec(ns, "router", "sh", "-c", "id -u; head -c 4 /dev/acme0 | xxd -p; "+connect), "4711", "00000000", vswitch.Greeting("the vswitch"))
}

// deployment returns a Deployment whose pods are like the given one.
func deployment(p Pod, replicas int) string { return deploymentOf(p, p.spec(), replicas) }

// deploymentOf is deployment with another specification of the pods.
func deploymentOf(p Pod, spec map[string]any, replicas int) string {
	labels := map[string]any{"app": p.Name}
	return object(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": p.Name, "namespace": p.Namespace},
		"spec": map[string]any{
			"replicas": replicas, "selector": map[string]any{"matchLabels": labels},
			"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": "50%", "maxUnavailable": "50%"}},
			"template": map[string]any{"metadata": map[string]any{"labels": labels, "annotations": p.Annotations}, "spec": spec},
		},
	})
}

// waitReplicas waits until a Deployment has a number of ready pods, and no others.
func (k *K) waitReplicas(namespace, name string, replicas int) {
	k.t.Helper()
	// These two watch. To ask again and again costs a third of a CPU.
	watch := []string{"wait", "--for=delete", "pods", "--selector=app=" + name}
	if replicas > 0 {
		watch = []string{"rollout", "status", "deployment/" + name}
	}
	k.Kubectl(append(watch, "--namespace="+namespace, "--timeout="+cluster.Patience.String())...)
	k.Wait(fmt.Sprintf("%s has %d pods", name, replicas), func() error {
		pods, ready := k.Pods(namespace, "app="+name), 0
		for _, p := range pods {
			if p.Ready {
				ready++
			}
		}
		if len(pods) != replicas || ready != replicas {
			return fmt.Errorf("there are %d, %d of them ready", len(pods), ready)
		}
		return nil
	})
}

// pluginFDs returns the number of open file descriptors of the plugin.
func (k *K) pluginFDs() int {
	k.t.Helper()
	programs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		k.t.Fatal(err)
	}
	for _, p := range programs {
		cmdline, err := os.ReadFile(p)
		if err != nil || !strings.HasPrefix(string(cmdline), "/usr/bin/jackfield-nri\x00--config=") {
			continue
		}
		fds, err := os.ReadDir(filepath.Join(filepath.Dir(p), "fd"))
		if err != nil {
			k.t.Fatal(err)
		}
		return len(fds)
	}
	k.t.Fatal("the plugin does not run")
	return 0
}

// Forty pods come and go three times, and are replaced in a rolling update. No mount, directory, claim or descriptor
// is left.
func TestNothingIsLeftAfterScaling(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-scale", nil)
	before, fds := k.inventory(k.FirstNode()), k.pluginFDs()
	k.Create(deployment(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}}, 0))
	const replicas = 40
	for round := range 3 {
		k.Kubectl("--namespace", ns, "scale", "deployment/router", "--replicas="+strconv.Itoa(replicas))
		k.waitReplicas(ns, "router", replicas)
		if round == 0 {
			old := k.Pods(ns, "")
			k.Kubectl("--namespace", ns, "rollout", "restart", "deployment/router")
			k.waitReplicas(ns, "router", replicas)
			with := k.withDevice()
			for name := range k.Pods(ns, "") {
				if _, exists := old[name]; exists || !with[name] {
					t.Errorf("after the rolling update, pod %s has its device: %v; it is an old one: %v", name, with[name], exists)
				}
			}
		}
		if got := strings.Count(k.Jackfield("status"), ns+"/router-"); got < replicas {
			t.Errorf("status has %d containers of the Deployment, want %d", got, replicas)
		}
		k.Kubectl("--namespace", ns, "scale", "deployment/router", "--replicas=0")
		k.waitReplicas(ns, "router", 0)
	}
	k.nothingLeft(k.FirstNode(), ns, before)
	k.Wait("the plugin has closed its descriptors", func() error {
		if now := k.pluginFDs(); now > fds {
			return fmt.Errorf("it had %d and has %d", fds, now)
		}
		return nil
	})
}

// arrivals are the pods that TestRolloutWhilePodsArrive creates while the plugin is rolled out: some require the
// plugin, the others do not.
type arrivals struct {
	namespace string
	stop      chan struct{}
	result    chan error
	pods      int // of each kind, once result is received
}

// maxArrivals bounds the pods of each kind, because a node has at most 250 pods.
const maxArrivals = 60

// startArrivals creates pods one after the other until finish.
func (k *K) startArrivals(namespace string) *arrivals {
	a := &arrivals{namespace: namespace, stop: make(chan struct{}), result: make(chan error, 1)}
	client := k.client(cluster.TestClient).CoreV1().Pods(namespace)
	create := func(name string, annotations map[string]string) error {
		pod := &corev1.Pod{}
		text := Pod{Namespace: namespace, Name: name, Annotations: annotations}.Manifest()
		if err := json.Unmarshal([]byte(text), pod); err != nil {
			return err
		}
		_, err := client.Create(k.ctx, pod, metav1.CreateOptions{})
		return err
	}
	go func() {
		var err error
		for err == nil && a.pods < maxArrivals {
			err = errors.Join(
				create(fmt.Sprint("required-", a.pods), map[string]string{deviceKey: nic0, requiredKey: "[jackfield]"}),
				create(fmt.Sprint("other-", a.pods), map[string]string{deviceKey: nic0}))
			a.pods++
			select {
			case <-a.stop:
				a.result <- err
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
		a.result <- err
	}()
	return a
}

// finish ends the creation of pods, and waits until all of them are ready.
func (a *arrivals) finish(k *K) {
	k.t.Helper()
	close(a.stop)
	if err := <-a.result; err != nil {
		k.t.Fatal(err)
	}
	k.Kubectl("--namespace", a.namespace, "wait", "--for=condition=Ready", "pods", "--all",
		"--timeout="+cluster.Patience.String())
}

// Pods arrive all the time while the plugin is rolled out to another image and back. The kubelet retries those that
// require the plugin until they have their device. Of the others, exactly the reported ones lack it.
func TestRolloutWhilePodsArrive(t *testing.T) {
	k := Start(t)
	if err := k.TagImage(k.ctx, "next"); err != nil {
		t.Fatal(err)
	}
	ns := k.Namespace("fast-rollout", nil)
	a := k.startArrivals(ns)
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	k.Upgrade(values + fastRule + "image: {tag: next}\n")
	image := k.Kubectl("--namespace", cluster.Namespace, "get", "daemonset", cluster.Release,
		"--output=jsonpath={.spec.template.spec.containers[0].image}")
	if !strings.HasSuffix(image, ":next") {
		t.Errorf("the plugin's image is %s", image)
	}
	k.Upgrade(values + fastRule)
	a.finish(k)
	pods, missed, with, without, retried := k.Pods(ns, ""), k.missed(ns), k.withDevice(), 0, 0
	if len(pods) != 2*a.pods {
		t.Errorf("there are %d pods, want %d", len(pods), 2*a.pods)
	}
	for name := range pods {
		switch {
		case !with[name] && strings.HasPrefix(name, "required-"):
			t.Errorf("pod %s requires the plugin, and runs without its device", name)
		case missed[name] == with[name]:
			t.Errorf("pod %s has its device: %v; it is reported as missed: %v", name, with[name], missed[name])
		case missed[name]:
			without++
		}
		events, err := k.Events(k.ctx, ns, name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(events, `required plugin "jackfield" not present`) {
			retried++
		}
	}
	t.Logf("of %d pods that require the plugin, %d were retried; of %[1]d others, %d lack their device",
		a.pods, retried, without)
}

// Prometheus reads the plugin's metrics through the API server.
func TestMetricsThroughAPIServer(t *testing.T) {
	k := Start(t)
	k.Upgrade(strings.Replace(values, "config:\n", "config:\n  metrics: {listen: \":9480\"}\n", 1) + fastRule)
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	path := "/api/v1/namespaces/" + cluster.Namespace + "/pods/" + k.PluginPod() + ":9480/proxy/metrics"
	k.Wait("the plugin serves metrics", func() error {
		out, err := k.Cluster.Kubectl(k.ctx, "get", "--raw", path)
		if err == nil && !strings.Contains(out, "\njackfield_containers_missed ") {
			err = errors.New(out)
		}
		return err
	})
}
