// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	nritest "github.com/jackfield/jackfield/test/nri"
)

// What NRI 0.12.3 of containerd 2.4 makes of containers while the plugin is not there,
// or ends under a request. The set-ups are those of docs/security.md.

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

// required is a node with the validator on.
func required(t *testing.T, v node.Validator) *e2e.H {
	h := e2e.Fresh(t, node.Options{Generation: node.V24, Validator: &v})
	h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
	return h
}

// has wants a container that has what it asked for.
func has(t *testing.T, ctr *e2e.Container) {
	t.Helper()
	if got := ctr.Output("sh", "-c", "echo [$A]"); got != "[1]" {
		t.Errorf("A is %q", got)
	}
}

// refused wants a container to be refused by the runtime for want of the plugin.
func refused(t *testing.T, pod *e2e.Pod, o node.ContainerOptions) {
	t.Helper()
	if err := pod.CreateFails(o); !strings.Contains(err.Error(), notPresent) {
		t.Errorf("the kubelet is told %v, want %s", err, notPresent)
	}
}

// A pod says that it needs the plugin: while that is down, its containers are refused;
// others come up.
func TestThePodRequiresThePlugin(t *testing.T) {
	h := required(t, node.Validator{})
	pod := h.RunPod(node.PodOptions{Name: "needs", Namespace: "dpdk-1", Annotations: needs})
	refused(t, pod, node.ContainerOptions{})
	h.RunPod(node.PodOptions{Name: "plain", Namespace: "dpdk-1"}).Run(node.ContainerOptions{}).Output("true")
	// One that asks and does not say so is what the annotation is for.
	if got := h.RunPod(node.PodOptions{Name: "asks", Namespace: "dpdk-1", Annotations: asks}).Run(node.ContainerOptions{}).Output("sh", "-c", "echo [$A]"); got != "[]" {
		t.Errorf("without the plugin A is %q", got)
	}
	p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
	has(t, pod.Run(node.ContainerOptions{Attempt: 1}))
	found, _ := doctor(t, h, "--config", p.ConfigFile)
	says(t, found, "required", "ok", "annotation "+requiredKey)
	if err := p.Stop(node.Patience); err != nil {
		t.Error(err)
	}
	// The runtime finds out that it is gone, by what it asks next: here a container.
	if err := pod.CreateFails(node.ContainerOptions{Name: "later"}); !strings.Contains(err.Error(), "10-jackfield") {
		t.Errorf("the kubelet is told %v", err)
	}
	refused(t, pod, node.ContainerOptions{Name: "later", Attempt: 1})
	p.Restart()
	has(t, pod.Run(node.ContainerOptions{Name: "later", Attempt: 2}))
}

// The node requires the plugin: while that is down, no container is created but of
// pods that tolerate it, also right after the runtime was started.
func TestTheNodeRequiresThePlugin(t *testing.T) {
	h := required(t, node.Validator{Required: []string{"jackfield"}, Tolerate: tolerateKey})
	plain := h.RunPod(node.PodOptions{Name: "plain"})
	refused(t, plain, node.ContainerOptions{})
	tolerant := h.RunPod(node.PodOptions{Name: "tolerant", Annotations: map[string]string{tolerateKey: "true"}})
	tolerant.Run(node.ContainerOptions{}).Output("true")
	p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
	plain.Run(node.ContainerOptions{Attempt: 1}).Output("true")
	pod := h.RunPod(node.PodOptions{Name: "asks", Namespace: "dpdk-1", Annotations: asks})
	has(t, pod.Run(node.ContainerOptions{}))
	found, _ := doctor(t, h, "--config", p.ConfigFile)
	says(t, found, "required", "ok", `["jackfield"], but of pods annotated `+tolerateKey)
	p.Kill()
	h.RestartContainerd()
	refused(t, pod, node.ContainerOptions{Name: "second"})
	p.Restart()
	has(t, pod.Run(node.ContainerOptions{Name: "second", Attempt: 1}))
}

// The plugin ends, or hangs, after the runtime has asked it for a container and before
// it has answered; or between that and the request before, when the runtime does not
// know yet. NRI counts it as present: what fails the container is that the plugin is a
// validator itself.
func TestThePluginEndsUnderARequest(t *testing.T) {
	for name, v := range map[string]*node.Validator{"the default validator is on": {}, "it is off": nil} {
		t.Run(name, func(t *testing.T) {
			h := e2e.Fresh(t, node.Options{Generation: node.V24, Validator: v, PluginRequestTimeout: 8 * time.Second}) // which is waited for
			h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
			p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
			annotations := asks
			if v != nil {
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
					t.Errorf("%s: the kubelet is told %v", when, err)
				}
			}
			comesUp := func() {
				t.Helper()
				p.Restart()
				attempt++
				has(t, pod.Run(node.ContainerOptions{Attempt: attempt}))
			}

			p.Signal(unix.SIGSTOP)
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				time.Sleep(300 * time.Millisecond) // the request is there, and waits
				p.Kill()
			}()
			fails("killed under the request")
			<-killed
			comesUp()

			p.Kill()
			fails("killed just before the request")
			comesUp()

			p.Signal(unix.SIGSTOP)
			fails("hangs")
			p.Kill()
			comesUp()
		})
	}
}

// dying is a plugin whose connection ends while it is asked for a container.
type dying struct {
	nritest.Noop
	hangUp chan struct{}
}

func (d *dying) CreateContainer(ctx context.Context, _ *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	close(d.hangUp)
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// What the runtime by itself does not do, and the reason for Jackfield to be a validator:
// a plugin that is required and ends under the request counts as present.
func TestARequiredPluginThatEndsCounts(t *testing.T) {
	h := required(t, node.Validator{Required: []string{"dying"}})
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
}

// injects is a plugin that gives a container what it says.
type injects struct {
	nritest.Noop
	adjust *api.ContainerAdjustment
}

func (i *injects) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return i.adjust, nil, nil
}

// Another plugin of the node injects a device and a mount: what the policy does not
// grant the container fails it.
func TestAnotherPluginOnARealRuntime(t *testing.T) {
	h := e2e.Fresh(t, node.Options{Generation: node.V24})
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
	both := func(index, name string, adjust *api.ContainerAdjustment) func() {
		return h.Connect(index, name, &injects{adjust: adjust})
	}
	granted := h.RunPod(node.PodOptions{Name: "granted", Namespace: "dpdk-1", Annotations: asks})
	other := h.RunPod(node.PodOptions{Name: "other", Namespace: "dpdk-2"})
	for i, tc := range []struct {
		adjust *api.ContainerAdjustment
		works  string
		says   string
	}{
		{device, "head -c 4 /run/devs/zero | xxd -p", `refuse device node "/run/devs/zero"`},
		{mount, "cat /data/file", `refuse mount "/srv/data" at "/data"`},
	} {
		attempt := uint32(i)
		stop := both("20", "other", tc.adjust)
		ctr := granted.Run(node.ContainerOptions{Attempt: attempt})
		has(t, ctr) // and its own beside it
		ctr.Output("sh", "-c", tc.works)
		err := other.CreateFails(node.ContainerOptions{Attempt: attempt})
		for _, want := range []string{tc.says, `NRI plugin "20-other"`, "dpdk-2/other/main"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the refusal does not say %s: %v", want, err)
			}
		}
		stop()
		stop = both("30", "trusted", tc.adjust)
		other.Run(node.ContainerOptions{Name: "trusted", Attempt: attempt}).Output("sh", "-c", tc.works)
		stop()
	}
}
