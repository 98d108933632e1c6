// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests of this file run jackfield-nri beside the hook on CRI-O with NRI off. It then only rebinds sockets and
// removes leftovers.

// startKeeper runs jackfield-nri without a runtime until the test ends.
func startKeeper(t *testing.T, h *e2e.H) {
	t.Helper()
	// The records of the hook are valid in CRI-O's mount namespace.
	cmd := exec.Command("nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", h.PID()), h.Command("jackfield-nri").Path,
		"--config", "/etc/jackfield/config.yaml", "--nri-socket", h.NRISocket())
	log := filepath.Join(t.TempDir(), "jackfield-nri.log")
	p, err := node.StartProcess(cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Stop(node.Patience)
		if t.Failed() {
			t.Logf("jackfield-nri logged:\n%s", node.Tail(p.Log(), 40))
		}
	})
	const lock = "/run/jackfield/hook/keeper"
	h.Eventually(func() error {
		if _, err := os.Stat(lock); err != nil {
			return err
		}
		if exec.Command("flock", "--nonblock", lock, "true").Run() == nil {
			return fmt.Errorf("no process has locked %s", lock)
		}
		return nil
	})
}

// A container of the hook gets the vswitch's socket again, which was created again in a directory that was created
// again. Under runc, jackfield-nri rebinds the socket. crun's mounts are private, so a container of crun has the
// socket's directory, which must stay.
func TestKeeperRebindsSocketOnCRIO(t *testing.T) {
	eachCRIOWithHook(t, node.Options{NoNRI: true}, nodeConfig, func(t *testing.T, h *e2e.H) {
		startKeeper(t, h)
		const path = "/run/vsw/port1/vhost.sock"
		s := h.Vswitch(vswitch.VhostUser, path, "first")
		pod := requestPod(h, "keeper", "dpdk-1", "dev0", 0)
		devinfo(h, pod, "red", "net1", vhostUser("client", path))
		ctr := pod.Run(node.ContainerOptions{})
		connect := []string{"sh", "-c", "sockclient connect $JACKFIELD_NET1_SOCKET || sockclient connect " + path}
		if got := ctr.Output(connect...); got != vswitch.Greeting("first") {
			t.Fatalf("the socket answers %q", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if h.Generation() == node.CRIO {
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
		}
		h.Vswitch(vswitch.VhostUser, path, "second")
		h.Eventually(func() error {
			if out, _, _ := ctr.Exec(connect...); strings.TrimSpace(out) != vswitch.Greeting("second") {
				return fmt.Errorf("the socket answers %q", out)
			}
			return nil
		})
		pod.Remove()
	})
}

// CRI-O runs no hook at the end of a pod. A starting jackfield-nri removes the directory of a removed pod's socket once
// its record is old, and keeps the directory of a pod that exists.
func TestKeeperRemovesDirectoriesOfRemovedPodsOnCRIO(t *testing.T) {
	eachCRIOWithHook(t, node.Options{NoNRI: true}, nodeConfig, func(t *testing.T, h *e2e.H) {
		directory := func(name string) string { return "/run/vsw/" + name + "-" + string(h.Generation()) }
		run := func(name string) *e2e.Pod {
			pod := requestPod(h, name, "dpdk-1", "dev0", 0)
			devinfo(h, pod, "red", "net1", vhostUser("server", directory(name)+"/app.sock"))
			pod.Run(node.ContainerOptions{})
			return pod
		}
		run("stays")
		run("gone").Remove()
		for _, name := range []string{"stays", "gone"} {
			if _, err := os.Stat(directory(name)); err != nil {
				t.Fatal(err)
			}
		}
		age(t, "/run/jackfield/hook")
		startKeeper(t, h)
		h.Eventually(func() error {
			if _, err := os.Stat(directory("gone")); !os.IsNotExist(err) {
				return fmt.Errorf("directory of the removed pod: %v", err)
			}
			return nil
		})
		if _, err := os.Stat(directory("stays")); err != nil {
			t.Error(err)
		}
	})
}

// age makes the files of a directory an hour old, and the last search for leftovers forgotten.
func age(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "swept")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// The plugin hangs while a pod is created. NRI closes its connection after the time limit. The pod's container is then
// created without its device and reported later, or refused where the pod requires the plugin.
func TestPluginHangsInRunPodSandbox(t *testing.T) {
	o := node.Options{PluginRequestTimeout: 2 * time.Second}
	e2e.EachFreshDaemon(t, o, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		pod := runPodWhileHanging(h, p, asks)
		ctr := pod.Run(node.ContainerOptions{})
		if got := ctr.Output("sh", "-c", "echo [$A]"); got != "[]" {
			t.Errorf("A is %q", got)
		}
		p.Kill()
		p.Restart()
		reportedMissed(t, h, p, ctr)
	})
	o.Validator = &node.Validator{}
	for _, g := range node.WithNRI011() {
		t.Run("required/"+string(g), func(t *testing.T) {
			o.Generation = g
			h := e2e.Fresh(t, o)
			h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
			p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
			pod := runPodWhileHanging(h, p, needs)
			checkRefused(t, pod, node.ContainerOptions{})
			p.Kill()
			p.Restart()
			checkInjected(t, pod.Run(node.ContainerOptions{Attempt: 1}))
		})
	}
}

// runPodWhileHanging runs a pod while the plugin is stopped.
func runPodWhileHanging(h *e2e.H, p *e2e.Plugin, annotations map[string]string) *e2e.Pod {
	p.Signal(unix.SIGSTOP)
	return h.RunPod(node.PodOptions{Name: "hangs", Namespace: "dpdk-1", Annotations: annotations})
}

// The kubelet asks for a CDI device in CRI's field, which the runtime injects by itself. The policy does not apply
// there. A container that asks for the same device by annotation, too, has its node once and runs its hook once.
func TestDeviceInCRIFieldAndAnnotation(t *testing.T) {
	e2e.EachFresh(t, node.Options{CDI: true}, func(t *testing.T, h *e2e.H) {
		const ran = "/run/vendor/ran"
		h.CharDevice("/run/devs/zero", 1, 5)
		h.WriteFile("/run/vendor/hook", "#!/bin/sh\necho ran >> "+ran+"\n")
		if err := os.Chmod("/run/vendor/hook", 0o755); err != nil {
			t.Fatal(err)
		}
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a",
			"containerEdits":{"env":["A=1"],"deviceNodes":[{"path":"/dev/vendor-a","hostPath":"/run/devs/zero"}],
			"hooks":[{"hookName":"createRuntime","path":"/run/vendor/hook"}]}}]}`)
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		for name, pod := range map[string]node.PodOptions{
			"both":      {Name: "both", Namespace: "dpdk-1", Annotations: asks},
			"no policy": {Name: "field", Namespace: "web"},
		} {
			if err := os.Remove(ran); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			ctr := h.RunPod(pod).Run(node.ContainerOptions{CDIDevices: []string{"vendor.com/net=a"}})
			checkInjected(t, ctr)
			nodes := 0
			for _, d := range ctr.OCISpec().Linux.Devices {
				if d.Path == "/dev/vendor-a" {
					nodes++
				}
			}
			if text, err := os.ReadFile(ran); err != nil || string(text) != "ran\n" || nodes != 1 {
				t.Errorf("%s: the hook wrote %q, %v; config.json has the node %d times", name, text, err, nodes)
			}
		}
	})
}
