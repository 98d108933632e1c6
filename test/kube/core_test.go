// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/vswitch"
)

// connect asks the vswitch through the socket that the pod was given.
const connect = "sockclient connect $JACKFIELD_ETH0_SOCKET"

func TestPodGetsDeviceAndSocket(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-get", nil)
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	contains(t, k.Exec(ns, "router", "sh", "-c", "ls -l /dev/acme0; head -c 4 /dev/acme0 | xxd -p; env"), "1,   5", "00000000", "ACME_NIC=nic0")
	contains(t, k.Exec(ns, "router", "sh", "-c", connect), vswitch.Greeting("the vswitch"))
	contains(t, k.Exec(ns, "router", "sh", "-c", "cat $JACKFIELD_DEVICES_FILE"), `"interface": "eth0"`)

	// No rule covers the other namespace, so the attachment of its pods is unmanaged.
	other := k.Namespace("web-get", nil)
	k.RunPod(Pod{Namespace: other, Name: "plain"})
	if out := k.Exec(other, "plain", "sh", "-c", "env; ls /var/run"); strings.Contains(out, "JACKFIELD") || strings.Contains(out, "jackfield") {
		t.Errorf("a pod without a grant has: %s", out)
	}
}

func TestRunningPodSurvivesVswitchRestart(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-restart", nil)
	k.RunPod(Pod{Namespace: ns, Name: "router"})
	before := k.State(ns, "router")
	if err := shared.vswitch.Crash(); err != nil {
		t.Fatal(err)
	}
	restarted, err := serveVswitch(k.FirstNode(), "the restarted vswitch")
	if err != nil {
		t.Fatal(err)
	}
	shared.vswitch = restarted
	k.Wait("the pod reaches the restarted vswitch", func() error {
		out, err := k.Cluster.Kubectl(k.ctx, "--namespace", ns, "exec", "router", "--", "sh", "-c", connect)
		if err == nil && !strings.Contains(out, "the restarted vswitch") {
			err = errors.New(out)
		}
		return err
	})
	if after := k.State(ns, "router"); after != before {
		t.Errorf("the pod was %+v and is %+v", before, after)
	}
	if err := restarted.Close(); err != nil {
		t.Fatal(err)
	}
	if shared.vswitch, err = serveVswitch(k.FirstNode(), "the vswitch"); err != nil {
		t.Fatal(err)
	}
}

func TestDeniedPodRunsOnceItsRuleExists(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("web-denied", nil)
	k.Create(Pod{Namespace: ns, Name: "stranger", Annotations: map[string]string{deviceKey: nic0}}.Manifest())
	events := k.WaitEvent(ns, "stranger", "deny CDI device")
	rule := `      - name: web-denied-cdi
        for: {namespaces: ["web-denied"]}
        allow: {cdi: ["acme.com/nic=nic0"]}
`
	contains(t, events, `jackfield: container "web-denied/stranger/main"`, `annotation devices.jackfield.dev, item 1`,
		`closest rule "fast-path-tenants": is for the namespaces ["fast-*"], not for "web-denied"`, "config.yaml of ConfigMap jackfield")
	for line := range strings.Lines(rule) {
		contains(t, events, strings.TrimSpace(line))
	}
	before, plugin := k.State(ns, "stranger"), k.PluginPod()

	k.Upgrade(values + fastRule + rule) // the lines that the event says
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	k.WaitPod(ns, "stranger")
	contains(t, k.Exec(ns, "stranger", "ls", "-l", "/dev/acme0"), "1,   5")
	if after := k.State(ns, "stranger"); after.UID != before.UID || after.Restarts != 0 {
		t.Errorf("the pod was %+v and is %+v", before, after)
	}
	if after := k.PluginPod(); after != plugin {
		t.Errorf("the plugin's pod was %s and is %s: the configuration needed a restart", plugin, after)
	}
}

// A faulty configuration reaches the plugin through the kubelet. It is reported, and the one before stays in force.
func TestFaultyConfigurationIsRejected(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-faulty", nil)
	plugin := k.PluginPod()
	const refused = "a newer configuration is rejected: "
	reports := func(want bool) {
		t.Helper()
		k.Wait(fmt.Sprintf("the plugin reports a faulty configuration: %v", want), func() error {
			// While a configuration is rejected, the exit status is 1.
			status, err := k.Cluster.Jackfield(k.ctx, "status")
			if strings.Contains(status, refused) != want || (err != nil) != want {
				return fmt.Errorf("%s%v", status, err)
			}
			return nil
		})
	}
	// Helm's schema cannot compare numbers.
	k.Upgrade(values + fastRule + `      - {name: typo, for: {namespaces: ["fast-*"]}, allow: {ports: [{port: ovs0/br0, vlans: ["200-100"]}]}}` + "\n")
	t.Cleanup(func() { k.Upgrade(values + fastRule) })
	reports(true)
	status, _ := k.Cluster.Jackfield(k.ctx, "status")
	contains(t, status, refused+"config.yaml of ConfigMap jackfield", `policy.rules[1].allow.ports[0].vlans[0]: invalid value "200-100"`)
	contains(t, k.Kubectl("--namespace", cluster.Namespace, "logs", plugin, "--since=5m"), "new configuration rejected; keeping the current one", "policy.rules[1].allow.ports[0].vlans[0]")
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	contains(t, k.Exec(ns, "router", "ls", "-l", "/dev/acme0"), "1,   5")

	k.Upgrade(values + fastRule)
	reports(false)
	if after := k.PluginPod(); after != plugin {
		t.Errorf("the plugin's pod was %s and is %s", plugin, after)
	}
}

func TestHelmUpgradeRollbackUninstall(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-helm", nil)
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	before := k.State(ns, "router")
	connects := func(when string) {
		t.Helper()
		contains(t, k.Exec(ns, "router", "sh", "-c", connect), vswitch.Greeting("the vswitch"))
		if after := k.State(ns, "router"); after != before {
			t.Errorf("%s, the pod was %+v and is %+v", when, before, after)
		}
	}
	first := k.PluginPod()
	k.Upgrade(values + fastRule + "hostRun: true\n") // other mounts, so another pod
	second := k.PluginPod()
	if first == second {
		t.Error("the upgrade did not replace the plugin's pod")
	}
	connects("after the upgrade")

	if _, err := k.Helm(k.ctx, "rollback", cluster.Release, "--namespace", cluster.Namespace); err != nil {
		t.Fatal(err)
	}
	if err := k.WaitJackfield(k.ctx); err != nil {
		t.Fatal(err)
	}
	if third := k.PluginPod(); third == second {
		t.Error("the rollback did not replace the plugin's pod")
	}
	connects("after the rollback")

	if _, err := k.Helm(k.ctx, "uninstall", cluster.Release, "--namespace", cluster.Namespace, "--wait"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.InstallJackfield(k.ctx, values+fastRule); err != nil {
			t.Error(err)
		}
	})
	k.Wait("nothing of the release is left", func() error {
		left, err := k.Cluster.Kubectl(k.ctx, "--namespace", cluster.Namespace, "get", "all,configmaps,serviceaccounts,networkpolicies",
			"--selector=app.kubernetes.io/name=jackfield", "--output=name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	connects("after the removal")
}

// The commands that the guides run in the plugin's pod.
func TestCommandsRunInPluginPod(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-commands", nil)
	pod := Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}}
	k.RunPod(pod)
	contains(t, k.Jackfield("status"), ns, "router", nic0)
	contains(t, k.Jackfield("devices"), nic0, cdiFile)
	contains(t, k.Jackfield("doctor"), "0 errors")
	contains(t, k.Jackfield("policy", "check", "--namespace", ns, "--cdi", nic0), "granted by rule fast-path-tenants")
	explained, err := k.KubectlInput(k.ctx, pod.Manifest(), "--namespace", cluster.Namespace, "exec", "--stdin", "daemonset/"+cluster.Release,
		"--container", "jackfield-nri", "--", "jackfield", "explain", "-")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, explained, `CDI device "`+nic0+`": injected`, "rule    fast-path-tenants", cdiFile)
}

// inventory lists what pods could leave on a node, one line each.
func (k *K) inventory(n *cluster.Node) map[string]bool {
	k.t.Helper()
	found := map[string]bool{}
	for _, dir := range []string{"/run/jackfield/containers", "/run/jackfield/claims", "/run/jackfield/cni", "/run/jackfield/sandboxes",
		"/run/k8s.cni.cncf.io/devinfo/cni", "/run/netns", "/var/lib/cni/networks/pods", cluster.MultusCache, cluster.MultusCache + "/results"} {
		entries, err := os.ReadDir(n.HostPath(dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			k.t.Fatal(err)
		}
		for _, e := range entries {
			found["file "+dir+"/"+e.Name()] = true
		}
	}
	mounts, err := os.ReadFile(strings.Replace(n.HostPath("/x"), "/root/x", "/mountinfo", 1))
	if err != nil {
		k.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		found["mount "+strings.Fields(line)[4]] = true
	}
	return found
}

// nothingLeft waits until all that is in a node's inventory was in it before. The namespace is that of the pods
// that ran since.
func (k *K) nothingLeft(n *cluster.Node, namespace string, before map[string]bool) {
	k.t.Helper()
	conn, err := grpc.NewClient("unix://"+n.HostPath(cluster.ContainerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	defer conn.Close()
	k.Wait("nothing is left on the node", func() error {
		if err := removeStoppedSandboxes(k.ctx, cri.NewRuntimeServiceClient(conn), namespace); err != nil {
			return err
		}
		var left []string
		for line := range k.inventory(n) {
			// The address range's own files.
			if !before[line] && !strings.HasSuffix(line, "/lock") && !strings.Contains(line, "/last_reserved_ip") {
				left = append(left, line)
			}
		}
		if len(left) > 0 {
			return errors.New("left: " + strings.Join(left, "\n"))
		}
		return nil
	})
}

// removeStoppedSandboxes removes the sandboxes of pods that have ended, as the kubelet does once a minute.
func removeStoppedSandboxes(ctx context.Context, runtime cri.RuntimeServiceClient, namespace string) error {
	stopped := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_NOTREADY}
	list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{State: stopped}})
	if err != nil {
		return err
	}
	for _, s := range list.GetItems() {
		if s.GetMetadata().GetNamespace() != namespace {
			continue
		}
		if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return err
		}
	}
	return nil
}
