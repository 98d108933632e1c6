// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const (
	// user is the user and group of containers that do not run as root.
	user = 1000
	// runtimeMemlock is the limit of locked memory that runtimes pass on to containers.
	runtimeMemlock = 8 << 20
)

// testpmd returns a shell command that runs testpmd with 64 MiB of huge pages and with the devices of the container's
// networks.
func testpmd(name, arguments string) string {
	return "XDG_RUNTIME_DIR=/dev/shm exec /usr/bin/dpdk-testpmd -m 64 --no-telemetry --file-prefix=" + name +
		" --lcores=0@0,1@1 $JACKFIELD_NET1_EAL $JACKFIELD_NET2_EAL -- --total-num-mbufs=4096 --stats-period=1 " + arguments
}

// vfMAC returns the MAC address of a VF of pf0, which createVFs sets.
func vfMAC(number int) string { return fmt.Sprintf("52:54:00:00:01:1%d", number) }

// Pods of a user other than root run DPDK with huge pages, a VF and a vDPA device. Packets pass from one pod to the
// other over both, although the memory exceeds the runtime's limit of locked memory: the rule raises it.
func TestPacketsPassBetweenPods(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0, vf1)
	r := newRig(t, config+"      limits: {memlock: unlimited}\n")
	var before unix.Rlimit
	limit := unix.Rlimit{Cur: runtimeMemlock, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(r.PID(), unix.RLIMIT_MEMLOCK, &limit, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prlimit(r.PID(), unix.RLIMIT_MEMLOCK, &before, nil) })
	start := func(name, arguments string, devices ...device) *e2e.Container {
		c := r.pod(name, devices...).Run(node.ContainerOptions{Name: "app", Mounts: systemMounts(), User: user, Group: user,
			Command: []string{"sh", "-c", testpmd(name, arguments)}})
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("pod %q printed:\n%s", name, node.Tail(c.Logs(), 60))
			}
		})
		c.WaitLogs("NIC statistics for port 1")
		return c
	}
	receiver := start("receiver", "--forward-mode=rxonly", pci(vf1), vdpa("vpb", "vhost", virtio1))
	sender := start("sender", "--forward-mode=txonly --eth-peer=0,"+vfMAC(1)+" --eth-peer=1,52:54:00:00:04:00",
		pci(vf0), vdpa("vpa", "vhost", virtio0))
	sent, received := dpdk.Finish(t, r.H, sender), dpdk.Finish(t, r.H, receiver)
	t.Logf("sent %v, received %v", sent, received)
	for port, network := range []string{"VFIO", "vhost-vdpa"} {
		if sent[port].TX == 0 || received[port].RX == 0 {
			t.Errorf("%s: sent %v, received %v", network, sent[port], received[port])
		}
	}
}

// With the runtime's limit of locked memory, DPDK fails with the errors that the pages of VFIO and vDPA have.
func TestDPDKFailsWithoutMemlock(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0)
	h := newHost(t, config)
	for name, tc := range map[string]struct {
		device device
		text   string
	}{
		"vfio": {pci(vf0), "Cannot set up DMA remapping"},
		"vdpa": {vdpa("vpa", "vhost", virtio0), "Failed to send IOTLB update (Bad address)"},
	} {
		c := h.start(box{name: "low-" + name, inject: true, user: user, memlock: runtimeMemlock, devices: []device{tc.device},
			command: testpmd(name, "--forward-mode=io")})
		c.wait(tc.text)
	}
}
