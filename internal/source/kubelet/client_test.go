// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

func TestPodListsDevicesSorted(t *testing.T) {
	share := "share-1"
	answer := pod("ns", "pod",
		container("web"),
		container("fwd", "intel.com/b=0000:03:00.4", "intel.com/a=id2", "intel.com/a=id1", "intel.com/a=id2"),
		&v1.ContainerResources{Name: "gpu", DynamicResources: []*v1.DynamicResource{{
			ClaimNamespace: "ns", ClaimName: "claim",
			ClaimResources: []*v1.ClaimResource{
				{DriverName: "net.example.com", PoolName: "node", DeviceName: "vf1", CdiDevices: []*v1.CDIDevice{{Name: "example.com/net=vf1"}}},
				{DriverName: "gpu.example.com", PoolName: "node", DeviceName: "gpu0", ShareId: &share,
					CdiDevices: []*v1.CDIDevice{{Name: "example.com/gpu=b"}, {Name: "example.com/gpu=a"}}},
				{CdiDevices: []*v1.CDIDevice{{Name: "example.com/gpu=old"}}}, // of a kubelet before 1.31
			},
		}}},
	)
	want := allocation.Allocation{
		{Name: "fwd", Resources: []allocation.Resource{{Name: "intel.com/a", IDs: []string{"id1", "id2"}}, {Name: "intel.com/b", IDs: []string{"0000:03:00.4"}}}},
		{Name: "gpu", Claims: []allocation.ClaimDevice{
			{Namespace: "ns", Claim: "claim", Driver: "gpu.example.com", Pool: "node", Device: "gpu0"},
			{Namespace: "ns", Claim: "claim", Driver: "net.example.com", Pool: "node", Device: "vf1"}}},
		{Name: "web"},
	}
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{nil, pod("other", "pod"), answer, pod("ns", "pod2", container("x"))}}
	f.start(t, root)
	got, err := newClient(t, root).Pod(t.Context(), "ns", "pod")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if fwd, ok := got.Container("fwd"); !ok || len(fwd.IDs("intel.com/a")) != 2 || fwd.IDs("none") != nil {
		t.Errorf("container fwd: %+v, %v", fwd, ok)
	}
	if _, ok := got.Container("init"); ok {
		t.Error("there is no container init")
	}
}

// A re-created pod does not get the devices of its predecessor of the same name.
func TestNoAnswerIsKept(t *testing.T) {
	root := newRoot(t)
	f := &fake{}
	f.start(t, root)
	c := newClient(t, root)
	_, err := c.Pod(t.Context(), "ns", "pod")
	wantErr(t, err, errdefs.ErrNotFound, `"ns/pod"`, socket, "does not list the pod")
	for _, want := range []string{"old", "new"} {
		f.pods = []*v1.PodResources{pod("ns", "pod", container("c", "r="+want))}
		a, err := c.Pod(t.Context(), "ns", "pod")
		if err != nil {
			t.Fatal(err)
		}
		if got := a[0].IDs("r")[0]; got != want {
			t.Errorf("the pod got the device %q, want %q", got, want)
		}
	}
}

// A call that the kubelet's rate limit refuses is made again, later.
func TestRateLimitedCallIsRepeated(t *testing.T) {
	root := newRoot(t)
	var refuse sync.Mutex
	refused := 2
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod")}, listErr: func() error {
		refuse.Lock()
		defer refuse.Unlock()
		if refused--; refused >= 0 {
			return status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return nil
	}}
	f.start(t, root)
	if _, err := newClient(t, root).Pod(t.Context(), "ns", "pod"); err != nil {
		t.Fatal(err)
	}
	if n := f.lists.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	c := newClient(t, newRoot(t))
	for _, k := range [][2]string{{}, {"ns", ""}, {"", "pod"}, {"ns", strings.Repeat("x", 2000)}} {
		_, err := c.Pod(t.Context(), k[0], k[1])
		if !errors.Is(err, errdefs.ErrInvalidArgument) || len(err.Error()) > 1000 {
			t.Errorf("%.80v: %v", k, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Pod(ctx, "ns", "pod")
	wantErr(t, err, context.Canceled)
	for _, s := range []string{"relative", "/a\x00b"} {
		if _, err := QueryPod(t.Context(), hostfs.Host(), s, "ns", "pod"); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestConcurrentCallsGetTheirOwnPod(t *testing.T) {
	root := newRoot(t)
	f := &fake{}
	for i := range 60 {
		f.pods = append(f.pods, pod("ns", fmt.Sprint("p", i), container("c", fmt.Sprint("r=", i))))
	}
	f.start(t, root)
	c := newClient(t, root)
	var wg sync.WaitGroup
	for i := range 60 {
		for range 3 {
			wg.Go(func() {
				a, err := c.Pod(t.Context(), "ns", fmt.Sprint("p", i))
				if err != nil || a[0].IDs("r")[0] != fmt.Sprint(i) {
					t.Errorf("pod %d: %+v, %v", i, a, err)
				}
			})
		}
	}
	wg.Wait()
}

func wantErr(t *testing.T, err, sentinel error, parts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("error is %v, want %v", err, sentinel)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}
