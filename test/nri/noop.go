// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"fmt"
	"net"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// Noop is a plugin that subscribes to Jackfield's events and does nothing. Its cost is that of NRI.
type Noop struct{}

// Configure subscribes to the same events as Jackfield.
func (Noop) Configure(context.Context, string, string, string) (stub.EventMask, error) {
	var mask stub.EventMask
	mask.Set(api.Event_RUN_POD_SANDBOX, api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_STOP_CONTAINER,
		api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX)
	return mask, nil
}

// Synchronize does nothing.
func (Noop) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

// RunPodSandbox does nothing.
func (Noop) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

// CreateContainer injects nothing.
func (Noop) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

// StartContainer does nothing.
func (Noop) StartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

// StopContainer does nothing.
func (Noop) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

// RemoveContainer does nothing.
func (Noop) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

// RemovePodSandbox does nothing.
func (Noop) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// StartPlugin connects any stub plugin, Noop{} for example, to an NRI socket as
// "idx-name" in this process, and returns once the runtime has configured it
// (see Runtime.WaitPlugin for more). stop disconnects it; it may be called twice.
//
// An empty socket, idx and name are right for a pre-installed plugin: the
// runtime has put them into its environment.
func StartPlugin(ctx context.Context, socket, idx, name string, plugin any) (stop func(), err error) {
	opts := []stub.Option{
		stub.WithLogger(discard{}),
		// Without this the stub ends the whole process when the connection goes.
		stub.WithOnClose(func() {}),
		stub.WithDialer(func(path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
	}
	if socket != "" {
		opts = append(opts, stub.WithPluginIdx(idx), stub.WithPluginName(name), stub.WithSocketPath(socket))
	}
	s, err := stub.New(plugin, opts...)
	if err != nil {
		return nil, fmt.Errorf("make NRI plugin %q: %w", idx+"-"+name, err)
	}
	if err := s.Start(ctx); err != nil {
		return nil, fmt.Errorf("start NRI plugin %q: %w", idx+"-"+name, err)
	}
	return s.Stop, nil
}
