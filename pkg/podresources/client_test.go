// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

var key = PodKey{Namespace: "ns", Name: "pod", UID: "uid-1"}

func TestPod(t *testing.T) {
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
	want := Allocation{Namespace: "ns", Name: "pod", Socket: socket, Containers: []Container{
		{Name: "fwd", Resources: []Resource{{Name: "intel.com/a", IDs: []string{"id1", "id2"}}, {Name: "intel.com/b", IDs: []string{"0000:03:00.4"}}}},
		{Name: "gpu", Claims: []ClaimDevice{
			{Namespace: "ns", Claim: "claim", Driver: "gpu.example.com", Pool: "node", Device: "gpu0"},
			{Namespace: "ns", Claim: "claim", Driver: "net.example.com", Pool: "node", Device: "vf1"}}},
		{Name: "web"},
	}}
	for name, c := range map[string]struct {
		getErr      func(*v1.GetPodResourcesRequest) error
		gets, lists int32
	}{
		"Get":                        {nil, 2, 0},
		"kubelet without Get":        {unimplemented, 1, 2},
		"kubelet with Get off":       {disabled, 1, 2},
		"kubelet whose Get is buggy": {func(*v1.GetPodResourcesRequest) error { return status.Error(codes.Internal, "oops") }, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			f := &fake{pods: []*v1.PodResources{nil, pod("other", "pod"), answer, pod("ns", "pod2", container("x"))}, getErr: c.getErr}
			if c.getErr == nil {
				f.pods = f.pods[1:] // the fake's own loop
			}
			f.start(t, root)
			client := newClient(t, root, Options{})
			got, err := client.Pod(t.Context(), key)
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
			// For a second pod, the client remembers whether Get is supported.
			if _, err := client.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod2", UID: "uid-2"}); err != nil {
				t.Fatal(err)
			}
			if g, l := f.gets.Load(), f.lists.Load(); g != c.gets || l != c.lists {
				t.Errorf("%d Get and %d List calls, want %d and %d", g, l, c.gets, c.lists)
			}
		})
	}
}

func TestAnswersAreKeptForOnePod(t *testing.T) {
	root := newRoot(t)
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=old"))}}
	f.start(t, root)
	c := newClient(t, root, Options{Cache: 2})
	ids := func(k PodKey) string {
		t.Helper()
		a, err := c.Pod(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		ids := a.Containers[0].IDs("r")
		defer func() { ids[0] = "scribbled over" }() // must not reach the cache
		return ids[0]
	}
	calls := func(want int32) {
		t.Helper()
		if got := f.gets.Load(); got != want {
			t.Errorf("%d calls, want %d", got, want)
		}
	}
	for range 3 {
		if got := ids(key); got != "old" {
			t.Fatal(got)
		}
	}
	calls(1)
	// The pod is re-created: the name is the same, the UID is not.
	f.pods[0] = pod("ns", "pod", container("c", "r=new"))
	again := key
	again.UID = "uid-2"
	if got := ids(again); got != "new" {
		t.Errorf("the new pod got the device %q of its predecessor", got)
	}
	calls(2)
	ids(again)
	calls(2)
	// Without a UID nothing is kept.
	for range 2 {
		ids(PodKey{Namespace: "ns", Name: "pod"})
	}
	calls(4)
	// The cache is bounded.
	f.pods = append(f.pods, pod("ns", "p1", container("c", "r=1")), pod("ns", "p2", container("c", "r=2")))
	ids(PodKey{Namespace: "ns", Name: "p1", UID: "1"})
	ids(again)
	ids(PodKey{Namespace: "ns", Name: "p2", UID: "2"})
	calls(6)
	ids(again)
	calls(6)
	ids(PodKey{Namespace: "ns", Name: "p1", UID: "1"})
	calls(7)
	if n := len(c.cache.byPod); n != 2 {
		t.Errorf("%d cached, want 2", n)
	}
}

func TestUnknownPodIsRememberedForMissTTL(t *testing.T) {
	root := newRoot(t)
	f := &fake{}
	f.start(t, root)
	c := newClient(t, root, Options{MissTTL: time.Hour})
	_, err := c.Pod(t.Context(), key)
	wantErr(t, err, errdefs.ErrNotFound, `"ns/pod"`, socket, "List")
	gets := f.gets.Load()
	_, err = c.Pod(t.Context(), key)
	wantErr(t, err, errdefs.ErrNotFound)
	if f.gets.Load() != gets {
		t.Error("asked again at once")
	}
	c = newClient(t, root, Options{MissTTL: 50 * time.Millisecond})
	_, err = c.Pod(t.Context(), key)
	wantErr(t, err, errdefs.ErrNotFound)
	f.pods = []*v1.PodResources{pod("ns", "pod", container("c"))}
	time.Sleep(60 * time.Millisecond)
	if _, err := c.Pod(t.Context(), key); err != nil {
		t.Error(err)
	}
}

// An answer that is available counts even if the timeout has passed, because this process
// may have been delayed.
func TestAnswerThatArrivesWithTimeoutCounts(t *testing.T) {
	c := newClient(t, newRoot(t), Options{Timeout: time.Nanosecond})
	f := &request{done: make(chan struct{}), answer: Allocation{Namespace: "ns", Name: "pod"}}
	close(f.done)
	c.mu.Lock()
	c.requests[key] = f
	c.mu.Unlock()
	for range 1000 {
		if a, err := c.Pod(t.Context(), key); err != nil || a.Name != "pod" {
			t.Fatal(a, err)
		}
	}
}

func TestRateLimit(t *testing.T) {
	root := newRoot(t)
	var refuse sync.Mutex
	refused := 2
	f := &fake{pods: []*v1.PodResources{pod("ns", "pod")}, getErr: func(*v1.GetPodResourcesRequest) error {
		refuse.Lock()
		defer refuse.Unlock()
		if refused--; refused >= 0 {
			return status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return nil
	}}
	f.start(t, root)
	c := newClient(t, root, Options{QPS: 20, Burst: 2})
	// The kubelet's own limit: the call is made again, later.
	if _, err := c.Pod(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if n := f.gets.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
	// The client's limit: 2 at once and 20 a second.
	began := time.Now()
	for i := range 8 {
		if _, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(began); d < 250*time.Millisecond || d > hangTimeout {
		t.Errorf("8 calls took %v", d)
	}
	// The error comes at once if the limit allows no call before the deadline.
	c = newClient(t, root, Options{QPS: 1, Burst: 1, Timeout: hangTimeout, CallTimeout: hangTimeout})
	c.limit.SetLimit(rate.Every(time.Hour))
	if _, err := c.Pod(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	_, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: "late"})
	wantErr(t, err, context.DeadlineExceeded)
	if d := time.Since(began); d > hangTimeout/2 {
		t.Errorf("the error took %v", d)
	}
}

func TestInFlightIsBounded(t *testing.T) {
	root := newRoot(t)
	f := &fake{delay: time.Hour}
	f.start(t, root)
	c := newClient(t, root, Options{InFlight: 3, Timeout: 50 * time.Millisecond, CallTimeout: time.Hour})
	for i := range 3 {
		c.Prefetch(PodKey{Namespace: "ns", Name: "pod", UID: fmt.Sprint(i)})
	}
	_, err := c.Pod(t.Context(), key)
	wantErr(t, err, errdefs.ErrResourceExhausted, "3 requests")
	_, err = c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "pod", UID: "0"}) // joins
	wantErr(t, err, context.DeadlineExceeded)
}

func TestArgumentsAreChecked(t *testing.T) {
	c := newClient(t, newRoot(t), Options{})
	for _, k := range []PodKey{{}, {Namespace: "ns"}, {Name: "pod"}, {Namespace: "ns", Name: strings.Repeat("x", 2000)}, {Namespace: "ns", Name: "pod", UID: strings.Repeat("x", 2000)}} {
		_, err := c.Pod(t.Context(), k)
		if !errors.Is(err, errdefs.ErrInvalidArgument) || len(err.Error()) > 1000 {
			t.Errorf("%.80v: %v", k, err)
		}
		c.Prefetch(k)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Pod(ctx, key)
	wantErr(t, err, context.Canceled)
	for _, s := range []string{"relative", "/a\x00b"} {
		if _, err := New(hostfs.Host(), s, Options{}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestConcurrentPods(t *testing.T) {
	root := newRoot(t)
	f := &fake{}
	for i := range 60 {
		f.pods = append(f.pods, pod("ns", fmt.Sprint("p", i), container("c", fmt.Sprint("r=", i))))
	}
	f.start(t, root)
	c := newClient(t, root, Options{QPS: 1000, Burst: 10})
	var wg sync.WaitGroup
	for i := range 60 {
		for range 3 {
			wg.Go(func() {
				a, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: fmt.Sprint("p", i), UID: "u"})
				if err != nil || a.Containers[0].IDs("r")[0] != fmt.Sprint(i) {
					t.Errorf("pod %d: %+v, %v", i, a, err)
				}
			})
		}
	}
	wg.Wait()
	if n := f.gets.Load(); n != 60 {
		t.Errorf("%d calls for 60 pods", n)
	}
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
