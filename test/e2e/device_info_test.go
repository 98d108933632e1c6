// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The tests run each type of device-info on a real containerd. A sysfs tree and character devices under a
// host root of the test replace the hardware.

const (
	hostRoot = "/run/hr"
	vf1      = "0000:03:00.1"
	vf2      = "0000:03:00.2"
	vf3      = "0000:03:00.3"
	resource = "acme.com/vf"
)

const deviceConfig = `
sockets: {roots: [/run/vsw]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        sockets: ["/run/vsw/**"]
        devices: ["/dev/vfio/*", "/dev/vhost-vdpa-*", "/dev/vhost-net", "/dev/net/tun", "/dev/infiniband/*"]
`

// createHardware creates the host root: three VFs that are bound to vfio-pci, in the groups 11 to 13, and a
// vDPA device of a fourth function.
func createHardware(t *testing.T, h *e2e.H) *sysfstest.Tree {
	t.Helper()
	h.MkdirAll(hostRoot + "/run/vsw")
	h.MkdirAll(hostRoot + "/var")
	tree, err := sysfstest.New(hostRoot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(hostRoot) })
	errs := []error{os.Symlink("../run", hostRoot+"/var/run")}
	for i, address := range []string{vf1, vf2, vf3} {
		// 1:3, 1:5, 1:8 are null, zero and random.
		errs = append(errs, tree.AddPCI(address, "vfio-pci", 11+i), tree.AddVFIO(11+i, sysfstest.Dev{Major: 1, Minor: []uint32{3, 5, 8}[i]}, sysfstest.Null()))
	}
	errs = append(errs, tree.AddPCI("0000:04:00.2", "mlx5_core", sysfstest.NoGroup), tree.AddVDPA("vdpa0", "vhost_vdpa", "0000:04:00.2", 0, sysfstest.Zero()))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return tree
}

// withKubelet creates the hardware, and starts a kubelet and the plugin.
func withKubelet(t *testing.T, h *e2e.H) *kubelet.Server {
	t.Helper()
	createHardware(t, h)
	k, err := kubelet.StartUnder(hostRoot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	h.StartPlugin(node.PluginOptions{Config: deviceConfig, Args: []string{"--root", hostRoot}})
	return k
}

func hostDevinfo(h *e2e.H, pod *e2e.Pod, nad, iface, content string) {
	h.WriteFile(fmt.Sprintf("%s/run/k8s.cni.cncf.io/devinfo/cni/%s-%s-%s_%s", hostRoot, pod.Namespace(), nad, pod.ID, iface), content)
}

func pci(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address)
}

// readView reads devices.json in the container. It returns the network and the type of each interface.
func readView(t *testing.T, c *e2e.Container) map[string]string {
	t.Helper()
	var list []struct {
		Name, Interface string
		DeviceInfo      struct {
			Type string
			PCI  struct {
				Address string `json:"pci-address"`
			} `json:"pci"`
		} `json:"device-info"`
	}
	if err := json.Unmarshal([]byte(c.Output("sh", "-c", "cat $JACKFIELD_DEVICES_FILE")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		out[e.Interface] = strings.TrimSpace(e.Name + " " + e.DeviceInfo.Type + " " + e.DeviceInfo.PCI.Address)
	}
	return out
}

func TestDeviceInfoOfEveryType(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		createHardware(t, h)
		h.StartPlugin(node.PluginOptions{Config: deviceConfig, Args: []string{"--root", hostRoot}})
		h.Vswitch(vswitch.VhostUser, hostRoot+"/run/vsw/p3/vhost.sock", "vhost-user client")
		h.Vswitch(vswitch.Memif, hostRoot+"/run/vsw/p5/memif.sock", "memif slave")
		pod := h.RunPod(node.PodOptions{Name: "types", Namespace: "dpdk-1"})
		hostDevinfo(h, pod, "pci", "net1", pci(vf1))
		hostDevinfo(h, pod, "vdpa", "net2", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-7","pci-address":"0000:04:00.2"}}`)
		hostDevinfo(h, pod, "client", "net3", vhostUser("client", "/var/run/vsw/p3/vhost.sock"))
		hostDevinfo(h, pod, "server", "net4", vhostUser("server", "/var/run/vsw/p4/vhost.sock"))
		hostDevinfo(h, pod, "slave", "net5", memif("slave", "/var/run/vsw/p5/memif.sock"))
		hostDevinfo(h, pod, "master", "net6", memif("master", "/var/run/vsw/p6/memif.sock"))
		hostDevinfo(h, pod, "abstract", "net7", memif("master", "@abstract"))
		ctr := pod.Run(node.ContainerOptions{Env: []string{"PCIDEVICE_ACME_COM_VF=" + vf1, "PCIDEVICE_ACME_COM_VDPA=0000:04:00.2"}})

		// The device nodes exist and can be used, for reading and writing only.
		got := ctr.Output("sh", "-c", `for d in /dev/vfio/* /dev/vhost-vdpa-*; do ls -l $d | tr -s ' ' | cut -d' ' -f5,6,10; done
head -c 1 /dev/vfio/11 | wc -c; head -c 4 /dev/vhost-vdpa-0 | xxd -p; echo $JACKFIELD_NET1_PCI $JACKFIELD_NET1_EAL; echo $JACKFIELD_NET2_EAL`)
		if want := "1, 3 /dev/vfio/11\n1, 3 /dev/vfio/vfio\n1, 5 /dev/vhost-vdpa-0\n0\n00000000\n" + vf1 + " -a " + vf1 + "\n--vdev=net_virtio_user0,path=/dev/vhost-vdpa-0"; got != want {
			t.Errorf("inside:\n%s\nwant:\n%s", got, want)
		}
		for _, r := range ctr.OCISpec().Linux.Resources.Devices {
			if r.Allow && r.Major != nil && *r.Major == 1 && r.Minor != nil && (*r.Minor == 3 || *r.Minor == 5) && r.Type == "c" && strings.Contains(r.Access, "m") && r.Access != "rwm" {
				t.Errorf("the device cgroup has %+v", r)
			}
		}
		if got := ctr.Output("sh", "-c", "sockclient connect $JACKFIELD_NET3_SOCKET; sockclient connect $JACKFIELD_NET5_SOCKET"); got !=
			vswitch.Greeting("vhost-user client")+"\n"+vswitch.Greeting("memif slave") {
			t.Errorf("the host's sockets answer %q", got)
		}
		// Sockets belong to the pod: another container of the pod creates some of them.
		app := pod.Run(node.ContainerOptions{Name: "app", Command: []string{"sh", "-c",
			"sockclient listen $JACKFIELD_NET4_SOCKET four & sockclient memif $JACKFIELD_NET6_SOCKET six & exec sockclient memif $JACKFIELD_NET7_SOCKET seven"}})
		for path, want := range map[string]string{hostRoot + "/run/vsw/p4/vhost.sock": "four", hostRoot + "/run/vsw/p6/memif.sock": "six"} {
			h.Eventually(func() error {
				got, err := vswitch.Ask(t.Context(), path)
				if err == nil && got != want {
					err = fmt.Errorf("%s answers %q", path, got)
				}
				return err
			})
		}
		// An abstract socket belongs to the network namespace, which both containers share.
		h.Eventually(func() error {
			stdout, stderr, code := ctr.Exec("sh", "-c", "sockclient connect $JACKFIELD_NET7_SOCKET")
			if code != 0 || strings.TrimSpace(stdout) != "seven" {
				return fmt.Errorf("the abstract socket answers %q %q", stdout, stderr)
			}
			return nil
		})
		// The second container gets the sockets and not the VF.
		if got := app.Output("sh", "-c", "ls /dev/vfio 2>/dev/null; env | grep -c _SOCKET="); got != "5" {
			t.Errorf("the other container has %q", got)
		}
		if v := readView(t, app); len(v) != 5 || v["net1"] != "" {
			t.Errorf("devices.json of the other container has %v", v)
		}
	})
}

// A pod has three networks and two containers, and the kubelet allocated the VFs crosswise. Each
// container gets its own VFs, and its devices.json names the network of each.
func TestContainersGetTheirOwnAllocations(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		k := withKubelet(t, h)
		pod := h.RunPod(node.PodOptions{Name: "cross", Namespace: "dpdk-1", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "red,green,blue"}})
		k.SetPods(kubelet.Pod("dpdk-1", "cross",
			kubelet.Container("one", kubelet.Device(resource, vf2)),
			kubelet.Container("two", kubelet.Device(resource, vf3, vf1))))
		hostDevinfo(h, pod, "red", "net1", pci(vf1))
		hostDevinfo(h, pod, "green", "net2", pci(vf2))
		hostDevinfo(h, pod, "blue", "net3", pci(vf3))
		for name, want := range map[string]struct{ env, nodes, view string }{
			"one": {vf2, "12\nvfio", "map[net2:dpdk-1/green pci " + vf2 + "]"},
			"two": {vf3 + "," + vf1, "11\n13\nvfio", "map[net1:dpdk-1/red pci " + vf1 + " net3:dpdk-1/blue pci " + vf3 + "]"},
		} {
			ctr := pod.Run(node.ContainerOptions{Name: name, Env: []string{"PCIDEVICE_ACME_COM_VF=" + want.env}})
			if got := ctr.Output("ls", "/dev/vfio"); got != want.nodes {
				t.Errorf("%s has the nodes %q, want %q", name, got, want.nodes)
			}
			if got := fmt.Sprint(readView(t, ctr)); got != want.view {
				t.Errorf("devices.json of %s has %s, want %s", name, got, want.view)
			}
		}
		// A pod cannot get a device that the kubelet did not allocate to it.
		liar := pod.Run(node.ContainerOptions{Name: "one", Attempt: 1, Env: []string{"PCIDEVICE_ACME_COM_VF=" + vf2}})
		if got := liar.Output("ls", "/dev/vfio"); got != "12\nvfio" {
			t.Errorf("the restarted container has %q", got)
		}
	})
}

// A container's environment does not grant what the kubelet allocated to another container.
func TestForgedEnvironmentGrantsNothing(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		k := withKubelet(t, h)
		pod := h.RunPod(node.PodOptions{Name: "forger", Namespace: "dpdk-1"})
		k.SetPods(kubelet.Pod("dpdk-1", "forger", kubelet.Container("main")), kubelet.Pod("dpdk-2", "victim", kubelet.Container("main", kubelet.Device(resource, vf1))))
		hostDevinfo(h, pod, "red", "net1", pci(vf1))
		c, err := pod.TryCreate(t.Context(), node.ContainerOptions{Env: []string{"PCIDEVICE_ACME_COM_VF=" + vf1}})
		if err == nil {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out, _, _, _ := c.Exec(t.Context(), "sh", "-c", "ls /dev/vfio 2>/dev/null"); out != "" {
				t.Errorf("the container has %q", out)
			}
			return
		}
		if !strings.Contains(err.Error(), vf1) {
			t.Errorf("the refusal does not name the device: %v", err)
		}
	})
}

// A container gets the device nodes of all pools, although the device plugin's annotations omit some
// (sriov-network-device-plugin#731).
func TestSeveralPools(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		k := withKubelet(t, h)
		k.SetPods(kubelet.Pod("dpdk-1", "pools", kubelet.Container("main", kubelet.Device("acme.com/pool_a", vf1), kubelet.Device("acme.com/pool_b", vf2))))
		for pool, id := range map[string]string{"pool_a": vf1, "pool_b": vf2} {
			h.WriteFile(filepath.Join(hostRoot, "run/k8s.cni.cncf.io/devinfo/dp", "acme.com-"+pool+"-"+id+"-device.json"), pci(id))
		}
		pod := h.RunPod(node.PodOptions{Name: "pools", Namespace: "dpdk-1"})
		// The CDI annotation injected the device node of the first pool.
		h.CharDevice("/run/devs/11", 1, 3)
		ctr := pod.Run(node.ContainerOptions{
			Env:     []string{"PCIDEVICE_ACME_COM_POOL_A=" + vf1, "PCIDEVICE_ACME_COM_POOL_B=" + vf2},
			Devices: criDevices("/run/devs/11", "/dev/vfio/11"),
		})
		if got := ctr.Output("ls", "/dev/vfio"); got != "11\n12\nvfio" {
			t.Errorf("the container has %q", got)
		}
	})
}

// The kubelet may be absent, slow or wrong. A creation stays within its time limit and has the documented
// result.
func TestFailingKubeletDoesNotBlockCreation(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		k := withKubelet(t, h)
		create := func(name string) (time.Duration, error) {
			pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
			hostDevinfo(h, pod, "red", "net1", pci(vf1))
			start := time.Now()
			_, err := pod.Pod.Create(t.Context(), node.ContainerOptions{Env: []string{"PCIDEVICE_ACME_COM_VF=" + vf1}})
			return time.Since(start), err
		}
		// The plugin waits half a second for the kubelet, a thirtieth of the bound. Without a limit it would
		// wait until the runtime's deadline.
		const bound = 15 * time.Second
		k.SetDelay(10 * time.Minute)
		took, err := create("slow")
		if took > bound || err == nil || !strings.Contains(err.Error(), "kubelet") {
			t.Errorf("with a slow kubelet the creation took %v and returned %v", took, err)
		}
		k.SetDelay(0)
		k.SetLie(kubelet.Lies()[1], "dpdk-1", "lied")
		k.SetPods(kubelet.Pod("dpdk-1", "lied", kubelet.Container("main", kubelet.Device(resource, vf1))))
		if took, err := create("lied"); took > bound || err == nil {
			t.Errorf("with a wrong kubelet the creation took %v and returned %v", took, err)
		}
		k.Stop()
		os.Remove(k.Socket())
		if took, err := create("absent"); took > bound || err != nil {
			t.Errorf("without a kubelet the creation took %v and returned %v", took, err)
		}
	})
}

func criDevices(host, inside string) []*cri.Device {
	return []*cri.Device{{HostPath: host, ContainerPath: inside, Permissions: "rw"}}
}
