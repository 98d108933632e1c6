// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/test/kubelet"
	nritest "github.com/jackfield/jackfield/test/nri"
)

// The functions of a NIC, each in an IOMMU group of its own.
var vfs = []struct {
	address string
	group   int
	dev     sysfstest.Dev
}{
	{"0000:03:00.2", 11, sysfstest.Null()},
	{"0000:03:00.3", 12, sysfstest.Zero()},
	{"0000:03:00.4", 13, sysfstest.Null()},
	{"0000:03:00.5", 14, sysfstest.Zero()},
}

const (
	vfPool = "intel.com/vf"
	// answer is the longest that a request may take that waits for the kubelet for its
	// half second, or for nothing: thirty times that, for a busy machine. The runtime
	// here gives it four times more, which is what waiting without a bound takes.
	answer = 15 * time.Second
)

// vfNode is a node with functions bound to vfio-pci, and a kubelet.
func vfNode(t *testing.T, yaml string) (*node, *kubelet.Server) {
	t.Helper()
	n := newNode(t, yaml, nritest.Options{})
	tree, err := sysfstest.New(n.dir)
	check(t, err)
	for _, vf := range vfs {
		err = errors.Join(err, tree.AddPCI(vf.address, "vfio-pci", vf.group), tree.AddVFIO(vf.group, vf.dev, sysfstest.Null()))
	}
	if errors.Is(err, sysfstest.ErrNoMknod) {
		t.Skip(err)
	}
	check(t, err)
	k, err := kubelet.StartUnder(n.dir)
	check(t, err)
	t.Cleanup(k.Stop)
	return n, k
}

// attach does what the device plugin and Multus do for a pod whose networks have
// these functions, in order: east on net1, west on net2, and so on.
func (n *node) attach(pod *api.PodSandbox, addresses ...string) {
	n.t.Helper()
	scratch := []map[string]any{{"Name": "cbr0", "Conf": map[string]any{"name": "cbr0"}}}
	for i, address := range addresses {
		nad := []string{"east", "west", "mgmt"}[i]
		info := fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address)
		n.devinfo(pod, nad, fmt.Sprintf("net%d", i+1), info)
		n.write("/run/k8s.cni.cncf.io/devinfo/dp/intel.com-vf-"+address+"-device.json", info)
		scratch = append(scratch, map[string]any{"Name": pod.Namespace + "/" + nad, "Conf": map[string]any{"name": nad}, "deviceID": address, "resourceName": vfPool})
	}
	b, err := json.Marshal(scratch)
	check(n.t, err)
	n.write("/var/lib/cni/multus/"+pod.Id, string(b))
}

func (n *node) createNamed(pod *api.PodSandbox, name string, env ...string) (*nritest.Created, time.Duration, error) {
	began := time.Now()
	c, err := n.create(pod, func(c *api.Container) { c.Name, c.Env = name, append(c.Env, env...) })
	return c, time.Since(began), err
}

// createAsked is createNamed where the kubelet answers.
func (n *node) createAsked(pod *api.PodSandbox, name string, env ...string) (c *nritest.Created, took time.Duration, err error) {
	kubeletAnswers(func() error {
		c, took, err = n.createNamed(pod, name, env...)
		return err
	})
	return c, took, err
}

// kubeletAnswers creates a container where the kubelet answers. On a busy machine that
// may take longer than the half second that it is waited for: the container is created
// again then, as the kubelet does. It returns the number of attempts.
func kubeletAnswers(create func() error) (attempts int) {
	for end := time.Now().Add(testkit.Hangs); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		attempts++
		if err := create(); err == nil || !strings.Contains(err.Error(), "no answer") {
			break
		}
	}
	return attempts
}

// nodes are the paths of a container's device nodes with their numbers.
func nodes(s *rspec.Spec) string {
	var all []string
	for _, d := range s.Linux.Devices {
		all = append(all, fmt.Sprintf("%s(%d:%d)", d.Path, d.Major, d.Minor))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// view is what the container's devices.json says: interface, network, device and
// resource of each.
func view(t *testing.T, s *rspec.Spec) string {
	t.Helper()
	m := mount(s, "/var/run/jackfield")
	if m == nil {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(m.Source, "devices.json"))
	check(t, err)
	var elements []struct {
		Name, Interface string
		DeviceInfo      struct {
			PCI struct {
				Address string `json:"pci-address"`
			}
		} `json:"device-info"`
		Jackfield struct{ Resource string }
	}
	check(t, json.Unmarshal(data, &elements))
	var all []string
	for _, e := range elements {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s=%s of %s", e.Interface, e.Name, e.DeviceInfo.PCI.Address, e.Jackfield.Resource)))
	}
	return strings.Join(all, ", ")
}

// A pod has three networks and two containers. The kubelet allocates the functions crosswise,
// because Multus sorts them over all containers.
func TestDevicesAllocatedCrosswiseReachTheirContainers(t *testing.T) {
	for _, generation := range []kubelet.Generation{kubelet.WithGet, kubelet.GetDisabled, kubelet.WithoutGet} {
		t.Run(fmt.Sprintf("kubelet generation %d", generation), func(t *testing.T) {
			n, k := vfNode(t, policyYAML)
			k.SetGeneration(generation)
			pod := nritest.NewPod("dpdk-1", "p", map[string]string{"k8s.v1.cni.cncf.io/networks": "east,west,mgmt"})
			n.attach(pod, vfs[0].address, vfs[1].address, vfs[2].address)
			k.SetPods(kubelet.Pod("dpdk-1", "other", kubelet.Container("left", kubelet.Device(vfPool, vfs[3].address))),
				kubelet.Pod("dpdk-1", "p",
					kubelet.Container("left", kubelet.Device(vfPool, vfs[1].address)),
					kubelet.Container("right", kubelet.Device(vfPool, vfs[2].address, vfs[0].address)),
					kubelet.Container("sidecar")))
			check(t, n.runtime.RunPodSandbox(context.Background(), pod))
			for _, want := range []struct{ name, env, nodes, view, eal string }{
				{"left", "PCIDEVICE_INTEL_COM_VF=0000:03:00.3", "/dev/vfio/12(1:5) /dev/vfio/vfio(1:3)", "net2 dpdk-1/west=0000:03:00.3 of intel.com/vf", "JACKFIELD_NET2_EAL=-a 0000:03:00.3"},
				{"right", "PCIDEVICE_INTEL_COM_VF=0000:03:00.2,0000:03:00.4", "/dev/vfio/11(1:3) /dev/vfio/13(1:3) /dev/vfio/vfio(1:3)",
					"net1 dpdk-1/east=0000:03:00.2 of intel.com/vf, net3 dpdk-1/mgmt=0000:03:00.4 of intel.com/vf", "JACKFIELD_NET3_EAL=-a 0000:03:00.4"},
				{"sidecar", "A=b", "", "", ""},
			} {
				c, _, err := n.createAsked(pod, want.name, want.env)
				check(t, err)
				if got := nodes(c.Spec); got != want.nodes {
					t.Errorf("container %s has the nodes %s, want %s", want.name, got, want.nodes)
				}
				if got := view(t, c.Spec); got != want.view {
					t.Errorf("container %s sees %q, want %q", want.name, got, want.view)
				}
				if want.eal != "" && !slices.Contains(c.Spec.Process.Env, want.eal) {
					t.Errorf("container %s has no %q: %q", want.name, want.eal, c.Spec.Process.Env)
				}
				if d := device(c.Spec, "/dev/vfio/12"); d != nil && !slices.ContainsFunc(c.Spec.Linux.Resources.Devices, func(r rspec.LinuxDeviceCgroup) bool {
					return r.Allow && r.Access == "rw" && *r.Major == 1 && *r.Minor == 5
				}) {
					t.Errorf("the cgroup rules are %+v", c.Spec.Linux.Resources.Devices)
				}
			}
		})
	}
}

// A container that claims a device in a variable is refused when the kubelet did not allocate the
// device. The error names the variable and the kubelet's answer.
func TestForgedDeviceVariableIsRefused(t *testing.T) {
	n, k := vfNode(t, policyYAML)
	pod := nritest.NewPod("dpdk-1", "p", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"east","deviceID":"0000:03:00.2"}]`})
	n.attach(pod, vfs[0].address)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address)), kubelet.Container("thief")))
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	for _, env := range []string{"PCIDEVICE_INTEL_COM_VF=0000:03:00.2", "PCIDEVICE_MINE=0000:03:00.5"} {
		_, _, err := n.createAsked(pod, "thief", env)
		name, _, _ := strings.Cut(env, "=")
		if err == nil {
			t.Fatalf("%s brought a device", env)
		}
		for _, part := range []string{name, kubelet.SocketPath, "thief"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not name %q: %v", part, err)
			}
		}
	}
	_, _, err := n.createAsked(pod, "c", "PCIDEVICE_INTEL_COM_VF=0000:03:00.2")
	check(t, err)
}

// Without the kubelet's socket the variables are trusted, unless the node requires the kubelet.
func TestDeviceVariablesAreTrustedWithoutKubelet(t *testing.T) {
	for _, required := range []bool{false, true} {
		n, k := vfNode(t, strings.Replace(policyYAML, "policy:", fmt.Sprintf("kubelet: {required: %v}\npolicy:", required), 1))
		k.Stop()
		check(t, os.Remove(n.path(kubelet.SocketPath)))
		pod := nritest.NewPod("dpdk-1", "p", nil)
		n.attach(pod, vfs[0].address)
		check(t, n.runtime.RunPodSandbox(context.Background(), pod))
		c, took, err := n.createNamed(pod, "c", "PCIDEVICE_INTEL_COM_VF=0000:03:00.2")
		if took > answer {
			t.Errorf("took %v", took)
		}
		if required {
			if err == nil || !strings.Contains(err.Error(), "kubelet.required") {
				t.Errorf("with the kubelet required: %v", err)
			}
			continue
		}
		check(t, err)
		if got := nodes(c.Spec); got != "/dev/vfio/11(1:3) /dev/vfio/vfio(1:3)" {
			t.Errorf("the nodes are %s", got)
		}
		if c, _, err := n.createNamed(pod, "other"); err != nil || nodes(c.Spec) != "" {
			t.Errorf("a container without the variable: %v", err)
		}
	}
}

// The kubelet gives no answer, a late one or a wrong one. A container is refused in time if a rule
// grants its device, and created otherwise.
func TestFailingKubeletRefusesManagedDevices(t *testing.T) {
	type trouble struct {
		name string
		make func(k *kubelet.Server)
		want string
	}
	troubles := []trouble{
		{"slow", func(k *kubelet.Server) { k.SetDelay(10 * time.Minute) }, "no answer"},
		{"stopped", func(k *kubelet.Server) { k.Stop() }, "is the kubelet running?"},
		{"refuses", func(k *kubelet.Server) { k.SetError(status.Error(codes.ResourceExhausted, "rate limit")) }, "kubelet"},
		{"does not know the pod", func(k *kubelet.Server) { k.SetPods() }, "does not list the pod"},
	}
	for _, lie := range kubelet.Lies() {
		troubles = append(troubles, trouble{"lies: " + lie.String(), func(k *kubelet.Server) { k.SetLie(lie, "dpdk-1", "p") }, kubelet.SocketPath})
	}
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			n, k := vfNode(t, policyYAML)
			k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address))))
			tr.make(k)
			// A container that nobody grants anything does not depend on the kubelet.
			other := nritest.NewPod("other", "p", nil)
			n.attach(other, vfs[0].address)
			check(t, n.runtime.RunPodSandbox(context.Background(), other))
			c, took, err := n.createNamed(other, "c", "PCIDEVICE_INTEL_COM_VF=0000:03:00.2")
			if err != nil || nodes(c.Spec) != "" || took > answer {
				t.Errorf("a container that nobody grants anything took %v: %v", took, err)
			}
			if calls := k.Calls(); calls != (kubelet.Calls{}) {
				t.Errorf("the kubelet was asked for the sake of it: %+v", calls)
			}
			granted := nritest.NewPod("dpdk-1", "p", nil)
			n.attach(granted, vfs[0].address)
			check(t, n.runtime.RunPodSandbox(context.Background(), granted))
			create := n.createNamed
			if tr.want == "does not list the pod" { // that is an answer
				create = n.createAsked
			}
			for range 2 {
				_, took, err := create(granted, "c", "PCIDEVICE_INTEL_COM_VF=0000:03:00.2")
				if err == nil || !strings.Contains(err.Error(), tr.want) || !strings.Contains(err.Error(), "net1") {
					t.Errorf("the error is %v, want one with %q", err, tr.want)
				}
				if took > answer {
					t.Errorf("took %v", took)
				}
			}
		})
	}
}

// The kubelet is queried once for a container. A rule that names the network works, too.
func TestKubeletIsQueriedOnceForContainer(t *testing.T) {
	n, k := vfNode(t, strings.Replace(policyYAML, "        devices:", "        networks: [dpdk-1/east]\n        devices:", 1))
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address))))
	pod := nritest.NewPod("dpdk-1", "p", nil)
	n.attach(pod, vfs[0].address)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	if calls := k.Calls(); calls != (kubelet.Calls{}) {
		t.Errorf("the kubelet was asked before a container is created: %+v", calls)
	}
	var c *nritest.Created
	attempts := kubeletAnswers(func() (err error) {
		c, _, err = n.createNamed(pod, "c")
		return err
	})
	if c == nil {
		t.Fatal("not created")
	}
	if got := nodes(c.Spec); got != "/dev/vfio/11(1:3) /dev/vfio/vfio(1:3)" || int(k.Calls().Get) > attempts {
		t.Errorf("the nodes are %s, after %+v in %d attempts", got, k.Calls(), attempts)
	}
}

// A container that was refused for want of the kubelet's answer is created at the next attempt.
func TestContainerIsCreatedOnceKubeletAnswers(t *testing.T) {
	n, k := vfNode(t, policyYAML)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address))))
	k.Stop()
	pod := nritest.NewPod("dpdk-1", "p", nil)
	n.attach(pod, vfs[0].address)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	if _, _, err := n.createNamed(pod, "c"); err == nil {
		t.Fatal("created without an answer")
	}
	check(t, k.Start())
	c, _, err := n.createAsked(pod, "c")
	check(t, err)
	if got := nodes(c.Spec); got != "/dev/vfio/11(1:3) /dev/vfio/vfio(1:3)" {
		t.Errorf("the nodes are %s", got)
	}
}

// With CDI, sriov-network-device-plugin gives a container only the nodes of one of its pools.
// Jackfield injects the others.
func TestDevicesOfSeveralPoolsAreInjected(t *testing.T) {
	n, k := vfNode(t, policyYAML)
	give := func(c *api.Container) {
		c.Env = append(c.Env, "PCIDEVICE_INTEL_COM_VF=0000:03:00.2,0000:03:00.3", `PCIDEVICE_INTEL_COM_VF_INFO={"0000:03:00.2":{"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/11"}}}`,
			"PCIDEVICE_INTEL_COM_CORE_INFO=0000:03:00.4")
		c.Linux.Devices = []*api.LinuxDevice{{Path: "/dev/vfio/vfio", Type: "c", Major: 1, Minor: 3}, {Path: "/dev/vfio/11", Type: "c", Major: 1, Minor: 3}}
	}
	for _, namespace := range []string{"dpdk-1", "other"} {
		pod := nritest.NewPod(namespace, "p", nil)
		k.SetPods(kubelet.Pod(namespace, "p", kubelet.Container("c",
			kubelet.Device(vfPool, "0000:03:00.2", "0000:03:00.3"), kubelet.Device("intel.com/core_info", "0000:03:00.4"), kubelet.Device("nvidia.com/gpu", "GPU-1"))))
		n.write("/run/k8s.cni.cncf.io/devinfo/dp/intel.com-vf-0000:03:00.3-device.json", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.3"}}`)
		check(t, n.runtime.RunPodSandbox(context.Background(), pod))
		var c *nritest.Created
		var err error
		kubeletAnswers(func() error {
			c, err = n.create(pod, give)
			return err
		})
		check(t, err)
		want := "/dev/vfio/11(1:3) /dev/vfio/12(1:5) /dev/vfio/13(1:3) /dev/vfio/vfio(1:3)"
		if namespace == "other" {
			want = "/dev/vfio/11(1:3) /dev/vfio/vfio(1:3)"
		}
		if got := nodes(c.Spec); got != want {
			t.Errorf("in %s the nodes are %s, want %s", namespace, got, want)
		}
		var added []string
		for _, d := range c.Adjust.GetLinux().GetDevices() {
			added = append(added, d.Path)
		}
		if got := strings.Join(added, " "); namespace == "dpdk-1" && got != "/dev/vfio/13 /dev/vfio/12" && got != "/dev/vfio/12 /dev/vfio/13" {
			t.Errorf("added are %s", got)
		}
		want = "=0000:03:00.4 of intel.com/core_info, =0000:03:00.2 of intel.com/vf, =0000:03:00.3 of intel.com/vf"
		if namespace == "other" {
			want = ""
		}
		if got := view(t, c.Spec); got != want {
			t.Errorf("in %s the view is %q, want %q", namespace, got, want)
		}
	}
}

// A network, an annotation and the allocation name the same device.
func TestDeviceRequestedThreeTimesIsInjectedOnce(t *testing.T) {
	n, k := vfNode(t, policyYAML)
	pod := nritest.NewPod("dpdk-1", "p", map[string]string{"devices.jackfield.dev": "resource:intel.com/vf"})
	n.attach(pod, vfs[0].address)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address, vfs[1].address))))
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	c, _, err := n.createAsked(pod, "c", "PCIDEVICE_INTEL_COM_VF=0000:03:00.2,0000:03:00.3")
	check(t, err)
	if got := nodes(c.Spec); got != "/dev/vfio/11(1:3) /dev/vfio/12(1:5) /dev/vfio/vfio(1:3)" {
		t.Errorf("the nodes are %s", got)
	}
	if got := view(t, c.Spec); got != "net1 dpdk-1/east=0000:03:00.2 of intel.com/vf, =0000:03:00.3 of intel.com/vf" {
		t.Errorf("the view is %q", got)
	}
}

// A pod-wide resource applies to the containers that the kubelet lists. An init or ephemeral
// container, which it never lists, is created without it. A listed container without the resource is
// refused. So is one that has an annotation of its own, or a variable that claims the resource.
func TestPodWideResourceSkipsUnlistedContainers(t *testing.T) {
	const pool = "resource:intel.com/vf"
	for name, tc := range map[string]struct {
		annotations map[string]string
		container   string
		env         []string
		nobody      bool // has the resource
		want        string
		errors      []string // in the error; none for a container that is created
	}{
		"ephemeral":               {annotations: map[string]string{"devices.jackfield.dev": pool}, container: "dbg"},
		"ephemeral, by /pod":      {annotations: map[string]string{"devices.jackfield.dev/pod": pool}, container: "dbg"},
		"ephemeral, one device":   {annotations: map[string]string{"devices.jackfield.dev": pool + "/0000:03:00.2"}, container: "dbg"},
		"the one that has it":     {annotations: map[string]string{"devices.jackfield.dev": pool}, container: "app", want: "/dev/vfio/11(1:3) /dev/vfio/vfio(1:3)"},
		"the others get the rest": {annotations: map[string]string{"devices.jackfield.dev": pool + ",vendor.com/net=env"}, container: "dbg", want: ""},
		"listed without it":       {annotations: map[string]string{"devices.jackfield.dev": pool}, container: "other", errors: []string{"allocated none of it"}},
		"of its own": {annotations: map[string]string{"devices.jackfield.dev/container.dbg": pool}, container: "dbg",
			errors: []string{"does not list this container", "devices.jackfield.dev/container.NAME for the containers that have it"}},
		"another device": {annotations: map[string]string{"devices.jackfield.dev": pool + "/0000:03:00.5"}, container: "dbg",
			errors: []string{"does not list this container"}},
		"nobody has it": {annotations: map[string]string{"devices.jackfield.dev": pool}, container: "dbg", nobody: true,
			errors: []string{"does not list this container", "devices.jackfield.dev/container.NAME"}},
		"it says that it has some": {annotations: map[string]string{"devices.jackfield.dev": pool}, container: "dbg", env: []string{"PCIDEVICE_INTEL_COM_VF=0000:03:00.2"},
			errors: []string{"does not list this container"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, k := vfNode(t, policyYAML)
			n.write("/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"env","containerEdits":{"env":["GOT=it"]}}]}`)
			app := kubelet.Container("app", kubelet.Device(vfPool, vfs[0].address))
			if tc.nobody {
				app = kubelet.Container("app")
			}
			k.SetPods(kubelet.Pod("dpdk-1", "p", app, kubelet.Container("other")))
			pod := nritest.NewPod("dpdk-1", "p", tc.annotations)
			check(t, n.runtime.RunPodSandbox(context.Background(), pod))
			c, _, err := n.createAsked(pod, tc.container, tc.env...)
			if len(tc.errors) > 0 {
				for _, want := range tc.errors {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want an error with %q", err, want)
					}
				}
				return
			}
			check(t, err)
			if got := nodes(c.Spec); got != tc.want {
				t.Errorf("the nodes are %q, want %q", got, tc.want)
			}
			if asked := strings.Contains(tc.annotations["devices.jackfield.dev"], "=env"); asked != slices.Contains(c.Spec.Process.Env, "GOT=it") {
				t.Errorf("the environment is %q", c.Spec.Process.Env)
			}
		})
	}
}

// Sources that contradict each other fail a container whose network a rule grants. The error names
// both files.
func TestContradictingSourcesFailContainer(t *testing.T) {
	n, k := vfNode(t, policyYAML)
	pod := nritest.NewPod("dpdk-1", "p", nil)
	n.attach(pod, vfs[0].address)
	n.devinfo(pod, "east", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.3"}}`)
	k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address, vfs[1].address))))
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	_, _, err := n.createAsked(pod, "c")
	for _, part := range []string{"/devinfo/cni/dpdk-1-east-" + pod.Id + "_net1", "/var/lib/cni/multus/" + pod.Id, "0000:03:00.2", "0000:03:00.3"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q: %v", part, err)
		}
	}
}

// A pipe, a directory or other content in the place of Multus' record does not block the runtime.
func TestInvalidMultusRecordDoesNotBlock(t *testing.T) {
	n, k := vfNode(t, policyYAML)
	for name, make := range map[string]func(path string) error{
		"FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"1 GiB":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)) },
		"nested": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("[", 1<<19)), 0o600) },
	} {
		pod := nritest.NewPod("dpdk-1", "p", nil)
		n.attach(pod, vfs[0].address)
		k.SetPods(kubelet.Pod("dpdk-1", "p", kubelet.Container("c", kubelet.Device(vfPool, vfs[0].address))))
		check(t, os.Remove(n.path("/var/lib/cni/multus/"+pod.Id)))
		check(t, make(n.path("/var/lib/cni/multus/"+pod.Id)))
		check(t, n.runtime.RunPodSandbox(context.Background(), pod))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, took, err := n.createAsked(pod, "c")
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 256<<20 {
			t.Errorf("%s: %d bytes were allocated for it", name, made)
		}
		if err != nil || took > answer || nodes(c.Spec) != "/dev/vfio/11(1:3) /dev/vfio/vfio(1:3)" {
			t.Errorf("%s: took %v: %v", name, took, err)
		}
	}
}

// A network that is requested by name and has no device-info fails the container. The error says
// what is known of the network.
func TestRequestedNetworkWithoutDeviceInfoFails(t *testing.T) {
	n, _ := vfNode(t, policyYAML)
	pod := nritest.NewPod("dpdk-1", "p", map[string]string{"k8s.v1.cni.cncf.io/networks": "bridge", "networks.jackfield.dev": "bridge"})
	n.write("/var/lib/cni/multus/"+pod.Id, `[{"Name":"cbr0"},{"Name":"dpdk-1/bridge","Conf":{"name":"bridge"}}]`)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	_, _, err := n.createNamed(pod, "c")
	for _, part := range []string{"dpdk-1/bridge", "net1", "no device-info", "networks.jackfield.dev"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q: %v", part, err)
		}
	}
	// Without the request nothing happens and nothing is said.
	pod = nritest.NewPod("dpdk-1", "q", map[string]string{"k8s.v1.cni.cncf.io/networks": "bridge"})
	n.write("/var/lib/cni/multus/"+pod.Id, `[{"Name":"cbr0"},{"Name":"dpdk-1/bridge","Conf":{"name":"bridge"}}]`)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	c, _, err := n.createNamed(pod, "quiet")
	check(t, err)
	if len(c.Spec.Mounts) != len(c.Before.Mounts) || strings.Contains(n.log.String(), "quiet") {
		t.Errorf("something happened:\n%s", n.log.String())
	}
}

// At its start the plugin warns of a socket root that a container can fill together with the state directory.
func TestStartWarnsOfRootMounts(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	eventually(t, "the warning is logged", func() bool {
		return strings.Contains(n.log.String(), "socket root /var/run/vsw is on the file system of the state directory /")
	})
}
