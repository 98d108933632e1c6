// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	nodeconfig "github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/ovs"
)

const (
	switchConfig = `
sockets: {roots: [/var/run/jackfield/sockets, %[2]s]}
vswitches:
  - {name: ovs0, type: ovs, endpoint: %[1]s, bridges: [br0]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow: {sockets: ["/var/run/jackfield/sockets/**", "%[2]s/**"], ports: ["ovs0/br0"]}
`
	switchNetwork = `{"cniVersion": "1.0.0", "name": "fast", "plugins": [{"type": "jackfield-cni", "vswitch": "ovs0", "bridge": "br0", "mtu": 1500,
		"device": {"type": "vhost-user", "mode": %q}, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": "10.89.0.0/16"}]]}}]}`
)

// ovsPods are two pods with ports on an Open vSwitch. A testpmd in each sends packets through the switch.
type ovsPods struct {
	t    *testing.T
	mode string // of the device-info
	h    *e2e.H
	s    *ovs.Switch
	p    *e2e.Plugin
	tree *dpdk.Tree
	pods []*e2e.Pod
	apps []*prompt
}

// jackfield-cni creates the ports of two pods, and packets go through the switch from one to the other. They do so
// again, with the same processes, after a port was deleted by hand, after the switch was killed, and after its database
// was lost as well, although containerd and the plugin are restarted meanwhile. The application creates the socket, or
// the switch does; then DPDK in the application does not reconnect by itself, and the configuration is a ConfigMap's.
func TestPortsOutliveTheirSwitch(t *testing.T) {
	e2e.Require(t)
	for mode, generations := range map[string][]node.Generation{"server": node.Shipped(), "client": node.Shipped()[1:]} {
		for _, generation := range generations {
			t.Run(mode+"/"+string(generation), func(t *testing.T) {
				u := &ovsPods{t: t, mode: mode, tree: dpdk.LayOVS(t), s: ovs.New(t)}
				u.s.StartDatabase()
				u.configure()
				u.s.StartSwitch()
				u.s.AddBridge("br0")
				u.h = e2e.Fresh(t, node.Options{Generation: generation, CNI: fmt.Sprintf(switchNetwork, mode)})
				t.Cleanup(func() {
					for _, dir := range []string{"/run/k8s.cni.cncf.io", "/run/cni-ipam", nodeconfig.DefaultCopyPath} {
						if err := os.RemoveAll(dir); err != nil {
							t.Errorf("clean up: %v", err)
						}
					}
				})
				text := fmt.Sprintf(switchConfig, u.s.Endpoint(), u.s.Dir)
				if mode == "server" {
					u.h.WriteFile("/etc/jackfield/config.yaml", text)
					u.p = u.h.StartPlugin(node.PluginOptions{Config: text})
				} else {
					u.p = u.startPluginWithOwnEtc(text)
				}
				u.start("a")
				u.start("b")
				pids := []int{u.apps[0].ctr.PID(), u.apps[1].ctr.PID()}
				u.exchange("at first")

				mark := len(u.p.Log())
				u.s.Vsctl("del-port", u.port(0))
				u.h.RestartRuntime()
				u.p.WaitLog(mark, "re-created them")
				u.exchange("after del-port")

				u.s.KillSwitch()
				u.p.Kill()
				u.h.KillRuntime()
				u.removeStaleSockets()
				u.s.StartSwitch()
				u.p.Restart()
				u.exchange("after a crash of the switch")

				u.s.KillSwitch()
				u.s.KillDatabase()
				u.s.WipeDatabase()
				u.p.Kill()
				u.s.StartDatabase()
				u.configure()
				u.s.StartSwitch()
				u.h.KillRuntime()
				mark = len(u.p.Log())
				u.p.Restart()
				u.s.AddBridge("br0")
				u.p.WaitLog(mark, "re-created them")
				u.exchange("after the loss of the database")

				if u.apps[0].ctr.PID() != pids[0] || u.apps[1].ctr.PID() != pids[1] {
					t.Error("a container was restarted")
				}
				for _, pod := range u.pods {
					pod.Remove()
				}
				if ports := strings.Fields(u.s.Vsctl("list-ports", "br0")); len(ports) != 0 {
					t.Errorf("left behind: %q", ports)
				}
			})
		}
	}
}

// startPluginWithOwnEtc starts the plugin as in a pod with a ConfigMap: the host does not have the plugin's configuration,
// and jackfield-cni reads the plugin's copy of it.
func (u *ovsPods) startPluginWithOwnEtc(text string) *e2e.Plugin {
	u.t.Helper()
	binary, err := e2e.Kit(u.t).Command("jackfield-nri")
	if err != nil {
		u.t.Fatal(err)
	}
	dir := u.t.TempDir()
	u.h.MkdirAll("/etc/jackfield")
	u.h.WriteFile(dir+"/etc/config.yaml", text)
	script := "#!/bin/sh\nexec unshare --mount --propagation unchanged sh -c 'mount --make-private /etc && mount --bind \"$0\" /etc/jackfield && exec \"$@\"' " +
		dir + "/etc " + binary + " \"$@\"\n"
	if err := os.WriteFile(dir+"/jackfield-nri", []byte(script), 0o755); err != nil {
		u.t.Fatal(err)
	}
	p := u.h.StartPlugin(node.PluginOptions{Binary: dir + "/jackfield-nri", Args: []string{"--config", nodeconfig.DefaultPath}})
	if _, err := os.Lstat(nodeconfig.DefaultPath); err == nil {
		u.t.Fatalf("the host has %s", nodeconfig.DefaultPath)
	}
	return p
}

// configure writes what ovs-vswitchd reads at its start.
func (u *ovsPods) configure() {
	u.t.Helper()
	u.s.Configure(true)
	// The memory that all ports would share takes most of the switch's, and sometimes more.
	u.s.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:per-port-memory=true")
}

// start runs a pod with a testpmd.
func (u *ovsPods) start(name string) {
	u.t.Helper()
	for attempt := 1; ; attempt++ {
		pod := u.h.RunPod(node.PodOptions{Name: fmt.Sprint(name, "-", attempt), Namespace: "dpdk-1"})
		app := runPrompt(u.t, u.h, pod, u.tree, "--no-pci $JACKFIELD_ETH0_EAL")
		// OVS connects twice to each socket of an application, and a driver that was negotiating features then has no
		// port (see TestPacketsPassOVSAfterRestart). Start another one.
		if app.ready(); app.probed() {
			u.pods, u.apps = append(u.pods, pod), append(u.apps, app)
			return
		}
		if attempt == 10 {
			u.t.Fatal("OVS hung up on ten servers")
		}
		pod.Remove()
	}
}

// port returns the name of a pod's port.
func (u *ovsPods) port(i int) string {
	return vswitch.PortName(vswitch.Owner{ContainerID: u.pods[i].ID, Interface: "eth0"})
}

func (u *ovsPods) isUp(i int) bool {
	return strings.TrimSpace(u.s.Vsctl("--if-exists", "get", "interface", u.port(i), "link_state")) == "up"
}

// exchange waits until packets go both ways. The applications attach their ports again where the driver has lost the
// connection: always as a client of the switch's socket, and sometimes as a server, because OVS connects again to all
// sockets of applications whenever a port comes up.
func (u *ovsPods) exchange(when string) {
	u.t.Helper()
	u.s.Vsctl("set", "Open_vSwitch", ".", "external_ids:settled="+strconv.FormatInt(time.Now().UnixNano(), 10)) // waits for a new switch
	if u.mode == "client" {
		u.reattachLost()
	}
	for range 8 {
		if u.exchanged(when) {
			return
		}
		if !u.reattachLost() {
			u.reattach(0)
			u.reattach(1)
		}
	}
	u.t.Fatalf("%s there are no packets; interfaces: %s", when, u.s.Vsctl("--columns=name,link_state,status,error", "list", "interface"))
}

// exchanged reports whether packets go both ways within some seconds.
func (u *ovsPods) exchanged(when string) bool {
	a, b := u.apps[0], u.apps[1]
	for end := time.Now().Add(5 * time.Second); !u.isUp(0) || !u.isUp(1); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
		// virtio-user as a server accepts the next connection when the link state is read.
		a.command("show port info 0", "Link status:")
		b.command("show port info 0", "Link status:")
	}
	for range 3 {
		a.command("start", "packets/burst")
		b.command("start tx_first", "packets/burst")
		time.Sleep(running)
		ofA, ofB := a.stop(), b.stop()
		u.t.Logf("%s, %s: a %v; b %v", u.h.Generation(), when, ofA, ofB)
		if min(ofA.RX, ofA.TX, ofB.RX, ofB.TX) > 0 {
			return true
		}
	}
	return false
}

// reattachLost has the applications attach the ports again that have no link, and reports whether there were any.
func (u *ovsPods) reattachLost() (lost bool) {
	u.t.Helper()
	up := []bool{u.isUp(0), u.isUp(1)}
	for i := range up {
		if !up[i] {
			u.reattach(i)
			lost = true
		}
	}
	return lost
}

// reattach has a pod's application attach its port again.
func (u *ovsPods) reattach(i int) {
	u.t.Helper()
	eal, _ := node.Env(u.apps[i].ctr.OCISpec(), "JACKFIELD_ETH0_EAL")
	_, devargs, _ := strings.Cut(eal, ",path=")
	for _, c := range reattach(devargs) {
		u.apps[i].command(c[0], c[1])
	}
}

// removeStaleSockets runs the command that the how-to adds to the service of ovs-vswitchd, before the switch starts.
func (u *ovsPods) removeStaleSockets() {
	u.t.Helper()
	page, err := os.ReadFile("../../../docs/how-to/create-ports.md")
	if err != nil {
		u.t.Fatal(err)
	}
	_, command, found := strings.Cut(string(page), "ExecStartPre=/bin/sh -c '")
	command, _, closed := strings.Cut(command, "'\n")
	if !found || !closed {
		u.t.Fatal("the page has no ExecStartPre")
	}
	if out, err := exec.Command("sh", "-c", strings.ReplaceAll(command, "/run/openvswitch", u.s.Dir)).CombinedOutput(); err != nil {
		u.t.Fatalf("%s: %v: %s", command, err, out)
	}
}
