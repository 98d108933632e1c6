// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// injector is a plugin that does what a test says.
type injector struct {
	Noop
	create func(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error)

	mu   sync.Mutex
	pods []string
	ctrs []string
}

func (p *injector) CreateContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if p.create == nil {
		return nil, nil, nil
	}
	a, err := p.create(ctx, pod, ctr)
	return a, nil, err
}

func (p *injector) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range pods {
		p.pods = append(p.pods, x.GetId())
	}
	for _, x := range ctrs {
		p.ctrs = append(p.ctrs, x.GetId())
	}
	return nil, nil
}

func inject(name string) func(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
	return func(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
		a := &api.ContainerAdjustment{}
		a.AddEnv("PLUGIN", name)
		a.AddDevice(&api.LinuxDevice{Path: "/dev/x", Type: "c", Major: 1, Minor: 3})
		a.AddMount(&api.Mount{Destination: "/run/x", Source: "/src", Type: "bind", Options: []string{"rbind", "ro"}})
		return a, nil
	}
}

func TestRuntimeAppliesAdjustment(t *testing.T) {
	r := New(t, Options{})
	r.Connect(t, "10", "test", &injector{create: inject("one")})
	pod := NewPod("ns", "pod", nil)
	if err := r.RunPodSandbox(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	c, err := r.CreateContainer(t.Context(), pod, &api.Container{Name: "c", Env: []string{"A=b"}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.Container.Env, "A=b") || c.Container.PodSandboxId != pod.Id || len(c.Container.Mounts) == 0 {
		t.Errorf("the plugin saw %v", c.Container)
	}
	if want := append(slices.Clone(c.Before.Process.Env), "PLUGIN=one"); !cmp.Equal(c.Spec.Process.Env, want) {
		t.Error(cmp.Diff(want, c.Spec.Process.Env))
	}
	if len(c.Spec.Linux.Devices) != 1 || c.Spec.Linux.Devices[0].Path != "/dev/x" || len(c.Before.Linux.Devices) != 0 {
		t.Errorf("devices are %v, before %v", c.Spec.Linux.Devices, c.Before.Linux.Devices)
	}
	rules := c.Spec.Linux.Resources.Devices
	if last := rules[len(rules)-1]; !last.Allow || *last.Major != 1 || *last.Minor != 3 {
		t.Errorf("device rules are %v", rules)
	}
	if !slices.ContainsFunc(c.Spec.Mounts, func(m rspec.Mount) bool { return m.Destination == "/run/x" && m.Source == "/src" }) {
		t.Errorf("mounts are %v", c.Spec.Mounts)
	}
	for _, step := range []func(context.Context, *api.PodSandbox, *api.Container) error{r.StartContainer, r.StopContainer, r.RemoveContainer} {
		if err := step(t.Context(), pod, c.Container); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []func(context.Context, *api.PodSandbox) error{r.StopPodSandbox, r.RemovePodSandbox} {
		if err := step(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoopChangesNothing(t *testing.T) {
	r := New(t, Options{})
	r.Connect(t, "10", "noop", Noop{})
	c, err := r.CreateContainer(t.Context(), NewPod("ns", "pod", nil), &api.Container{Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(c.Before, c.Spec) {
		t.Error(cmp.Diff(c.Before, c.Spec))
	}
}

func TestCreateContainerFails(t *testing.T) {
	r := New(t, Options{})
	plugin := &injector{create: func(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
		return nil, errors.New("not granted")
	}}
	r.Connect(t, "10", "test", plugin)
	pod, ctr := NewPod("ns", "pod", nil), &api.Container{Name: "c"}
	if _, err := r.CreateContainer(t.Context(), pod, ctr); err == nil || !strings.Contains(err.Error(), "not granted") {
		t.Errorf("a plugin's error gave %v", err)
	}
	plugin.create = inject("one")
	r.Connect(t, "20", "other", &injector{create: inject("two")})
	if _, err := r.CreateContainer(t.Context(), pod, ctr); err == nil || !strings.Contains(err.Error(), "both tried to set") {
		t.Errorf("two claims gave %v", err)
	}
}

// The runtime drops a plugin that is late, and creates the container without it. The deadline of every
// handler has to prevent that.
func TestRuntimeDropsLatePlugin(t *testing.T) {
	r := New(t, Options{})
	release := make(chan struct{})
	plugin := &injector{create: func(ctx context.Context, _ *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the request has no deadline")
		}
		<-release
		a := &api.ContainerAdjustment{}
		a.AddEnv("PLUGIN", "late")
		return a, nil
	}}
	r.Connect(t, "10", "test", plugin)
	adaptation.SetPluginRequestTimeout(100 * time.Millisecond) // once it is registered
	c, err := r.CreateContainer(t.Context(), NewPod("ns", "pod", nil), &api.Container{Name: "c"})
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(c.Spec.Process.Env, "PLUGIN=late") {
		t.Error("the late plugin's environment arrived")
	}
}

func TestRuntimeRestartSynchronizes(t *testing.T) {
	before := openFiles(t)
	r, err := Start(Options{RequestTimeout: time.Minute, RegistrationTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	pod := NewPod("ns", "pod", nil)
	r.AddPod(pod)
	plugin := &injector{}
	r.Connect(t, "10", "test", plugin)
	c, err := r.CreateContainer(t.Context(), pod, &api.Container{Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	if n := r.Plugins(); n != 0 {
		t.Errorf("%d plugins survived the restart", n)
	}
	r.Connect(t, "10", "test", plugin)
	if !slices.Equal(plugin.pods, []string{pod.Id, pod.Id}) || !slices.Equal(plugin.ctrs, []string{c.Container.Id}) {
		t.Errorf("synchronized with pods %v and containers %v", plugin.pods, plugin.ctrs)
	}
	if err := r.Suspend(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CreateContainer(t.Context(), pod, &api.Container{Name: "c"}); err == nil {
		t.Error("a stopped runtime created a container")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(r.SocketPath())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	for end := time.Now().Add(maxWait); openFiles(t) > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d open files, %d before", openFiles(t), before)
		}
	}
}

func TestPreinstalledPluginIsStarted(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "05-noop"), "./cmd/noop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := New(t, Options{PluginPath: dir})
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if err := r.WaitPlugin(ctx, "05-noop"); err != nil {
		t.Fatal(err)
	}
}

func TestRuntimeInjectsCDIDevices(t *testing.T) {
	plugin := &injector{create: func(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
		a := &api.ContainerAdjustment{}
		a.AddCDIDevice(&api.CDIDevice{Name: "v.com/c=d"})
		return a, nil
	}}
	var got []string
	for _, inject := range []func(*rspec.Spec, []string) error{nil, func(_ *rspec.Spec, names []string) error {
		got = names
		return nil
	}} {
		r := New(t, Options{InjectCDI: inject})
		r.Connect(t, "10", "test", plugin)
		if _, err := r.CreateContainer(t.Context(), NewPod("ns", "pod", nil), &api.Container{Name: "c"}); err != nil {
			t.Fatal(err)
		}
		if inject == nil != (got == nil) {
			t.Errorf("injected %v", got)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// BenchmarkCreateContainer is the floor that Jackfield is measured against: one
// request through a real socket to a plugin that does nothing, in this process.
func BenchmarkCreateContainer(b *testing.B) {
	for _, plugins := range []string{"none", "noop"} {
		b.Run("plugin="+plugins, func(b *testing.B) {
			r := New(b, Options{})
			if plugins == "noop" {
				r.Connect(b, "10", "noop", Noop{})
			}
			pod := NewPod("ns", "pod", nil)
			ctr := &api.Container{Name: "c"}
			shown := Shown(pod, ctr, BaseSpec(ctr))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Adjust(b.Context(), pod, shown); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
