// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/base/diag"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func mkfifo(p string) error { return unix.Mkfifo(p, 0o600) }

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// invalidAnswer is an answer of the kubelet that the client must refuse.
type invalidAnswer struct {
	name     string
	pods     []*v1.PodResources
	sentinel error
}

func invalidAnswers() []invalidAnswer {
	one := func(p *v1.PodResources) []*v1.PodResources { return []*v1.PodResources{pod("other", "x"), p} }
	claims := func(rs ...*v1.ClaimResource) []*v1.PodResources {
		return one(pod("ns", "pod", &v1.ContainerResources{Name: "c", DynamicResources: []*v1.DynamicResource{
			{ClaimNamespace: "ns", ClaimName: "claim", ClaimResources: rs}}}))
	}
	ids := func(resource string, ids ...string) []*v1.PodResources {
		return one(pod("ns", "pod", &v1.ContainerResources{Name: "c", Devices: []*v1.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}}))
	}
	var containers []*v1.ContainerResources
	for i := range 1025 {
		containers = append(containers, container(fmt.Sprint("c", i)))
	}
	return []invalidAnswer{
		{"nil container", one(pod("ns", "pod", container("c"), nil)), errdefs.ErrInvalidArgument},
		{"container name", one(pod("ns", "pod", container("../c"))), errdefs.ErrInvalidArgument},
		{"container twice", one(pod("ns", "pod", container("c", "r=1"), container("d"), container("c", "r=2"))), errdefs.ErrConflict},
		{"too many containers", one(pod("ns", "pod", containers...)), errdefs.ErrInvalidArgument},
		{"nil devices", one(pod("ns", "pod", &v1.ContainerResources{Name: "c", Devices: []*v1.ContainerDevices{nil}})), errdefs.ErrInvalidArgument},
		{"empty ID", ids("r", "1", ""), errdefs.ErrInvalidArgument},
		{"ID with a newline", ids("r", "1\n2"), errdefs.ErrInvalidArgument},
		{"ID with a NUL", ids("r", "1\x00"), errdefs.ErrInvalidArgument},
		{"ID with blanks around", ids("r", " 1"), errdefs.ErrInvalidArgument},
		{"long ID", ids("r", strings.Repeat("x", 1025)), errdefs.ErrInvalidArgument},
		{"resource name", ids("r\x1b[31m", "1"), errdefs.ErrInvalidArgument},
		{"nil claim", one(pod("ns", "pod", &v1.ContainerResources{Name: "c", DynamicResources: []*v1.DynamicResource{nil}})), errdefs.ErrInvalidArgument},
		{"claim device", claims(&v1.ClaimResource{DeviceName: "a"}, &v1.ClaimResource{DeviceName: "d\x00"}), errdefs.ErrInvalidArgument},
	}
}

// The kubelet gives each invalid answer over a real connection. The same client still gets
// a valid answer about another pod.
func TestInvalidAnswerHarmsItsPodOnly(t *testing.T) {
	var b strings.Builder
	for _, l := range invalidAnswers() {
		t.Run(l.name, func(t *testing.T) {
			root := newRoot(t)
			f := &fake{pods: append(l.pods, pod("ns", "valid", container("c", "r=1")))}
			f.start(t, root)
			c := newClient(t, root)
			_, err := c.Pod(t.Context(), "ns", "pod")
			var d *diag.Diagnostic
			if !errors.Is(err, l.sentinel) || !errors.As(err, &d) || d.File != socket || !strings.HasPrefix(d.Field, "pod_resources[1]") {
				t.Fatalf("%#v (%v), want %v", err, err, l.sentinel)
			}
			fmt.Fprintf(&b, "%s\n    %v\n", l.name, err)
			if _, err := c.Pod(t.Context(), "ns", "valid"); err != nil {
				t.Errorf("the valid answer: %v", err)
			}
		})
	}
	const file = "testdata/invalid_answers.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" && !t.Failed() {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestInvalidMessagesAreRefused(t *testing.T) {
	list := func(pods ...*v1.PodResources) []byte {
		return marshal(t, &v1.ListPodResourcesResponse{PodResources: pods})
	}
	for _, c := range []struct {
		name     string
		raw      []byte
		sentinel error
		says     string
	}{
		{"empty", []byte{}, errdefs.ErrNotFound, "the kubelet does not list the pod"},
		{"another pod", list(pod("ns", "victim", container("c", "r=1"))), errdefs.ErrNotFound, "the kubelet does not list the pod"},
		{"another namespace", list(pod("victim", "pod")), errdefs.ErrNotFound, "the kubelet does not list the pod"},
		{"truncated", list(pod("ns", "pod", container("c")))[:9], errdefs.ErrUnknown, "failed to unmarshal"},
		{"garbage", []byte("\xff\xfe\xfdgarbage"), errdefs.ErrUnknown, "failed to unmarshal"},
		{"not UTF-8", []byte{0x0a, 3, 0x0a, 1, 0xff}, errdefs.ErrUnknown, "failed to unmarshal"},
		{"too large", make([]byte, maxAnswer+1), errdefs.ErrResourceExhausted, "larger than 16 MiB"},
		{"pod twice", list(pod("ns", "pod", container("c", "r=1")), pod("x", "y"), pod("ns", "pod", container("c", "r=2"))), errdefs.ErrConflict, "pod_resources[2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := newRoot(t)
			f := &fake{raw: c.raw}
			f.start(t, root)
			_, err := newClient(t, root).Pod(t.Context(), "ns", "pod")
			wantErr(t, err, c.sentinel, c.says, socket)
		})
	}
}

// TestListWithDevicesThatCountMemory has a device plugin with an ID for each MiB of memory, as some GPU plugins have. The
// kubelet lists an entry with the resource's name for each ID.
func TestListWithDevicesThatCountMemory(t *testing.T) {
	gpu := &v1.ContainerResources{Name: "train"}
	for i := range 81920 {
		id := fmt.Sprintf("GPU-0b7c65f1-6de8-4f10-9d21-000000000000-_-%d", i)
		gpu.Devices = append(gpu.Devices, &v1.ContainerDevices{ResourceName: "example.com/gpu-mem", DeviceIds: []string{id}})
	}
	raw := marshal(t, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{pod("ml", "train-0", gpu), pod("ns", "pod", container("c", "r=1"))}})
	root := newRoot(t)
	(&fake{raw: raw}).start(t, root)
	c := newClient(t, root)
	if a, err := c.Pod(t.Context(), "ns", "pod"); err != nil || a[0].IDs("r")[0] != "1" {
		t.Errorf("another pod of the node: %+v, %v", a, err)
	}
	if a, err := c.Pod(t.Context(), "ml", "train-0"); err != nil || len(a[0].IDs("example.com/gpu-mem")) != 81920 {
		t.Errorf("the pod itself: %d containers, %v", len(a), err)
	}
}

// A pod may be listed twice with the same devices. Fields of a later version are ignored.
func TestListIgnoresDuplicatesAndUnknownFields(t *testing.T) {
	listed := pod("ns", "pod", container("c", "r=1"))
	raw := marshal(t, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{listed, nil, listed}})
	raw = append(raw, 0xa2, 0x06, 3, 'n', 'e', 'w') // field 100
	root := newRoot(t)
	(&fake{raw: raw}).start(t, root)
	a, err := newClient(t, root).Pod(t.Context(), "ns", "pod")
	if err != nil || a[0].IDs("r")[0] != "1" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestKubeletRefusesCall(t *testing.T) {
	long := strings.Repeat("very ", 1000) + "\x1b[31mlong"
	for _, c := range []struct {
		code     codes.Code
		sentinel error
	}{
		{codes.PermissionDenied, errdefs.ErrPermissionDenied},
		{codes.Unauthenticated, errdefs.ErrPermissionDenied},
		{codes.Internal, errdefs.ErrUnknown},
		{codes.Unimplemented, errdefs.ErrUnknown},
		{codes.Code(99), errdefs.ErrUnknown},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			root := newRoot(t)
			f := &fake{listErr: func() error { return status.Error(c.code, long) }}
			f.start(t, root)
			_, err := newClient(t, root).Pod(t.Context(), "ns", "pod")
			wantErr(t, err, c.sentinel, socket, "very")
			if len(err.Error()) > 600 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%d bytes: %.700q", len(err.Error()), err)
			}
			if n := f.lists.Load(); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// FuzzFindPod checks that any answer gives a diagnostic or the pod's containers, with names that are unique.
func FuzzFindPod(f *testing.F) {
	f.Add(marshal(f, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{pod("x", "y"), pod("ns", "pod", container("a", "r=1"), container("b"))}}))
	for _, l := range invalidAnswers() {
		if b := marshal(f, &v1.ListPodResourcesResponse{PodResources: l.pods}); len(b) < 4096 {
			f.Add(b)
		}
	}
	q := query{wanted: "the devices of pod", namespace: "ns", name: "pod", socket: socket}
	f.Fuzz(func(t *testing.T, b []byte) {
		var answer v1.ListPodResourcesResponse
		if proto.Unmarshal(b, &answer) != nil {
			return
		}
		a, err := q.findPod(&answer)
		if err != nil {
			var d *diag.Diagnostic
			if !errors.As(err, &d) || d.File != socket || d.Unwrap() == nil {
				t.Errorf("%#v", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, c := range a {
			if c.Name == "" || seen[c.Name] {
				t.Errorf("container %q", c.Name)
			}
			seen[c.Name] = true
		}
	})
}
