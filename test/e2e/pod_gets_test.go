// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests of this file show what a pod gets, and does not get, from the plugin on an unmodified containerd.

const nodeConfig = `
sockets: {roots: [/var/run/vsw]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        cdi:     ["vendor.com/net=*"]
        sockets: ["/var/run/vsw/**"]
        devices: ["/dev/vfio/*"]
`

const devinfoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni/"

// devinfo writes a device-info file under the name that Multus gives it.
func devinfo(h *e2e.H, pod *e2e.Pod, nad, iface, content string) {
	h.WriteFile(fmt.Sprintf("%s%s-%s-%s_%s", devinfoDir, pod.Namespace(), nad, pod.ID, iface), content)
}

func vhostUser(mode, path string) string {
	return fmt.Sprintf(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path)
}

func memif(role, path string) string {
	return fmt.Sprintf(`{"type":"memif","version":"1.1.0","memif":{"role":%q,"mode":"ethernet","path":%q}}`, role, path)
}

// inventoryDirs are the directories in which nothing may be left.
var inventoryDirs = []string{"/run/jackfield", "/run/vsw", "/var/run/k8s.cni.cncf.io"}

// inventory returns what exists before a test's containers. The plugin creates the directory of its records
// shortly after it is registered.
func inventory(h *e2e.H) []string {
	h.Eventually(func() error {
		_, err := os.Stat("/run/jackfield/status")
		return err
	})
	return h.Inventory(inventoryDirs...)
}

func TestPodGetsCDIDevice(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.CharDevice("/run/devs/zero", 1, 5)
		h.WriteFile("/run/vendor/lib/driver.so", "library")
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/net",
 "containerEdits": {"env": ["VENDOR=yes"]},
 "devices": [{"name": "dev0", "containerEdits": {
  "env": ["VENDOR_DEVICE=dev0"],
  "deviceNodes": [{"path": "/dev/vendor0", "hostPath": "/run/devs/zero"}],
  "mounts": [{"hostPath": "/run/vendor/lib", "containerPath": "/opt/vendor", "options": ["ro", "bind", "nosuid"]},
   {"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs", "options": ["nosuid", "size=64k"]}],
  "hooks": [{"hookName": "createRuntime", "path": "/bin/sh", "args": ["sh", "-c", "cat > /run/vendor/hook-ran"]},
   {"hookName": "poststop", "path": "/bin/sh", "args": ["sh", "-c", "cat > /run/vendor/hook-stopped"]}]}},
  {"name": "gone", "containerEdits": {"deviceNodes": [{"path": "/dev/gone", "hostPath": "/run/devs/gone"}]}}]}`)
		pod := h.RunPod(node.PodOptions{Name: "cdi", Namespace: "dpdk-1",
			Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=dev0"}})
		ctr := pod.Run(node.ContainerOptions{})
		// The device cgroup allows reading and writing this device, and no other access.
		got := ctr.Output("sh", "-c", `ls -l /dev/vendor0 | tr -s ' ' | cut -d' ' -f5,6; head -c 4 /dev/vendor0 | xxd -p; echo x > /dev/vendor0 && echo written
echo $VENDOR $VENDOR_DEVICE; cat /opt/vendor/driver.so; touch /opt/vendor/x 2>/dev/null || echo read-only`)
		if want := "1, 5\n00000000\nwritten\nyes dev0\nlibraryread-only"; got != want {
			t.Errorf("inside:\n%s\nwant:\n%s", got, want)
		}
		state, err := os.ReadFile("/run/vendor/hook-ran")
		if err != nil || !strings.Contains(string(state), ctr.ID) {
			t.Errorf("the createRuntime hook read %q, %v", state, err)
		}
		if got := ctr.Output("sh", "-c", "stat -f -c %T /scratch; touch /scratch/x"); got != "tmpfs" {
			t.Errorf("/scratch is a %s", got)
		}
		pod.Remove()
		h.Eventually(func() error {
			state, err := os.ReadFile("/run/vendor/hook-stopped")
			if err == nil && !strings.Contains(string(state), ctr.ID) {
				err = fmt.Errorf("the poststop hook read %q", state)
			}
			return err
		})
		gone := h.RunPod(node.PodOptions{Name: "gone", Namespace: "dpdk-1",
			Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=gone"}})
		if err := gone.CreateFails(node.ContainerOptions{}); !strings.Contains(err.Error(), "/run/devs/gone") {
			t.Errorf("a device without a node: %v", err)
		}
	})
}

// The forms of a request have the same meaning on each runtime: an optional device that does not exist, a CDI
// annotation, a list with a fault, a forged namespace, a limit, and a rule by image.
func TestRequestForms(t *testing.T) {
	const config = `
policy:
  rules:
    - {name: tenants, for: {namespaces: ["dpdk-*"]}, allow: {cdi: ["vendor.com/net=*"]}, limits: {container: {cdi: 1}}}
    - {name: images, for: {namespaces: [images], images: ["*"]}, allow: {cdi: ["vendor.com/net=*"]}}
`
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[
			{"name":"a","containerEdits":{"env":["A=1"]}}, {"name":"b","containerEdits":{"env":["B=1"]}}]}`)
		h.StartPlugin(node.PluginOptions{Config: config})
		byImage := ""
		if h.Generation().IsCRIO() {
			byImage = "images" // CRI-O does not report the image
		}
		for i, c := range []struct{ namespace, key, value, refusal string }{
			{"dpdk-1", "devices.jackfield.dev", `[{device: "vendor.com/net=none", optional: true}, {device: "vendor.com/net=a"}]`, ""},
			{"dpdk-1", "cdi.k8s.io/vendor", "vendor.com/net=a", ""},
			{"dpdk-1", "devices.jackfield.dev", "vendor.com/net", "vendor.com/net"},
			{"dpdk-1", "devices.jackfield.dev", "vendor.com/net=a,vendor.com/net=b", "limit"},
			{"web", "devices.jackfield.dev", "vendor.com/net=a", "deny"},
			{"images", "devices.jackfield.dev", "vendor.com/net=a", byImage},
		} {
			pod := h.RunPod(node.PodOptions{Name: fmt.Sprintf("form%d", i), Namespace: c.namespace, Annotations: map[string]string{
				c.key: c.value, "io.kubernetes.cri.sandbox-namespace": "dpdk-1", "io.kubernetes.cri-o.Namespace": "dpdk-1"}})
			if c.refusal == "" {
				checkInjected(t, pod.Run(node.ContainerOptions{}))
			} else if err := pod.CreateFails(node.ContainerOptions{}); !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("%s in %s: the refusal does not say %q: %v", c.value, c.namespace, c.refusal, err)
			}
			pod.Remove()
		}
	})
}

func TestPodConnectsToSockets(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		before := inventory(h)
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		h.Vswitch(vswitch.Memif, "/run/vsw/port2/memif.sock", "memif")
		h.Vswitch(vswitch.VhostUser, "/run/vsw/other/secret.sock", "another tenant")
		pod := h.RunPod(node.PodOptions{Name: "sockets", Namespace: "dpdk-1",
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "red,green,blue"}})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		devinfo(h, pod, "green", "net2", memif("slave", "/var/run/vsw/port2/memif.sock"))
		devinfo(h, pod, "blue", "net3", vhostUser("server", "/var/run/vsw/port3/app.sock"))
		ctr := pod.Run(node.ContainerOptions{})
		for _, path := range []string{"/var/run/vsw/port1/vhost.sock", "$JACKFIELD_NET1_SOCKET", "/var/run/vsw/port2/memif.sock", "$JACKFIELD_NET2_SOCKET"} {
			want := vswitch.Greeting("vhost-user")
			if strings.Contains(path, "port2") || strings.Contains(path, "NET2") {
				want = vswitch.Greeting("memif")
			}
			if got := ctr.Output("sh", "-c", "sockclient connect "+path); got != want {
				t.Errorf("%s answers %q, want %q", path, got, want)
			}
		}
		// The host's directory is read-only and shows no other port's socket.
		got := ctr.Output("sh", "-c", "rm -f /var/run/vsw/port1/vhost.sock 2>/dev/null; touch /var/run/vsw/port1/x 2>/dev/null; ls /var/run/vsw/port1 /var/run/vsw")
		if want := "/var/run/vsw:\nport1\nport2\nport3\n\n/var/run/vsw/port1:\nvhost.sock"; got != want {
			t.Errorf("the container has:\n%s\nwant:\n%s", got, want)
		}
		// The application creates its own socket, and the host finds the socket at the path of the
		// device-info.
		second := pod.Run(node.ContainerOptions{Name: "app", Command: []string{"sh", "-c", "exec sockclient listen $JACKFIELD_NET3_SOCKET 'from inside'"}})
		second.WaitLogs("listening")
		if got, err := vswitch.Ask(t.Context(), "/run/vsw/port3/app.sock"); err != nil || got != "from inside" {
			t.Errorf("the application's socket gave %q, %v", got, err)
		}
		var view []map[string]any
		if err := json.Unmarshal([]byte(ctr.Output("sh", "-c", "cat $JACKFIELD_DEVICES_FILE")), &view); err != nil || len(view) != 3 {
			t.Fatalf("devices.json: %v: %v", err, view)
		}
		if name, iface := view[0]["name"], view[0]["interface"]; name != "dpdk-1/red" || iface != "net1" {
			t.Errorf("the first network is %v on interface %v", name, iface)
		}
		pod.Remove()
		os.RemoveAll("/run/k8s.cni.cncf.io")
		os.RemoveAll("/run/vsw/port1")
		os.RemoveAll("/run/vsw/port2")
		os.RemoveAll("/run/vsw/other")
		h.NothingLeft(before, inventoryDirs...)
	})
}

func TestContainerWithoutRequestIsUnchanged(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`)
		spec := func() string {
			pod := h.RunPod(node.PodOptions{Name: "plain", Namespace: "dpdk-1", Annotations: map[string]string{"some": "annotation"}})
			s := pod.Run(node.ContainerOptions{}).ComparableSpec()
			pod.Remove()
			return s
		}
		without := spec()
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		if with := spec(); with != without {
			t.Errorf("with the plugin:\n%s\nwithout:\n%s", with, without)
		}
		if strings.Contains(p.Log(), "plain") {
			t.Errorf("the plugin logged the pod:\n%s", p.Log())
		}
	})
}

// The kubelet sees each refusal in the CRI error, which names the request, the file or rule, and the remedy.
// Nothing is left afterwards.
func TestKubeletSeesEachRefusal(t *testing.T) {
	for _, tc := range []struct {
		name, namespace, annotation, devinfo string
		want                                 []string
	}{
		{name: "unknown CDI device", namespace: "dpdk-1", annotation: "vendor.com/net=nope", want: []string{"vendor.com/net=nope", "/etc/cdi", "the node's administrator can run `jackfield devices`"}},
		{name: "bad BDF", namespace: "dpdk-1", devinfo: `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:02:01:6"}}`,
			want: []string{"net1", "pci.pci-address", `"0000:02:01:6"`, "dddd:BB:DD.f", devinfoDir}},
		{name: "path outside the roots", namespace: "dpdk-1", devinfo: vhostUser("client", "/var/run/other/vhost.sock"),
			want: []string{"net1", "vhost-user.path", "/var/run/other/vhost.sock", "sockets.roots"}},
		{name: "symlink out of a root", namespace: "dpdk-1", devinfo: vhostUser("client", "/var/run/vsw/link/x.sock"),
			want: []string{"net1", "vhost-user.path", "symlink"}},
		{name: "socket path too long", namespace: "dpdk-1", devinfo: vhostUser("client", "/var/run/vsw/"+strings.Repeat("d", 100)+"/x.sock"),
			want: []string{"net1", "vhost-user.path", "107"}},
		{name: "namespace without a rule", namespace: "web", annotation: "vendor.com/net=a",
			want: []string{"vendor.com/net=a", "web", "dpdk-tenants", "namespaces", "config.yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e2e.Each(t, func(t *testing.T, h *e2e.H) {
				h.MkdirAll("/run/vsw")
				h.MkdirAll("/run/elsewhere")
				h.Vswitch(vswitch.VhostUser, "/run/elsewhere/x.sock", "elsewhere")
				if err := os.Symlink("/run/elsewhere", "/run/vsw/link"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.Remove("/run/vsw/link") })
				h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`)
				h.StartPlugin(node.PluginOptions{Config: nodeConfig})
				before := inventory(h)
				annotations := map[string]string{}
				if tc.annotation != "" {
					annotations["devices.jackfield.dev"] = tc.annotation
				}
				pod := h.RunPod(node.PodOptions{Namespace: tc.namespace, Annotations: annotations})
				if tc.devinfo != "" {
					devinfo(h, pod, "nad", "net1", tc.devinfo)
				}
				err := pod.CreateFails(node.ContainerOptions{})
				t.Log(err)
				for _, w := range append(tc.want, "jackfield:", tc.namespace+"/pod/main") {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("the error does not name %q: %v", w, err)
					}
				}
				pod.Remove()
				os.RemoveAll("/run/k8s.cni.cncf.io")
				h.NothingLeft(before, inventoryDirs...)
			})
		})
	}
}

// A pod of a namespace without a rule does not reach the sockets.
func TestPodWithoutRuleIsUnmanaged(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		pod := h.RunPod(node.PodOptions{Namespace: "web"})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		ctr := pod.Run(node.ContainerOptions{})
		if got := ctr.Output("sh", "-c", "env | grep -c JACKFIELD; ls /var/run/vsw 2>/dev/null; true"); got != "0" {
			t.Errorf("inside: %q", got)
		}
		p.WaitLog(0, "unmanaged")
	})
}

func TestRuntimeRestarts(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		run := func(name string) *e2e.Container {
			pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
			devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
			return pod.Run(node.ContainerOptions{})
		}
		works := func(c *e2e.Container) {
			t.Helper()
			if got := c.Output("sh", "-c", "sockclient connect $JACKFIELD_NET1_SOCKET"); got != vswitch.Greeting("vhost-user") {
				t.Errorf("the socket answers %q", got)
			}
		}
		first := run("first")
		works(first)
		for _, restart := range []func(){h.RestartRuntime, h.KillRuntime} {
			restart()
			h.WaitPlugin("10-jackfield")
			works(run("next"))
			works(first)
		}
	})
}

// The runtime starts the plugin itself, and passes its configuration.
func TestRuntimeStartsPlugin(t *testing.T) {
	bin, err := e2e.Kit(t).Command("jackfield-nri")
	if err != nil {
		t.Fatal(err)
	}
	plugins := []node.Preinstalled{{Name: "10-jackfield", Binary: bin, Config: nodeConfig}}
	e2e.EachFresh(t, node.Options{Plugins: plugins}, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`)
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}})
		if got := pod.Run(node.ContainerOptions{}).Output("sh", "-c", "echo $A"); got != "1" {
			t.Errorf("A is %q in the container", got)
		}
		err := h.RunPod(node.PodOptions{Namespace: "web", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}}).CreateFails(node.ContainerOptions{})
		if !strings.Contains(err.Error(), "dpdk-tenants") {
			t.Errorf("the runtime's configuration is not in force: %v", err)
		}
	})
}
