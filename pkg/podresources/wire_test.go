// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// fuzzed checks what holds for any bytes: no panic, an *Error or an answer about
// the pod in question that a second look confirms.
func fuzzed(t *testing.T, a Allocation, err error, again func() (Allocation, error)) {
	t.Helper()
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || e.Field == "" || e.Socket != socket || errors.Unwrap(err) == nil {
			t.Errorf("%#v", err)
		}
		return
	}
	if a.Name != key.Name || a.Namespace != key.Namespace {
		t.Errorf("an answer about %s/%s", a.Namespace, a.Name)
	}
	b, err := again()
	if diff := cmp.Diff(a, b); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if diff := cmp.Diff(a, a.Clone()); diff != "" {
		t.Error(diff)
	}
}

func seeds(f *testing.F) {
	good := pod("ns", "pod", container("a", "r=1"), container("b"))
	f.Add(marshal(f, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{pod("x", "y"), good}}))
	f.Add(marshal(f, &v1.GetPodResourcesResponse{PodResources: good}))
	for _, l := range lies() {
		if b := marshal(f, &v1.ListPodResourcesResponse{PodResources: l.pods}); len(b) < 4096 {
			f.Add(b)
		}
	}
}

func FuzzList(f *testing.F) {
	seeds(f)
	q := question{key: key, socket: socket, method: "List"}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, size, found, err := q.listed(b)
		if err == nil && !found {
			return
		}
		if size > len(b) {
			t.Errorf("%d of %d bytes", size, len(b))
		}
		fuzzed(t, a, err, func() (Allocation, error) {
			a, _, _, err := q.listed(b)
			return a, err
		})
		// What the full decoder takes, and lists the pod once, is found.
		var full v1.ListPodResourcesResponse
		if proto.Unmarshal(b, &full) != nil || err != nil {
			return
		}
		n := 0
		for _, p := range full.GetPodResources() {
			if p.GetName() == key.Name && p.GetNamespace() == key.Namespace {
				n++
			}
		}
		if n == 0 {
			t.Error("found what is not there")
		}
	})
}

func FuzzGet(f *testing.F) {
	seeds(f)
	q := question{key: key, socket: socket, method: "Get"}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, _, err := q.got(b)
		fuzzed(t, a, err, func() (Allocation, error) {
			a, _, err := q.got(b)
			return a, err
		})
	})
}

func BenchmarkPod(b *testing.B) {
	for _, pods := range []int{1, 110, 1000} {
		f := &fake{}
		for i := range pods - 1 {
			f.pods = append(f.pods, pod("ns", fmt.Sprint("p", i), container("c", "intel.com/sriov=0000:03:00.3", "intel.com/sriov=0000:03:00.4"), container("d")))
		}
		f.pods = append(f.pods, pod("ns", "pod", container("c", "intel.com/sriov=0000:03:00.3")))
		for name, getErr := range map[string]func(*v1.GetPodResourcesRequest) error{"Get": nil, "List": unimplemented} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, pods), func(b *testing.B) {
				root := newRoot(b)
				srv := &fake{pods: f.pods, getErr: getErr}
				srv.start(b, root)
				c := newClient(b, root, Options{QPS: 1e9, Burst: 1000})
				k := PodKey{Namespace: "ns", Name: "pod"} // not kept
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Pod(b.Context(), k); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("cached", func(b *testing.B) {
		root := newRoot(b)
		(&fake{pods: []*v1.PodResources{pod("ns", "pod", container("c", "r=1"))}}).start(b, root)
		c := newClient(b, root, Options{})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Pod(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("absent", func(b *testing.B) {
		c := newClient(b, newRoot(b), Options{})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Pod(b.Context(), key); err == nil {
				b.Fatal("no error")
			}
		}
	})
}

// What is no message of the API is a fault of this package, and says so.
func TestErrorsOfTheCodecHaveSentinels(t *testing.T) {
	if _, err := (codec{}).Marshal("text"); !errdefs.IsInternal(err) {
		t.Errorf("marshal: %v", err)
	}
	if err := (codec{}).Unmarshal(nil, "text"); !errdefs.IsInternal(err) {
		t.Errorf("unmarshal: %v", err)
	}
}
