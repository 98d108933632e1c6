// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// SocketPath is where a kubelet serves, below a host root.
const SocketPath = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Generation is the age of a kubelet, which decides whether Get works.
type Generation int

// The generations.
const (
	WithGet     Generation = iota // from 1.34
	GetDisabled                   // from 1.27, with the feature gate off: code Unknown
	WithoutGet                    // before: code Unimplemented
)

// Calls counts requests.
type Calls struct{ Get, List int }

// Server is one kubelet. It is safe for concurrent use.
type Server struct {
	socket string

	mu    sync.Mutex
	grpc  *grpc.Server // nil while stopped
	done  chan struct{}
	pods  []*v1.PodResources
	gen   Generation
	delay time.Duration
	err   error
	lie   Lie
	about [2]string // namespace and name of the pod of a lie of List
	calls Calls
}

// Start serves on the Unix socket at path, and creates its directory.
func Start(path string) (*Server, error) {
	s := &Server{socket: path}
	return s, s.Start()
}

// StartUnder serves at SocketPath below the host root dir.
func StartUnder(dir string) (*Server, error) { return Start(filepath.Join(dir, SocketPath)) }

// Socket returns the path of the socket.
func (s *Server) Socket() string { return s.socket }

// Start serves again after Stop. As a kubelet does, it replaces the socket.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return fmt.Errorf("start fake kubelet on %q: it is running", s.socket)
	}
	l, err := listen(s.socket)
	if err != nil {
		return fmt.Errorf("start fake kubelet: %w", err)
	}
	srv := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnaryInterceptor(s.intercept), grpc.MaxSendMsgSize(1<<30))
	v1.RegisterPodResourcesListerServer(srv, &api{server: s})
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	s.grpc, s.done = srv, done
	return nil
}

// Stop ends the server and its calls at once. The socket file stays, as it does when a
// kubelet is killed.
func (s *Server) Stop() {
	s.mu.Lock()
	srv, done := s.grpc, s.done
	s.grpc = nil
	s.mu.Unlock()
	if srv != nil {
		srv.Stop()
		<-done
	}
}

// Restart stops and starts the server.
func (s *Server) Restart() error {
	s.Stop()
	return s.Start()
}

// SetPods replaces the pods of the server.
func (s *Server) SetPods(pods ...*v1.PodResources) {
	s.set(func() { s.pods = pods })
}

// SetGeneration sets the age of the kubelet.
func (s *Server) SetGeneration(g Generation) { s.set(func() { s.gen = g }) }

// SetDelay delays every answer.
func (s *Server) SetDelay(d time.Duration) { s.set(func() { s.delay = d }) }

// SetError makes every call fail with err; nil ends it.
func (s *Server) SetError(err error) { s.set(func() { s.err = err }) }

// SetLie makes the server lie; Honest ends it. List, which names no pod, lies about the
// given one.
func (s *Server) SetLie(l Lie, namespace, name string) {
	s.set(func() { s.lie, s.about = l, [2]string{namespace, name} })
}

// Calls returns the number of calls since the start of the test.
func (s *Server) Calls() Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *Server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// intercept counts and delays a call, and answers it with an error or a lie.
func (s *Server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	get := info.FullMethod == v1.PodResourcesLister_Get_FullMethodName
	if get {
		s.calls.Get++
	} else if info.FullMethod == v1.PodResourcesLister_List_FullMethodName {
		s.calls.List++
	}
	delay, refuse, lie, about, gen := s.delay, s.err, s.lie, s.about, s.gen
	s.mu.Unlock()
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if refuse != nil {
		return nil, refuse
	}
	if get && gen == WithoutGet {
		return nil, status.Errorf(codes.Unimplemented, "unknown method Get for service v1.PodResourcesLister")
	}
	if get && gen == GetDisabled {
		return nil, errors.New("PodResources API Get method disabled")
	}
	if lie != Honest {
		return lie.answer(req, about)
	}
	return h(ctx, req)
}

// api answers as a kubelet does.
type api struct {
	v1.UnimplementedPodResourcesListerServer
	server *Server
}

func (a *api) known() []*v1.PodResources {
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	return a.server.pods
}

func (a *api) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return &v1.ListPodResourcesResponse{PodResources: a.known()}, nil
}

// Get answers as the kubelet does, whose errors carry no code (Unknown).
func (a *api) Get(_ context.Context, req *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	for _, p := range a.known() {
		if p.GetName() == req.GetPodName() && p.GetNamespace() == req.GetPodNamespace() {
			return &v1.GetPodResourcesResponse{PodResources: p}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
}

// codec lets a lie answer with any bytes.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		m, ok := v.(proto.Message)
		if !ok {
			return nil, fmt.Errorf("marshal %T: not a protobuf message", v)
		}
		var err error
		if b, err = proto.Marshal(m); err != nil {
			return nil, err
		}
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshal into %T: not a protobuf message", v)
	}
	return proto.Unmarshal(data.Materialize(), m)
}

// listen creates the socket through a descriptor of its directory, because the path of a
// test directory can be longer than a socket address.
func listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(path))})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the address names a descriptor that is closed later
	return l, nil
}
