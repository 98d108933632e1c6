// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// The kinds of interfaces, with the pod's role.
const (
	vhostServer = "vhost-user-server"
	vhostClient = "vhost-user-client"
	memifSlave  = "memif-slave"
)

// The parties that bring the ports back.
const (
	byJackfield = "jackfield"
	byScript    = "script"
	byNobody    = "nothing"
)

const (
	// offered is the rate in packets a second. It bounds the precision: one packet a millisecond.
	offered = 1000
	// neverAfter is how long the benchmark waits for a packet after a reset.
	neverAfter = 15 * time.Second
	// portsInPod is the directory of sockets in a pod that gets them by hostPath.
	portsInPod = "/ports"
)

// recoveryCase is one row of the table.
type recoveryCase struct {
	open     func(*testing.B) resettable
	kind, by string
	wiped    bool
}

// BenchmarkRecovery measures the outage of a packet stream between two pods while the switch between them is killed
// and started again. A packet a millisecond is offered throughout. The pods do not restart; their application connects
// again by the means of its DPDK driver.
//
// Without Jackfield, the pods get the directory of the sockets by hostPath. The start-up script removes stale sockets
// before the switch starts, as the how-to advises, and then creates the ports; "nothing" does neither. Every switch
// gets its bridge again.
func BenchmarkRecovery(b *testing.B) {
	e2e.Require(b)
	for _, sw := range []struct {
		name  string
		open  func(*testing.B) resettable
		kinds []string
		wiped []bool
	}{
		{"ovs", newResetOVS, []string{vhostServer, vhostClient}, []bool{false, true}},
		{"grout", newResetGrout, []string{vhostServer, vhostClient, memifSlave}, []bool{true}},
	} {
		for _, kind := range sw.kinds {
			for _, wiped := range sw.wiped {
				for _, by := range []string{byJackfield, byScript, byNobody} {
					database := map[bool]string{false: "kept", true: "wiped"}[wiped]
					b.Run(strings.Join([]string{sw.name, kind, database, by}, "/"), func(b *testing.B) {
						measureRecovery(b, recoveryCase{open: sw.open, kind: kind, by: by, wiped: wiped})
					})
				}
			}
		}
	}
}

func measureRecovery(b *testing.B, c recoveryCase) {
	r := newRecovery(b, c)
	var last, bridge, first []time.Duration
	var lost []int
	never := false
	for b.Loop() {
		if never { // The next reset would begin without packets.
			continue
		}
		o, ready, ok := r.reset()
		if never = !ok; ok {
			last, bridge, first = append(last, o.last), append(bridge, ready), append(first, o.first)
			lost = append(lost, o.lost)
			b.Logf("last packet %v, bridge %v, first packet %v, %d lost", o.last, ready, o.first, o.lost)
		}
	}
	b.ReportMetric(0, "ns/op")
	if never {
		b.ReportMetric(neverAfter.Seconds(), "never-s")
	}
	if len(first) == 0 {
		return
	}
	for name, all := range map[string][]time.Duration{"last-ms": last, "bridge-ms": bridge, "first-ms": first} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds()*1000, name)
	}
	slices.Sort(lost)
	b.ReportMetric(first[0].Seconds()*1000, "first-low-ms")
	b.ReportMetric(first[len(first)-1].Seconds()*1000, "first-high-ms")
	b.ReportMetric(float64(lost[len(lost)/2]), "lost")
}

// recovery is two pods with a stream of packets through a switch.
type recovery struct {
	b        *testing.B
	c        recoveryCase
	sw       resettable
	h        *e2e.H
	tree     *dpdk.Tree
	program  string
	script   []scriptPort // the ports of the pods without Jackfield
	receiver *e2e.Container
	sender   *e2e.Container
}

func newRecovery(b *testing.B, c recoveryCase) *recovery {
	b.Helper()
	r := &recovery{b: b, c: c, tree: dpdk.LayOVS(b)}
	r.program = r.tree.BuildTraffic(b)
	r.sw = c.open(b)
	if c.by == byJackfield {
		r.installJackfield()
	} else {
		r.createPorts()
	}
	r.receiver = r.start(0, "receive")
	r.sender = r.start(1, fmt.Sprint("send ", offered))
	r.waitSteady()
	return r
}

// installJackfield starts a node with Jackfield and its configuration.
func (r *recovery) installJackfield() {
	r.b.Helper()
	device := map[string]string{
		vhostServer: `{"type": "vhost-user", "mode": "server"}`,
		vhostClient: `{"type": "vhost-user", "mode": "client"}`,
		memifSlave:  `{"type": "memif", "role": "slave"}`,
	}[r.c.kind]
	r.h = e2e.Fresh(r.b, node.Options{Generation: node.V2, CNI: `{"cniVersion": "1.0.0", "name": "fast", "plugins": [
		{"type": "jackfield-cni", "vswitch": "switch0", "bridge": "br0", "device": ` + device + `, "ipam": {
			"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": "10.89.0.0/16"}]]}}]}`})
	r.b.Cleanup(func() {
		for _, dir := range []string{"/run/k8s.cni.cncf.io", "/run/cni-ipam"} {
			if err := os.RemoveAll(dir); err != nil {
				r.b.Errorf("clean up: %v", err)
			}
		}
	})
	config := fmt.Sprintf(`
sockets: {roots: [/var/run/jackfield/sockets, %[2]s]}
vswitches:
  - %[1]s
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow: {sockets: ["/var/run/jackfield/sockets/**", "%[2]s/**"], ports: ["switch0/br0"]}
`, r.sw.config(), r.sw.sockets())
	r.h.WriteFile("/etc/jackfield/config.yaml", config)
	r.h.StartPlugin(node.PluginOptions{Config: config})
}

// createPorts starts a node without Jackfield, and has the start-up script create the ports of the pods.
func (r *recovery) createPorts() {
	r.b.Helper()
	r.h = e2e.Fresh(r.b, node.Options{Generation: node.V2})
	dir := r.sw.sockets()
	if r.c.kind == vhostServer {
		dir = "/run/vsw"
		r.h.MkdirAll(dir)
	}
	for i := range 2 {
		name := fmt.Sprint("pod", i)
		r.script = append(r.script, scriptPort{name: name, kind: r.c.kind, socket: filepath.Join(dir, name)})
	}
	r.sw.kill(r.c.wiped)
	r.sw.start(r.c.wiped, r.script)
}

// start runs a pod with the traffic program and returns when its port is connected.
func (r *recovery) start(i int, role string) *e2e.Container {
	r.b.Helper()
	_, cpu, err := dpdk.CPUs()
	if err != nil {
		r.b.Fatal(err)
	}
	device := "$JACKFIELD_ETH0_EAL"
	mounts := append(r.tree.Mounts(), &cri.Mount{HostPath: r.program, ContainerPath: "/traffic", Readonly: true})
	if r.c.by != byJackfield {
		device = r.device(i)
		mounts = append(mounts, &cri.Mount{HostPath: filepath.Dir(r.script[i].socket), ContainerPath: portsInPod})
	}
	command := "exec /traffic " + strings.Join(dpdk.Generic("app", cpu), " ") + " --no-pci " + device + " -- " + role
	for attempt := 1; ; attempt++ {
		pod := r.h.RunPod(node.PodOptions{Name: fmt.Sprintf("pod%d-%d", i, attempt), Namespace: "dpdk-1"})
		ctr := pod.Run(node.ContainerOptions{Command: []string{"sh", "-c", command}, Mounts: mounts})
		// A driver that was negotiating features when Open vSwitch connected a second time has no port.
		if r.isUp(ctr) {
			return ctr
		}
		if attempt == 10 {
			r.b.Fatalf("the traffic program does not start:\n%s", node.Tail(ctr.Logs(), 40))
		}
		pod.Remove()
		if r.c.by != byJackfield && r.c.kind == vhostServer {
			_ = os.Remove(r.script[i].socket)
		}
	}
}

// device returns the DPDK device of a pod whose sockets are mounted by hostPath.
func (r *recovery) device(i int) string {
	path := filepath.Join(portsInPod, r.script[i].name)
	switch r.c.kind {
	case vhostServer:
		return "--vdev=net_virtio_user0,path=" + path + ",server=1"
	case memifSlave:
		return "--vdev=net_memif0,role=client,id=0,socket=" + path + ",socket-abstract=no"
	default:
		return "--vdev=net_virtio_user0,path=" + path
	}
}

// isUp waits until the traffic program is ready, and reports false if it ends.
func (r *recovery) isUp(ctr *e2e.Container) bool {
	r.b.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if strings.Contains(ctr.Logs(), "traffic started\n") {
			return true
		}
		status, err := ctr.Status(r.b.Context())
		if err != nil {
			r.b.Fatal(err)
		}
		if status.GetState() == cri.ContainerState_CONTAINER_EXITED || time.Now().After(end) {
			return false
		}
	}
}

// waitSteady waits until packets have arrived for a second without a pause.
func (r *recovery) waitSteady() {
	r.b.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		log := parseTraffic(r.receiver.Logs())
		if log.isSteady() {
			return
		}
		if time.Now().After(end) {
			r.b.Fatalf("no steady stream of packets; the receiver printed:\n%s", node.Tail(r.receiver.Logs(), 40))
		}
	}
}

// reset kills the switch and starts it again. It returns the outage, and when the switch had its bridge again. The
// times are since the kill. It returns false if no packets arrive within neverAfter.
func (r *recovery) reset() (o outage, bridge time.Duration, ok bool) {
	r.b.Helper()
	r.waitSteady()
	killed := monotonic(r.b)
	r.sw.kill(r.c.wiped)
	script := r.script
	if r.c.by == byNobody {
		script = nil
	} else {
		removeStaleSockets(r.b, r.sw, script)
	}
	r.sw.start(r.c.wiped, script)
	bridge = monotonic(r.b) - killed
	for {
		if o, ok := parseTraffic(r.receiver.Logs()).outageAfter(killed); ok {
			return o, bridge, true
		}
		if monotonic(r.b)-killed > neverAfter {
			r.checkRunning(r.receiver)
			r.checkRunning(r.sender)
			return outage{}, bridge, false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// checkRunning fails the benchmark if the traffic program has ended. That is no outage of the switch.
func (r *recovery) checkRunning(ctr *e2e.Container) {
	r.b.Helper()
	status, err := ctr.Status(r.b.Context())
	if err != nil {
		r.b.Fatal(err)
	}
	if status.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		r.b.Fatalf("the traffic program in %q ended:\n%s", ctr.Name(), node.Tail(ctr.Logs(), 40))
	}
}

// monotonic returns the clock of the traffic program.
func monotonic(b *testing.B) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
