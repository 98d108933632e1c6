// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// Whatever a pod's author writes, the answer comes before the runtime's deadline
// (after which NRI drops a plugin), is short enough for an event, and the next pod
// is served.
func TestHostileAnnotations(t *testing.T) {
	n := newNode(t, policyYAML+"compat: {deviceInjector: true}\n", nritest.Options{})
	check(t, os.WriteFile(n.path("/etc/cdi/v.json"), []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`), 0o644))
	deep := strings.Repeat("[", 10000)
	many := strings.TrimSuffix(strings.Repeat("vendor.com/net=a,", 10000), ",")
	different := strings.Builder{}
	for i := range 10000 {
		fmt.Fprintf(&different, "- vendor.com/net=a%d\n", i)
	}
	for name, annotations := range map[string]map[string]string{
		"10,000 requests":           {"devices.jackfield.dev": many},
		"10,000 different requests": {"devices.jackfield.dev": different.String()},
		"1,024 different requests":  {"devices.jackfield.dev": strings.Join(strings.Split(different.String(), "\n")[:1024], "\n")},
		"256 KiB in one":            {"devices.jackfield.dev": strings.Repeat("x", 256<<10)},
		"256 KiB of CDI's":          {"cdi.k8s.io/x": strings.Repeat("vendor.com/net=a,", 15000)},
		"deep":                      {"devices.jackfield.dev": deep},
		"aliases":                   {"devices.jackfield.dev": "- &a [x,x]\n- &b [*a,*a]\n- &c [*b,*b]\n- [*c,*c]"},
		"10,000 networks":           {"networks.jackfield.dev": strings.TrimSuffix(strings.Repeat("net1,", 10000), ",")},
		"256 KiB of networks":       {"k8s.v1.cni.cncf.io/networks": strings.Repeat("a,", 128<<10), "networks.jackfield.dev": "net1"},
		"10,000 nodes":              {"devices.nri.io": strings.Repeat("- {path: /dev/null, type: c, major: 1, minor: 3}\n", 10000)},
		"a terminal's":              {"devices.jackfield.dev": "\x1b[2J\u202e" + strings.Repeat("\x00", 1000)},
	} {
		pod := nritest.NewPod("dpdk-a", "fwd-0", annotations)
		started := time.Now()
		check(t, n.runtime.RunPodSandbox(t.Context(), pod))
		_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
		if err == nil {
			t.Errorf("%s: the container was created", name)
			continue
		}
		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("%s: the answer took %v", name, took)
		}
		if strings.ContainsAny(err.Error(), "\x1b\u202e\x00") {
			t.Errorf("%s: the error draws on terminals: %q", name, err)
		}
		if n.runtime.Plugins() != 1 {
			t.Fatalf("%s: the runtime dropped the plugin", name)
		}
	}
	good := nritest.NewPod("dpdk-a", "fwd-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	check(t, n.runtime.RunPodSandbox(t.Context(), good))
	_, err := n.runtime.CreateContainer(t.Context(), good, &api.Container{Name: "app"})
	check(t, err)
}

// In a directory of 100,000 files of other sandboxes a sandbox finds its own. The
// time of the runtime is not the matter here, which a busy machine may not have.
func TestManyDeviceInfoFiles(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{RequestTimeout: 30 * time.Second})
	const dir = "/run/k8s.cni.cncf.io/devinfo/cni/"
	for i := range 100_000 {
		f, err := os.OpenFile(n.path(fmt.Sprintf("%sns-nad-%064x_net1", dir, i)), os.O_CREATE|os.O_WRONLY, 0o644)
		check(t, err)
		check(t, f.Close())
	}
	n.listen(vswitch.VhostUser, "/run/vsw/a/s.sock")
	for i := range 3 {
		pod := nritest.NewPod("dpdk-a", fmt.Sprintf("fwd-%d", i), map[string]string{"networks.jackfield.dev": "net1"})
		check(t, os.WriteFile(n.path(dir+"dpdk-a-net-"+pod.GetId()+"_net1"), []byte(
			`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/a/s.sock"}}`), 0o644))
		check(t, n.runtime.RunPodSandbox(t.Context(), pod))
		started := time.Now()
		created, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
		check(t, err)
		t.Logf("container %d: %v", i, time.Since(started))
		if len(created.Adjust.GetMounts()) == 0 {
			t.Error("the socket did not come")
		}
	}
}
