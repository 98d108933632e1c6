// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
)

// A pod's limit holds over a restart of the plugin, by what the runtime kept, and
// ends with the pod.
func TestPodLimitOverARestart(t *testing.T) {
	const limited = "policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: [\"vendor.com/net=*\"]}, limits: {pod: {cdi: 1}}}]}\n"
	pod := &api.PodSandbox{Id: "sb", Namespace: "ns", Name: "p", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}}
	ctx := context.Background()
	before := newReloadHost(t, limited, false)
	adjust, _, err := before.p.CreateContainer(ctx, pod, &api.Container{Id: "c1", PodSandboxId: "sb", Name: "one"})
	check(t, err)
	kept := adjust.GetAnnotations()
	if len(kept) != 1 || !strings.HasPrefix(kept[usageAnnotation], "cdi=1,") {
		t.Fatalf("the runtime keeps %v", kept)
	}

	after := newReloadHost(t, limited, false)
	_, err = after.p.Synchronize(ctx, []*api.PodSandbox{pod}, []*api.Container{
		{Id: "c1", PodSandboxId: "sb", Name: "one", Annotations: kept},
		{Id: "c0", PodSandboxId: "sb", Name: "zero", Annotations: map[string]string{usageAnnotation: "nonsense"}},
	})
	check(t, err)
	if _, _, err := after.p.CreateContainer(ctx, pod, &api.Container{Id: "c2", PodSandboxId: "sb", Name: "two"}); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a second container: %v", err)
	}
	// The same container, created anew, is no second one.
	_, _, err = after.p.CreateContainer(ctx, pod, &api.Container{Id: "c3", PodSandboxId: "sb", Name: "one"})
	check(t, err)
	check(t, after.p.RemovePodSandbox(ctx, pod))
	_, _, err = after.p.CreateContainer(ctx, pod, &api.Container{Id: "c4", PodSandboxId: "sb", Name: "two"})
	check(t, err)
	// What the pod's author writes is not what the container was given.
	pod.Annotations[usageAnnotation] = "cdi=0,devices=0,sockets=0,mounts=0,hooks=0"
	if _, _, err := after.p.CreateContainer(ctx, pod, &api.Container{Id: "c5", PodSandboxId: "sb", Name: "three"}); err == nil {
		t.Error("a pod's own annotation lifts its limit")
	}
}
