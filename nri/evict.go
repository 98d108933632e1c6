// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// NRI has messages for evictions, and no version of it (0.12.5 is the newest) passes
// those of a plugin on to the runtime. So a container is stopped over CRI.

// evictionTimeout bounds the stop of one container.
const evictionTimeout = 30 * time.Second

// defaultRuntimeSockets are the CRI sockets of runtimes, by the name that they give
// themselves in NRI.
var defaultRuntimeSockets = map[string]string{
	"containerd": "/run/containerd/containerd.sock",
	"cri-o":      "/run/crio/crio.sock",
}

// evictAll stops containers, one after the other. Each is checked again right before: a
// container that ended, or that would be refused now, is not stopped.
func (m *missedContainers) evictAll(suspects []suspect) {
	for _, s := range suspects {
		if !m.mayEvict(s.c.GetId()) || !m.check(s).deliverable {
			continue
		}
		log := m.p.containerLog(s.pod, s.c)
		if err := m.evict(s.c.GetId()); err != nil {
			log.WithError(err).Error("the container, which runs without what it asked for, could not be evicted; it is tried again in a minute")
			return // the next one would fail for the same reason
		}
		m.noteEviction(s.c.GetId())
		log.Warn("evicted the container, which ran without what it asked for: the kubelet creates it again as the pod's restartPolicy says")
		wait(m.quit, evictionInterval)
	}
}

// mayEvict reports whether a container lives, and was not stopped before.
func (m *missedContainers) mayEvict(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, missed := m.found[id]
	return missed && !m.evicted[id] && m.quit.Err() == nil
}

// noteEviction drops a container that was stopped: of one that is older than its own
// process containerd does not tell the plugin that it has ended.
func (m *missedContainers) noteEviction(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.suspects, id)
	delete(m.found, id)
	m.evicted[id] = true
}

func (m *missedContainers) evict(id string) error {
	socket := m.p.core.Load().cfg.Runtime.Socket
	if socket == "" {
		socket = defaultRuntimeSockets[m.p.runtimeName()]
	}
	if socket == "" {
		return fmt.Errorf("the CRI socket of runtime %q is not known: set runtime.socket: %w", m.p.runtimeName(), errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(m.quit, evictionTimeout)
	defer cancel()
	if err := stopContainer(ctx, m.p.opts.Host, socket, id); err != nil {
		return fmt.Errorf("stop container over the CRI socket %s (runtime.socket): %w", socket, err)
	}
	return nil
}

// stopContainer has the runtime kill a container. SIGKILL is what the runtimes' own NRI
// evictions send: a job that ends in good order on SIGTERM would count as done.
func stopContainer(ctx context.Context, host hostfs.Root, socket, id string) error {
	cc, err := grpc.NewClient("passthrough:///container-runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", host.Path(socket))
		}),
		grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck())
	if err != nil {
		return err
	}
	defer cc.Close()
	// A StopContainerRequest with an ID and no timeout reads as a StringValue: its field 1
	// is the text. The response has no field.
	return cc.Invoke(ctx, "/runtime.v1.RuntimeService/StopContainer", wrapperspb.String(id), &emptypb.Empty{})
}
