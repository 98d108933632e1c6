// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// Generic returns the EAL arguments that testpmd needs with any devices, without huge pages and on one CPU.
// prefix distinguishes DPDK processes that share a file system. Callers add the arguments of devices, and
// "--no-pci" to exclude PCI devices.
func Generic(prefix string, cpu int) []string {
	// Two lcores on one CPU: one serves the prompt, the other polls.
	return []string{"--no-huge", "-m", "128", "--no-shconf", "--no-telemetry", "--file-prefix=" + prefix,
		fmt.Sprintf("--lcores=0@%d,1@%d", cpu, cpu)}
}

// Forward returns testpmd's own arguments, which follow "--". Each port sends back what it receives.
func Forward() []string {
	return []string{"--total-num-mbufs=2048", "--forward-mode=io", "--port-topology=loop"}
}

// Unattended returns the arguments, in addition to Forward's, that keep testpmd forwarding until SIGINT
// although its standard input is empty, as in a container.
func Unattended() []string { return []string{"--stats-period=1"} }

// attended returns the arguments, in addition to Forward's, of a testpmd that accepts commands and
// starts without waiting for a peer.
func attended() []string {
	return []string{"--interactive", "--disable-link-check", "--no-lsc-interrupt"}
}

// Counters counts the packets of a port.
type Counters struct{ RX, TX uint64 }

func (c Counters) String() string { return fmt.Sprintf("%d received, %d sent", c.RX, c.TX) }

// Forwarded returns the last counters of each port that testpmd printed when it stopped forwarding.
func Forwarded(log string) map[int]Counters {
	ports := map[int]Counters{}
	for _, m := range regexp.MustCompile(`Forward statistics for port (\d+) [ -]*\s+RX-packets: (\d+) .*\s+TX-packets: (\d+) `).FindAllStringSubmatch(log, -1) {
		port, _ := strconv.Atoi(m[1])
		rx, _ := strconv.ParseUint(m[2], 10, 64)
		tx, _ := strconv.ParseUint(m[3], 10, 64)
		ports[port] = Counters{RX: rx, TX: tx}
	}
	return ports
}

// Options of a testpmd on the host.
type Options struct {
	// Name is its file prefix; empty: "host".
	Name string
	// Devices are the EAL arguments of devices, and other arguments in addition to Generic's.
	Devices []string
	// NetNS is the path of a network namespace to run in; empty: the host's.
	NetNS string
}

// Testpmd is a testpmd on the host that accepts commands.
type Testpmd struct {
	*node.Process
	tb      testing.TB
	stdin   io.Writer
	printed <-chan struct{} // closed when the log is complete
}

// Stop ends testpmd with SIGTERM.
func (p *Testpmd) Stop() {
	_ = p.Process.Stop(3 * time.Second)
	<-p.printed
}

// Start runs testpmd on the host until the test ends, and returns once it accepts commands. Its
// ports are started, and forward packets after the command to start forwarding.
func (t *Tree) Start(tb testing.TB, o Options) *Testpmd {
	tb.Helper()
	p, err := t.start(tb, o)
	if err != nil {
		tb.Fatal(err)
	}
	// The prompt follows letter by letter, mixed with the lines of other threads.
	p.wait(0, "\nDone\n")
	return p
}

// Fails runs testpmd on the host with devices that it must refuse, and returns its output.
func (t *Tree) Fails(tb testing.TB, o Options) string {
	tb.Helper()
	p, err := t.start(tb, o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := p.Wait(ctx); err == nil || ctx.Err() != nil {
		tb.Fatalf("testpmd has not failed: %v\n%s", err, node.Tail(p.Log(), 20))
	}
	<-p.printed
	return p.Log()
}

func (t *Tree) start(tb testing.TB, o Options) (*Testpmd, error) {
	if o.Name == "" {
		o.Name = "host"
	}
	cpu, _, err := CPUs()
	if err != nil {
		return nil, err
	}
	log := filepath.Join(tb.TempDir(), "testpmd.log")
	tty, printed, err := terminal(log)
	if err != nil {
		return nil, err
	}
	args := []string{"sh", "-c", `exec "$@" >"$0" 2>&1`, tty, "nice", "-n", "10"}
	if o.NetNS != "" {
		args = append(args, "nsenter", "--net="+o.NetNS)
	}
	args = append(args, t.command...)
	args = append(args, Generic(o.Name, cpu)...)
	args = append(append(args, o.Devices...), "--")
	args = append(append(args, Forward()...), attended()...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	process, err := node.StartProcess(cmd, log)
	if err != nil {
		return nil, err
	}
	p := &Testpmd{Process: process, tb: tb, stdin: stdin, printed: printed}
	tb.Cleanup(func() {
		p.Stop()
		if tb.Failed() {
			tb.Logf("testpmd on the host printed:\n%s", node.Tail(p.Log(), 60))
		}
		// EAL creates this directory and does not remove it.
		if err := os.RemoveAll("/run/dpdk/" + o.Name); err != nil {
			tb.Errorf("clean up: %v", err)
		}
		_ = os.Remove("/run/dpdk") // if it is empty
	})
	return p, nil
}

// Command runs a command of testpmd. It returns the output once that contains one of texts.
func (p *Testpmd) Command(command string, texts ...string) string {
	p.tb.Helper()
	from := len(p.Log())
	if _, err := io.WriteString(p.stdin, command+"\n"); err != nil {
		p.tb.Fatalf("tell testpmd %q: %v", command, err)
	}
	return p.wait(from, texts...)
}

func (p *Testpmd) wait(from int, texts ...string) string {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tb.Context(), 2*time.Minute)
	defer cancel()
	if err := p.WaitLog(ctx, from, texts...); err != nil {
		p.tb.Fatal(err)
	}
	return p.Log()[from:]
}

// Connected waits until the peer of each of n ports is connected.
func (p *Testpmd) Connected(n int) {
	p.tb.Helper()
	for port := range n {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if strings.Contains(p.Command("show port info "+strconv.Itoa(port), "Link status: up", "Link status: down"), "Link status: up") {
				break
			}
			if time.Now().After(end) {
				p.tb.Fatalf("port %d has no link", port)
			}
		}
	}
}

// Exchange sends packets from each of n ports and forwards what they receive, until d has passed or each has
// received some. It returns what was forwarded.
func (p *Testpmd) Exchange(n int, d time.Duration) map[int]Counters {
	p.tb.Helper()
	var counters map[int]Counters
	for end := time.Now().Add(2 * time.Minute); ; {
		p.Command("start tx_first", "packets/burst")
		time.Sleep(d)
		counters = Forwarded(p.Command("stop", "Done."))
		silent := 0
		for port := range n {
			if counters[port].RX == 0 {
				silent++
			}
		}
		if silent == 0 || time.Now().After(end) {
			return counters
		}
	}
}
