// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// Open vSwitch runs and reads these files, which have the paths of a root file system.
const (
	ovsVswitchd = "usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
	ovsdbServer = "usr/sbin/ovsdb-server"
	ovsdbTool   = "usr/bin/ovsdb-tool"
	ovsVsctl    = "usr/bin/ovs-vsctl"
	ovsOfctl    = "usr/bin/ovs-ofctl"
	ovsSchema   = "usr/share/openvswitch/vswitch.ovsschema"
)

var ovsFiles = []string{ovsVswitchd, ovsdbServer, ovsdbTool, ovsVsctl, ovsOfctl, ovsSchema}

// hugePages is the number of huge pages of 2 MiB for the DPDK of OVS.
const hugePages = 300

// OVS is an Open vSwitch with the DPDK datapath and one bridge, br0.
type OVS struct {
	// Dir contains its sockets, also those of dpdkvhostuser ports.
	Dir string

	tb   testing.TB
	tree *Tree
	huge string
	run  *node.Process
}

// StartOVS runs Open vSwitch on the host until the test ends, with dir as its run directory. The test is
// skipped, with the reason, if there are no huge pages.
func (t *Tree) StartOVS(tb testing.TB, dir string) *OVS {
	tb.Helper()
	o := &OVS{Dir: dir, tb: tb, tree: t, huge: takeHugePages(tb)}
	db := filepath.Join(dir, "conf.db")
	o.tool(ovsdbTool, "create", db, filepath.Join(t.Dir, ovsSchema))
	server, err := node.StartProcess(o.command(ovsdbServer, db, "--remote=punix:"+o.path("db.sock"), "--unixctl="+o.path("db.ctl"), "--no-chdir"), o.path("db.log"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = server.Stop(5 * time.Second) })
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(o.path("db.sock")); err == nil {
			break
		}
		if time.Now().After(end) {
			tb.Fatalf("OVS' database does not start:\n%s", server.Log())
		}
	}
	o.Vsctl("--no-wait", "init")
	o.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true", "other_config:dpdk-socket-mem=512",
		"other_config:dpdk-hugepage-dir="+o.huge, "other_config:dpdk-lcore-mask=0x1", "other_config:pmd-cpu-mask=0x1",
		"other_config:dpdk-extra=--no-pci --no-telemetry --file-prefix=ovs -d "+t.plugins)
	tb.Cleanup(func() {
		if err := os.RemoveAll("/run/dpdk/ovs"); err != nil {
			tb.Errorf("clean up: %v", err)
		}
		_ = os.Remove("/run/dpdk")
	})
	o.Start()
	o.Vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	return o
}

// Start starts the switch, also after Kill, and returns when the switch has read its configuration.
func (o *OVS) Start() {
	o.tb.Helper()
	run, err := node.StartProcess(o.command(ovsVswitchd, "unix:"+o.path("db.sock"), "--unixctl="+o.path("ctl"), "--no-chdir"), o.path("log"))
	if err != nil {
		o.tb.Fatal(err)
	}
	o.run = run
	o.tb.Cleanup(func() {
		_ = run.Stop(5 * time.Second)
		if o.tb.Failed() {
			o.tb.Logf("OVS logged:\n%s", node.Tail(run.Log(), 40))
		}
	})
	o.waitConfigured()
}

// waitConfigured waits until the switch has applied its configuration once more.
func (o *OVS) waitConfigured() {
	o.tb.Helper()
	o.Vsctl("set", "Open_vSwitch", ".", "external_ids:settled="+strconv.FormatInt(time.Now().UnixNano(), 10))
}

// Kill ends the switch as a crash does: its sockets are left.
func (o *OVS) Kill() { o.run.Kill() }

// Vsctl changes the configuration. It waits until the switch has applied the change, unless args say
// otherwise.
func (o *OVS) Vsctl(args ...string) string {
	o.tb.Helper()
	return o.tool(ovsVsctl, append([]string{"--db=unix:" + o.path("db.sock"), "--timeout=60"}, args...)...)
}

// Patch forwards packets between two ports of the bridge.
func (o *OVS) Patch(a, b int) {
	o.tb.Helper()
	for _, flow := range []string{fmt.Sprintf("in_port=%d,actions=output:%d", a, b), fmt.Sprintf("in_port=%d,actions=output:%d", b, a)} {
		o.Ofctl("add-flow", flow)
	}
}

// Ofctl runs a command of ovs-ofctl for the bridge.
func (o *OVS) Ofctl(command string, args ...string) string {
	o.tb.Helper()
	return o.tool(ovsOfctl, append([]string{command, "unix:" + o.path("br0.mgmt")}, args...)...)
}

func (o *OVS) path(name string) string { return filepath.Join(o.Dir, name) }

func (o *OVS) command(program string, args ...string) *exec.Cmd {
	argv := append([]string{"nice", "-n", "10"}, o.tree.loader...)
	argv = append(append(argv, filepath.Join(o.tree.Dir, program)), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "OVS_RUNDIR=" + o.Dir, "OVS_LOGDIR=" + o.Dir, "OVS_DBDIR=" + o.Dir,
		"OVS_SYSCONFDIR=" + o.Dir, "OVS_PKGDATADIR=" + filepath.Join(o.tree.Dir, "usr/share/openvswitch")}
	return cmd
}

func (o *OVS) tool(program string, args ...string) string {
	o.tb.Helper()
	out, err := o.command(program, args...).CombinedOutput()
	if err != nil {
		o.tb.Fatalf("%s %s: %v: %s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// takeHugePages reserves huge pages of the machine until the test ends, and returns the directory where they
// are mounted.
func takeHugePages(tb testing.TB) string {
	tb.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	skip := func(why string) { tb.Skipf("skipped: OVS-DPDK needs %d huge pages of 2 MiB: %s", hugePages, why) }
	before, err := os.ReadFile(file)
	if err != nil {
		skip(err.Error())
	}
	free := func() int {
		data, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return n
	}
	if free() < hugePages {
		had, _ := strconv.Atoi(strings.TrimSpace(string(before)))
		if err := os.WriteFile(file, []byte(strconv.Itoa(had+hugePages-free())), 0); err != nil {
			skip(err.Error())
		}
		tb.Cleanup(func() {
			if err := os.WriteFile(file, before, 0); err != nil {
				tb.Errorf("give huge pages back: %v", err)
			}
		})
		if n := free(); n < hugePages {
			skip(fmt.Sprintf("the kernel has %d", n))
		}
	}
	dir, err := os.MkdirTemp("/run", "huge-")
	if err != nil {
		tb.Fatal(err)
	}
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		_ = os.Remove(dir)
		skip(err.Error())
	}
	tb.Cleanup(func() {
		// The unmount frees the pages of a killed process.
		if err := errors.Join(unix.Unmount(dir, 0), os.Remove(dir)); err != nil {
			tb.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// Linked waits until the switch reports the link of a port as up, and has applied the change.
func (o *OVS) Linked(port string) {
	o.tb.Helper()
	ctx, cancel := context.WithTimeout(o.tb.Context(), 2*time.Minute)
	defer cancel()
	for {
		state := strings.TrimSpace(o.Vsctl("get", "interface", port, "link_state"))
		if state == "up" {
			o.waitConfigured()
			return
		}
		select {
		case <-ctx.Done():
			o.tb.Fatalf("port %s of OVS is %s: %s", port, state, o.Vsctl("get", "interface", port, "status"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
