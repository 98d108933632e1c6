// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/parts"
)

// patience bounds every wait. The machine may be busy.
const patience = 2 * time.Minute

// Switch is an Open vSwitch: a database server and a switch, which a test starts and kills.
type Switch struct {
	// Dir is the run directory.
	Dir string

	tb       testing.TB
	packages string // directories of the unpacked packages
	server   *exec.Cmd
	daemon   *exec.Cmd
}

// unpack fetches the packages once for a test program.
var unpack = sync.OnceValues(func() ([]parts.Unpacked, error) {
	store, err := parts.Open()
	if err != nil {
		return nil, err
	}
	return store.Ensure(context.Background(), append(parts.DPDK(), parts.OVS()...)...)
})

// Prepare fetches the packages. Where the archive cannot be reached, New says so.
func Prepare() error {
	_, err := unpack()
	if debian, _ := parts.Debian(); !debian || errdefs.IsUnavailable(err) {
		return nil
	}
	return err
}

// New returns a switch with an empty database, of which nothing runs yet. The test is skipped where Open
// vSwitch cannot run; in CI that is a failure.
func New(tb testing.TB) *Switch {
	tb.Helper()
	return newIn(tb, "/run")
}

func newIn(tb testing.TB, parent string) *Switch {
	tb.Helper()
	skip := tb.Skipf
	if os.Getenv("CI") == "true" {
		skip = tb.Fatalf
	}
	if os.Geteuid() != 0 {
		skip("skipped: Open vSwitch needs root for a network namespace")
	}
	packages, err := unpack()
	if debian, why := parts.Debian(); err != nil && !debian {
		skip("skipped: no Open vSwitch: %s", why)
	}
	if errdefs.IsUnavailable(err) {
		skip("skipped: no Open vSwitch: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	// Paths of sockets are short, those of TempDir are not. DPDK loads no driver from below a directory that
	// everybody can write, such as /tmp.
	dir, err := os.MkdirTemp(parent, "ovs")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Switch{Dir: dir, tb: tb, packages: filepath.Dir(packages[0].Dir)}
	tb.Cleanup(func() {
		s.KillSwitch()
		s.KillDatabase()
		if tb.Failed() {
			s.logTail("switch.log")
			s.logTail("database.log")
		}
		os.RemoveAll(dir)
		os.RemoveAll(filepath.Join("/var/run/dpdk", filepath.Base(dir))) // of DPDK
	})
	s.WipeDatabase()
	return s
}

// Start returns a switch that runs, with bridge br0.
func Start(tb testing.TB) *Switch {
	tb.Helper()
	return StartIn(tb, "/run")
}

// StartIn is Start with the run directory in another directory.
func StartIn(tb testing.TB, parent string) *Switch {
	tb.Helper()
	s := newIn(tb, parent)
	s.StartDatabase()
	s.Configure(true)
	s.StartSwitch()
	s.AddBridge("br0")
	return s
}

// Endpoint returns the path of the database's socket.
func (s *Switch) Endpoint() string { return s.path("db.sock") }

// WipeDatabase creates an empty database. The server must not run.
func (s *Switch) WipeDatabase() {
	s.tb.Helper()
	_ = os.Remove(s.path("conf.db"))
	s.run("usr/bin/ovsdb-tool", "create", s.path("conf.db"), s.find("openvswitch-common_*/usr/share/openvswitch/vswitch.ovsschema", "openvswitch-switch_*/usr/share/openvswitch/vswitch.ovsschema"))
}

// StartDatabase starts the database server and returns when it answers.
func (s *Switch) StartDatabase() {
	s.tb.Helper()
	s.server = s.start("database.log", s.command("usr/sbin/ovsdb-server", s.path("conf.db"), "--remote=punix:"+s.Endpoint(), "--unixctl="+s.path("db.ctl"), "--no-chdir"))
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		conn, err := net.Dial("unix", s.Endpoint())
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			s.tb.Fatalf("the database server does not start: %v", err)
		}
	}
}

// Configure writes what ovs-vswitchd reads at its start, with or without DPDK.
func (s *Switch) Configure(withDPDK bool) {
	s.tb.Helper()
	s.Vsctl("--no-wait", "init")
	if !withDPDK {
		return
	}
	extra := "--no-huge --legacy-mem -m 512 --no-pci --no-telemetry --file-prefix=" + filepath.Base(s.Dir)
	for _, driver := range []string{"librte-mempool-ring23_*", "librte-bus-vdev23_*"} {
		extra += " -d " + s.copyDrivers(s.find(driver+"/usr/lib/*/dpdk/pmds-*"))
	}
	// A switch without traffic sleeps most of the time, for the sake of other tests.
	s.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true", "other_config:dpdk-lcore-mask=0x1",
		"other_config:pmd-cpu-mask=0x1", "other_config:pmd-maxsleep=500", "other_config:dpdk-extra="+extra)
}

// copyDrivers copies a directory of drivers to below Dir, since the checkout may be below /tmp.
func (s *Switch) copyDrivers(from string) string {
	s.tb.Helper()
	to := s.path("drivers")
	files, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	for _, file := range files {
		data, readErr := os.ReadFile(filepath.Join(from, file.Name()))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, file.Name()), data, 0o755))
	}
	if err != nil {
		s.tb.Fatal(err)
	}
	return to
}

// StartSwitch starts ovs-vswitchd. It does not wait until it has read its configuration.
func (s *Switch) StartSwitch() {
	s.tb.Helper()
	cmd := s.command("usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "unix:"+s.Endpoint(), "--unixctl="+s.path("ctl"), "--no-chdir",
		"--verbose=console:warn") // it logs each port again whenever one is added
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET // for the devices of bridges
	s.daemon = s.start("switch.log", cmd)
}

// AddBridge adds a bridge with DPDK's datapath, and waits for ovs-vswitchd.
func (s *Switch) AddBridge(name string) {
	s.tb.Helper()
	s.Vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev")
}

// KillDatabase ends the database server with SIGKILL.
func (s *Switch) KillDatabase() { kill(&s.server) }

// KillSwitch ends ovs-vswitchd with SIGKILL.
func (s *Switch) KillSwitch() { kill(&s.daemon) }

// SignalDatabase sends the database server a signal.
func (s *Switch) SignalDatabase(sig os.Signal) {
	s.tb.Helper()
	if err := s.server.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

// SignalSwitch sends ovs-vswitchd a signal.
func (s *Switch) SignalSwitch(sig os.Signal) {
	s.tb.Helper()
	if err := s.daemon.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

func kill(cmd **exec.Cmd) {
	if *cmd != nil {
		_ = (*cmd).Process.Kill()
		_ = (*cmd).Wait()
		*cmd = nil
	}
}

// Vsctl runs ovs-vsctl and returns its output.
func (s *Switch) Vsctl(args ...string) string {
	s.tb.Helper()
	return s.run("usr/bin/ovs-vsctl", append([]string{"--db=unix:" + s.Endpoint(), fmt.Sprintf("--timeout=%d", int(patience.Seconds()))}, args...)...)
}

// VsctlCommand returns the command of Vsctl, for a benchmark.
func (s *Switch) VsctlCommand(args ...string) *exec.Cmd {
	return s.command("usr/bin/ovs-vsctl", append([]string{"--db=unix:" + s.Endpoint()}, args...)...)
}

// Log returns what ovs-vswitchd has logged.
func (s *Switch) Log() string {
	data, _ := os.ReadFile(s.path("switch.log"))
	return string(data)
}

func (s *Switch) path(name string) string { return filepath.Join(s.Dir, name) }

// find returns the one file of the packages that matches one of the patterns.
func (s *Switch) find(patterns ...string) string {
	s.tb.Helper()
	for _, pattern := range patterns {
		if found, err := filepath.Glob(filepath.Join(s.packages, pattern)); err == nil && len(found) == 1 {
			return found[0]
		}
	}
	s.tb.Fatalf("no file %q in the packages", patterns)
	return ""
}

// command runs a program of the packages with the packages' own C library and loader.
func (s *Switch) command(program string, args ...string) *exec.Cmd {
	s.tb.Helper()
	loader := s.find("libc6_*/lib/*/ld-linux*.so.*")
	libraries, err := filepath.Glob(filepath.Join(s.packages, "*", "usr/lib", filepath.Base(filepath.Dir(loader))))
	if err != nil {
		s.tb.Fatal(err)
	}
	base, err := filepath.Glob(filepath.Join(s.packages, "*", "lib", filepath.Base(filepath.Dir(loader))))
	if err != nil {
		s.tb.Fatal(err)
	}
	cmd := exec.Command("nice", append([]string{"-n", "5", loader, "--library-path", strings.Join(append(base, libraries...), ":"), s.find("openvswitch-*_*/" + program)}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "OVS_RUNDIR=" + s.Dir, "OVS_LOGDIR=" + s.Dir, "OVS_DBDIR=" + s.Dir, "OVS_SYSCONFDIR=" + s.Dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *Switch) run(program string, args ...string) string {
	s.tb.Helper()
	out, err := s.command(program, args...).CombinedOutput()
	if err != nil {
		s.tb.Fatalf("%s %s: %v: %s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *Switch) start(log string, cmd *exec.Cmd) *exec.Cmd {
	s.tb.Helper()
	f, err := os.OpenFile(s.path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	return cmd
}

func (s *Switch) logTail(name string) {
	data, _ := os.ReadFile(s.path(name))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	s.tb.Logf("%s:\n%s", name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
}
