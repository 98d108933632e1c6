// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	nritest "github.com/jackfield/jackfield/test/nri"
)

// The tests of this file use NRI 0.10 and later. The plugin is down while containers are created,
// or ends during a request. The setups are those of docs/how-to/require-the-plugin.md.

const (
	requiredKey  = "required-plugins.noderesource.dev"
	tolerateKey  = "tolerate-missing-plugins.noderesource.dev"
	notPresent   = `required plugin "jackfield" not present`
	requiredSpec = `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`
)

var (
	asks  = map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	needs = map[string]string{"devices.jackfield.dev": "vendor.com/net=a", requiredKey: "[jackfield]"}
)

// eachWithValidator runs a test on nodes with the validator on.
func eachWithValidator(t *testing.T, v node.Validator, f func(t *testing.T, h *e2e.H)) {
	t.Helper()
	e2e.EachFreshWith(t, compatibility.RequiredPlugin(), node.Options{Validator: &v}, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
		f(t, h)
	})
}

// checkInjected checks that a container has what it requested.
func checkInjected(t *testing.T, ctr *e2e.Container) {
	t.Helper()
	if got := ctr.Output("sh", "-c", "echo [$A]"); got != "[1]" {
		t.Errorf("A is %q", got)
	}
}

// checkRefused checks that the runtime refuses a container because the plugin is missing.
func checkRefused(t *testing.T, pod *e2e.Pod, o node.ContainerOptions) {
	t.Helper()
	if err := pod.CreateFails(o); !strings.Contains(err.Error(), notPresent) {
		t.Errorf("the kubelet sees %v, want %s", err, notPresent)
	}
}

// A pod requires the plugin. While the plugin is down, containers of this pod are refused and other
// containers are created.
func TestPodRequiresPlugin(t *testing.T) {
	eachWithValidator(t, node.Validator{}, func(t *testing.T, h *e2e.H) {
		pod := h.RunPod(node.PodOptions{Name: "needs", Namespace: "dpdk-1", Annotations: needs})
		checkRefused(t, pod, node.ContainerOptions{})
		h.RunPod(node.PodOptions{Name: "plain", Namespace: "dpdk-1"}).Run(node.ContainerOptions{}).Output("true")
		// A pod that requests a device without requiring the plugin starts without the device.
		if got := h.RunPod(node.PodOptions{Name: "asks", Namespace: "dpdk-1", Annotations: asks}).Run(node.ContainerOptions{}).Output("sh", "-c", "echo [$A]"); got != "[]" {
			t.Errorf("without the plugin A is %q", got)
		}
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		checkInjected(t, pod.Run(node.ContainerOptions{Attempt: 1}))
		found, _ := runDoctor(t, h, "--config", p.ConfigFile)
		expectFinding(t, found, "required", "ok", "annotation "+requiredKey)
		if err := p.Stop(node.Patience); err != nil {
			t.Error(err)
		}
		// The runtime notices that the plugin ended with its next request, here a container.
		if err := pod.CreateFails(node.ContainerOptions{Name: "later"}); !strings.Contains(err.Error(), "10-jackfield") {
			t.Errorf("the kubelet sees %v", err)
		}
		checkRefused(t, pod, node.ContainerOptions{Name: "later", Attempt: 1})
		p.Restart()
		checkInjected(t, pod.Run(node.ContainerOptions{Name: "later", Attempt: 2}))
	})
}

// The node requires the plugin. While the plugin is down, and right after the runtime has started, containers
// are created only in pods that tolerate its absence.
func TestNodeRequiresPlugin(t *testing.T) {
	eachWithValidator(t, node.Validator{Required: []string{"jackfield"}, Tolerate: tolerateKey}, func(t *testing.T, h *e2e.H) {
		plain := h.RunPod(node.PodOptions{Name: "plain"})
		checkRefused(t, plain, node.ContainerOptions{})
		tolerant := h.RunPod(node.PodOptions{Name: "tolerant", Annotations: map[string]string{tolerateKey: "true"}})
		tolerant.Run(node.ContainerOptions{}).Output("true")
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		plain.Run(node.ContainerOptions{Attempt: 1}).Output("true")
		pod := h.RunPod(node.PodOptions{Name: "asks", Namespace: "dpdk-1", Annotations: asks})
		checkInjected(t, pod.Run(node.ContainerOptions{}))
		found, _ := runDoctor(t, h, "--config", p.ConfigFile)
		expectFinding(t, found, "required", "ok", `only pods annotated `+tolerateKey+` get containers without the NRI plugins ["jackfield"]`)
		p.Kill()
		h.RestartRuntime()
		checkRefused(t, pod, node.ContainerOptions{Name: "second"})
		p.Restart()
		checkInjected(t, pod.Run(node.ContainerOptions{Name: "second", Attempt: 1}))
	})
}

// The plugin ends or hangs during a request to create a container, or ended before the request without the
// runtime noticing. NRI then counts the plugin as present. The container is refused because the plugin is a
// validator itself.
func TestPluginEndsDuringRequest(t *testing.T) {
	for name, v := range map[string]*node.Validator{"with the default validator": {}, "without the default validator": nil} {
		t.Run(name, func(t *testing.T) {
			o := node.Options{Validator: v, PluginRequestTimeout: 8 * time.Second} // the test waits this long
			for _, g := range []node.Generation{node.V24, node.CRIO} {
				if g == node.CRIO && v == nil {
					continue // it takes long
				}
				o.Generation = g
				t.Run(string(g), func(t *testing.T) { endDuringRequest(t, e2e.Fresh(t, o), v != nil) })
			}
		})
	}
}

// endDuringRequest kills or stops the plugin of a node during and before requests, and checks that no container starts
// without its device. The pod requires the plugin if the node has the default validator.
func endDuringRequest(t *testing.T, h *e2e.H, validator bool) {
	h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
	p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
	annotations := asks
	if validator {
		annotations = needs
	}
	pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: annotations})
	attempt := uint32(0)
	fails := func(when string) {
		t.Helper()
		attempt++
		ctr, err := pod.Pod.Create(t.Context(), node.ContainerOptions{Attempt: attempt})
		if err == nil {
			t.Fatalf("%s: container %s was created without its device", when, ctr.ID)
		}
		if !strings.Contains(err.Error(), "10-jackfield") {
			t.Errorf("%s: the kubelet sees %v", when, err)
		}
	}
	comesUp := func() {
		t.Helper()
		p.Restart()
		attempt++
		checkInjected(t, pod.Run(node.ContainerOptions{Attempt: attempt}))
	}

	p.Signal(unix.SIGSTOP)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		time.Sleep(300 * time.Millisecond) // by then the plugin has the request
		p.Kill()
	}()
	fails("killed during the request")
	<-killed
	comesUp()

	p.Kill()
	fails("killed just before the request")
	comesUp()

	p.Signal(unix.SIGSTOP)
	fails("hangs")
	p.Kill()
	comesUp()
}

// dying is a plugin whose connection ends during CreateContainer.
type dying struct {
	nritest.Noop
	hangUp chan struct{}
}

func (d *dying) CreateContainer(ctx context.Context, _ *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	close(d.hangUp)
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// The runtime counts a required plugin as present if the plugin ends during the request. For this reason
// Jackfield is a validator.
func TestRequiredPluginThatEndsCountsAsPresent(t *testing.T) {
	eachWithValidator(t, node.Validator{Required: []string{"dying"}}, func(t *testing.T, h *e2e.H) {
		d := &dying{hangUp: make(chan struct{})}
		stop := h.Connect("10", "dying", d)
		go func() {
			<-d.hangUp
			stop()
		}()
		pod := h.RunPod(node.PodOptions{})
		pod.Run(node.ContainerOptions{}).Output("true")
		if err := pod.CreateFails(node.ContainerOptions{Name: "next"}); !strings.Contains(err.Error(), `required plugin "dying" not present`) {
			t.Errorf("the next container: %v", err)
		}
	})
}

// injector is a plugin that injects the same adjustment into every container.
type injector struct {
	nritest.Noop
	adjust *api.ContainerAdjustment
}

func (i *injector) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return i.adjust, nil, nil
}

// Another plugin injects a device and a mount. The container is refused if the policy does not grant them.
func TestPolicyAppliesToOtherPlugin(t *testing.T) {
	e2e.EachFreshWith(t, compatibility.Validate(), node.Options{}, func(t *testing.T, h *e2e.H) {
		h.CharDevice("/run/devs/zero", 1, 5)
		h.WriteFile("/srv/data/file", "data")
		h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
		config := nodeConfig + `
    - {name: zero, for: {namespaces: ["dpdk-1"]}, allow: {devices: ["/run/devs/*"], mounts: [{source: "/srv/data", readOnly: true}]}}
validate: {devices: true, mounts: true, except: [30-trusted]}
`
		h.StartPlugin(node.PluginOptions{Config: config})
		device, mount := &api.ContainerAdjustment{}, &api.ContainerAdjustment{}
		device.AddDevice(&api.LinuxDevice{Path: "/run/devs/zero", Type: "c", Major: 1, Minor: 5})
		mount.AddMount(&api.Mount{Source: "/srv/data", Destination: "/data", Type: "bind", Options: []string{"rbind", "ro"}})
		inject := func(index, name string, adjust *api.ContainerAdjustment) func() {
			return h.Connect(index, name, &injector{adjust: adjust})
		}
		granted := h.RunPod(node.PodOptions{Name: "granted", Namespace: "dpdk-1", Annotations: asks})
		other := h.RunPod(node.PodOptions{Name: "other", Namespace: "dpdk-2"})
		for i, tc := range []struct {
			adjust *api.ContainerAdjustment
			works  string
			says   string
		}{
			{device, "head -c 4 /run/devs/zero | xxd -p", `deny device node "/run/devs/zero"`},
			{mount, "cat /data/file", `deny mount "/srv/data" at "/data"`},
		} {
			attempt := uint32(i)
			stop := inject("20", "other", tc.adjust)
			ctr := granted.Run(node.ContainerOptions{Attempt: attempt})
			checkInjected(t, ctr) // its own request
			ctr.Output("sh", "-c", tc.works)
			err := other.CreateFails(node.ContainerOptions{Attempt: attempt})
			for _, want := range []string{tc.says, `NRI plugin "20-other"`, "dpdk-2/other/main"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the refusal does not say %s: %v", want, err)
				}
			}
			stop()
			stop = inject("30", "trusted", tc.adjust)
			other.Run(node.ContainerOptions{Name: "trusted", Attempt: attempt}).Output("sh", "-c", tc.works)
			stop()
		}
	})
}
