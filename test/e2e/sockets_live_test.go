// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// Sockets in running containers, while the host side comes and goes.

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

func TestARunningContainerSurvivesAVswitchRestart(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		plugin := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		before := h.Look(looked...)
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
		stop()
		stop = start("two")
		works("two")
		// Its directories are made anew as well.
		stop()
		os.RemoveAll("/run/vsw/port1")
		os.RemoveAll("/run/vsw/port2")
		stop = start("three")
		works("three")
		// The plugin is not there meanwhile.
		plugin.Kill()
		stop()
		stop = start("four")
		plugin.Restart()
		works("four")
		stop()
		stop = start("five")
		works("five")
		if now := ctr.PID(); now != pid {
			t.Errorf("the container's process is %d, and was %d", now, pid)
		}
		stop()
		pod.Remove()
		os.RemoveAll("/run/k8s.cni.cncf.io")
		os.RemoveAll("/run/vsw/port1")
		os.RemoveAll("/run/vsw/port2")
		for _, found := range h.Look() {
			if strings.Contains(found, "jackfield-nri") { // the one that was started anew
				before = append(before, found)
			}
		}
		h.NothingLeft(before, looked...)
	})
}

// A directory that many ports share, as OVS has it, shows nobody else's.
func TestASocketInACommonDirectory(t *testing.T) {
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
			t.Errorf("inside are %q", got)
		}
		h.Vswitch(vswitch.VhostUser, "/run/vsw/vhu1", "again")
		for _, p := range []string{"$JACKFIELD_NET2_SOCKET", "/var/run/vsw/vhu1"} {
			eventually(h, ctr, vswitch.Greeting("again"), "sockclient connect "+p)
		}
	})
}

// Where mounts are not staged, the sockets' directories are bound: a socket made
// anew in its directory is there, one in a directory made anew is not.
func TestStagingAsDirectories(t *testing.T) {
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
