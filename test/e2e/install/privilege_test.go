// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// documented returns the capabilities of the table in docs/reference/host-paths-and-capabilities.md, as bits.
func documented(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(checkoutEnv), "docs/reference/host-paths-and-capabilities.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]uint64{
		"CAP_CHOWN": 1 << unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": 1 << unix.CAP_DAC_OVERRIDE,
		"CAP_FOWNER": 1 << unix.CAP_FOWNER, "CAP_SYS_ADMIN": 1 << unix.CAP_SYS_ADMIN,
	}
	var set uint64
	for _, m := range regexp.MustCompile("(?m)^\\| `(CAP_[A-Z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		if known[m[1]] == 0 {
			t.Errorf("docs/reference/host-paths-and-capabilities.md has %s, which this test does not know", m[1])
		}
		set |= known[m[1]]
	}
	return set
}

// With the documented capabilities and no others, in every set of every thread, everything is
// delivered, sockets are rebound in a running container, and a new plugin takes over from the
// previous one.
func TestLeastPrivilege(t *testing.T) {
	each(t, "privileged", func(t *testing.T, h *e2e.H, ds *daemonSet) {
		pod, daemon := start(t, h, ds)
		checkCapabilities(t, daemon.PID(), documented(t))
		delivers(t, h)

		vhost := "/run/vsw/port1/vhost.sock"
		server := h.Vswitch(vswitch.VhostUser, vhost, "one")
		app := h.RunPod(node.PodOptions{Name: "live", Namespace: "dpdk-1"})
		devinfo(h, app, "red", "net1", "client", "/var/run/vsw/port1/vhost.sock")
		ctr := app.Run(node.ContainerOptions{})
		works := func(name string) {
			t.Helper()
			h.Eventually(func() error {
				stdout, stderr, code := ctr.Exec("sh", "-c", "sockclient connect $JACKFIELD_NET1_SOCKET")
				if code != 0 || strings.TrimSpace(stdout) != vswitch.Greeting(name) {
					return fmt.Errorf("the socket answers %q %q, want %s's", stdout, stderr, name)
				}
				return nil
			})
		}
		works("one")
		again := func(name string) {
			t.Helper()
			if err := server.Crash(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Dir(vhost)); err != nil {
				t.Fatal(err)
			}
			server = h.Vswitch(vswitch.VhostUser, vhost, name)
			works(name)
		}
		again("two")
		pod.Remove()
		works("two")
		start(t, h, ds)
		again("three")
	})
}

// checkCapabilities compares the capabilities of all threads of a process with the wanted ones.
func checkCapabilities(t *testing.T, pid int, want uint64) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d: %d threads, %v", pid, len(threads), err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, line := range []string{
			fmt.Sprintf("CapEff:\t%016x\n", want), fmt.Sprintf("CapPrm:\t%016x\n", want), fmt.Sprintf("CapBnd:\t%016x\n", want),
			"CapInh:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n",
		} {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s has no line %q:\n%s", file, line, text)
			}
		}
	}
}
