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

// prompt is a testpmd that accepts commands and is a container's first process.
type prompt struct {
	t   *testing.T
	h   *e2e.H
	ctr *e2e.Container
}

// runPrompt runs a testpmd with the devices that the shell expands from devices. It accepts
// commands once it is ready: with a vhost-user socket of its own, once a client has connected.
func runPrompt(t *testing.T, h *e2e.H, pod *e2e.Pod, tree *dpdk.Tree, devices string) *prompt {
	t.Helper()
	_, cpu, err := dpdk.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	// With the interrupt at a change of the link, virtio-user as a server sometimes drops the new connection
	// after the old one. The test queries the link instead.
	args := append(append(dpdk.Generic("app", cpu), "--"), append(dpdk.Forward(), "--interactive", "--disable-link-check", "--no-lsc-interrupt")...)
	// The descriptor that is open for reading and writing keeps the standard input from ending.
	command := "mkfifo /tmp/in && exec 3<>/tmp/in && exec /usr/bin/dpdk-testpmd " + devices + " " + strings.Join(args, " ") + " <&3"
	ctr := pod.Run(node.ContainerOptions{TTY: true, Mounts: tree.Mounts(), Command: []string{"sh", "-c", command}})
	printed(t, ctr)
	return &prompt{t, h, ctr}
}

// ready waits until testpmd accepts commands.
func (p *prompt) ready() {
	p.t.Helper()
	p.wait(0, "Done")
}

// command runs a command of testpmd and waits until testpmd has printed a text.
func (p *prompt) command(command, text string) {
	p.t.Helper()
	from := len(p.ctr.Logs())
	in, err := os.OpenFile(fmt.Sprintf("/proc/%d/root/tmp/in", p.ctr.PID()), os.O_WRONLY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.WriteString(command + "\n"); err != nil {
		p.t.Fatal(err)
	}
	p.wait(from, text)
}

// waitLinkDown waits until the port has no link. The query makes virtio-user as a server wait for the next
// connection.
func (p *prompt) waitLinkDown() {
	p.t.Helper()
	p.command("show port info 0", "Link status: down")
}

// stop ends forwarding and returns what was forwarded.
func (p *prompt) stop() dpdk.Counters {
	p.t.Helper()
	from := len(p.ctr.Logs())
	p.command("stop", "Done.")
	return dpdk.Forwarded(p.ctr.Logs()[from:])[0]
}

// wait waits for a text in the log. testpmd polls on a shared CPU, so a busy machine needs time.
func (p *prompt) wait(from int, text string) {
	p.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if log := p.ctr.Logs(); strings.Contains(log[min(from, len(log)):], text) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("testpmd in the container has not printed %q", text)
		}
	}
}

// probed reports whether testpmd came up with its port.
func (p *prompt) probed() bool {
	return !strings.Contains(p.ctr.Logs(), "No probed ethernet devices")
}

// reattach are the commands that make a virtio-user port connect to its socket again, and their
// answers. As a client virtio-user does not reconnect by itself.
func reattach(socket string) [][2]string {
	return [][2]string{{"port stop 0", "Done"}, {"port detach 0", "Now total ports is 0"},
		{"port attach net_virtio_user1,path=" + socket, "Now total ports is 1"}, {"port start 0", "Done"}}
}

// The host's testpmd is killed and started again while the container and its process continue to run. The
// test runs commands in the application only where its driver does not reconnect.
func TestPacketsPassAfterHostRestart(t *testing.T) {
	const inside = "/var/run/jackfield/net/net1/sock"
	for _, tc := range []struct {
		name, info string
		host       string
		first      bool        // the host creates the socket
		again      [][2]string // commands for the running testpmd in the container, and their answers
		// paused does not forward while the peer ends: DPDK's memif frees its rings while a port polls them,
		// which sometimes ends the process.
		paused bool
	}{
		{name: "vhost-user that the application creates", info: vhostUser("server", hostSide),
			host: "--vdev=net_vhost0,client=1,iface=" + hostSide},
		{name: "memif with the container as server", info: memif("master", hostSide), paused: true,
			host: "--vdev=net_memif0,role=client,socket-abstract=no,socket=" + hostSide},
		// Virtio-user as a client does not reconnect: the test attaches its port again.
		{name: "vhost-user that the host creates", info: vhostUser("client", hostSide), first: true,
			host:  "--vdev=net_vhost0,iface=" + hostSide,
			again: append(append([][2]string{{"stop", "Done."}}, reattach(inside)...), [2]string{"start", "testpmd>"})},
		// Nor does memif as a client, in this version: the test starts its port again.
		{name: "memif with the host as server", info: memif("slave", hostSide), first: true, paused: true,
			host: "--vdev=net_memif0,role=server,socket-abstract=no,socket=" + hostSide,
			again: [][2]string{
				{"port stop 0", "Done"}, {"port start 0", "Done"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
				tree := dpdk.Lay(t)
				h.MkdirAll("/run/vsw")
				p := h.StartPlugin(node.PluginOptions{Config: config})
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
				devinfo(h, "", pod, "net1", tc.info)
				var host *dpdk.Testpmd
				start := func(name string) {
					host = tree.Start(t, dpdk.Options{Name: name, Devices: []string{"--no-pci", tc.host}})
				}
				if tc.first {
					h.MkdirAll("/run/vsw/port")
					start("host")
				}
				app := runPrompt(t, h, pod, tree, "--no-pci $JACKFIELD_NET1_EAL")
				pid := app.ctr.PID()
				if !tc.first {
					h.Eventually(func() error { return listening(tc.info, pid) })
					start("host")
				}
				app.ready()
				app.command("start", "testpmd>")
				host.Connected(1)
				before := host.Exchange(1, running)[0]
				mark := len(p.Log())
				if tc.paused {
					app.command("stop", "Done.")
				}
				host.Kill()
				app.waitLinkDown()
				if tc.first {
					// DPDK does not bind to a path with a stale socket.
					if err := os.Remove(hostSide); err != nil {
						t.Fatal(err)
					}
				}
				start("again")
				if tc.first {
					p.WaitLog(mark, "re-created the socket")
				}
				for _, c := range tc.again {
					app.command(c[0], c[1])
				}
				if tc.paused {
					app.command("start", "testpmd>")
				}
				host.Connected(1)
				after := host.Exchange(1, running)[0]
				t.Logf("%s, DPDK %s: host before %v; after %v; %d commands in the container", h.Generation(), tree.Version, before, after, len(tc.again))
				for when, c := range map[string]dpdk.Counters{"before": before, "after": after} {
					if c.RX == 0 || c.TX == 0 {
						t.Errorf("%s the restart: %v", when, c)
					}
				}
				if now := app.ctr.PID(); now != pid {
					t.Errorf("the container's process is %d and was %d", now, pid)
				}
				host.Stop()
			})
		})
	}
}
