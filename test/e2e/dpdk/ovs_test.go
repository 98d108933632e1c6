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

// Open vSwitch as the vswitch, with both kinds of vhost-user ports: packets go from one pod through
// the switch to another, before and after the switch was killed and restarted.
func TestPacketsPassOVSAfterRestart(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		tree := dpdk.LayOVS(t)
		h.MkdirAll("/run/vsw/ovs")
		ovs := tree.StartOVS(t, "/run/vsw/ovs")
		// dpdkvhostuser creates its socket in OVS' run directory, with all others. dpdkvhostuserclient
		// connects to the application's socket.
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
		// When a port's link comes up, OVS sets up its other ports again: it closes the connection
		// to a server and connects a second time. A driver that was negotiating features then has
		// no port, and its listening socket keeps the second connection. Start another one.
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
			// On a busy machine the switch, which polls, may get no CPU in that time.
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
		// DPDK does not bind to a path with a stale socket.
		if err := os.Remove("/run/vsw/ovs/vhost0"); err != nil {
			t.Fatal(err)
		}
		ovs.Start()
		ovs.Patch(1, 2)
		p.WaitLog(mark, "re-created the socket")
		// Both ports are attached again in the running processes. The client does not reconnect
		// by itself. The server does (see TestPacketsPassAfterHostRestart), but loses the connection when OVS
		// connects twice in a row at its start.
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
