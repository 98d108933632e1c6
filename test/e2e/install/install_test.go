// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
	"golang.org/x/sys/unix"
)

const nodeConfig = `
metrics: {listen: ":9480"}
sockets: {roots: [/var/run/jackfield/sockets, /var/run/vsw]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        cdi:     ["vendor.com/net=*"]
        sockets: ["/var/run/jackfield/sockets/**", "/var/run/vsw/**"]
`

// ways returns the variants of the DaemonSet.
func ways() map[string]func(string) (*daemonSet, error) {
	return map[string]func(string) (*daemonSet, error){"privileged": read, "unprivileged": readUnprivileged}
}

// each runs a test with the DaemonSet's pod on a new node of each generation.
func each(t *testing.T, name string, f func(t *testing.T, h *e2e.H, ds *daemonSet)) {
	t.Helper()
	run := e2e.EachFresh
	if name == "privileged" {
		// CRI-O gives a privileged container every capability of the kernel, and a test machine may lack some. containerd
		// gives those that it has.
		run = e2e.EachFreshContainerd
	}
	run(t, node.Options{}, func(t *testing.T, h *e2e.H) { f(t, h, deployed(t, h, name)) })
}

// deployed returns the DaemonSet with a socket root. The node has its image.
func deployed(t *testing.T, h *e2e.H, name string) *daemonSet {
	t.Helper()
	ds, err := ways()[name](os.Getenv(checkoutEnv))
	if err != nil {
		t.Fatal(err)
	}
	ds.addRoot("/var/run/vsw")
	if err := h.ImportImages(t.Context(), os.Getenv(imageEnv), ImageName); err != nil {
		t.Fatal(err)
	}
	return ds
}

// start runs the DaemonSet's pod and waits until the plugin is registered.
func start(t *testing.T, h *e2e.H, ds *daemonSet) (*e2e.Pod, *e2e.Container) {
	t.Helper()
	from := len(h.Log())
	h.WriteFile("/run/configmap/config.yaml", nodeConfig)
	o, err := ds.options("/run/configmap", map[string]string{"/var/run/nri": filepath.Dir(h.NRISocket())})
	if err != nil {
		t.Fatal(err)
	}
	pod := h.RunPod(node.PodOptions{Name: "jackfield", Namespace: "jackfield-system", Privileged: o.Privileged})
	daemon := pod.Run(o)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plugin logged:\n%s", daemon.Logs())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := h.WaitPluginSince(ctx, "50-jackfield", from); err != nil {
		t.Fatal(err)
	}
	ready(t, h, ds, daemon)
	return pod, daemon
}

// ready runs the probes in the container, as the kubelet does.
func ready(t *testing.T, h *e2e.H, ds *daemonSet, daemon *e2e.Container) {
	t.Helper()
	c := ds.Spec.Template.Spec.Containers[0]
	for _, command := range [][]string{c.ReadinessProbe.Exec.Command, c.LivenessProbe.Exec.Command} {
		if len(command) != 2 {
			t.Fatalf("a probe runs %q", command)
		}
		h.Eventually(func() error {
			if out, errs, code := daemon.Exec(command...); code != 0 {
				return fmt.Errorf("%q exits with %d: %s%s", command, code, out, errs)
			}
			return nil
		})
	}
}

// The image, run as the DaemonSet says, works like the plugin.
func TestImageRunsAsDaemonSet(t *testing.T) {
	for name := range ways() {
		t.Run(name, func(t *testing.T) {
			each(t, name, func(t *testing.T, h *e2e.H, ds *daemonSet) {
				pod, daemon := start(t, h, ds)
				if got := daemon.Output("/usr/bin/jackfield", "version"); !strings.Contains(got, "go1") {
					t.Errorf("jackfield version prints %q", got)
				}
				delivers(t, h)
				if h.Generation().IsCRIO() {
					pod.Remove()
					readsPinnedNamespaces(t, h, ds)
				}
			})
		})
	}
}

// readsPinnedNamespaces runs pods whose user namespace CRI-O has mounted in a directory of the DaemonSet. To read the
// mapping, the plugin needs a capability that the unprivileged one lacks.
func readsPinnedNamespaces(t *testing.T, h *e2e.H, ds *daemonSet) {
	t.Helper()
	const hostRoot, dir = 200000, "/run/jackfield/sockets/port3"
	pod := h.RunPod(node.PodOptions{Name: "users", Namespace: "dpdk-1", UserNS: hostRoot})
	devinfo(h, pod, "blue", "net1", "server", "/var"+dir+"/app.sock")
	plugin, _ := start(t, h, ds)
	if err := pod.CreateFails(node.ContainerOptions{}); !strings.Contains(err.Error(), "needs root with CAP_SYS_ADMIN") {
		t.Errorf("the refusal is %v", err)
	}
	plugin.Remove()
	c := ds.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
	c.Add = append(c.Add, "SYS_ADMIN")
	start(t, h, ds)
	app := pod.Run(node.ContainerOptions{Attempt: 1,
		Command: []string{"sh", "-c", "exec sockclient listen $JACKFIELD_NET1_SOCKET 'from inside'"}})
	app.WaitLogs("listening")
	if got, err := vswitch.Ask(t.Context(), dir+"/app.sock"); err != nil || got != "from inside" {
		t.Errorf("the application's socket answers %q, %v", got, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || st.Uid != hostRoot {
		t.Errorf("the directory belongs to user %d, %v", st.Uid, err)
	}
}

// delivers runs a pod that is granted a CDI device, a socket of the host and a socket of its own, and checks
// that they work.
func delivers(t *testing.T, h *e2e.H) {
	t.Helper()
	h.CharDevice("/dev/jackfield-test", 1, 5)
	h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/net",
 "devices": [{"name": "dev0", "containerEdits": {"env": ["VENDOR=yes"], "deviceNodes": [{"path": "/dev/jackfield-test"}]}}]}`)
	h.Vswitch(vswitch.VhostUser, "/run/jackfield/sockets/port1/vhost.sock", "vhost-user")
	pod := h.RunPod(node.PodOptions{Name: "app", Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=dev0"}})
	devinfo(h, pod, "red", "net1", "client", "/var/run/jackfield/sockets/port1/vhost.sock")
	devinfo(h, pod, "blue", "net2", "server", "/var/run/jackfield/sockets/port2/app.sock")
	ctr := pod.Run(node.ContainerOptions{User: 1000, Group: 1000})
	if got := ctr.Output("sh", "-c", "echo $VENDOR; ls -l /dev/jackfield-test | tr -s ' ' | cut -d' ' -f5,6"); got != "yes\n1, 5" {
		t.Errorf("inside: %q", got)
	}
	root := pod.Run(node.ContainerOptions{Name: "root"})
	if got := root.Output("sh", "-c", "sockclient connect $JACKFIELD_NET1_SOCKET"); got != vswitch.Greeting("vhost-user") {
		t.Errorf("the host's socket answers %q", got)
	}
	app := pod.Run(node.ContainerOptions{Name: "listen", Command: []string{"sh", "-c", "exec sockclient listen $JACKFIELD_NET2_SOCKET 'from inside'"}})
	app.WaitLogs("listening")
	if got, err := vswitch.Ask(t.Context(), "/run/jackfield/sockets/port2/app.sock"); err != nil || got != "from inside" {
		t.Errorf("the application's socket gave %q, %v", got, err)
	}
	pod.Remove()
	for _, left := range []string{"/run/jackfield/sockets/port2", "/run/jackfield/containers/" + root.ID} {
		if _, err := os.Lstat(left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
}

func devinfo(h *e2e.H, pod *e2e.Pod, nad, iface, mode, path string) {
	h.WriteFile(fmt.Sprintf("/var/run/k8s.cni.cncf.io/devinfo/cni/%s-%s-%s_%s", pod.Namespace(), nad, pod.ID, iface),
		fmt.Sprintf(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path))
}
