// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const (
	// hostRoot is the host root of the tests with emulated hardware.
	hostRoot = "/run/hr"
	// Two virtual functions with virtio-net. The container gets one of them.
	vf, otherVF = "0000:03:00.1", "0000:03:00.2"
	vdpaPCI     = "0000:04:00.2"
)

// createHardware creates a host root with two VFs that are bound to vfio-pci, and a vDPA device, as far as
// Jackfield and EAL check before they open a device. The device nodes are null and zero.
func createHardware(t *testing.T, h *e2e.H) {
	t.Helper()
	h.MkdirAll(hostRoot + "/run/vsw")
	h.MkdirAll(hostRoot + "/var")
	tree, err := sysfstest.New(hostRoot)
	if err != nil {
		t.Fatal(err)
	}
	errs := []error{os.Symlink("../run", hostRoot+"/var/run"), tree.AddVFIO(11, sysfstest.Null(), sysfstest.Null())}
	for i, address := range []string{vf, otherVF} {
		errs = append(errs, tree.AddPCI(address, "vfio-pci", 11+i))
		for name, text := range map[string]string{
			"vendor": "0x1af4", "device": "0x1041", "subsystem_vendor": "0x1af4", "subsystem_device": "0x1100",
			"class": "0x020000", "numa_node": "0", "max_vfs": "0",
			"resource": strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 7),
		} {
			errs = append(errs, tree.WriteFile("/sys/bus/pci/devices/"+address+"/"+name, text+"\n"))
		}
	}
	errs = append(errs,
		tree.AddPCI(vdpaPCI, "mlx5_core", sysfstest.NoGroup),
		tree.AddVDPA("vdpa0", "vhost_vdpa", vdpaPCI, 0, sysfstest.Zero()),
		// /proc/devices of a kernel with vhost-vdpa. The number is that of the zero device.
		tree.WriteFile("/devices", "Character devices:\n  1 vhost-vdpa\n\nBlock devices:\n"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// readEAL returns the EAL arguments of all devices in the container's devices.json, in its order, and by
// interface.
func readEAL(t *testing.T, ctr *e2e.Container) (all []string, byInterface map[string]string) {
	t.Helper()
	var list []struct {
		Interface string
		Jackfield struct{ EAL []string }
	}
	if err := json.Unmarshal([]byte(ctr.Output("sh", "-c", "cat $JACKFIELD_DEVICES_FILE")), &list); err != nil {
		t.Fatal(err)
	}
	byInterface = map[string]string{}
	for _, e := range list {
		all = append(all, e.Jackfield.EAL...)
		byInterface[e.Interface] = strings.Join(e.Jackfield.EAL, " ")
	}
	return all, byInterface
}

// A single testpmd takes all devices of its devices.json. Packets go through its sockets. There is no
// hardware for the PCI function and the vDPA device: for these, EAL and the driver accept the arguments as
// the intended kind of device, and fail at the device.
func TestAllOfDevicesJSON(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		tree := dpdk.Lay(t)
		createHardware(t, h)
		// Below another host root, sockets are bound only if the configuration says so.
		bind := strings.Replace(config, "sockets: {", "sockets: {staging: mount, ", 1)
		h.StartPlugin(node.PluginOptions{Config: bind, Args: []string{"--root", hostRoot}})
		vsw := hostRoot + "/run/vsw/"
		h.MkdirAll(vsw + "p3")
		h.MkdirAll(vsw + "p5")
		first := tree.Start(t, dpdk.Options{Name: "first", Devices: []string{"--no-pci",
			"--vdev=net_vhost0,iface=" + vsw + "p3/sock",
			"--vdev=net_vhost1,client=1,iface=" + vsw + "p4/sock",
			"--vdev=net_memif0,role=server,socket-abstract=no,socket=" + vsw + "p5/sock"}})
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
		for iface, info := range map[string]string{
			"net1": `{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + vf + `"}}`,
			"net2": `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0","pci-address":"` + vdpaPCI + `"}}`,
			"net3": vhostUser("client", "/var/run/vsw/p3/sock"),
			"net4": vhostUser("server", "/var/run/vsw/p4/sock"),
			"net5": memif("slave", "/var/run/vsw/p5/sock"),
			"net6": memif("master", "/var/run/vsw/p6/sock"),
		} {
			devinfo(h, hostRoot, pod, iface, info)
		}
		ctr := pod.Run(node.ContainerOptions{
			Command: once(testpmd(t, "$(cat /tmp/eal)")),
			Mounts: append(tree.Mounts(),
				&cri.Mount{HostPath: hostRoot + "/sys", ContainerPath: "/fixture/sys", Readonly: true},
				&cri.Mount{HostPath: hostRoot + "/devices", ContainerPath: "/fixture/devices", Readonly: true}),
			// EAL searches PCI devices here instead of /sys.
			Env: []string{"SYSFS_PCI_DEVICES=/fixture/sys/bus/pci/devices", "PCIDEVICE_ACME_COM_VF=" + vf, "PCIDEVICE_ACME_COM_VDPA=" + vdpaPCI},
		})
		printed(t, ctr)
		all, byInterface := readEAL(t, ctr)
		if len(byInterface) != 6 {
			t.Fatalf("devices.json has %q", byInterface)
		}
		for iface, args := range byInterface {
			if got := ctr.Output("sh", "-c", "echo $JACKFIELD_"+strings.ToUpper(iface)+"_EAL"); got != args {
				t.Errorf("%s: the environment says %q and devices.json %q", iface, got, args)
			}
		}
		runInContainer(t, ctr, "mount", "-o", "bind", "/fixture/devices", "/proc/devices")
		ctr.Output("sh", "-c", `echo "$@" > /tmp/eal`, "sh", strings.Join(all, " "))
		run(ctr)
		first.Connected(3)
		outside := first.Exchange(3, running)
		// A memif client on the host tries to connect once, at its start.
		second := tree.Start(t, dpdk.Options{Name: "second", Devices: []string{"--no-pci",
			"--vdev=net_memif0,role=client,socket-abstract=no,socket=" + vsw + "p6/sock"}})
		second.Connected(1)
		outside[3] = second.Exchange(1, running)[0]
		inside := dpdk.Finish(t, h, ctr)
		for port, iface := range []string{"net3", "net4", "net5", "net6"} {
			t.Logf("%s, DPDK %s, %v, %s: host %v; container %v", h.Generation(), tree.Version, running, iface, outside[port], inside[port])
			for side, c := range map[string]dpdk.Counters{"host": outside[port], "container": inside[port]} {
				if c.RX == 0 || c.TX == 0 {
					t.Errorf("%s on the %s: %v", iface, side, c)
				}
			}
		}
		log := ctr.Logs()
		for _, want := range []string{
			"Probe PCI driver: net_virtio (1af4:1041) device: " + vf,
			"vhost_vdpa_setup(): ", // not the function for a socket or for vhost-net
			"virtio_user_dev_init(): (/dev/vhost-vdpa-0) backend set up fails",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("testpmd has not printed %q", want)
			}
		}
		if strings.Contains(log, otherVF) {
			t.Errorf("testpmd has looked at %s, which is not the container's", otherVF)
		}
	})
}

// EAL accepts the address of an absent function. EAL, like Jackfield, refuses the address in the example of
// the Device Information Specification.
func TestEALAgreesOnPCIAddresses(t *testing.T) {
	tree := dpdk.Lay(t)
	const absent = "fffe:fd:1c.5"
	if _, err := os.Stat("/sys/bus/pci/devices/" + absent); err == nil {
		t.Fatalf("this machine has a PCI function %s", absent)
	}
	if log := tree.Start(t, dpdk.Options{Devices: []string{"-a", absent}}).Log(); strings.Contains(log, "cannot be used") {
		t.Errorf("EAL refuses the address of an absent device:\n%s", log)
	}
	if log := tree.Fails(t, dpdk.Options{Devices: []string{"-a", "0000:02:01:6"}}); !strings.Contains(log, `failed to parse device "0000:02:01:6"`) {
		t.Errorf("EAL failed for another reason:\n%s", log)
	}
}

// runInContainer runs a command of the container's image as the host's root, in the container's mount and PID
// namespaces.
func runInContainer(t *testing.T, ctr *e2e.Container, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", append([]string{"--mount", "--pid", "--target", strconv.Itoa(ctr.PID()), "/bin/busybox"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q in container %q: %v: %s", args, ctr.Name(), err, out)
	}
}
