// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/ovs"
)

// ipamVolumes are values of the chart with which the plugin's pod can run host-local, which is linked dynamically.
const ipamVolumes = `extraVolumes:
  - {name: cni-bin, hostPath: {path: /opt/cni/bin}}
  - {name: leases, hostPath: {path: /var/lib/cni/networks}}
  - {name: lib64, hostPath: {path: /lib64}}
  - {name: lib, hostPath: {path: /lib/x86_64-linux-gnu}}
extraVolumeMounts:
  - {name: cni-bin, mountPath: /opt/cni/bin, readOnly: true}
  - {name: leases, mountPath: /var/lib/cni/networks}
  - {name: lib64, mountPath: /lib64, readOnly: true}
  - {name: lib, mountPath: /lib/x86_64-linux-gnu, readOnly: true}
`

// damages are the ways in which Multus' record of a sandbox, its cache file, is damaged before the pod is deleted.
// Multus reads the networks from the API server only if the file is missing. It ignores a DEL with any other damage.
func damages() map[string]func(file string) error {
	return map[string]func(file string) error{
		"truncated": func(file string) error { return os.Truncate(file, 100) },
		"other":     func(file string) error { return os.WriteFile(file, []byte(`{"a": 1}`), 0o600) },
		"missing":   os.Remove,
	}
}

// A DEL of Multus fails while the switch is down, and is lost with a damaged cache file. The shim of the daemon hides
// each failure from the runtime. The pods end all the same, and nothing of Jackfield is left.
func TestDELThatMultusFails(t *testing.T) {
	k := Start(t)
	if err := k.CopyCNIPlugin("host-local"); err != nil {
		t.Fatal(err)
	}
	s := k.startOVS(ipamVolumes)
	for _, mode := range []cluster.MultusMode{cluster.ThinMultus, cluster.ThickMultus} {
		t.Run(string(mode), func(t *testing.T) { testFailingDEL(t, s, mode) })
	}
}

func testFailingDEL(t *testing.T, s *ovs.Switch, mode cluster.MultusMode) {
	k := Start(t)
	k.installMultus(mode)
	ns := k.Namespace("fast-ovs-"+string(mode), nil)
	for i, name := range []string{"left", "right"} {
		k.defineNetwork(ns, name, "", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "jackfield-cni",
  "vswitch": "ovs0", "socketDir": "%s/sockets", "device": {"type": "vhost-user", "mode": "server"},
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9%d.0.0/16"}]]}}`, name, s.Dir, i))
	}
	before := k.attachmentInventory(s)
	pods := append(slices.Sorted(maps.Keys(damages())), "down")
	for _, pod := range pods {
		k.Create(Pod{Namespace: ns, Name: pod, Annotations: map[string]string{networksKey: "left,right"}}.Manifest())
	}
	sandboxes := map[string]string{}
	for _, pod := range pods {
		k.WaitPod(ns, pod)
		sandboxes[pod] = k.sandboxOf(ns, pod)
	}
	if ports := strings.Fields(s.Vsctl("list-ports", "br0")); len(ports) != 2*len(pods) {
		t.Fatalf("br0 has %q", ports)
	}
	for pod, damage := range damages() {
		if err := damage(filepath.Join(cluster.MultusCache, sandboxes[pod])); err != nil {
			t.Fatal(err)
		}
	}

	s.KillSwitch()
	s.KillDatabase()
	k.Kubectl("--namespace", ns, "delete", "pod", "down", "--wait=false")
	if mode == cluster.ThinMultus {
		k.WaitEvent(ns, "down", "FailedKillPod")
	} else {
		k.waitGone(ns, "down")
	}
	s.StartDatabase()
	s.StartSwitch()
	for _, pod := range pods {
		k.Kubectl("--namespace", ns, "delete", "pod", pod, "--wait=false", "--ignore-not-found")
	}
	for _, pod := range pods {
		k.waitGone(ns, pod)
	}
	k.Wait("no attachment is left", func() error {
		if err := removeStoppedSandboxes(k.ctx, k.runtime(), ns); err != nil {
			return err
		}
		var left []string
		for line := range k.attachmentInventory(s) {
			if !before[line] {
				left = append(left, line)
			}
		}
		if len(left) > 0 {
			return errors.New("left: " + strings.Join(left, "\n"))
		}
		return nil
	})
	k.removeLostByMultus(sandboxes)
}

// attachmentInventory lists the objects of Jackfield's attachments, and the addresses of their networks.
func (k *K) attachmentInventory(s *ovs.Switch) map[string]bool {
	k.t.Helper()
	found := map[string]bool{}
	for _, port := range strings.Fields(s.Vsctl("list-ports", "br0")) {
		found["port "+port] = true
	}
	for _, dir := range []string{"/run/jackfield/containers", "/run/jackfield/claims", "/run/jackfield/cni",
		"/run/jackfield/sandboxes", "/run/k8s.cni.cncf.io/devinfo/cni", "/run/netns",
		"/var/lib/cni/networks/left", "/var/lib/cni/networks/right", s.Dir + "/sockets"} {
		entries, err := os.ReadDir(k.HostPath(dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			k.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_reserved_ip") && e.Name() != ".jackfield.lock" {
				found[dir+"/"+e.Name()] = true
			}
		}
	}
	return found
}

// sandboxOf returns the ID of the ready sandbox of a pod.
func (k *K) sandboxOf(namespace, pod string) string {
	k.t.Helper()
	list, err := k.readySandboxes(namespace)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range list {
		if s.GetMetadata().GetName() == pod {
			return s.GetId()
		}
	}
	k.t.Fatalf("pod %s has no ready sandbox", pod)
	return ""
}

// waitGone waits until the API server has no pod.
func (k *K) waitGone(namespace, pod string) {
	k.t.Helper()
	k.Wait("pod "+pod+" is deleted", func() error {
		if state, exists := k.Pods(namespace, "")[pod]; exists {
			return fmt.Errorf("it is %+v", state)
		}
		return nil
	})
}

// removeLostByMultus removes the files that Multus and the plugins of the cluster's network lose with a DEL. They
// belong to sandboxes whose DEL failed or whose cache file was damaged.
func (k *K) removeLostByMultus(sandboxes map[string]string) {
	k.t.Helper()
	for pod, id := range sandboxes {
		files, err := filepath.Glob(cluster.MultusCache + "/*" + id + "*")
		if err != nil {
			k.t.Fatal(err)
		}
		if len(files) > 0 && pod != "truncated" && pod != "other" {
			k.t.Errorf("Multus' cache still has %q of pod %s", files, pod)
		}
		results, err := filepath.Glob(cluster.MultusCache + "/results/*" + id + "*")
		if err != nil {
			k.t.Fatal(err)
		}
		for _, f := range append(files, results...) {
			if err := os.Remove(f); err != nil {
				k.t.Fatal(err)
			}
		}
	}
}
