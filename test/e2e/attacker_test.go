// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A pod attacks the socket directory that it can write and that the plugin watches for it. The plugin mounts
// no other file of the host into it, and still rebinds another pod's socket.
func TestAttackingPodStaysInItsDirectory(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		plugin := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		before := h.Inventory("/run/jackfield")
		outside := h.Vswitch(vswitch.VhostUser, "/run/outside/secret.sock", "outside")
		good := h.Vswitch(vswitch.VhostUser, "/run/vsw/good/b.sock", "good")

		victim := h.RunPod(node.PodOptions{Name: "victim", Namespace: "dpdk-2"})
		devinfo(h, victim, "red", "net1", vhostUser("client", "/var/run/vsw/good/b.sock"))
		other := victim.Run(node.ContainerOptions{})

		evil := h.RunPod(node.PodOptions{Name: "evil", Namespace: "dpdk-1"})
		devinfo(h, evil, "blue", "net1", vhostUser("server", "/var/run/vsw/evil/app.sock"))
		first := evil.Run(node.ContainerOptions{Name: "first", Command: []string{"sockclient", "listen", "/var/run/jackfield/net/net1/a.sock", "evil"}})
		first.WaitLogs("listening")
		// The device-info claims that the host creates a socket there.
		devinfo(h, evil, "pink", "net2", vhostUser("client", "/var/run/vsw/evil/a.sock"))
		attacker := evil.Run(node.ContainerOptions{Name: "attacker",
			Command: []string{"sockclient", "attack", "/var/run/jackfield/net/net1", "a.sock", "/run/outside/secret.sock"}})
		first.Stop()

		began, restarts := time.Now(), 0
		for ; restarts < 10 || !strings.Contains(attacker.Logs(), "the crowd is there"); restarts++ {
			if time.Since(began) > 5*time.Minute {
				t.Fatalf("after %d restarts the attacker has not created its sockets: %s", restarts, attacker.Logs())
			}
			checkOnlyOwnMounts(t, attacker.ID)
			if err := good.Crash(); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint("good ", restarts)
			good = h.Vswitch(vswitch.VhostUser, "/run/vsw/good/b.sock", name)
			eventually(h, other, vswitch.Greeting(name), "sockclient connect $JACKFIELD_NET1_SOCKET")
			if logs := attacker.Logs(); strings.Contains(logs, "sockclient:") {
				t.Fatalf("the attack failed: %s", logs)
			}
		}
		checkOnlyOwnMounts(t, attacker.ID)
		// For a socket that a tenant can create, the plugin logs at most one line every five seconds.
		if n, most := strings.Count(plugin.Log(), "/run/vsw/evil/a.sock"), 40+int(time.Since(began)/time.Second); n == 0 || n > most {
			t.Errorf("the plugin logged %d lines about the attack, want between 1 and %d", n, most)
		}
		// A part of the attack fails while the plugin binds a socket of the attacker again: EBUSY.
		failed, last := 0, 0
		for line := range strings.Lines(attacker.Logs()) {
			if n, _ := fmt.Sscanf(line, "attack %d:", &last); n == 1 {
				failed++
			}
		}
		if failed > max(20, last/2) {
			t.Errorf("most of the attack failed: %s", attacker.Logs())
		}
		t.Logf("%d restarts of another pod's vswitch under attack, in %v", restarts, time.Since(began).Round(time.Millisecond))
		if names, err := os.ReadDir("/run/vsw/evil"); err != nil || len(names) < 10_000 {
			t.Errorf("%d entries in the attacker's directory, %v", len(names), err)
		}
		if n := outside.Answered(); n != 0 {
			t.Errorf("a socket outside of the roots was queried %d times", n)
		}
		evil.Remove()
		if _, err := os.Lstat("/run/vsw/evil"); !os.IsNotExist(err) {
			t.Errorf("the attacker's directory is left: %v", err)
		}
		eventually(h, other, vswitch.Greeting(fmt.Sprint("good ", restarts-1)), "sockclient connect $JACKFIELD_NET1_SOCKET")
		victim.Remove()
		h.NothingLeft(before, "/run/jackfield")
	})
}

// checkOnlyOwnMounts checks the mounts in a container's staging directory. Of the host's /run they show only
// the attacker's own directory and the sockets in it.
func checkOnlyOwnMounts(t *testing.T, containerID string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		point := f[4]
		if !strings.HasPrefix(point, "/run/jackfield/containers/"+containerID+"/") {
			continue
		}
		found++
		if root := strings.TrimSuffix(f[3], "//deleted"); root != "/vsw/evil" && !strings.HasPrefix(root, "/vsw/evil/") {
			t.Errorf("%s has %s of the host", point, f[3])
		}
		var st unix.Stat_t
		if unix.Lstat(point, &st) != nil {
			continue // rebound meanwhile
		}
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFSOCK && kind != unix.S_IFDIR && kind != unix.S_IFREG {
			t.Errorf("%s is of type %o", point, kind)
		}
	}
	if found == 0 {
		t.Error("nothing is mounted in the attacker's staging directory")
	}
}
