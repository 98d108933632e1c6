// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	dp "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

const portResource = "acme.com/port"

// portPlugin is a device plugin whose devices are ports of a vswitch. It hands out the last free port first, so
// that containers and ports have different orders. The kubelet decides which container gets which port.
type portPlugin struct {
	dp.UnimplementedDevicePluginServer
	k     *K
	ports []string
}

// servePorts serves the sockets of ports, and registers a device plugin for them, until the test ends.
func (k *K) servePorts(ports ...string) *portPlugin {
	k.t.Helper()
	p := &portPlugin{k: k, ports: ports}
	for _, port := range ports {
		path := k.HostPath(portPath(port))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			k.t.Fatal(err)
		}
		s, err := vswitch.Listen(vswitch.VhostUser, path, vswitch.Greeting(port))
		if err != nil {
			k.t.Fatal(err)
		}
		k.t.Cleanup(func() { s.Close() })
	}
	p.register()
	return p
}

// register serves the device plugin, registers it with the kubelet, and waits until the node has its ports. A
// kubelet that starts removes the sockets of all device plugins, so each needs a new registration.
func (p *portPlugin) register() {
	k := p.k
	k.t.Helper()
	l, err := net.Listen("unix", filepath.Join(dp.DevicePluginPath, "acme.sock"))
	if err != nil {
		k.t.Fatal(err)
	}
	server := grpc.NewServer()
	dp.RegisterDevicePluginServer(server, p)
	go server.Serve(l)
	k.t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+dp.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	defer conn.Close()
	k.Wait("the kubelet registers the device plugin", func() error {
		ctx, cancel := context.WithTimeout(k.ctx, 10*time.Second)
		defer cancel()
		_, err := dp.NewRegistrationClient(conn).Register(ctx, &dp.RegisterRequest{Version: dp.Version, Endpoint: "acme.sock",
			ResourceName: portResource, Options: &dp.DevicePluginOptions{GetPreferredAllocationAvailable: true}}, grpc.WaitForReady(true))
		return err
	})
	k.Wait("the node has the ports", func() error {
		found, err := k.Cluster.Kubectl(k.ctx, "get", "nodes", `--output=jsonpath={.items[0].status.allocatable.acme\.com/port}`)
		if err == nil && found != strconv.Itoa(len(p.ports)) {
			err = fmt.Errorf("the node has %q, want %d", found, len(p.ports))
		}
		return err
	})
}

func portPath(port string) string { return "/var/run/vsw/" + port + "/vhost.sock" }

func (p *portPlugin) GetDevicePluginOptions(context.Context, *dp.Empty) (*dp.DevicePluginOptions, error) {
	return &dp.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *portPlugin) ListAndWatch(_ *dp.Empty, stream grpc.ServerStreamingServer[dp.ListAndWatchResponse]) error {
	var devices []*dp.Device
	for _, port := range p.ports {
		devices = append(devices, &dp.Device{ID: port, Health: dp.Healthy})
	}
	if err := stream.Send(&dp.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *portPlugin) GetPreferredAllocation(_ context.Context, r *dp.PreferredAllocationRequest) (*dp.PreferredAllocationResponse, error) {
	reply := &dp.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		free := slices.Sorted(slices.Values(c.GetAvailableDeviceIDs()))
		slices.Reverse(free)
		reply.ContainerResponses = append(reply.ContainerResponses, &dp.ContainerPreferredAllocationResponse{DeviceIDs: free[:c.GetAllocationSize()]})
	}
	return reply, nil
}

// Allocate writes the device-info file of each port, and names the port in a variable of the container.
func (p *portPlugin) Allocate(_ context.Context, r *dp.AllocateRequest) (*dp.AllocateResponse, error) {
	dir := p.k.HostPath("/run/k8s.cni.cncf.io/devinfo/dp")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	reply := &dp.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		for _, port := range c.GetDevicesIds() {
			info := fmt.Sprintf(`{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": %q}}`, portPath(port))
			if err := os.WriteFile(filepath.Join(dir, "acme.com-port-"+port+"-device.json"), []byte(info), 0o644); err != nil {
				return nil, err
			}
		}
		reply.ContainerResponses = append(reply.ContainerResponses, &dp.ContainerAllocateResponse{
			Envs: map[string]string{"ACME_PORT": strings.Join(c.GetDevicesIds(), ",")}})
	}
	return reply, nil
}

// portContainer is a container that has a port.
func portContainer(name string) map[string]any {
	c := Pod{}.container()
	c["name"] = name
	c["command"] = []string{"sh", "-c", "until test -e /tmp/end; do sleep 0.2; done; exit 1"}
	c["resources"] = map[string]any{"limits": map[string]any{portResource: 1}}
	return c
}

// checkPorts checks that each container has the socket of the port that the kubelet allocated to it, and no
// other port's. It returns the ports in the order of the containers.
func (k *K) checkPorts(namespace, pod string, containers ...string) []string {
	k.t.Helper()
	var ports []string
	for _, name := range containers {
		out := k.Kubectl("--namespace", namespace, "exec", pod, "--container", name, "--", "sh", "-c",
			"echo $ACME_PORT; sockclient connect /var/run/vsw/$ACME_PORT/vhost.sock; cd /var/run/jackfield/net && ls -d acme.com-port-*")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		port := lines[0]
		if want := []string{port, vswitch.Greeting(port), "acme.com-port-" + port}; !slices.Equal(lines, want) {
			k.t.Errorf("container %s has %q, want %q", name, lines, want)
		}
		ports = append(ports, port)
	}
	return ports
}

// The kubelet allocates ports of a device plugin. Each container gets the socket of its own port, also after
// restarts of the container and of the kubelet.
func TestContainersGetPortsThatKubeletAllocated(t *testing.T) {
	k := Start(t)
	plugin := k.servePorts("dp0", "dp1", "dp2", "dp3")
	ns := k.Namespace("fast-ports", nil)
	spec := Pod{}.spec()
	sidecar := portContainer("sidecar")
	sidecar["restartPolicy"] = "Always"
	first := Pod{}.container()
	first["name"], first["command"] = "first", []string{"sh", "-c", "test ! -e /var/run/vsw/dp0 -a ! -e /var/run/vsw/dp3"}
	spec["initContainers"] = []any{first, sidecar}
	spec["containers"] = []any{portContainer("main"), portContainer("second")}
	k.Create(object(map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": map[string]any{
		"name": "router", "namespace": ns, "annotations": map[string]string{deviceKey: "resource:" + portResource}}}))
	k.WaitPod(ns, "router")
	all := []string{"sidecar", "main", "second"}
	ports := k.checkPorts(ns, "router", all...)
	if sorted := slices.Sorted(slices.Values(ports)); len(slices.Compact(sorted)) != 3 {
		t.Errorf("the ports are %q", ports)
	}
	if slices.IsSorted(ports) {
		t.Errorf("the ports are %q, and should have another order than the containers", ports)
	}

	// A container of kubectl debug has no port, and the pod's request does not keep it from starting.
	k.Kubectl("--namespace", ns, "debug", "router", "--image="+node.Image, "--image-pull-policy=Never", "--container=debugger", "--", "sleep", "10000")
	k.Wait("the ephemeral container runs", func() error {
		out, err := k.Cluster.Kubectl(k.ctx, "--namespace", ns, "exec", "router", "--container", "debugger", "--", "sh", "-c", "ls -d /var/run/vsw/dp* 2>/dev/null; echo end")
		if err == nil && out != "end\n" {
			err = errors.New("it has " + out)
		}
		return err
	})

	before := inode(t, dp.KubeletSocket)
	k.killServices("kubelet")
	k.Wait("the kubelet serves a new socket", func() error {
		if _, err := os.Stat(dp.KubeletSocket); err != nil {
			return err
		}
		if inode(t, dp.KubeletSocket) == before {
			return errors.New("it is the old one")
		}
		return nil
	})
	plugin.register()
	k.Wait("the kubelet has the pod again", func() error {
		_, err := k.Cluster.Kubectl(k.ctx, "--namespace", ns, "exec", "router", "--container", "main", "--", "true")
		return err
	})
	if after := k.checkPorts(ns, "router", all...); !slices.Equal(after, ports) {
		t.Errorf("after a restart of the kubelet, the ports were %q and are %q", ports, after)
	}
	k.Exec(ns, "router", "touch", "/tmp/end")
	k.Wait("the container runs again", func() error {
		if s := k.State(ns, "router"); s.Restarts != 1 || !s.Ready {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	if after := k.checkPorts(ns, "router", all...); !slices.Equal(after, ports) {
		t.Errorf("after a restart of a container, the ports were %q and are %q", ports, after)
	}
}

// inode returns the inode of a file.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

// killServices kills a program of the node, which its first process starts again.
func (k *K) killServices(name string) {
	k.t.Helper()
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		k.t.Fatal(err)
	}
	killed := false
	for _, p := range programs {
		target, err := os.Readlink(p)
		if err != nil || filepath.Base(target) != name {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(p, "/proc/%d/exe", &pid); err != nil {
			k.t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			k.t.Fatal(err)
		}
		killed = true
	}
	if !killed {
		k.t.Fatalf("no %s runs", name)
	}
}
