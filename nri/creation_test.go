// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

const vswYAML = `
sockets: {roots: [/run/vsw]}
policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}]}
`

func podWithSocket(t *testing.T, h *reloadHost) (*api.PodSandbox, *api.Container) {
	t.Helper()
	root := h.p.opts.Host.Dir()
	pod := &api.PodSandbox{Id: strings.Repeat("a", 64), Namespace: "ns", Name: "p",
		Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "app-net"}}
	info := filepath.Join(root, "var/run/k8s.cni.cncf.io/devinfo/cni")
	testkit.Must(t, os.MkdirAll(info, 0o755))
	testkit.Must(t, os.MkdirAll(filepath.Join(root, "run/vsw"), 0o755))
	const vhostUser = `{"type":"vhost-user","version":"1.1.0",` +
		`"vhost-user":{"mode":"server","path":"/run/vsw/app/app.sock"}}`
	testkit.Must(t, os.WriteFile(filepath.Join(info, "ns-app-net-"+pod.Id+"_net1"), []byte(vhostUser), 0o644))
	return pod, &api.Container{Id: strings.Repeat("b", 64), PodSandboxId: pod.Id,
		Labels: map[string]string{containerNameLabel: "c"}}
}

// prepare runs the steps of CreateContainer that a worker does.
func (h *reloadHost) prepare(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*creation, error) {
	n := &creation{pod: pod, c: c}
	err := h.p.creator.resolve(ctx, n)
	if err == nil {
		err = h.p.creator.adjust(n)
	}
	if err == nil {
		err = h.p.creator.stage(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Work that ends after the runtime has an error removes what it created, on its own worker: all
// other workers may be busy.
func TestWorkAfterTimeoutIsUndone(t *testing.T) {
	h := newReloadHost(t, vswYAML, false)
	pod, c := podWithSocket(t, h)
	free := make(chan struct{})
	defer close(free)
	for range maxWorkers {
		if !h.p.calls.workers.Go(func() { <-free }) {
			t.Fatal("a worker is still busy")
		}
	}
	made, err := h.prepare(context.Background(), pod, c)
	testkit.Must(t, err)
	h.p.creator.removeLateState(made)
	left, err := h.p.state.store.Load().Containers()
	if err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %q, %v", left, err)
	}
	if n := exposedValue(t, h.p, "jackfield_handler_timeouts_total", "CreateContainer"); n != 0 {
		t.Errorf("%v timeouts were counted for the removal, which is no call of the runtime", n)
	}

	// Work that has no time left creates nothing.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if made, err = h.prepare(ended, pod, c); made != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("late work: %v, %v", made, err)
	}
	if left, err = h.p.state.store.Load().Containers(); err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %q, %v", left, err)
	}
	if made, err = h.prepare(context.Background(), pod, c); err != nil || made.adjustment == nil {
		t.Fatalf("work before the deadline: %v, %v", made, err)
	}
	if left, err = h.p.state.store.Load().Containers(); err != nil || len(left) != 1 {
		t.Errorf("in the state directory: %q, %v", left, err)
	}
}

// A handler that waits no longer refuses the container, and the state that the worker creates afterwards is removed.
func TestLateCreationIsRefusedAndUndone(t *testing.T) {
	h := newReloadHost(t, vswYAML, false)
	pod, c := podWithSocket(t, h)
	h.p.calls.timeout.Store(int64(time.Second))
	release, undone := make(chan struct{}), make(chan *creation, 1)
	var made *creation
	err := h.p.calls.runOrUndo(context.Background(), telemetry.CreateContainer, nil, func(context.Context) (err error) {
		<-release
		made, err = h.prepare(context.Background(), pod, c)
		return err
	}, func() {
		h.p.creator.removeLateState(made)
		undone <- made
	})
	if !isTimeout(err) || exposedValue(t, h.p, "jackfield_handler_timeouts_total", "CreateContainer") != 1 {
		t.Errorf("found %v, want a timeout", err)
	}
	close(release)
	if late := <-undone; late == nil {
		t.Error("the late creation is not undone")
	}
	left, err := h.p.state.store.Load().Containers()
	if err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %q, %v", left, err)
	}
}

// Without a free worker, a pod with requests gets no container, rather than a container without
// its requests, in every form of request.
func TestPodWithRequestIsRefusedWithoutWorkers(t *testing.T) {
	injector := map[string]string{"cdi-devices.nri.io/pod": "[vendor.com/net=a]"}
	for name, tc := range map[string]struct {
		yaml        string
		annotations map[string]string
		refused     bool
	}{
		"nothing":                      {granting, nil, false},
		"a device":                     {granting, map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}, true},
		"a network":                    {granting, map[string]string{"k8s.v1.cni.cncf.io/networks": "a"}, true},
		"device-injector's":            {granting + "compat: {deviceInjector: true}\n", injector, true},
		"device-injector's, not taken": {granting, injector, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newReloadHost(t, tc.yaml, false)
			free := make(chan struct{})
			defer close(free)
			for h.p.calls.workers.Go(func() { <-free }) {
			}
			pod := &api.PodSandbox{Id: strings.Repeat("a", 64), Namespace: "ns", Name: "p", Annotations: tc.annotations}
			c := &api.Container{Id: strings.Repeat("b", 64), PodSandboxId: pod.Id, Name: "c"}
			adjust, _, err := h.p.CreateContainer(context.Background(), pod, c)
			if adjust != nil || (err != nil) != tc.refused {
				t.Errorf("got %v, %v, want an error: %v", adjust, err, tc.refused)
			}
		})
	}
}

// A validation is a call of the runtime like the others: it is timed, the shutdown waits for it,
// and a panic in it is counted. CRI-O keeps a container's name in a label.
func TestValidationIsTimedAndRecovered(t *testing.T) {
	h := newReloadHost(t, vswYAML+"validate: {mounts: true}\n", false)
	pod, c := podWithSocket(t, h)
	mounts := []*api.Mount{{Source: "/", Destination: "/host", Type: "bind"}}
	owners := map[int32]*api.CompoundFieldOwners{
		int32(api.Field_Mounts): {Owners: map[string]string{"/host": "10-other"}}}
	req := &api.ValidateContainerAdjustmentRequest{Pod: pod, Container: c,
		Adjust: &api.ContainerAdjustment{Mounts: mounts},
		Owners: &api.OwningPlugins{Owners: map[string]*api.FieldOwners{c.Id: {Compound: owners}}}}
	err := h.p.ValidateContainerAdjustment(context.Background(), req)
	if err == nil || !strings.Contains(err.Error(), `container "ns/p/c"`) {
		t.Errorf("mount of the host's root: %v", err)
	}
	if n := timedCalls(t, h.p, telemetry.ValidateContainerAdjustment); n != 1 {
		t.Errorf("%d validations were timed", n)
	}
	if h.p.calls.finished.Load() != 1 || h.p.calls.running.Load() != 0 {
		t.Error("the shutdown does not wait for a validation")
	}
	empty := &api.ValidateContainerAdjustmentRequest{Pod: pod, Container: c}
	if err := h.p.ValidateContainerAdjustment(context.Background(), empty); err != nil {
		t.Errorf("empty adjustment: %v", err)
	}
	whole := h.p.config.core.Swap(&core{cfg: h.p.config.core.Load().cfg})
	defer h.p.config.core.Store(whole)
	err = h.p.ValidateContainerAdjustment(context.Background(), req)
	if err == nil || !strings.Contains(err.Error(), "internal error") || h.p.counters.Panics.Load() != 1 {
		t.Errorf("panic: error %v, counted %d times", err, h.p.counters.Panics.Load())
	}
}

// timedCalls returns how many calls of a handler the metrics have.
func timedCalls(t *testing.T, p *Plugin, h telemetry.Handler) uint64 {
	t.Helper()
	families, err := telemetry.NewGatherer(p.counters, p.endpoints.takeSample).Gather()
	testkit.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "jackfield_handler_duration_seconds" && m.GetLabel()[0].GetValue() == string(h) {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}

// A creation that ran late, until after the removal of its pod, leaves nothing of the pod.
func TestLateCreationLeavesNothingOfRemovedPod(t *testing.T) {
	for name, succeeds := range map[string]bool{"succeeds": true, "fails": false} {
		t.Run(name, func(t *testing.T) {
			h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
			h.listen("run/vsw/p1/s")
			if !succeeds {
				other := sockdir.Holder{Sandbox: "other"}
				_, err := sockdir.New(h.p.opts.Host, "/run/jackfield/claims").Claim("/run/vsw/p1", other, false)
				testkit.Must(t, err)
			}
			testkit.Must(t, h.p.RunPodSandbox(t.Context(), h.pod))
			testkit.Must(t, h.p.RemovePodSandbox(t.Context(), h.pod))
			// The plugin sweeps the device-info of the removed sandbox. The late creation has read the files before.
			if !testkit.Until(func() bool { return len(h.p.removed.list()) == 0 }) {
				t.Fatal("the removed sandbox is not swept")
			}
			h.writeInfo("net1", "server", "/run/vsw/mine/s")
			h.writeInfo("net2", "client", "/run/vsw/p1/s")
			made, err := h.prepare(t.Context(), h.pod, h.c)
			if (err == nil) != succeeds {
				t.Fatal(err)
			}
			if succeeds {
				h.p.creator.removeLateState(made)
			}
			for _, left := range []string{"jackfield/containers/*", "jackfield/sandboxes/*",
				"jackfield/claims/%2Frun%2Fvsw%2Fmine", "jackfield/claims/=*", "vsw/mine"} {
				if found, err := filepath.Glob(filepath.Join(h.root, "run", left)); err != nil || len(found) > 0 {
					t.Errorf("left: %q, %v", found, err)
				}
			}
		})
	}
}

// Docker applies only a part of an adjustment, and drops the rest silently: a container that requests
// anything is refused, in whichever form it does. Others are created.
func TestContainersOfDockerAreRefused(t *testing.T) {
	h := newReloadHost(t, granting, false)
	_, err := h.p.Configure(t.Context(), "", "docker", "29.0.0")
	testkit.Must(t, err)
	request := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	cdi, other := map[string]string{"cdi.k8s.io/x": "vendor.com/net=a"}, map[string]string{"a": "b"}
	for name, tc := range map[string]struct {
		pod     *api.PodSandbox
		c       *api.Container
		refused bool
	}{
		"an annotation of the container": {&api.PodSandbox{}, &api.Container{Annotations: request}, true},
		"one of CDI":                     {&api.PodSandbox{}, &api.Container{Annotations: cdi}, true},
		"a label":                        {&api.PodSandbox{}, &api.Container{Labels: request}, true},
		"an annotation of the pod":       {&api.PodSandbox{Annotations: request}, &api.Container{}, true},
		"nothing":                        {&api.PodSandbox{}, &api.Container{Annotations: other}, false},
	} {
		tc.c.Id, tc.c.Name = strings.Repeat("c", 64), "c"
		_, _, err := h.p.CreateContainer(t.Context(), tc.pod, tc.c)
		if (err != nil) != tc.refused || tc.refused && !strings.Contains(err.Error(), "is not supported") {
			t.Errorf("%s: %v, want refused: %v", name, err, tc.refused)
		}
	}
}
