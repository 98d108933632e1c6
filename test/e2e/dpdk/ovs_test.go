// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// Open vSwitch as the host side, with both of its kinds of vhost-user ports: packets
// go from one pod through the switch to another, before and after the switch was
// killed and started again.
func TestOVS(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
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
		var pod *e2e.Pod
		app := func(name, info string) *prompt {
			pod = h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
			devinfo(h, "", pod, "net1", info)
			return runPrompt(t, h, pod, tree, "--no-pci $JACKFIELD_NET1_EAL")
		}
		client := app("client", vhostUser("client", "/run/vsw/ovs/vhost0"))
		client.ready()
		ovs.Linked("vhost0")
		// When a port gets its link OVS sets up others anew: it hangs up on a server that it
		// had connected to, and connects again. A driver that was asking for features then
		// has no port, and what it listened at keeps the second connection: another takes
		// its place.
		var server *prompt
		for attempt := 1; ; attempt++ {
			server = app(fmt.Sprint("server-", attempt), vhostUser("server", "/run/vsw/app/sock"))
			if server.ready(); server.probed() {
				break
			}
			if attempt == 10 {
				t.Fatal("OVS hung up on ten servers")
			}
			pod.Remove()
		}
		exchange := func(when string) {
			t.Helper()
			ovs.Linked("vhost0")
			ovs.Linked("client0")
			// On a busy machine the switch, which polls, may not have its turn in that time.
			for end := time.Now().Add(2 * time.Minute); ; {
				server.command("start", "packets/burst")
				client.command("start tx_first", "packets/burst")
				time.Sleep(running)
				ofServer, ofClient := server.stop(), client.stop()
				t.Logf("%s, OVS, %s: server %v; client %v", h.Generation(), when, ofServer, ofClient)
				if min(ofServer.RX, ofServer.TX, ofClient.RX, ofClient.TX) > 0 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%s there are no packets: server %v; client %v", when, ofServer, ofClient)
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
		// Both ports are attached anew, in the running processes: the client does not
		// connect again by itself, and the server, which does (see TestRestart), loses the
		// connection when OVS, as it starts, makes it twice in a row.
		for _, c := range reattach("/var/run/jackfield/net/net1/vhost0") {
			client.command(c[0], c[1])
		}
		ovs.Linked("vhost0")
		for _, c := range reattach("/var/run/jackfield/net/net1/sock,server=1") {
			server.command(c[0], c[1])
		}
		exchange("after a crash of OVS")
	})
}
