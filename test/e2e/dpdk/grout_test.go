// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	driver "github.com/jackfield/jackfield/internal/port/vswitch/grout"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// grout as the vswitch: packets go from a pod with memif through a bridge to a pod with vhost-user, before and after
// grout was killed. grout forgets its ports then; the driver creates them again.
func TestPacketsPassGroutAfterKill(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		tree := dpdk.Lay(t)
		h.MkdirAll("/run/vsw/grout")
		s := grout.Start(t, t.TempDir())
		d := &driver.Driver{Switch: vswitch.Switch{Name: "grout0", Endpoint: s.Socket}, Grcli: s.Grcli}
		p := h.StartPlugin(node.PluginOptions{Config: config})
		pods := map[vswitch.Type]*e2e.Pod{}
		ports := map[vswitch.Type]vswitch.Port{}
		for protocol, socket := range map[vswitch.Type]string{vswitch.Memif: "/run/vsw/grout/memif.sock", vswitch.VhostUser: "/run/vsw/app/sock"} {
			pod := h.RunPod(node.PodOptions{Name: string(protocol), Namespace: "dpdk-1"})
			owner := vswitch.Owner{ContainerID: pod.ID, Interface: "net1"}
			pods[protocol] = pod
			ports[protocol] = vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: protocol, Socket: socket, SwitchListens: protocol == vswitch.Memif, Bridge: "br0"}
		}
		create := func() {
			t.Helper()
			s.Run("interface", "add", "bridge", "br0")
			for _, port := range ports {
				if _, err := d.Ensure(t.Context(), port); err != nil {
					t.Fatal(err)
				}
			}
		}
		create()
		// grout connects to the vhost-user socket when the application has created it.
		app := func(protocol vswitch.Type, info string) *prompt {
			devinfo(h, "", pods[protocol], "net1", info)
			return runPrompt(t, h, pods[protocol], tree, "--no-pci $JACKFIELD_NET1_EAL")
		}
		client := app(vswitch.Memif, memif("slave", ports[vswitch.Memif].Socket))
		server := app(vswitch.VhostUser, vhostUser("server", ports[vswitch.VhostUser].Socket))
		client.ready()
		server.ready()
		exchange := func(when string) {
			t.Helper()
			for _, port := range ports {
				h.Eventually(func() error {
					if i, _ := s.Interface(port.Name); !slices.Contains(i.Flags, "running") {
						return fmt.Errorf("%s: grout's port has no link: %+v", port.Type, i)
					}
					return nil
				})
			}
			// On a busy machine the switch, which polls, may get no CPU in that time.
			for end := time.Now().Add(2 * time.Minute); ; {
				server.command("start", "packets/burst")
				client.command("start tx_first", "packets/burst")
				time.Sleep(running)
				ofServer, ofClient := server.stop(), client.stop()
				t.Logf("%s, %s, %s: vhost-user %v; memif %v", h.Generation(), s, when, ofServer, ofClient)
				if min(ofServer.RX, ofServer.TX, ofClient.RX, ofClient.TX) > 0 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%s there are no packets: vhost-user %v; memif %v", when, ofServer, ofClient)
				}
			}
		}
		exchange("before")

		mark := len(p.Log())
		s.Kill()
		client.waitLinkDown()
		server.waitLinkDown()
		s.Restart()
		create()
		p.WaitLog(mark, "re-created the socket")
		// DPDK's memif does not reconnect as a client: its port is started again. virtio-user as a server waits for the
		// next connection.
		client.command("port stop 0", "Done")
		client.command("port start 0", "Done")
		exchange("after a crash of grout")
	})
}
