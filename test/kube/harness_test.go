// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if jail.Outside() && (impossible() != nil || flag.Lookup("test.list").Value.String() != "") {
		os.Exit(m.Run())
	}
	if jail.Outside() && wantsAllTests() {
		os.Exit(runHalves())
	}
	os.Exit(cluster.Run(cluster.Stages{
		Prepared: prepare,
		Inside: func() int {
			code := m.Run()
			if shared.cluster != nil {
				_ = shared.cluster.Close()
			}
			return code
		},
	}))
}

const (
	deviceKey = "devices.jackfield.dev"
	nic0      = "acme.com/nic=nic0"
	cdiFile   = "/etc/cdi/acme.yaml"
	cdiYAML   = `cdiVersion: 0.6.0
kind: acme.com/nic
devices:
  - name: nic0
    containerEdits:
      env: [ACME_NIC=nic0]
      deviceNodes: [{path: /dev/acme0, hostPath: /dev/zero}]
`
	// portSocket is the vswitch's socket on the node.
	portSocket = "/var/run/vsw/port0/vhost.sock"
	// port is the CNI plugin that attaches each pod to the vswitch.
	port = `{"type": "jackfield-cni", "socketDir": "/var/run/vsw",
    "device": {"type": "vhost-user", "mode": "client", "path": "` + portSocket + `"}}`
	// values of the chart. rules are those of the policy.
	values = `
config:
  sockets: {roots: [/var/run/vsw]}
  policy:
    rules:
`
	fastRule = `      - name: fast-path-tenants
        for: {namespaces: ["fast-*"]}
        allow: {cdi: ["acme.com/nic=*"], sockets: ["/var/run/vsw/**"]}
`
)

var shared struct {
	sync.Mutex
	cluster *cluster.Cluster
	vswitch *vswitch.Server
	err     error
}

// K is the cluster for one test. Its methods fail the test on errors. The methods of k.Cluster return errors.
type K struct {
	*cluster.Cluster
	t testing.TB
	// ctx also serves clean-up, so it does not end with the test.
	ctx context.Context
}

// Start returns the shared cluster, which it starts at its first use.
func Start(t testing.TB) *K {
	t.Helper()
	return startWith(t, startShared)
}

func startWith(t testing.TB, start func(context.Context) error) *K {
	t.Helper()
	require(t)
	ctx := context.WithoutCancel(t.Context())
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.err = start(ctx)
	}
	if shared.err != nil {
		t.Fatalf("the shared cluster is broken: %v", shared.err)
	}
	k := &K{Cluster: shared.cluster, t: t, ctx: ctx}
	t.Cleanup(k.logOnFailure)
	return k
}

func startShared(ctx context.Context) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Network: cluster.PodNetwork(port), Audit: true})
	if err != nil {
		return err
	}
	shared.cluster = c
	if err := os.WriteFile(cdiFile, []byte(cdiYAML), 0o644); err != nil {
		return err
	}
	if shared.vswitch, err = serveVswitch(c.FirstNode(), "the vswitch"); err != nil {
		return err
	}
	return c.InstallJackfield(ctx, values+fastRule)
}

// serveVswitch creates the vswitch's socket on a node.
func serveVswitch(n *cluster.Node, name string) (*vswitch.Server, error) {
	path := n.HostPath(portSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return vswitch.Listen(vswitch.VhostUser, path, vswitch.Greeting(name))
}

func impossible() error { return e2e.Impossible() }

// require skips a test, with the reason, where no cluster can run. In CI it fails the test.
func require(t testing.TB) {
	t.Helper()
	if jail.Inside() {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("cannot run, and CI promises that it can: %v", impossible())
	}
	t.Skipf("skipped: %v", impossible())
}

func (k *K) logOnFailure() {
	if !k.t.Failed() {
		return
	}
	log, err := k.Cluster.Kubectl(k.ctx, "--namespace", cluster.Namespace, "logs", "daemonset/"+cluster.Release, "--tail=30")
	k.t.Logf("the plugin logged (%v):\n%s", err, log)
}

// Kubectl runs kubectl and returns its standard output.
func (k *K) Kubectl(args ...string) string {
	k.t.Helper()
	out, err := k.Cluster.Kubectl(k.ctx, args...)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// Create creates the objects of a manifest.
func (k *K) Create(manifest string) {
	k.t.Helper()
	if err := k.Cluster.Create(k.ctx, manifest); err != nil {
		k.t.Fatal(err)
	}
}

// Wait calls f until it returns nil, for at most cluster.Patience.
func (k *K) Wait(what string, f func() error) {
	k.t.Helper()
	if err := k.Cluster.Wait(k.ctx, what, func(context.Context) error { return f() }); err != nil {
		k.t.Fatal(err)
	}
}

// WaitEvent waits until a pod's events contain a text, and returns the events.
func (k *K) WaitEvent(namespace, pod, text string) string {
	k.t.Helper()
	if err := k.Cluster.WaitEvent(k.ctx, namespace, pod, text); err != nil {
		k.t.Fatal(err)
	}
	events, err := k.Events(k.ctx, namespace, pod)
	if err != nil {
		k.t.Fatal(err)
	}
	return events
}

// Upgrade runs `helm upgrade` with values, and waits until the plugin of the new version is registered. The
// installation of the cluster has validated the chart, which takes most of helm's processor time.
func (k *K) Upgrade(values string) {
	k.t.Helper()
	_, err := k.HelmInput(k.ctx, values, "upgrade", cluster.Release, k.Chart(), "--namespace", cluster.Namespace, "--values=-", "--disable-openapi-validation")
	if err == nil {
		err = k.WaitJackfield(k.ctx)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// Jackfield runs a command in the plugin's pod and returns its standard output.
func (k *K) Jackfield(args ...string) string {
	k.t.Helper()
	out, err := k.Cluster.Jackfield(k.ctx, args...)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// Namespace creates a namespace with labels, which is removed with all that is in it when the test ends.
func (k *K) Namespace(name string, labels map[string]string) string {
	k.t.Helper()
	k.Create(object(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels}}))
	k.t.Cleanup(func() {
		core := k.client(cluster.TestClient).CoreV1()
		err := core.Namespaces().Delete(k.ctx, name, metav1.DeleteOptions{})
		// The namespace's own removal begins after five seconds. Its pods are deleted now, and nothing creates
		// them again, so that the next test need not wait for it.
		if err := errors.Join(err, core.Pods(name).DeleteCollection(k.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})); err != nil {
			k.t.Errorf("clean up: %v", err)
		}
		k.Wait("the pods of namespace "+name+" are deleted", func() error {
			if pods := k.Pods(name, ""); len(pods) > 0 {
				return fmt.Errorf("%d are left", len(pods))
			}
			return nil
		})
	})
	// Pods need the namespace's service account.
	k.Wait("namespace "+name+" has a service account", func() error {
		_, err := k.client(cluster.TestClient).CoreV1().ServiceAccounts(name).Get(k.ctx, "default", metav1.GetOptions{})
		return err
	})
	return name
}

// Pod is a pod with one container, "main", of the test image.
type Pod struct {
	Namespace, Name string
	Annotations     map[string]string
	// Container is merged into the container of the pod's specification.
	Container map[string]any
}

// Manifest returns the pod as JSON.
func (p Pod) Manifest() string {
	return object(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "annotations": p.Annotations},
		"spec":     p.spec(),
	})
}

func (p Pod) spec() map[string]any {
	return map[string]any{"terminationGracePeriodSeconds": 0, "enableServiceLinks": false, "containers": []any{p.container()}}
}

func (p Pod) container() map[string]any {
	container := map[string]any{"name": "main", "image": node.Image, "imagePullPolicy": "Never"}
	maps.Copy(container, p.Container)
	return container
}

// RunPod creates a pod and waits until it is ready.
func (k *K) RunPod(p Pod) {
	k.t.Helper()
	k.Create(p.Manifest())
	k.WaitPod(p.Namespace, p.Name)
}

// WaitPod waits until a pod is ready.
func (k *K) WaitPod(namespace, name string) {
	k.t.Helper()
	err := k.Cluster.Wait(k.ctx, "pod "+namespace+"/"+name+" is ready", func(context.Context) error {
		pod, err := k.client(cluster.TestClient).CoreV1().Pods(namespace).Get(k.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", pod.Status.Conditions)
	})
	if err != nil {
		events, _ := k.Events(k.ctx, namespace, name)
		k.t.Fatalf("%v\n%s", err, events)
	}
}

// Exec runs a command in the container "main" of a pod and returns its standard output.
func (k *K) Exec(namespace, pod string, command ...string) string {
	k.t.Helper()
	return k.Kubectl(append([]string{"--namespace", namespace, "exec", pod, "--container", "main", "--"}, command...)...)
}

// podState is what tests compare of a pod.
type podState struct {
	UID, Phase string
	Ready      bool
	Restarts   int
	Container  string
}

// Pods returns the states of the pods of a namespace, each with its first container, by name. A selector of
// labels chooses some of them.
func (k *K) Pods(namespace, selector string) map[string]podState {
	k.t.Helper()
	list, err := k.client(cluster.TestClient).CoreV1().Pods(namespace).List(k.ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		k.t.Fatal(err)
	}
	pods := map[string]podState{}
	for _, p := range list.Items {
		s := podState{UID: string(p.UID), Phase: string(p.Status.Phase)}
		if len(p.Status.ContainerStatuses) > 0 {
			c := p.Status.ContainerStatuses[0]
			s.Ready, s.Restarts, s.Container = c.Ready, int(c.RestartCount), c.ContainerID
		}
		pods[p.Name] = s
	}
	return pods
}

// State returns the state of a pod.
func (k *K) State(namespace, name string) podState {
	k.t.Helper()
	return k.Pods(namespace, "")[name]
}

// PluginPod returns the name of the plugin's pod.
func (k *K) PluginPod() string {
	k.t.Helper()
	return strings.TrimSpace(k.Kubectl("--namespace", cluster.Namespace, "get", "pods", "--selector=app.kubernetes.io/name=jackfield",
		"--output=jsonpath={.items[*].metadata.name}"))
}

// runtime returns a client of the node's runtime.
func (k *K) runtime() cri.RuntimeServiceClient {
	k.t.Helper()
	conn, err := grpc.NewClient("unix://"+k.HostPath(cluster.ContainerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

// readySandboxes returns the ready sandboxes of the pods of a namespace.
func (k *K) readySandboxes(namespace string) ([]*cri.PodSandbox, error) {
	k.t.Helper()
	reply, err := k.runtime().ListPodSandbox(k.ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.namespace": namespace}}})
	return reply.GetItems(), err
}

// sandboxes returns the IDs of the ready sandboxes of the pods of a namespace.
func (k *K) sandboxes(namespace string) (ids []string) {
	k.t.Helper()
	list, err := k.readySandboxes(namespace)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range list {
		ids = append(ids, s.GetId())
	}
	return ids
}

// object returns an object as a JSON manifest.
func object(v map[string]any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint("encode object: ", err)) // the values are literals of tests
	}
	return string(data)
}

// contains fails the test unless text contains each of the wanted texts.
func contains(t testing.TB, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("found %q, want %q in it", text, want)
		}
	}
}
