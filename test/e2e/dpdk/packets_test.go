// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// The container's DPDK is a read-only mount of Debian's unpacked packages, C library included, over an image
// with only a static busybox. The host runs the same files.

const config = `
sockets: {roots: [/run/vsw]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        sockets: ["/run/vsw/**"]
        devices: ["/dev/vfio/*", "/dev/vhost-vdpa-*"]
`

const (
	devinfoDir = "/run/k8s.cni.cncf.io/devinfo/cni"
	hostSide   = "/run/vsw/port/sock"
	// running is how long packets are sent.
	running = 500 * time.Millisecond
)

func vhostUser(mode, path string) string {
	return fmt.Sprintf(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path)
}

func memif(role, path string) string {
	return fmt.Sprintf(`{"type":"memif","version":"1.1.0","memif":{"role":%q,"mode":"ethernet","path":%q}}`, role, path)
}

// devinfo writes a device-info file as Multus names it, below a host root.
func devinfo(h *e2e.H, root string, pod *e2e.Pod, iface, content string) {
	h.WriteFile(fmt.Sprintf("%s%s/%s-net-%s_%s", root, devinfoDir, pod.Namespace(), pod.ID, iface), content)
}

// testpmd is a shell command that forwards packets until SIGINT. Its only devices are those that
// the shell expands from devices.
func testpmd(t *testing.T, devices string) string {
	t.Helper()
	_, cpu, err := dpdk.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	generic := append(append(dpdk.Generic("app", cpu), "--"), dpdk.Forward()...)
	return "/usr/bin/dpdk-testpmd " + devices + " " + strings.Join(append(generic, dpdk.Unattended()...), " ")
}

// printed logs the container's output if the test fails.
func printed(t *testing.T, ctr *e2e.Container) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the container printed:\n%s", node.Tail(ctr.Logs(), 60))
		}
	})
}

// once is the command of a container that runs another command once the test creates its start
// file.
func once(command string) []string {
	return []string{"sh", "-c", "until test -e /tmp/go; do sleep 0.02; done; exec " + command}
}

func run(ctr *e2e.Container) { ctr.Output("touch", "/tmp/go") }

// Packets go both ways over every kind of socket, created by the host or by the application.
// testpmd in the container gets its device from JACKFIELD_NET1_EAL alone.
func TestPacketsPassEveryKindOfSocket(t *testing.T) {
	for _, tc := range []struct {
		name, info string
		host       string // device on the host
		first      bool   // the host creates the socket
		eal        string // what JACKFIELD_NET1_EAL must be
	}{
		{name: "vhost-user that the host creates", info: vhostUser("client", hostSide), first: true,
			host: "--vdev=net_vhost0,iface=" + hostSide, eal: "--vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/sock"},
		{name: "vhost-user that the application creates", info: vhostUser("server", hostSide),
			host: "--vdev=net_vhost0,client=1,iface=" + hostSide, eal: "--vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/sock,server=1"},
		{name: "memif with the host as server", info: memif("slave", hostSide), first: true,
			host: "--vdev=net_memif0,role=server,socket-abstract=no,socket=" + hostSide,
			eal:  "--vdev=net_memif0,role=client,id=0,socket=/var/run/jackfield/net/net1/sock,socket-abstract=no"},
		{name: "memif with the container as server", info: memif("master", hostSide),
			host: "--vdev=net_memif0,role=client,socket-abstract=no,socket=" + hostSide,
			eal:  "--vdev=net_memif0,role=server,id=0,socket=/var/run/jackfield/net/net1/sock,socket-abstract=no"},
		// An abstract socket belongs to the pod's network namespace, which the switch enters.
		{name: "abstract memif", info: memif("master", "@jackfield"),
			host: "--vdev=net_memif0,role=client,socket-abstract=yes,socket=jackfield",
			eal:  "--vdev=net_memif0,role=server,id=0,socket=jackfield,socket-abstract=yes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
				tree := dpdk.Lay(t)
				h.MkdirAll("/run/vsw")
				h.StartPlugin(node.PluginOptions{Config: config})
				before := h.Inventory("/run/vsw", "/run/jackfield")
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
				devinfo(h, "", pod, "net1", tc.info)
				o := dpdk.Options{Devices: []string{"--no-pci", tc.host}}
				var host *dpdk.Testpmd
				if tc.first {
					h.MkdirAll("/run/vsw/port")
					host = tree.Start(t, o)
				}
				ctr := pod.Run(node.ContainerOptions{Mounts: tree.Mounts(), Command: once(testpmd(t, "--no-pci $JACKFIELD_NET1_EAL"))})
				printed(t, ctr)
				if got, _ := node.Env(ctr.OCISpec(), "JACKFIELD_NET1_EAL"); got != tc.eal {
					t.Errorf("JACKFIELD_NET1_EAL is %q, want %q", got, tc.eal)
				}
				run(ctr)
				if !tc.first {
					h.Eventually(func() error { return listening(tc.info, ctr.PID()) })
					if strings.Contains(tc.info, "@") {
						o.NetNS = fmt.Sprintf("/proc/%d/ns/net", ctr.PID())
					}
					host = tree.Start(t, o)
				}
				host.Connected(1)
				outside := host.Exchange(1, running)[0]
				inside := dpdk.Finish(t, h, ctr)[0]
				t.Logf("%s, DPDK %s, %v: host %v; container %v", h.Generation(), tree.Version, running, outside, inside)
				for side, c := range map[string]dpdk.Counters{"host": outside, "container": inside} {
					if c.RX == 0 || c.TX == 0 {
						t.Errorf("%s: %v", side, c)
					}
				}
				host.Stop()
				pod.Remove()
				os.RemoveAll("/run/vsw/port")
				h.NothingLeft(before, "/run/vsw", "/run/jackfield")
			})
		})
	}
}

// listening returns nil once the application has created its socket. A memif client on the host tries to
// connect once.
func listening(info string, pid int) error {
	if !strings.Contains(info, "@") {
		_, err := os.Lstat(hostSide)
		return err
	}
	sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
	if err == nil && !strings.Contains(string(sockets), "@jackfield\n") {
		err = fmt.Errorf("no such socket:\n%s", sockets)
	}
	return err
}
