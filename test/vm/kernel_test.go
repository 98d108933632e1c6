// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// The tests of this file use kernel subsystems other than VFIO and vDPA: RDMA verbs, AppArmor, noiommu groups and
// network interfaces.

// ip runs the command of iproute2.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if err := run(t.Context(), "/bin/ip", args...); err != nil {
		t.Fatal(err)
	}
}

// interfaces binds functions to igbvf and returns their network interfaces, which are up.
func interfaces(t *testing.T, addresses ...string) (names []string) {
	t.Helper()
	if err := run(t.Context(), "modprobe", "igbvf"); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "igbvf", addresses...)
	for _, address := range addresses {
		name, err := netdev(address)
		if err != nil {
			t.Fatal(err)
		}
		ip(t, "link", "set", name, "up")
		names = append(names, name)
	}
	return names
}

// Two containers, each with the RDMA device of a VF, exchange messages. Neither has the other's node.
func TestContainersUseVerbs(t *testing.T) {
	Require(t)
	names := interfaces(t, vf2, otherVF)
	if err := run(t.Context(), "modprobe", "-a", "rdma_rxe", "rdma_ucm", "ib_umad"); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		rdma := fmt.Sprintf("rxe%d", i)
		if err := run(t.Context(), "rdma", "link", "add", rdma, "type", "rxe", "netdev", name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = exec.Command("rdma", "link", "delete", rdma).Run() })
	}
	verbs := func(address, name string) device {
		return device{address, `{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + address + `","rdma-device":"` + name + `"}}`}
	}
	pingpong := func(name string) string { return "ibv_rc_pingpong --iters=100 --gid-idx=0 --ib-dev=" + name }
	h := newHost(t, config)
	h.refused(box{name: "foreign", devices: []device{verbs(vf2, "rxe1")}}, `RDMA device "rxe1" is not one of PCI device "`+vf2+`"`)
	server := h.start(box{name: "server", user: user, devices: []device{verbs(vf2, "rxe0")},
		command: listNodes + pingpong("rxe0") + " 2>&1"})
	// The containers have the machine's network. The program's output comes at its end.
	err := waitUntil(t.Context(), "the server to listen", func() bool {
		out, err := exec.CommandContext(t.Context(), "netstat", "-ltn").Output()
		return err == nil && strings.Contains(string(out), ":18515 ")
	})
	if err != nil {
		t.Fatal(err)
	}
	out := h.succeed(box{name: "client", devices: []device{verbs(otherVF, "rxe1")},
		command: listNodes + intrudes(t, uverbsNode("rxe0")) + "ibv_devinfo; " + pingpong("rxe1") + " 127.0.0.1 2>&1"},
		"PORT_ACTIVE", "not permitted", "bytes in", uverbsNode("rxe1"), "/dev/infiniband/rdma_cm")
	if strings.Contains(nodesIn(out), uverbsNode("rxe0")) {
		t.Errorf("the client has the server's node: %s", nodesIn(out))
	}
	server.wait("bytes in")
}

// An AppArmor profile can deny device nodes that a policy rule grants. The container's other devices work.
func TestAppArmorDeniesNodes(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0)
	file := filepath.Join(t.TempDir(), "profile")
	const profile = `profile jackfield-test flags=(attach_disconnected,mediate_deleted) {
  file,
  capability,
  network,
  deny /dev/vfio/** rw,
}
`
	if err := os.WriteFile(file, []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "apparmor_parser", "--replace", "--skip-cache", file); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, config)
	h.succeed(box{name: "confined", apparmor: "jackfield-test", devices: []device{pci(vf0), vdpa("sim0", "vhost", "")},
		command: "cat /proc/self/attr/current; " + opens(vf0) + probeTool + "vdpa " + vhostNode("sim0") + "; cat /run/jackfield/devices.json"},
		"jackfield-test (enforce)", "/dev/vfio/vfio: permission denied", cdevNode(vf0)+": permission denied", "virtio device 1", vf0)
}

// A function without an IOMMU has the node /dev/vfio/noiommu-<group>. The pattern /dev/vfio/* does not grant it; a
// pattern with noiommu does.
func TestNoIOMMUNeedsItsRule(t *testing.T) {
	Require(t)
	if err := os.WriteFile("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", []byte("Y"), 0); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "vfio-pci", unprotected)
	node := "/dev/vfio/noiommu-" + group(unprotected)
	newHost(t, config).refused(box{name: "unnamed", devices: []device{pci(unprotected)}}, node, "noiommu")
	named := strings.Replace(config, `"/dev/vfio/*"`, `"/dev/vfio/*", "/dev/vfio/noiommu-*"`, 1)
	out := newHost(t, named).succeed(box{name: "named", devices: []device{pci(unprotected)},
		command: listNodes + "(: <>" + node + ") && echo opened"}, "opened")
	if got, want := nodesIn(out), sorted(node, "/dev/vfio/vfio"); got != want {
		t.Errorf("the container has %q, want %q", got, want)
	}
}

// A VF's interface moves into a pod under another name, and the pod reaches the other VF. The pod's second container is
// refused while the interface is in the pod, and the next pod while the interface has the wrong name on the host. Both
// errors report where the interface is.
func TestNetDeviceOfVFMoves(t *testing.T) {
	Require(t)
	names := interfaces(t, vf3, otherVF)
	ip(t, "address", "add", "10.9.0.1/24", "dev", names[0])
	ip(t, "netns", "add", "peer")
	t.Cleanup(func() { _ = exec.Command("/bin/ip", "netns", "delete", "peer").Run() })
	ip(t, "link", "set", names[1], "netns", "peer")
	ip(t, "-n", "peer", "address", "add", "10.9.0.2/24", "dev", names[1])
	ip(t, "-n", "peer", "link", "set", names[1], "up")
	r := newRig(t, `policy: {rules: [{name: telco, for: {namespaces: [telco]}, allow: {cdi: ["example.com/net=*"]}}]}`)
	r.WriteFile("/etc/cdi/net.json", `{"cdiVersion":"1.1.0","kind":"example.com/net","devices":[
 {"name":"vf","containerEdits":{"netDevices":[{"hostInterfaceName":"`+names[0]+`","name":"dp0"}]}}]}`)
	o := node.PodOptions{Name: "mover", Annotations: map[string]string{"devices.jackfield.dev": "example.com/net=vf"}}
	pod := r.podWith(o)
	c := pod.Run(app())
	c.Output("/usr/bin/ping", "-c", "3", "-I", "dp0", "10.9.0.2")
	c.Remove()
	check(t, pod.CreateFails(app()).Error(), `network device "`+names[0]+`": this host has no such interface`,
		"network namespace of that pod")
	pod.Remove()
	t.Cleanup(func() { _ = exec.Command("/bin/ip", "link", "set", "dp0", "name", names[0]).Run() })
	r.Eventually(func() error {
		_, err := os.Stat("/sys/class/net/dp0")
		return err
	})
	o.Name = "next"
	pod = r.podWith(o)
	check(t, pod.CreateFails(app()).Error(), "the node's administrator can run `ip link set dp0 name "+names[0]+"`")
	ip(t, "link", "set", "dp0", "name", names[0])
	pod.Run(app()).Output("test", "-e", "/sys/class/net/dp0")
}
