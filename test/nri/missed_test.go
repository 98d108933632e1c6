// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/report/status"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

var asksForA = map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}

func missed(ids ...string) func(s *status.Node) bool {
	slices.Sort(ids)
	return func(s *status.Node) bool {
		var found []string
		for _, c := range s.Missed {
			found = append(found, c.ContainerID)
		}
		slices.Sort(found)
		return slices.Equal(found, ids)
	}
}

// created is a container of a new pod, created by whatever plugin is connected.
func (n *node) created(namespace string, annotations map[string]string, change func(*api.Container)) *api.Container {
	n.t.Helper()
	c, err := n.create(n.pod(namespace, annotations), change)
	check(n.t, err)
	return c.Container
}

// Containers that are created while the plugin is not connected, and lack what they requested, are in
// the log, the status, the doctor's report and a metric until they end. Others are not.
func TestMissedContainersAreReported(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
	const info = `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`

	given := n.created("dpdk-1", asksForA, nil) // the plugin is there
	n.status("a container that was given its device", containers(1))
	eventually(t, "a record", func() bool { return n.records() == 1 })
	var lacks, refused, network *api.Container
	quiet := map[string]*api.Container{"given": given}
	n.anotherWith(t, observedYAML, func() {
		lacks = n.created("dpdk-1", asksForA, nil)
		refused = n.created("other", asksForA, nil)
		pod := nritest.NewPod("dpdk-1", "p", nil)
		n.devinfo(pod, "vhost-net", "net1", info)
		check(t, n.runtime.RunPodSandbox(context.Background(), pod))
		network = n.mustCreate(pod).Container

		quiet["requests nothing"] = n.created("dpdk-1", nil, nil)
		quiet["optional"] = n.created("dpdk-1", map[string]string{"devices.jackfield.dev": `[{"device": "vendor.com/net=a", "optional": true}]`}, nil)
		unmanaged := nritest.NewPod("other", "p", nil)
		n.devinfo(unmanaged, "vhost-net", "net1", info)
		check(t, n.runtime.RunPodSandbox(context.Background(), unmanaged))
		quiet["no rule is for its network"] = n.mustCreate(unmanaged).Container
		// Its record is lost, or somebody else gave it the device.
		quiet["has it"] = n.created("dpdk-1", asksForA, func(c *api.Container) {
			c.Env = append(c.Env, "VENDOR=1", "DEV=a")
			c.Mounts = []*api.Mount{{Destination: "/opt/vendor/cdi", Source: "/run/cdi", Type: "bind", Options: []string{"ro"}}}
			c.Hooks = &api.Hooks{CreateRuntime: []*api.Hook{{Path: "/bin/true", Args: []string{"true"}}}}
			c.Linux.Devices = []*api.LinuxDevice{{Path: "/dev/net-a", Type: "c", Major: 1, Minor: 5}}
		})
		quiet["has the usage annotation"] = n.created("dpdk-1", asksForA, func(c *api.Container) {
			c.Annotations = map[string]string{"usage.jackfield.dev": "cdi=1,devices=1,sockets=0,mounts=1,hooks=1"}
		})
		quiet["has its directory"] = n.created("dpdk-1", asksForA, func(c *api.Container) {
			c.Id = nritest.NewID()
			c.Mounts = []*api.Mount{{Destination: "/var/run/jackfield", Source: n.path("/run/jackfield/containers/" + c.Id), Type: "bind"}}
		})
		ended := n.created("dpdk-1", asksForA, nil)
		ended.State = api.ContainerState_CONTAINER_STOPPED
		n.runtime.AddContainer(ended)
		quiet["ended"] = ended
	})
	s := n.status("three missed containers", missed(lacks.Id, refused.Id, network.Id))
	for what, c := range quiet {
		if slices.ContainsFunc(s.Missed, func(m status.Container) bool { return m.ContainerID == c.Id }) {
			t.Errorf("%s: reported", what)
		}
	}
	n.metrics("jackfield_containers_missed 3")
	for _, c := range []*api.Container{lacks, refused, network} {
		line := "containerID=" + c.Id
		if log := n.log.String(); strings.Count(log, "was created while jackfield-nri was not connected") != 3 || !strings.Contains(log, line) {
			t.Errorf("the log does not name %s once:\n%s", c.Id, log)
		}
	}
	for _, m := range s.Missed {
		want := map[string]string{lacks.Id: `CDI device "vendor.com/net=a" injected`, refused.Id: `CDI device "vendor.com/net=a" refused`,
			network.Id: `network "dpdk-1/vhost-net" on net1 injected`}[m.ContainerID]
		if len(m.Requests) != 1 || m.Requests[0].Request+" "+m.Requests[0].Outcome != want {
			t.Errorf("the requests of %s are %+v, want %s", m.ContainerID, m.Requests, want)
		}
	}

	run := func(args ...string) string {
		var out bytes.Buffer
		cli.Run(context.Background(), append(args, "--root", n.dir), cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: os.Getenv})
		return out.String()
	}
	for _, want := range []string{"3 running lack what they requested", "dpdk-1/p/c  " + lacks.Id + "  lacks what it requested", "would be injected now", "closest rule"} {
		if out := run("status"); !strings.Contains(out, want) {
			t.Errorf("status does not say %q:\n%s", want, out)
		}
	}
	if out := run("doctor"); !strings.Contains(out, "warning  missed") || !strings.Contains(out, "- other/p/c  "+refused.Id) {
		t.Errorf("doctor says:\n%s", out)
	}

	// One after the other goes.
	podOf := func(c *api.Container) *api.PodSandbox { return &api.PodSandbox{Id: c.PodSandboxId} }
	check(t, n.runtime.RemoveContainer(context.Background(), podOf(lacks), lacks))
	n.status("the container is removed", missed(refused.Id, network.Id))
	check(t, n.runtime.RemovePodSandbox(context.Background(), podOf(refused)))
	n.status("the pod is removed", missed(network.Id))
	stopped := network
	stopped.State = api.ContainerState_CONTAINER_STOPPED
	check(t, n.runtime.StopContainer(context.Background(), podOf(network), stopped))
	n.status("the container has ended", missed())
	n.metrics("jackfield_containers_missed 0")
	if out := run("doctor"); !strings.Contains(out, "ok       missed") {
		t.Errorf("doctor says:\n%s", out)
	}
}

// A missed container does not count for its pod's limits until it is created again.
func TestMissedContainersDoNotCountForLimits(t *testing.T) {
	const limited = policyYAML + `
    - {name: quota, for: {namespaces: ["dpdk-*"]}, limits: {pod: {cdi: 1}}}
`
	n := newNode(t, limited, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	var pod *api.PodSandbox
	var c *nritest.Created
	n.anotherWith(t, limited, func() {
		pod = n.pod("dpdk-1", asksForA)
		c = n.mustCreate(pod)
	})
	n.status("a missed container", missed(c.Container.Id))
	if _, err := n.create(pod, func(c *api.Container) { c.Name = "another" }); err != nil {
		t.Errorf("the limit is used up by a container that has nothing: %v", err)
	}
}

// criServer is a runtime's CRI socket, of which a stop ends the container in the runtime.
type criServer struct {
	cri.UnimplementedRuntimeServiceServer
	n       *node
	stopped chan *cri.StopContainerRequest
	stuck   atomic.Pointer[string] // the ID of a container that cannot be stopped; nil for none
}

func (s *criServer) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	if stuck := s.stuck.Load(); stuck != nil && *stuck == r.ContainerId {
		return nil, grpcstatus.Error(codes.Unknown, "a process of the container cannot be killed")
	}
	s.stopped <- r
	return &cri.StopContainerResponse{}, nil
}

func (n *node) serveCRI(socket string) *criServer {
	n.t.Helper()
	check(n.t, os.MkdirAll(filepath.Dir(n.path(socket)), 0o755))
	l, err := net.Listen("unix", n.path(socket))
	check(n.t, err)
	s := &criServer{n: n, stopped: make(chan *cri.StopContainerRequest, 100)}
	srv := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(srv, s)
	go func() { _ = srv.Serve(l) }()
	n.t.Cleanup(srv.Stop)
	return s
}

// With missed: evict, each container that would get everything now is stopped once.
func TestMissedContainersAreEvicted(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	server := n.serveCRI("/run/containerd/containerd.sock")
	var first, second, refused, absent *api.Container
	n.anotherWith(t, observedYAML+"\nmissed: evict\n", func() {
		first = n.created("dpdk-1", asksForA, nil)
		second = n.created("dpdk-1", asksForA, nil)
		refused = n.created("other", asksForA, nil)
		absent = n.created("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a,vendor.com/net=absent"}, nil)
	})
	eventually(t, "four missed containers", func() bool { return strings.Count(n.log.String(), "runs without what it requested") == 4 })
	var stopped []string
	eventually(t, "two evictions", func() bool {
		select {
		case r := <-server.stopped:
			if r.Timeout != 0 {
				t.Errorf("a stop with a timeout of %d s, want a kill", r.Timeout)
			}
			stopped = append(stopped, r.ContainerId)
		default:
		}
		return len(stopped) == 2
	})
	want := []string{first.Id, second.Id}
	slices.Sort(want)
	slices.Sort(stopped)
	if !slices.Equal(stopped, want) {
		t.Errorf("evicted %q, want %q", stopped, want)
	}
	n.status("those that cannot have all are left", missed(refused.Id, absent.Id))
	// The runtime connects again, and the containers still run: they are not stopped twice.
	eventually(t, "both evictions are logged", func() bool { return strings.Count(n.log.String(), "evicted the container") == 2 })
	check(t, n.runtime.Restart())
	n.wait()
	third := nritest.NewPod("dpdk-1", "p", asksForA)
	n.runtime.AddPod(third)
	check(t, n.runtime.Suspend())
	ctr := &api.Container{Id: nritest.NewID(), PodSandboxId: third.Id, Name: "c", Linux: &api.LinuxContainer{}}
	n.runtime.AddContainer(ctr)
	check(t, n.runtime.Resume())
	n.wait()
	var r *cri.StopContainerRequest
	eventually(t, "the eviction of a new one", func() bool {
		select {
		case r = <-server.stopped:
		default:
		}
		return r != nil
	})
	if r.ContainerId != ctr.Id {
		t.Errorf("evicted %s, want %s", r.ContainerId, ctr.Id)
	}
}

// Without the CRI socket the containers stay, and the log says why.
func TestEvictionWithoutCRISocketIsLogged(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	var c *api.Container
	n.anotherWith(t, observedYAML+"\nmissed: evict\nruntime: {socket: /run/absent.sock}\n", func() { c = n.created("dpdk-1", asksForA, nil) })
	eventually(t, "the failure is logged", func() bool {
		return strings.Contains(n.log.String(), "could not be evicted") && strings.Contains(n.log.String(), "/run/absent.sock (runtime.socket)")
	})
	n.status("it is still missed", missed(c.Id))
}

// A container that cannot be stopped keeps no other one from being evicted.
func TestStuckContainerDelaysNoOtherEviction(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	server := n.serveCRI("/run/containerd/containerd.sock")
	var ids []string
	n.anotherWith(t, observedYAML+"\nmissed: evict\n", func() {
		for range 2 {
			ids = append(ids, n.created("dpdk-1", asksForA, nil).Id)
		}
		slices.Sort(ids) // the order of evictions
		server.stuck.Store(&ids[0])
	})
	select {
	case r := <-server.stopped:
		if r.ContainerId != ids[1] {
			t.Errorf("evicted %s, want %s", r.ContainerId, ids[1])
		}
	case <-time.After(testkit.Hangs):
		t.Errorf("the other container is not evicted: %s", n.log.String())
	}
}
