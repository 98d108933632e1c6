// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"os"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// Open vSwitch as the host side, with both of its kinds of vhost-user ports: packets
// go from one of the container's interfaces through the switch to the other, before
// and after the switch was killed and started again.
func TestOVS(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		tree := dpdk.LayOVS(t)
		h.MkdirAll("/run/vsw/ovs")
		ovs := tree.StartOVS(t, "/run/vsw/ovs")
		// dpdkvhostuser makes its socket in OVS' run directory, among all others;
		// dpdkvhostuserclient connects to the application's.
		ovs.Vsctl("add-port", "br0", "vhost0", "--", "set", "interface", "vhost0", "type=dpdkvhostuser", "ofport_request=1")
		ovs.Vsctl("add-port", "br0", "client0", "--", "set", "interface", "client0", "type=dpdkvhostuserclient", "ofport_request=2",
			"options:vhost-server-path=/run/vsw/app/sock")
		ovs.Patch(1, 2)

		p := h.StartPlugin(node.PluginOptions{Config: config})
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
		devinfo(h, "", pod, "net1", vhostUser("client", "/run/vsw/ovs/vhost0"))
		devinfo(h, "", pod, "net2", vhostUser("server", "/run/vsw/app/sock"))
		app := runPrompt(t, h, pod, tree, "--no-pci $JACKFIELD_NET1_EAL $JACKFIELD_NET2_EAL")
		exchange := func(when string) {
			t.Helper()
			ovs.Linked("vhost0")
			ovs.Linked("client0")
			app.command("start tx_first", "packets/burst")
			time.Sleep(running)
			from := len(app.ctr.Logs())
			app.command("stop", "Done.")
			got := dpdk.Forwarded(app.ctr.Logs()[from:])
			t.Logf("%s, OVS, %s: net1 %v; net2 %v", h.Generation(), when, got[0], got[1])
			for port := range 2 {
				if c := got[port]; c.RX == 0 || c.TX == 0 {
					t.Errorf("%s: port %d of the container: %v", when, port, c)
				}
			}
		}
		exchange("before")

		mark := len(p.Log())
		ovs.Kill()
		// DPDK does not bind to a path where a socket was left behind.
		if err := os.Remove("/run/vsw/ovs/vhost0"); err != nil {
			t.Fatal(err)
		}
		ovs.Start()
		ovs.Patch(1, 2)
		p.WaitLog(mark, "made the socket anew")
		// The port that is a server waits for OVS and has it again; the one that is a
		// client is attached anew, in the running process.
		for _, c := range [][2]string{{"port stop 0", "Done"}, {"port detach 0", "Now total ports is 1"},
			{"port attach net_virtio_user9,path=/var/run/jackfield/net/net1/vhost0", "Now total ports is 2"}, {"port start 0", "Done"}} {
			app.command(c[0], c[1])
		}
		exchange("after a crash of OVS")
	})
}
