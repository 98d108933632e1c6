// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
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

type lie struct {
	name     string
	pods     []*v1.PodResources
	sentinel error
}

func lies() []lie {
	one := func(p *v1.PodResources) []*v1.PodResources { return []*v1.PodResources{pod("other", "x"), p} }
	claims := func(rs ...*v1.ClaimResource) []*v1.PodResources {
		return one(pod("ns", "pod", &v1.ContainerResources{Name: "c", DynamicResources: []*v1.DynamicResource{
			{ClaimNamespace: "ns", ClaimName: "claim", ClaimResources: rs}}}))
	}
	ids := func(resource string, ids ...string) []*v1.PodResources {
		return one(pod("ns", "pod", &v1.ContainerResources{Name: "c", Devices: []*v1.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}}))
	}
	many := func(n int) []string { return strings.Split(strings.Repeat("x,", n-1)+"x", ",") }
	var containers []*v1.ContainerResources
	for i := range 1025 {
		containers = append(containers, container(fmt.Sprint("c", i)))
	}
	return []lie{
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
		{"too many IDs", ids("r", many(16385)...), errdefs.ErrInvalidArgument},
		{"nil claim", one(pod("ns", "pod", &v1.ContainerResources{Name: "c", DynamicResources: []*v1.DynamicResource{nil}})), errdefs.ErrInvalidArgument},
		{"nil CDI device", claims(&v1.ClaimResource{DriverName: "d", CdiDevices: []*v1.CDIDevice{nil}}), errdefs.ErrInvalidArgument},
		{"CDI name", claims(&v1.ClaimResource{}, &v1.ClaimResource{CdiDevices: []*v1.CDIDevice{{Name: "a\tb"}}}), errdefs.ErrInvalidArgument},
		{"claim driver", claims(&v1.ClaimResource{DriverName: "d\x00"}), errdefs.ErrInvalidArgument},
		{"large pod", one(pod("ns", "pod", &v1.ContainerResources{Name: "c", CpuIds: make([]int64, 300<<10)})), errdefs.ErrInvalidArgument},
	}
}

// Each lie is told by Get and by List, over a real connection; a pod that nobody
// lies about is served by the same client.
func TestLies(t *testing.T) {
	var b strings.Builder
	for _, l := range lies() {
		t.Run(l.name, func(t *testing.T) {
			for _, getErr := range []func(*v1.GetPodResourcesRequest) error{nil, unimplemented} {
				root := newRoot(t)
				f := &fake{pods: append(l.pods, pod("ns", "honest", container("c", "r=1"))), getErr: getErr}
				f.start(t, root)
				c := newClient(t, root, Options{})
				_, err := c.Pod(t.Context(), key)
				var e *Error
				if !errors.Is(err, l.sentinel) || !errors.As(err, &e) || e.Socket != socket || e.Field == "" {
					t.Fatalf("%#v (%v), want %v", err, err, l.sentinel)
				}
				if getErr == nil {
					fmt.Fprintf(&b, "%s\n    %v\n", l.name, err)
				} else if !strings.Contains(e.Field, "pod_resources[1]") {
					t.Errorf("field is %q", e.Field)
				}
				if _, err := c.Pod(t.Context(), PodKey{Namespace: "ns", Name: "honest", UID: "uid"}); err != nil {
					t.Errorf("the honest answer: %v", err)
				}
			}
		})
	}
	const file = "testdata/lies.golden"
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

func TestRawLies(t *testing.T) {
	get := func(p *v1.PodResources) []byte { return marshal(t, &v1.GetPodResourcesResponse{PodResources: p}) }
	// Eight million empty entries just below the limit: decoded, they are a gigabyte.
	nothing := bytes.Repeat([]byte{0x0a, 0x00}, 8<<20-16)
	for _, c := range []struct {
		name     string
		getErr   func(*v1.GetPodResourcesRequest) error
		raw      []byte
		sentinel error
		says     string
	}{
		{"empty Get", nil, []byte{}, errdefs.ErrInvalidArgument, "Get: pod_resources: it is missing"},
		{"another pod", nil, get(pod("ns", "victim", container("c", "r=1"))), errdefs.ErrInvalidArgument, `about pod "ns/victim"`},
		{"another namespace", nil, get(pod("victim", "pod")), errdefs.ErrInvalidArgument, `about pod "victim/pod"`},
		{"Get with two pods", nil, append(get(pod("ns", "pod")), get(pod("ns", "pod"))...), errdefs.ErrInvalidArgument, "more than 1 times"},
		{"truncated", nil, get(pod("ns", "pod", container("c")))[:9], errdefs.ErrInvalidArgument, "not protobuf"},
		{"garbage", nil, []byte("\xff\xfe\xfdgarbage"), errdefs.ErrInvalidArgument, "not protobuf"},
		{"garbage within", nil, []byte{0x0a, 2, 0x0a, 9}, errdefs.ErrInvalidArgument, "pod_resources: not protobuf"},
		{"not UTF-8", nil, []byte{0x0a, 3, 0x0a, 1, 0xff}, errdefs.ErrInvalidArgument, "pod_resources: not protobuf"},
		{"wire type", nil, []byte{0x08, 1}, errdefs.ErrInvalidArgument, "wire type 0"},
		{"too large Get", nil, make([]byte, 16<<20+1), errdefs.ErrResourceExhausted, "16777216 bytes"},
		{"too large List", unimplemented, make([]byte, 16<<20+1), errdefs.ErrResourceExhausted, "16777216 bytes"},
		{"16 MiB of nothing", unimplemented, nothing, errdefs.ErrInvalidArgument, "more than 65536 times"},
		{"pod twice", unimplemented, marshal(t, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{
			pod("ns", "pod", container("c", "r=1")), pod("x", "y"), pod("ns", "pod", container("c", "r=2"))}}), errdefs.ErrConflict, "pod_resources[2]"},
		{"garbage in List", unimplemented, []byte{0x0a, 0xff}, errdefs.ErrInvalidArgument, "List: byte 1 of 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := newRoot(t)
			f := &fake{raw: c.raw, getErr: c.getErr}
			f.start(t, root)
			client := newClient(t, root, Options{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := client.Pod(t.Context(), key)
			runtime.ReadMemStats(&after)
			wantErr(t, err, c.sentinel, c.says, socket)
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 256<<20 {
				t.Errorf("took %d MiB", grown>>20)
			}
		})
	}
}

// The same pod listed twice with the same devices contradicts nobody, and fields
// of a later version are passed over.
func TestHarmlessOddities(t *testing.T) {
	same := pod("ns", "pod", container("c", "r=1"))
	raw := marshal(t, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{same, nil, same}})
	raw = append(raw, 0xa2, 0x06, 3, 'n', 'e', 'w') // field 100
	root := newRoot(t)
	(&fake{raw: raw, getErr: unimplemented}).start(t, root)
	a, err := newClient(t, root, Options{}).Pod(t.Context(), key)
	if err != nil || a.Containers[0].IDs("r")[0] != "1" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestRefusals(t *testing.T) {
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
		{codes.Unavailable, errdefs.ErrUnavailable},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			root := newRoot(t)
			f := &fake{getErr: unimplemented, listErr: func() error { return status.Error(c.code, long) }}
			f.start(t, root)
			_, err := newClient(t, root, Options{}).Pod(t.Context(), key)
			wantErr(t, err, c.sentinel, "List", socket, "very")
			if len(err.Error()) > 600 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%d bytes: %.700q", len(err.Error()), err)
			}
			if n := f.lists.Load(); n > 2 {
				t.Errorf("%d calls", n)
			}
		})
	}
}
