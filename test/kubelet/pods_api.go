// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// PodsSocketPath is where a kubelet serves the Pods API, below a host root.
const PodsSocketPath = "/var/lib/kubelet/pods-api/pods-api.sock"

// PodsServer is the Pods API of a kubelet of Kubernetes 1.37. It is safe for concurrent use.
type PodsServer struct {
	v1alpha1.UnimplementedPodsServer
	socket string
	grpc   *grpc.Server
	done   chan struct{}

	mu       sync.Mutex
	pods     []*corev1.Pod
	starting bool
	calls    int
}

// StartPodsUnder serves at PodsSocketPath below the host root dir.
func StartPodsUnder(dir string) (*PodsServer, error) {
	socket := filepath.Join(dir, PodsSocketPath)
	l, err := listen(socket)
	if err != nil {
		return nil, fmt.Errorf("start fake Pods API: %w", err)
	}
	s := &PodsServer{socket: socket, grpc: grpc.NewServer(), done: make(chan struct{})}
	v1alpha1.RegisterPodsServer(s.grpc, s)
	go func() {
		defer close(s.done)
		s.grpc.Serve(l)
	}()
	return s, nil
}

// Socket returns the path of the socket.
func (s *PodsServer) Socket() string { return s.socket }

// Stop ends the server. The socket file stays.
func (s *PodsServer) Stop() {
	s.grpc.Stop()
	<-s.done
}

// SetPods replaces the pods of the server.
func (s *PodsServer) SetPods(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
}

// SetStarting makes the server refuse calls, as a kubelet does that does not know its pods yet.
func (s *PodsServer) SetStarting(starting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = starting
}

// Calls returns the number of calls.
func (s *PodsServer) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *PodsServer) serve() ([]*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.starting {
		return nil, status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	return s.pods, nil
}

// GetPod returns the pod of a UID.
func (s *PodsServer) GetPod(_ context.Context, req *v1alpha1.GetPodRequest) (*v1alpha1.GetPodResponse, error) {
	pods, err := s.serve()
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if string(p.UID) == req.GetPodUID() {
			data, err := p.Marshal()
			return &v1alpha1.GetPodResponse{Pod: data}, err
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", req.GetPodUID())
}

// ListPods returns all pods.
func (s *PodsServer) ListPods(context.Context, *v1alpha1.ListPodsRequest) (*v1alpha1.ListPodsResponse, error) {
	pods, err := s.serve()
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.ListPodsResponse{}
	for _, p := range pods {
		data, err := p.Marshal()
		if err != nil {
			return nil, err
		}
		answer.Pods = append(answer.Pods, data)
	}
	return answer, nil
}
