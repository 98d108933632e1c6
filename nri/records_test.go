// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// The live sandboxes are those that the runtime reported. Before the first report they are unknown, so no
// port of a vswitch counts as orphaned.
func TestLiveSandboxesAreKnownAfterSynchronize(t *testing.T) {
	h := newReloadHost(t, granting, false)
	ctx := context.Background()
	want := func(what string, known bool, ids ...string) {
		t.Helper()
		got, ok := h.p.containers.liveSandboxes()
		if ok != known || !slices.Equal(slices.Sorted(maps.Keys(got)), ids) {
			t.Errorf("%s: got %v, known: %t; want %q, known: %t", what, got, ok, ids, known)
		}
	}
	want("at the start", false)
	testkit.Must(t, h.p.RunPodSandbox(ctx, &api.PodSandbox{Id: "early"}))
	want("before Synchronize", false, "early")
	_, err := h.p.Synchronize(ctx, []*api.PodSandbox{{Id: "a"}, {Id: "b"}}, nil)
	testkit.Must(t, err)
	want("after Synchronize", true, "a", "b")
	testkit.Must(t, h.p.RunPodSandbox(ctx, &api.PodSandbox{Id: "c"}))
	testkit.Must(t, h.p.RemovePodSandbox(ctx, &api.PodSandbox{Id: "a"}))
	want("after a pod was created and another removed", true, "b", "c")
}
