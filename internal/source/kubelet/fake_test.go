// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

const socket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// fake is a kubelet: a gRPC server with the public API. Its fields are set before it
// starts.
type fake struct {
	v1.UnimplementedPodResourcesListerServer
	pods  []*v1.PodResources
	delay time.Duration // before each answer; ends with the request
	// listErr is the error of List; nil lets it work.
	listErr func() error
	// raw replaces the message of any answer.
	raw []byte

	lists atomic.Int32
	stop  func() // stops the server; when it returns, nothing listens
}

// wait delays an answer, while the request lasts.
func (f *fake) wait(ctx context.Context) error {
	select {
	case <-time.After(f.delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	f.lists.Add(1)
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	if f.listErr != nil {
		if err := f.listErr(); err != nil {
			return nil, err
		}
	}
	return &v1.ListPodResourcesResponse{PodResources: f.pods}, nil
}

// serverCodec lets an interceptor answer with any bytes.
type serverCodec struct{}

func (serverCodec) Name() string { return "proto" }

func (serverCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (serverCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

// start serves on the socket below root, and replaces an existing one.
func (f *fake) start(t testing.TB, root hostfs.Root) {
	t.Helper()
	l := listen(t, root)
	opts := []grpc.ServerOption{grpc.ForceServerCodecV2(serverCodec{}), grpc.MaxSendMsgSize(1 << 30)}
	if f.raw != nil {
		opts = append(opts, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if _, err := h(ctx, req); err != nil {
				return nil, err
			}
			return f.raw, nil
		}))
	}
	srv := grpc.NewServer(opts...)
	v1.RegisterPodResourcesListerServer(srv, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.Serve(l)
	}()
	f.stop = func() {
		// A server that is stopped before Serve has begun leaves the listener to Serve.
		srv.Stop()
		<-served
	}
	t.Cleanup(f.stop)
}

// listen creates the socket below root, and replaces an existing one. Its file stays when
// the listener is closed.
func listen(t testing.TB, root hostfs.Root) net.Listener {
	t.Helper()
	return listenAt(t, root, socket)
}

func listenAt(t testing.TB, root hostfs.Root, path string) net.Listener {
	t.Helper()
	p := root.Path(path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(p)
	// The path of a test directory can be longer than a socket address.
	dir, err := os.Open(filepath.Dir(p))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", "/proc/self/fd/"+strconv.Itoa(int(dir.Fd()))+"/"+filepath.Base(p))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l
}

func newRoot(t testing.TB) hostfs.Root {
	t.Helper()
	root, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// hangTimeout is longer than any delay of a busy machine.
const hangTimeout = time.Minute

// noDelay bounds the mean time of a call that does not wait. grpc's backoff is a second.
const noDelay = 300 * time.Millisecond

// client asks the kubelet behind socket.
type client struct {
	host   hostfs.Root
	socket string
}

func (c client) Pod(ctx context.Context, namespace, name string) (allocation.Allocation, error) {
	return QueryPod(ctx, c.host, c.socket, namespace, name)
}

func newClient(t testing.TB, root hostfs.Root) client {
	t.Helper()
	return client{root, socket}
}

func pod(namespace, name string, containers ...*v1.ContainerResources) *v1.PodResources {
	return &v1.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

func container(name string, idsOf ...string) *v1.ContainerResources {
	c := &v1.ContainerResources{Name: name}
	for _, s := range idsOf {
		resource, id, _ := strings.Cut(s, "=")
		c.Devices = append(c.Devices, &v1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
	}
	return c
}

// checkLeaks fails the test unless the numbers of goroutines and descriptors return to
// those before.
func checkLeaks(t testing.TB, goroutines, fds int) {
	t.Helper()
	for end := time.Now().Add(hangTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if runtime.NumGoroutine() <= goroutines && descriptors(t) <= fds {
			return
		}
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before, %d descriptors, %d before:\n%s", runtime.NumGoroutine(), goroutines,
		descriptors(t), fds, buf[:runtime.Stack(buf, true)])
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
