// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests of this file use sockets in running containers, while the vswitch stops and starts.

// eventually waits until a command in the container prints a text.
func eventually(h *e2e.H, c *e2e.Container, want string, cmd string) {
	h.Eventually(func() error {
		stdout, stderr, code := c.Exec("sh", "-c", cmd)
		if code != 0 || strings.TrimSpace(stdout) != want {
			return fmt.Errorf("%q in the container: status %d, %q %q, want %q", cmd, code, stdout, stderr, want)
		}
		return nil
	})
}

// ownPaths are both paths of the sockets of net1 and net2.
var ownPaths = []string{"$JACKFIELD_NET1_SOCKET", "/var/run/vsw/port1/vhost.sock", "$JACKFIELD_NET2_SOCKET", "/var/run/vsw/port2/memif.sock"}

func socketPod(h *e2e.H, namespace string, o node.ContainerOptions) (*e2e.Pod, *e2e.Container) {
	pod := h.RunPod(node.PodOptions{Name: "live", Namespace: namespace})
	devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
	devinfo(h, pod, "green", "net2", memif("slave", "/var/run/vsw/port2/memif.sock"))
	return pod, pod.Run(o)
}

func TestRunningContainerSurvivesVswitchRestart(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		plugin := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		before := inventory(h)
		h.MkdirAll("/run/vsw/port1")
		h.MkdirAll("/run/vsw/port2")
		start := func(name string) (stop func()) {
			a := h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", name)
			b := h.Vswitch(vswitch.Memif, "/run/vsw/port2/memif.sock", name)
			return func() {
				if err := a.Crash(); err != nil {
					t.Error(err)
				}
				if err := b.Crash(); err != nil {
					t.Error(err)
				}
			}
		}
		stop := start("one")
		pod, ctr := socketPod(h, "dpdk-1", node.ContainerOptions{})
		pid := ctr.PID()
		works := func(name string) {
			t.Helper()
			for _, p := range ownPaths {
				eventually(h, ctr, vswitch.Greeting(name), "sockclient connect "+p)
			}
		}
		works("one")
		listed := func(state string, rebinds int) {
			t.Helper()
			h.Eventually(func() error {
				out, err := h.Command("jackfield", "sockets", "dpdk-1/live", "--config", plugin.ConfigFile, "--color", "always").CombinedOutput()
				rows := regexp.MustCompile(fmt.Sprintf(`(?m)^dpdk-1/live/main  /var/run/jackfield/net/net[12]/(?:vhost|memif)\.sock  +\d+s  +%d  +\S+ +\x1b\[3\dm%s\x1b`, rebinds, state))
				if err != nil || len(rows.FindAll(out, -1)) != 2 {
					return fmt.Errorf("want two sockets that are %s, with %d rebinds: %w\n%s", state, rebinds, err, out)
				}
				return nil
			})
		}
		listed("bound", 0)
		stop()
		stop = start("two")
		works("two")
		listed("bound", 1)
		// The vswitch's directories are re-created as well.
		stop()
		os.RemoveAll("/run/vsw/port1")
		os.RemoveAll("/run/vsw/port2")
		stop = start("three")
		works("three")
		// The plugin is down meanwhile.
		plugin.Kill()
		stop()
		stop = start("four")
		plugin.Restart()
		works("four")
		stop()
		stop = start("five")
		works("five")
		if now := ctr.PID(); now != pid {
			t.Errorf("the container's process is %d, want %d as before", now, pid)
		}
		stop()
		pod.Remove()
		os.RemoveAll("/run/k8s.cni.cncf.io")
		os.RemoveAll("/run/vsw/port1")
		os.RemoveAll("/run/vsw/port2")
		for _, found := range h.Inventory() {
			if strings.Contains(found, "jackfield-nri") { // the restarted plugin
				before = append(before, found)
			}
		}
		h.NothingLeft(before, inventoryDirs...)
	})
}

// In a directory that many ports share, as with OVS, a container sees its own socket only.
func TestContainerSeesOnlyItsSocketOfSharedDirectory(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		for _, name := range []string{"vhu0", "vhu1", "vhu2"} {
			h.Vswitch(vswitch.VhostUser, "/run/vsw/"+name, name)
		}
		pod := h.RunPod(node.PodOptions{Name: "common", Namespace: "dpdk-1"})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/vhu0"))
		devinfo(h, pod, "blue", "net2", vhostUser("client", "/var/run/vsw/vhu1"))
		ctr := pod.Run(node.ContainerOptions{})
		for _, p := range []string{"$JACKFIELD_NET1_SOCKET", "/var/run/vsw/vhu0"} {
			eventually(h, ctr, vswitch.Greeting("vhu0"), "sockclient connect "+p)
		}
		for _, p := range []string{"$JACKFIELD_NET2_SOCKET", "/var/run/vsw/vhu1"} {
			eventually(h, ctr, vswitch.Greeting("vhu1"), "sockclient connect "+p)
		}
		if got := ctr.Output("ls", "/var/run/vsw"); got != "vhu0\nvhu1" {
			t.Errorf("the container has %q", got)
		}
		h.Vswitch(vswitch.VhostUser, "/run/vsw/vhu1", "again")
		for _, p := range []string{"$JACKFIELD_NET2_SOCKET", "/var/run/vsw/vhu1"} {
			eventually(h, ctr, vswitch.Greeting("again"), "sockclient connect "+p)
		}
	})
}

// In directory mode the sockets' directories are mounted: a socket that is re-created in its
// directory appears in the container, a socket in a re-created directory does not.
func TestDirectoryModeFollowsSocketNotDirectory(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		config := strings.Replace(nodeConfig, "sockets: {", "sockets: {staging: directory, ", 1)
		p := h.StartPlugin(node.PluginOptions{Config: config})
		p.WaitLog(0, "plain directory mounts")
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "one")
		h.Vswitch(vswitch.Memif, "/run/vsw/port2/memif.sock", "one")
		_, ctr := socketPod(h, "dpdk-1", node.ContainerOptions{})
		for _, p := range ownPaths {
			eventually(h, ctr, vswitch.Greeting("one"), "sockclient connect "+p)
		}
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "two")
		eventually(h, ctr, vswitch.Greeting("two"), "sockclient connect "+ownPaths[0])
		if err := os.RemoveAll(filepath.Dir("/run/vsw/port1/vhost.sock")); err != nil {
			t.Fatal(err)
		}
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "three")
		if out, _, code := ctr.Exec("sh", "-c", "sockclient connect "+ownPaths[0]); code == 0 {
			t.Errorf("the socket of the new directory answers %q", out)
		}
	})
}

// A network that is attached while the container runs appears in it, and disappears with its
// removal.
func TestNetworkAttachedWhileContainerRuns(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		plugin := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "one")
		h.Vswitch(vswitch.VhostUser, "/run/other/x.sock", "not to be had")
		pod := h.RunPod(node.PodOptions{Name: "later", Namespace: "dpdk-1"})
		stranger := h.RunPod(node.PodOptions{Name: "stranger", Namespace: "web"})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		ctr := pod.Run(node.ContainerOptions{})
		other := stranger.Run(node.ContainerOptions{})
		interfaces := "grep -o '\"interface\": \"[a-z0-9]*\"' /var/run/jackfield/devices.json | cut -d'\"' -f4 | xargs"
		eventually(h, ctr, "net1", interfaces)

		// The vswitch creates its socket after the file; another pod's socket is refused.
		devinfo(h, pod, "green", "net2", memif("slave", "/var/run/vsw/port2/memif.sock"))
		devinfo(h, pod, "blue", "net3", vhostUser("client", "/var/run/other/x.sock"))
		devinfo(h, pod, "pink", "net4", vhostUser("server", "/var/run/vsw/port4/app.sock"))
		devinfo(h, stranger, "green", "net2", memif("slave", "/var/run/vsw/port2/memif.sock"))
		eventually(h, ctr, "net1 net2 net4", interfaces)
		h.Vswitch(vswitch.Memif, "/run/vsw/port2/memif.sock", "two")
		eventually(h, ctr, vswitch.Greeting("two"), "sockclient connect /var/run/jackfield/net/net2/memif.sock")
		eventually(h, ctr, vswitch.Greeting("one"), "sockclient connect $JACKFIELD_NET1_SOCKET")
		plugin.WaitLog(0, "sockets.roots")
		ctr.Output("sh", "-c", "sockclient listen /var/run/jackfield/net/net4/app.sock 'from inside' 1 >/dev/null 2>&1 &")
		h.Eventually(func() error {
			got, err := vswitch.Ask(t.Context(), "/run/vsw/port4/app.sock")
			if err == nil && got != "from inside" {
				err = fmt.Errorf("the application's socket answers %q", got)
			}
			return err
		})
		if got := other.Output("sh", "-c", "ls /var/run/jackfield 2>/dev/null; true"); got != "" {
			t.Errorf("a pod without a rule has %q", got)
		}

		// A network is removed while the plugin is down. The plugin removes it from the container when it is
		// back.
		remove := func(pod *e2e.Pod, nad, iface string) {
			if err := os.Remove(fmt.Sprintf("%s%s-%s-%s_%s", devinfoDir, pod.Namespace(), nad, pod.ID, iface)); err != nil {
				t.Fatal(err)
			}
		}
		remove(pod, "blue", "net3") // while the file cannot be read, nothing is removed
		remove(pod, "green", "net2")
		eventually(h, ctr, "net1 net4", interfaces)
		plugin.Kill()
		remove(pod, "pink", "net4")
		plugin.Restart()
		eventually(h, ctr, "net1", interfaces)
		eventually(h, ctr, "vhost.sock", "ls /var/run/jackfield/net/net1 /var/run/jackfield/net/net4 2>/dev/null | grep sock | xargs")
		remove(pod, "red", "net1")
		eventually(h, ctr, "", interfaces)
		eventually(h, ctr, "", "ls /var/run/vsw/port1")
		// The network appears again, also at its own path.
		devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		for _, p := range ownPaths[:2] {
			eventually(h, ctr, vswitch.Greeting("one"), "sockclient connect "+p)
		}
	})
}
