// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// A pod's limit survives a restart of the plugin in the runtime's annotations, and ends with the
// pod.
func TestPodLimitOverARestart(t *testing.T) {
	const limited = "policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: [\"vendor.com/net=*\"]}, " +
		"limits: {pod: {cdi: 1}}}]}\n"
	const negative = "cdi=-1,devices=0,sockets=0,mounts=0,hooks=0"
	pod := &api.PodSandbox{Id: "sb", Namespace: "ns", Name: "p",
		Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}}
	ctx := context.Background()
	before := newReloadHost(t, limited, false)
	adjust, _, err := before.p.CreateContainer(ctx, pod, &api.Container{Id: "c1", PodSandboxId: "sb", Name: "one"})
	testkit.Must(t, err)
	kept := adjust.GetAnnotations()
	if len(kept) != 1 || !strings.HasPrefix(kept[usageAnnotation], "cdi=1,") {
		t.Fatalf("the runtime has annotations %v", kept)
	}

	after := newReloadHost(t, limited, false)
	_, err = after.p.Synchronize(ctx, []*api.PodSandbox{pod}, []*api.Container{
		{Id: "c1", PodSandboxId: "sb", Name: "one", Annotations: kept},
		{Id: "c0", PodSandboxId: "sb", Name: "zero", Annotations: map[string]string{usageAnnotation: "nonsense"}},
		{Id: "c00", PodSandboxId: "sb", Name: "less", Annotations: map[string]string{usageAnnotation: negative}},
	})
	testkit.Must(t, err)
	two := &api.Container{Id: "c2", PodSandboxId: "sb", Name: "two"}
	if _, _, err := after.p.CreateContainer(ctx, pod, two); !errdefs.IsPermissionDenied(err) {
		t.Errorf("second container: %v", err)
	}
	// The same container, created again, counts once.
	_, _, err = after.p.CreateContainer(ctx, pod, &api.Container{Id: "c3", PodSandboxId: "sb", Name: "one"})
	testkit.Must(t, err)
	// A container that has ended does not count; neither does a report about its predecessor.
	testkit.Must(t, after.p.RemoveContainer(ctx, pod, &api.Container{Id: "c1", PodSandboxId: "sb", Name: "one"}))
	if _, _, err := after.p.CreateContainer(ctx, pod, two); !errdefs.IsPermissionDenied(err) {
		t.Errorf("second container in addition to the re-created one: %v", err)
	}
	_, err = after.p.StopContainer(ctx, pod,
		&api.Container{Id: "c3", PodSandboxId: "sb", Name: "one", State: api.ContainerState_CONTAINER_STOPPED})
	testkit.Must(t, err)
	_, _, err = after.p.CreateContainer(ctx, pod, &api.Container{Id: "c2", PodSandboxId: "sb", Name: "two"})
	testkit.Must(t, err)
	// Nor does one that ended while the runtime was restarted, without a report.
	_, err = after.p.Synchronize(ctx, []*api.PodSandbox{pod}, []*api.Container{
		{Id: "c5", PodSandboxId: "sb", Name: "five", State: api.ContainerState_CONTAINER_STOPPED, Annotations: kept}})
	testkit.Must(t, err)
	_, _, err = after.p.CreateContainer(ctx, pod, &api.Container{Id: "c6", PodSandboxId: "sb", Name: "six"})
	testkit.Must(t, err)
	testkit.Must(t, after.p.RemovePodSandbox(ctx, pod))
	_, _, err = after.p.CreateContainer(ctx, pod, &api.Container{Id: "c4", PodSandboxId: "sb", Name: "two"})
	testkit.Must(t, err)
	// The annotation of the pod's author does not count.
	pod.Annotations[usageAnnotation] = "cdi=0,devices=0,sockets=0,mounts=0,hooks=0"
	three := &api.Container{Id: "c5", PodSandboxId: "sb", Name: "three"}
	if _, _, err := after.p.CreateContainer(ctx, pod, three); err == nil {
		t.Error("a pod's own annotation lifts its limit")
	}
}

// The plugin accepts its annotation only as it wrote it.
func FuzzUsageAnnotation(f *testing.F) {
	for _, text := range []string{"cdi=1,devices=2,sockets=3,mounts=4,hooks=5",
		"cdi=-1,devices=0,sockets=0,mounts=0,hooks=0", "cdi=1,devices=2,sockets=3,mounts=4,hooks=5,",
		"cdi=+1,devices=02,sockets= 3,mounts=4,hooks=5", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseUsage(text)
		switch {
		case err != nil && (u != (policy.Usage{}) || !errdefs.IsInvalidArgument(err) || len(err.Error()) > 1000):
			t.Errorf("%.200q: %+v, %.1000v", text, u, err)
		case err == nil && (formatUsage(&u) != text || min(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) < 0):
			t.Errorf("%q: %+v", text, u)
		}
	})
}
