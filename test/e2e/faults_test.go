// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests of this file are about faults on a node and their effect on pods.

// faultPod runs a pod with a socket that the host created, and checks that the socket answers.
func faultPod(t *testing.T, h *e2e.H, name string) *e2e.Pod {
	t.Helper()
	pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
	devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
	answers(t, pod.Run(node.ContainerOptions{}))
	return pod
}

func answers(t *testing.T, ctr *e2e.Container) {
	t.Helper()
	if got := ctr.Output("sh", "-c", "sockclient connect $JACKFIELD_NET1_SOCKET"); got != vswitch.Greeting("vhost-user") {
		t.Errorf("the socket answers %q", got)
	}
}

// openDescriptors returns how many file descriptors the plugin has open.
func openDescriptors(t *testing.T, p *e2e.Plugin) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestPluginSurvivesTwentyRuntimeRestarts(t *testing.T) {
	e2e.EachFreshDaemon(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		long := h.RunPod(node.PodOptions{Name: "long", Namespace: "dpdk-1"})
		devinfo(h, long, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		ctr := long.Run(node.ContainerOptions{})
		var before int
		for i := range 20 {
			if i%2 == 0 {
				h.RestartRuntime()
			} else {
				h.KillRuntime()
			}
			h.WaitPlugin("10-jackfield")
			if i == 0 {
				before = openDescriptors(t, p)
			}
			if i%5 == 4 {
				faultPod(t, h, fmt.Sprintf("pod-%d", i)).Remove()
			}
			answers(t, ctr)
		}
		h.Eventually(func() error {
			if now := openDescriptors(t, p); now > before {
				return fmt.Errorf("%d descriptors after the first restart and %d after the last", before, now)
			}
			return nil
		})
	})
}

// containerd does not report the removal of a pod that is older than its own process. The plugin
// removes the pod's directories all the same.
func TestPodOlderThanRuntimeIsRemoved(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		before := h.Inventory("/run/jackfield/claims", "/run/jackfield/containers", "/run/jackfield/sandboxes", "/run/vsw")
		pod := h.RunPod(node.PodOptions{Name: "old", Namespace: "dpdk-1"})
		devinfo(h, pod, "blue", "net1", vhostUser("server", "/var/run/vsw/port3/app.sock"))
		pod.Run(node.ContainerOptions{}).Output("sh", "-c", "touch $(dirname $JACKFIELD_NET1_SOCKET)/x")
		h.RestartRuntime()
		h.WaitPlugin("10-jackfield")
		pod.Remove()
		var left []string
		for end := time.Now().Add(node.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			left = slices.DeleteFunc(node.Leftovers(before, h.Inventory("/run/jackfield/claims", "/run/jackfield/containers", "/run/jackfield/sandboxes", "/run/vsw")),
				func(s string) bool { return !strings.HasPrefix(s, "file ") })
			if len(left) == 0 {
				return
			}
		}
		t.Errorf("left behind: %q", left)
	})
}

// The runtime's NRI socket disappears, as after a crash of the runtime, and comes back with the
// runtime.
func TestPluginReconnectsToRecreatedNRISocket(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		pod := faultPod(t, h, "first")
		from := len(p.Log())
		if err := os.Rename(h.NRISocket(), h.NRISocket()+".gone"); err != nil {
			t.Fatal(err)
		}
		pod.Remove() // the existing connection still works
		h.KillRuntime()
		h.WaitPlugin("10-jackfield")
		p.WaitLog(from, "no connection to the runtime")
		faultPod(t, h, "second")
	})
}

// stateOn runs the plugin with its state directory on a file system of its own.
func stateOn(t *testing.T, h *e2e.H, options string) (*e2e.Plugin, string) {
	t.Helper()
	const dir = "/run/state"
	h.MkdirAll(dir)
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	h.MkdirAll("/run/vsw")
	p := h.StartPlugin(node.PluginOptions{Config: "stateDir: " + dir + "/jackfield\n" + nodeConfig})
	h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
	return p, dir
}

// refusedPod runs a pod whose container must be refused with the given texts.
func refusedPod(t *testing.T, h *e2e.H, name string, want ...string) {
	t.Helper()
	pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
	devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
	err := pod.CreateFails(node.ContainerOptions{})
	for _, w := range append(want, "jackfield:", "dpdk-1/"+name+"/main") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not name %q: %v", w, err)
		}
	}
	pod.Remove()
}

// plainPod runs a pod without a request, which no fault of Jackfield may affect.
func plainPod(h *e2e.H, name string) {
	pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
	pod.Run(node.ContainerOptions{}).Output("true")
	pod.Remove()
}

// While the state directory is full, containers that need it are refused with that reason, and
// running containers keep what they have. Once there is room, containers are created again.
func TestFullStateDirectoryRefusesContainers(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		_, dir := stateOn(t, h, "size=1m,nr_inodes=200")
		first := faultPod(t, h, "first")
		var fill []string
		for i := 0; ; i++ {
			name := filepath.Join(dir, fmt.Sprintf("fill-%d", i))
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				break
			}
			fill = append(fill, name)
		}
		before := h.Inventory(dir)
		refusedPod(t, h, "second", dir, "no space left")
		plainPod(h, "plain")
		h.NothingLeft(before, dir)
		for _, name := range fill {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		faultPod(t, h, "third").Remove()
		first.Remove()
	})
}

// The same tests with a read-only state directory.
func TestReadOnlyStateDirectoryRefusesContainers(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		_, dir := stateOn(t, h, "size=1m")
		first := faultPod(t, h, "first")
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=1m"); err != nil {
			t.Fatal(err)
		}
		refusedPod(t, h, "second", dir, "read-only file system")
		plainPod(h, "plain")
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
		faultPod(t, h, "third").Remove()
		first.Remove()
	})
}

// After the clock was set, a new file can be older than the file that it replaces, or dated in the future.
// The plugin notices the change.
func TestClockJumpHidesNoChange(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		write := func(value string, at time.Time) {
			t.Helper()
			h.WriteFile("/etc/cdi/clock.json", fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["CLOCK=%s"]}}]}`, value))
			if err := os.Chtimes("/etc/cdi/clock.json", at, at); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Now()
		for i, at := range []time.Time{now, now.Add(-20 * 365 * 24 * time.Hour), now.Add(20 * 365 * 24 * time.Hour), now, now, time.Unix(0, 0)} {
			// The content has the same length, and is written to the same file.
			value := fmt.Sprintf("value-%d", i)
			write(value, at)
			pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}})
			if got := pod.Run(node.ContainerOptions{}).Output("sh", "-c", "echo $CLOCK"); got != value {
				t.Errorf("with the file of %v the container has %q, want %q", at, got, value)
			}
			pod.Remove()
		}
		h.MkdirAll("/run/vsw")
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		for i, at := range []time.Time{time.Unix(0, 0), now.Add(20 * 365 * 24 * time.Hour)} {
			pod := h.RunPod(node.PodOptions{Name: fmt.Sprintf("socket-%d", i), Namespace: "dpdk-1"})
			devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
			if err := os.Chtimes(fmt.Sprintf("%s%s-red-%s_net1", devinfoDir, pod.Namespace(), pod.ID), at, at); err != nil {
				t.Fatal(err)
			}
			answers(t, pod.Run(node.ContainerOptions{}))
			pod.Remove()
		}
	})
}
