// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests of this file check the harness, on which all other tests rely.

func TestHarnessPod(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		before := h.Inventory("/run", "/etc", "/var/lib")
		pod := h.RunPod(node.PodOptions{Name: "web", Namespace: "shop", Annotations: map[string]string{"a": "b"}})
		ctr := pod.Run(node.ContainerOptions{
			Args: []string{"sh", "-c", "echo out; echo err >&2; exec sleep 1000"},
			Env:  []string{"COLOUR=red"}, User: 1000, ReadonlyRootfs: true,
		})
		if got := ctr.Output("sh", "-c", "echo $COLOUR; id -u; hostname; touch /x 2>/dev/null || echo read-only"); got != "red\n1000\nweb\nread-only" {
			t.Errorf("inside: %q", got)
		}
		stdout, stderr, code := ctr.Exec("sh", "-c", "echo out; echo err >&2; exit 3")
		if stdout != "out\n" || stderr != "err\n" || code != 3 {
			t.Errorf("exec returned %q, %q, %d", stdout, stderr, code)
		}
		ctr.WaitLogs("out\n")
		ctr.WaitLogs("err\n")
		spec := ctr.OCISpec()
		if v, ok := node.Env(spec, "COLOUR"); !ok || v != "red" {
			t.Errorf("the spec's environment is %q", spec.Process.Env)
		}
		if !slices.Contains(spec.Process.Args, "sh") || !spec.Root.Readonly {
			t.Errorf("the spec is not of this container: %v", spec.Process.Args)
		}
		if pid := ctr.PID(); !strings.Contains(read(t, filepath.Join("/proc", strconv.Itoa(pid), "cmdline")), "sleep") {
			t.Errorf("process %d is not the container's", pid)
		}
		if ip := ctr.Output("ip", "-4", "addr"); !strings.Contains(ip, "10.88.") {
			t.Errorf("the pod has no address: %s", ip)
		}
		pod.Remove()
		h.NothingLeft(before, "/run", "/etc", "/var/lib")
	})
}

func TestHarnessHostNetwork(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		ctr := h.RunPod(node.PodOptions{HostNetwork: true}).Run(node.ContainerOptions{})
		if got := ctr.Output("sh", "-c", "ip -4 addr | grep -c inet"); got != "1" {
			t.Errorf("%s addresses in the host's network, want lo's", got)
		}
	})
}

// A container that is created and not started has a spec too. Refusals happen at that time.
func TestHarnessSpecBeforeStart(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		ctr := h.RunPod(node.PodOptions{}).Create(node.ContainerOptions{})
		before := ctr.ComparableSpec()
		ctr.Start()
		if after := ctr.ComparableSpec(); before != after {
			t.Error(cmp.Diff(before, after))
		}
	})
}

func TestHarnessComparableSpec(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		var specs []string
		for range 2 {
			pod := h.RunPod(node.PodOptions{})
			specs = append(specs, pod.Run(node.ContainerOptions{}).ComparableSpec())
			pod.Remove()
		}
		if specs[0] != specs[1] {
			t.Error(cmp.Diff(specs[0], specs[1]))
		}
		if !strings.Contains(specs[0], "SANDBOX") {
			t.Errorf("nothing was replaced: %s", specs[0])
		}
	})
}

// The host's devices and sockets that tests need exist. The container sees them by CRI's own fields.
func TestHarnessHost(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.CharDevice("/run/d/zero", 1, 5)
		h.Vswitch(vswitch.VhostUser, "/run/vsw/a.sock", "a")
		h.Vswitch(vswitch.Memif, "/run/vsw/b.sock", "b")
		h.WriteFile("/etc/cdi/x.json", "{}")
		ctr := h.RunPod(node.PodOptions{}).Run(node.ContainerOptions{
			Devices: []*cri.Device{{HostPath: "/run/d/zero", ContainerPath: "/dev/x", Permissions: "rw"}},
			Mounts:  []*cri.Mount{{HostPath: "/run/vsw", ContainerPath: "/vsw", Readonly: true}},
		})
		if got := ctr.Output("sh", "-c", "head -c 4 /dev/x | xxd -p; sockclient connect /vsw/a.sock; sockclient connect /vsw/b.sock"); got !=
			"00000000\nhello from a\nhello from b" {
			t.Errorf("inside: %q", got)
		}
		if _, err := os.Stat("/etc/passwd"); err != nil {
			t.Errorf("the machine's /etc is not visible: %v", err)
		}
	})
	if _, err := os.Stat("/run/vsw"); err == nil {
		t.Error("the test's directory is still there")
	}
}

// An application creates the socket, and the host connects.
func TestHarnessSocketFromInside(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/app")
		ctr := h.RunPod(node.PodOptions{}).Run(node.ContainerOptions{
			Command: []string{"sockclient", "listen", "/run/app/s", "from inside"},
			Mounts:  []*cri.Mount{{HostPath: "/run/app", ContainerPath: "/run/app"}},
		})
		ctr.WaitLogs("listening")
		if got, err := vswitch.Ask(t.Context(), "/run/app/s"); err != nil || got != "from inside" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// envPlugin is a minimal NRI plugin.
type envPlugin struct{ nritest.Noop }

func (envPlugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	a.AddEnv("FROM_PLUGIN", "yes")
	return a, nil, nil
}

func TestHarnessPlugin(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		stop := h.Connect("10", "env", envPlugin{})
		ctr := h.RunPod(node.PodOptions{}).Run(node.ContainerOptions{})
		if got := ctr.Output("sh", "-c", "echo $FROM_PLUGIN"); got != "yes" {
			t.Errorf("the environment says %q", got)
		}
		stop()
		ctr = h.RunPod(node.PodOptions{Name: "two"}).Run(node.ContainerOptions{})
		if _, ok := node.Env(ctr.OCISpec(), "FROM_PLUGIN"); ok {
			t.Error("the plugin has ended and its environment is still injected")
		}
	})
}

// noop is the program of a pre-installed plugin.
func noop(t *testing.T) string {
	t.Helper()
	e2e.Require(t)
	bin := filepath.Join(t.TempDir(), "noop")
	build := exec.Command("go", "build", "-o", bin, "../nri/cmd/noop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

func TestHarnessPreinstalled(t *testing.T) {
	bin := noop(t)
	o := node.Options{Plugins: []node.Preinstalled{{Name: "20-noop", Binary: bin, Config: "x"}}}
	e2e.EachFresh(t, o, func(t *testing.T, h *e2e.H) {
		h.WaitPlugin("20-noop")
		h.RunPod(node.PodOptions{}).Run(node.ContainerOptions{})
		if text := read(t, filepath.Join(h.PluginConfigDir(), "20-noop.conf")); text != "x" {
			t.Errorf("the plugin's configuration is %q", text)
		}
		h.RestartRuntime()
		h.WaitPlugin("20-noop")
	})
}

func TestHarnessRestart(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.Connect("10", "env", envPlugin{})
		ctr := h.RunPod(node.PodOptions{}).Run(node.ContainerOptions{})
		pid := ctr.PID()
		for _, restart := range []func(){h.RestartRuntime, h.KillRuntime} {
			restart()
			if got := ctr.Output("echo", "alive"); got != "alive" || ctr.PID() != pid {
				t.Errorf("after the restart the container prints %q as process %d, before %d", got, ctr.PID(), pid)
			}
			stop := h.Connect("10", "env", envPlugin{})
			two := h.RunPod(node.PodOptions{Name: "two"})
			if got := two.Run(node.ContainerOptions{}).Output("sh", "-c", "echo $FROM_PLUGIN"); got != "yes" {
				t.Errorf("after the restart the environment says %q", got)
			}
			two.Remove()
			stop()
		}
	})
}

// containerd's own CDI is off unless a test turns it on. With CDI on, a spec file whose class is one letter
// long makes both generations crash at the next request.
func TestHarnessCDIOption(t *testing.T) {
	e2e.EachFresh(t, node.Options{CDI: true}, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/v.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/class",
			"devices": [{"name": "dev", "containerEdits": {"env": ["FROM_CDI=yes"]}}]}`)
		o := node.ContainerOptions{CDIDevices: []string{"vendor.com/class=dev"}}
		h.Eventually(func() error {
			p := h.RunPod(node.PodOptions{})
			defer p.Remove()
			c, err := p.Pod.Create(t.Context(), o)
			if err != nil {
				return err
			}
			spec, err := c.OCISpec(t.Context())
			if err != nil {
				return err
			}
			if _, ok := node.Env(spec, "FROM_CDI"); !ok {
				return os.ErrNotExist
			}
			return nil
		})
	})
}

// A node that is closed leaves nothing, even if pods are running.
func TestHarnessClose(t *testing.T) {
	e2e.Require(t)
	for _, g := range node.Generations() {
		t.Run(string(g), func(t *testing.T) {
			n, err := node.Start(t.Context(), e2e.Kit(t), node.Options{Generation: g})
			if err != nil {
				t.Fatal(err)
			}
			h := e2e.Shared(t, g) // only for Inventory
			before := h.Inventory("/run/n", "/run/netns", "/var/lib")
			before = slices.DeleteFunc(before, func(s string) bool { return strings.Contains(s, n.Dir()) })
			for range 2 {
				p, err := n.RunPod(t.Context(), node.PodOptions{})
				if err != nil {
					t.Fatal(err)
				}
				c, err := p.Create(t.Context(), node.ContainerOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.NothingLeft(before, "/run/n", "/run/netns", "/var/lib")
		})
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
