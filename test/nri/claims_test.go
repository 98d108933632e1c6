// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/test/dradriver"
	"github.com/jackfield/jackfield/test/kubelet"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

const draDriver = "nic.example.com"

// draNode is a node with functions bound to vfio-pci, a kubelet and a DRA driver.
func draNode(t *testing.T, yaml string) (*node, *kubelet.Server, *dradriver.Driver) {
	t.Helper()
	n, k := vfNode(t, yaml)
	d, err := dradriver.Start(t.Context(), n.dir, draDriver)
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	return n, k, d
}

// claimed lists the devices of a claim in the kubelet's answer about a container.
func claimed(c dradriver.Claim) func(*v1.ContainerResources) {
	return func(out *v1.ContainerResources) {
		for _, dev := range c.Devices {
			kubelet.Claim(c.Namespace, c.Name, draDriver, dev.Name)(out)
		}
	}
}

// createClaimed creates a container into which the runtime injects CDI devices before it calls plugins.
func (n *node) createClaimed(d *dradriver.Driver, pod *api.PodSandbox, name string, cdiDevices []string) (*nritest.Created, error) {
	n.t.Helper()
	injected := &rspec.Spec{Process: &rspec.Process{}, Linux: &rspec.Linux{}}
	check(n.t, d.Inject(injected, cdiDevices))
	var c *nritest.Created
	var err error
	kubeletAnswers(func() error {
		c, err = n.create(pod, func(c *api.Container) {
			c.Name = name
			c.Mounts = append(c.Mounts, api.FromOCIMounts(injected.Mounts)...)
			c.Linux = &api.LinuxContainer{Devices: api.FromOCILinuxDevices(injected.Linux.Devices)}
		})
		return err
	})
	return c, err
}

// elements returns the elements of a container's devices.json, each as one line of JSON.
func (n *node) elements(s *rspec.Spec) string {
	n.t.Helper()
	m := mount(s, "/var/run/jackfield")
	if m == nil {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(m.Source, "devices.json"))
	check(n.t, err)
	var list []json.RawMessage
	check(n.t, json.Unmarshal(data, &list))
	var lines []string
	for _, e := range list {
		var v any
		check(n.t, json.Unmarshal(e, &v))
		line, err := json.Marshal(v)
		check(n.t, err)
		lines = append(lines, string(line))
	}
	return strings.Join(lines, "\n")
}

func jackfieldEnv(s *rspec.Spec) string {
	var all []string
	for _, e := range s.Process.Env {
		if strings.HasPrefix(e, "JACKFIELD_") && !strings.HasPrefix(e, "JACKFIELD_DEVICES_FILE") {
			all = append(all, e)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func networkData(ifName string, ips ...string) *resourceapi.NetworkDeviceData {
	return &resourceapi.NetworkDeviceData{InterfaceName: ifName, IPs: ips, HardwareAddress: "c2:11:22:33:44:55"}
}

// vfioEdits are the nodes that a driver injects for a function by CDI.
func vfioEdits(group int, dev sysfstest.Dev) specs.ContainerEdits {
	return specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{
		{Path: fmt.Sprintf("/dev/vfio/%d", group), Type: "c", Major: int64(dev.Major), Minor: int64(dev.Minor)},
		{Path: "/dev/vfio/vfio", Type: "c", Major: 1, Minor: 3}}}
}

// A claim from a template has two requests: a function, and a vhost-user socket that the driver mounts.
// Each container of the pod uses one of them.
func TestClaimsReachTheContainersThatUseThem(t *testing.T) {
	n, k, d := draNode(t, policyYAML)
	host := n.path("/var/lib/nic/p0")
	check(t, os.MkdirAll(host, 0o755))
	c := dradriver.Claim{Namespace: "dpdk-1", Name: "p-nic-x7k2p", PodClaim: "nic", Devices: []dradriver.Device{
		{Request: "vf", Name: "any-name", PCIAddress: vfs[1].address, Network: networkData("net1", "192.0.2.5/24")},
		{Request: "port", Name: "p0", VhostUserPath: "/var/run/nic/p0/vhu.sock", MTU: 9000,
			Edits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: host, ContainerPath: "/var/run/nic/p0", Options: []string{"rw", "bind"}}}}},
	}}
	ids, err := d.Prepare(t.Context(), c)
	check(t, err)
	pod := nritest.NewPod("dpdk-1", "p", nil)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("left", claimed(c)), kubelet.Container("right", claimed(c)), kubelet.Container("sidecar")))
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))

	left, err := n.createClaimed(d, pod, "left", dradriver.All(ids, "vf"))
	check(t, err)
	if got, want := nodes(left.Spec), "/dev/vfio/12(1:5) /dev/vfio/vfio(1:3)"; got != want {
		t.Errorf("left has the nodes %s, want %s", got, want)
	}
	want := `{"device-info":{"pci":{"pci-address":"0000:03:00.3"},"type":"pci","version":"1.1.0"},"interface":"net1","ips":["192.0.2.5/24"],` +
		`"jackfield":{"claim":{"device":"any-name","driver":"nic.example.com","name":"p-nic-x7k2p","pod-claim":"nic","pool":"node","request":"vf"},` +
		`"eal":["-a","0000:03:00.3"]},"mac":"c2:11:22:33:44:55","name":"nic/vf"}`
	if got := n.elements(left.Spec); got != want {
		t.Errorf("left sees\n%s\nwant\n%s", got, want)
	}
	want = `JACKFIELD_NET1_EAL=-a 0000:03:00.3
JACKFIELD_NET1_PCI=0000:03:00.3
JACKFIELD_NET1_TYPE=pci
JACKFIELD_NIC_VF_EAL=-a 0000:03:00.3
JACKFIELD_NIC_VF_PCI=0000:03:00.3
JACKFIELD_NIC_VF_TYPE=pci`
	if got := jackfieldEnv(left.Spec); got != want {
		t.Errorf("left has\n%s\nwant\n%s", got, want)
	}

	right, err := n.createClaimed(d, pod, "right", dradriver.All(ids, "port"))
	check(t, err)
	if got := nodes(right.Spec); got != "" {
		t.Errorf("right has the nodes %s", got)
	}
	want = `{"device-info":{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/var/run/nic/p0/vhu.sock"}},` +
		`"jackfield":{"claim":{"device":"p0","driver":"nic.example.com","name":"p-nic-x7k2p","pod-claim":"nic","pool":"node","request":"port"},` +
		`"eal":["--vdev=net_virtio_user0,path=/var/run/nic/p0/vhu.sock,server=1"],"own-path":"/var/run/nic/p0/vhu.sock","socket-created-by":"application"},` +
		`"mtu":9000,"name":"nic/port"}`
	if got := n.elements(right.Spec); got != want {
		t.Errorf("right sees\n%s\nwant\n%s", got, want)
	}

	sidecar, err := n.createClaimed(d, pod, "sidecar", nil)
	check(t, err)
	if len(sidecar.Adjust.GetMounts()) > 0 || len(nodes(sidecar.Spec)) > 0 {
		t.Errorf("the sidecar has %+v", sidecar.Adjust)
	}
}

// What the driver injected by CDI is not injected again, and needs no rule of the policy.
func TestNodesThatCDIInjectedAreRecognised(t *testing.T) {
	n, k, d := draNode(t, strings.Replace(policyYAML, `"/dev/vfio/*"`, `"/dev/other"`, 1))
	c := dradriver.Claim{Namespace: "dpdk-1", Name: "nic", Devices: []dradriver.Device{
		{Request: "vf", Name: "dev-0", PCIAddress: vfs[0].address, Edits: vfioEdits(vfs[0].group, vfs[0].dev)}}}
	ids, err := d.Prepare(t.Context(), c)
	check(t, err)
	pod := n.pod("dpdk-1", nil)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", claimed(c))))
	created, err := n.createClaimed(d, pod, "c", dradriver.All(ids, "vf"))
	check(t, err)
	if devices := created.Adjust.GetLinux().GetDevices(); len(devices) > 0 {
		t.Errorf("injected again: %+v", devices)
	}
	if got, want := view(t, created.Spec), "nic/vf=0000:03:00.2 of"; got != want {
		t.Errorf("the container sees %q, want %q", got, want)
	}
}

// Without a rule a claim's device is unmanaged: the container is created, and the kubelet is not asked.
func TestClaimsAreUnmanagedWithoutRule(t *testing.T) {
	n, k, d := draNode(t, policyYAML)
	c := dradriver.Claim{Namespace: "web", Name: "nic", Devices: []dradriver.Device{{Request: "vf", Name: "dev-0", PCIAddress: vfs[0].address}}}
	ids, err := d.Prepare(t.Context(), c)
	check(t, err)
	k.SetPods(kubelet.Pod("web", "p", kubelet.Container("c", claimed(c))))
	created, err := n.createClaimed(d, n.pod("web", nil), "c", dradriver.All(ids, "vf"))
	check(t, err)
	if nodes(created.Spec) != "" || mount(created.Spec, "/var/run/jackfield") != nil {
		t.Errorf("a pod in another namespace has %s", nodes(created.Spec))
	}
	if calls := k.Calls(); calls.Get+calls.List > 0 {
		t.Errorf("the kubelet was asked %+v", calls)
	}
}

// Contradictions fail the container where a rule applies, and name both sources.
func TestClaimConflictsNameBothSources(t *testing.T) {
	for name, tc := range map[string]struct {
		listed []string // devices of the claim by the kubelet
		change func(n *node, d *dradriver.Driver, c dradriver.Claim, pod *api.PodSandbox)
		want   []string
	}{
		"metadata and the kubelet": {listed: []string{"dev-9"}, want: []string{"metadata.json", `"dev-0"`, "kubelet.sock"}},
		"metadata and device-info": {listed: []string{"dev-0"}, want: []string{"which device net1 is", "_net1", "0000:03:00.5", "metadata.json", "0000:03:00.2"},
			change: func(n *node, _ *dradriver.Driver, _ dradriver.Claim, pod *api.PodSandbox) {
				n.devinfo(pod, "east", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.5"}}`)
			}},
		"the MAC in metadata and device-info": {listed: []string{"dev-0"}, want: []string{"which MAC address PCI device 0000:03:00.2 has", "_net1 says jackfield.dev/interface.mac c2:11:22:33:44:56",
			"metadata.json says networkData.hardwareAddress c2:11:22:33:44:55"},
			change: func(n *node, _ *dradriver.Driver, _ dradriver.Claim, pod *api.PodSandbox) {
				n.devinfo(pod, "east", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.2"},"jackfield.dev/interface":{"mac":"c2:11:22:33:44:56"}}`)
			}},
		"the address in metadata and libcni's record": {listed: []string{"dev-0"}, want: []string{"which addresses PCI device 0000:03:00.2 has", `results/east-`, `result.ips ["192.0.2.6/24"]`, `networkData.ips ["192.0.2.5/24"]`},
			change: func(n *node, _ *dradriver.Driver, _ dradriver.Claim, pod *api.PodSandbox) {
				n.devinfo(pod, "east", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.2"}}`)
				n.write("/var/lib/cni/multus/results/east-"+pod.GetId()+"-net1", fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"net1","networkName":"east",
					"result":{"interfaces":[{"name":"net1","sandbox":"/run/netns/p"}],"ips":[{"address":"192.0.2.6/24","interface":0}]}}`, pod.GetId()))
			}},
		"a file of another claim": {listed: []string{"dev-0"}, want: []string{"metadata.json", "metadata.name", `"nic"`, `"victim"`},
			change: func(n *node, d *dradriver.Driver, c dradriver.Claim, _ *api.PodSandbox) {
				file := d.MetadataFile(c, "vf")
				data, err := os.ReadFile(n.path(file))
				check(n.t, err)
				n.write(file, strings.ReplaceAll(string(data), `"nic"`, `"victim"`))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			n, k, d := draNode(t, policyYAML)
			c := dradriver.Claim{Namespace: "dpdk-1", Name: "nic", Devices: []dradriver.Device{
				{Request: "vf", Name: "dev-0", PCIAddress: vfs[0].address, Network: networkData("net1", "192.0.2.5/24")}}}
			ids, err := d.Prepare(t.Context(), c)
			check(t, err)
			pod := nritest.NewPod("dpdk-1", "p", nil)
			if tc.change != nil {
				tc.change(n, d, c, pod)
			}
			list := func(out *v1.ContainerResources) {
				for _, dev := range tc.listed {
					kubelet.Claim(c.Namespace, c.Name, draDriver, dev)(out)
				}
			}
			k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", list)))
			check(t, n.runtime.RunPodSandbox(context.Background(), pod))
			_, err = n.createClaimed(d, pod, "c", dradriver.All(ids, "vf"))
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("no %q in %v", part, err)
				}
			}
		})
	}
}

// A driver replaces the metadata of a running container's claim: devices.json follows, also after a
// restart of the runtime, and on a node without a directory of device-info.
func TestChangedMetadataReachesRunningContainer(t *testing.T) {
	bound := false
	n := preparedNode(t, "sockets: {staging: mount}\npolicy: {rules: [{name: r, for: {namespaces: [dpdk-1]}, allow: {devices: [/dev/vfio/*]}}]}", nritest.Options{}, func(n *node) {
		err := unix.Mount(n.dir, n.dir, "", unix.MS_BIND, "")
		if err != nil && os.Getenv("CI") == "true" {
			t.Fatal(err)
		} else if err != nil {
			t.Skipf("bind a directory: %v", err)
		}
		bound = true
		t.Cleanup(func() { check(t, unix.Unmount(n.dir, unix.MNT_DETACH)) })
		check(t, unix.Mount("", n.dir, "", unix.MS_SHARED, ""))
		check(t, os.RemoveAll(n.path("run/k8s.cni.cncf.io")))
		// The function has a driver of the kernel, and so no node.
		tree, err := sysfstest.New(n.dir)
		check(t, err)
		check(t, tree.AddPCI(vfs[0].address, "iavf", vfs[0].group))
	})
	if !bound {
		return
	}
	k, err := kubelet.StartUnder(n.dir)
	check(t, err)
	t.Cleanup(k.Stop)
	d, err := dradriver.Start(t.Context(), n.dir, draDriver)
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })

	c := dradriver.Claim{Namespace: "dpdk-1", Name: "nic", Devices: []dradriver.Device{{Request: "vf", Name: "dev-0"}}}
	ids, err := d.Prepare(t.Context(), c)
	check(t, err)
	pod := n.pod("dpdk-1", nil)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", claimed(c))))
	created, err := n.createClaimed(d, pod, "c", dradriver.All(ids, "vf"))
	check(t, err)
	claim := `"jackfield":{"claim":{"device":"dev-0","driver":"nic.example.com","name":"nic","pool":"node","request":"vf"}`
	if got, want := n.elements(created.Spec), `{`+claim+`},"name":"nic/vf"}`; got != want {
		t.Errorf("at its creation the container sees\n%s\nwant\n%s", got, want)
	}

	update := func(what string, network *resourceapi.NetworkDeviceData, want string) {
		t.Helper()
		c.Devices[0].PCIAddress, c.Devices[0].Network = vfs[0].address, network
		check(t, d.Update(t.Context(), c, "vf"))
		want = `{"device-info":{"pci":{"pci-address":"0000:03:00.2"},"type":"pci","version":"1.1.0"},"interface":"net1",` + want +
			claim + `,"note":"the function is bound to a driver of the kernel, so DPDK cannot use it"},"mac":"c2:11:22:33:44:55","name":"nic/vf"}`
		got := ""
		for end := time.Now().Add(testkit.Hangs); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if got = n.elements(created.Spec); got == want {
				return
			}
		}
		t.Fatalf("%s: the container sees\n%s\nwant\n%s", what, got, want)
	}
	update("the driver knows the interface", networkData("net1"), "")
	update("the interface has an address", networkData("net1", "192.0.2.5/24"), `"ips":["192.0.2.5/24"],`)
	update("the address changes", networkData("net1", "192.0.2.6/24"), `"ips":["192.0.2.6/24"],`)
	check(t, n.runtime.Suspend())
	check(t, n.runtime.Resume())
	n.wait()
	update("after a restart of the runtime", networkData("net1", "192.0.2.7/24"), `"ips":["192.0.2.7/24"],`)
}

// A dialect says that a driver's sockets are on the host and made by the switch: the socket is granted by
// policy and delivered like that of a network, to the container with the claim alone.
func TestSocketOfClaimOnHost(t *testing.T) {
	n, k, d := draNode(t, strings.Replace(policyYAML, "policy:", "dialects: [{match: {driver: nic.example.com}, creator: host, path: host}]\npolicy:", 1))
	n.listen(vswitch.VhostUser, "/run/vsw/p0/vhu.sock")
	for _, tc := range []struct{ claim, path, fault string }{
		{"good", "/var/run/vsw/p0/vhu.sock", ""},
		{"elsewhere", "/var/run/nic/vhu.sock", "/var/run/nic/vhu.sock"},
	} {
		c := dradriver.Claim{Namespace: "dpdk-1", Name: tc.claim, Devices: []dradriver.Device{{Request: "port", Name: "p0", VhostUserPath: tc.path}}}
		ids, err := d.Prepare(t.Context(), c)
		check(t, err)
		pod := n.pod("dpdk-1", nil)
		k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", claimed(c)), kubelet.Container("other")))
		created, err := n.createClaimed(d, pod, "c", dradriver.All(ids, "port"))
		if tc.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fault) || !strings.Contains(err.Error(), "metadata.json") {
				t.Errorf("claim %s: %v", tc.claim, err)
			}
			continue
		}
		check(t, err)
		if m := mount(created.Spec, "/var/run/jackfield/net/good-port"); m == nil {
			t.Errorf("no mount of the socket's directory: %+v", created.Adjust.GetMounts())
		}
		want := "JACKFIELD_GOOD_PORT_SOCKET=/var/run/jackfield/net/good-port/vhu.sock"
		if !slices.Contains(created.Spec.Process.Env, want) || !strings.Contains(n.elements(created.Spec), `"socket-created-by":"host"`) {
			t.Errorf("no %s in %q, or not created by the host: %s", want, created.Spec.Process.Env, n.elements(created.Spec))
		}
		other, err := n.createClaimed(d, pod, "other", nil)
		check(t, err)
		if mount(other.Spec, "/var/run/jackfield") != nil {
			t.Error("a container without the claim has its socket")
		}
	}
}
