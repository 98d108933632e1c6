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

// prompt is a testpmd that takes commands and is a container's first process.
type prompt struct {
	t   *testing.T
	h   *e2e.H
	ctr *e2e.Container
}

// runPrompt runs one with the devices that the shell makes of devices, and returns
// when it takes commands.
func runPrompt(t *testing.T, h *e2e.H, pod *e2e.Pod, tree *dpdk.Tree, devices string) *prompt {
	t.Helper()
	_, cpu, err := dpdk.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	// Without the interrupt at a change of the link virtio-user as a server would see
	// the end of a connection only when somebody asks for the link.
	args := append(append(dpdk.Generic("app", cpu), "--"), append(dpdk.Forward(), "--interactive", "--disable-link-check")...)
	// The descriptor that is open both ways keeps its standard input from ending.
	command := "mkfifo /tmp/in && exec 3<>/tmp/in && exec /usr/bin/dpdk-testpmd " + devices + " " + strings.Join(args, " ") + " <&3"
	ctr := pod.Run(node.ContainerOptions{TTY: true, Mounts: tree.Mounts(), Command: []string{"sh", "-c", command}})
	printed(t, ctr)
	p := &prompt{t, h, ctr}
	p.wait(0, "Done")
	return p
}

// command gives testpmd a command and waits until it has printed a text.
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

func (p *prompt) wait(from int, text string) {
	p.t.Helper()
	p.h.Eventually(func() error {
		if log := p.ctr.Logs(); !strings.Contains(log[min(from, len(log)):], text) {
			return fmt.Errorf("testpmd in the container has not printed %q", text)
		}
		return nil
	})
}

// The host's testpmd is killed and started again while the container and its
// process run on. What the application has to do itself is what its driver cannot.
func TestRestart(t *testing.T) {
	const inside = "/var/run/jackfield/net/net1/sock"
	for _, tc := range []struct {
		name, info string
		host       string
		first      bool        // the host makes the socket
		again      [][2]string // what the running testpmd in the container is told: command, and its answer
	}{
		{name: "vhost-user that the application creates", info: vhostUser("server", hostSide),
			host: "--vdev=net_vhost0,client=1,iface=" + hostSide},
		{name: "memif with the container as server", info: memif("master", hostSide),
			host: "--vdev=net_memif0,role=client,socket-abstract=no,socket=" + hostSide},
		// Virtio-user as a client does not connect again: its port is attached anew.
		{name: "vhost-user that the host creates", info: vhostUser("client", hostSide), first: true,
			host: "--vdev=net_vhost0,iface=" + hostSide,
			again: [][2]string{
				{"stop", "Done."}, {"port stop 0", "Done"}, {"port detach 0", "Now total ports is 0"},
				{"port attach net_virtio_user1,path=" + inside, "Now total ports is 1"}, {"port start 0", "Done"}, {"start", "testpmd>"}}},
		// Nor does memif as a client, in this version: its port is started again.
		{name: "memif with the host as server", info: memif("slave", hostSide), first: true,
			host: "--vdev=net_memif0,role=server,socket-abstract=no,socket=" + hostSide,
			again: [][2]string{
				{"stop", "Done."}, {"port stop 0", "Done"}, {"port start 0", "Done"}, {"start", "testpmd>"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e2e.Each(t, func(t *testing.T, h *e2e.H) {
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
				app.command("start", "testpmd>")
				if !tc.first {
					h.Eventually(func() error { return listening(tc.info, pid) })
					start("host")
				}
				host.Connected(1)
				before := host.Exchange(1, running)[0]
				old := identity(t, hostSide)
				mark := len(p.Log())
				host.Kill()
				start("again")
				if tc.first {
					if now := identity(t, hostSide); now == old {
						t.Fatalf("the host has not made its socket anew: inode %v", now)
					}
					p.WaitLog(mark, "made the socket anew")
				}
				for _, c := range tc.again {
					app.command(c[0], c[1])
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

// identity is what a socket made anew does not share with the old one: an inode
// may come again, its birth does not.
func identity(t *testing.T, path string) string {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.ModTime().Format(time.RFC3339Nano)
}
