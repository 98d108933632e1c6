// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/ovs"
)

// resettable is a switch with a bridge, which a benchmark kills and starts again.
type resettable interface {
	// kill ends the switch with SIGKILL. wipe also ends its database server and empties the database.
	kill(wipe bool)
	// start starts the switch again and returns when its bridge exists. The start-up script, if any, also removes stale
	// sockets and creates the ports.
	start(wiped bool, script []scriptPort)
	// sockets is the directory where the switch creates sockets.
	sockets() string
	// config is the entry of the switch in the node's configuration.
	config() string
}

// scriptPort is a port that a start-up script creates.
type scriptPort struct {
	name, kind, socket string
}

// resetOVS is Open vSwitch with the userspace datapath.
type resetOVS struct{ *ovs.Switch }

func newResetOVS(b *testing.B) resettable {
	s := resetOVS{ovs.New(b)}
	s.StartDatabase()
	s.start(true, nil)
	return s
}

func (s resetOVS) sockets() string { return s.Dir }

func (s resetOVS) config() string {
	return fmt.Sprintf("{name: switch0, type: ovs, endpoint: %q, bridges: [br0]}", s.Endpoint())
}

func (s resetOVS) kill(wipe bool) {
	s.KillSwitch()
	if wipe {
		s.KillDatabase()
		s.WipeDatabase()
		s.StartDatabase()
	}
}

func (s resetOVS) start(wiped bool, script []scriptPort) {
	if wiped {
		s.Configure(true)
		// The memory that all ports would share takes most of the switch's, and sometimes more.
		s.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:per-port-memory=true")
	}
	s.StartSwitch()
	args := []string{"--may-exist", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"}
	for _, p := range script {
		args = append(args, "--", "--may-exist", "add-port", "br0", p.name, "--", "set", "interface", p.name)
		if p.kind == vhostClient {
			args = append(args, "type=dpdkvhostuser")
		} else {
			args = append(args, "type=dpdkvhostuserclient", "options:vhost-server-path="+p.socket)
		}
	}
	// ovs-vsctl waits for the switch only if it changed the configuration.
	s.Vsctl(append(args, "--", "set", "Open_vSwitch", ".",
		"external_ids:started="+strconv.FormatInt(time.Now().UnixNano(), 10))...)
}

// resetGrout is grout, which has no database.
type resetGrout struct {
	*grout.Switch
	dir string
}

func newResetGrout(b *testing.B) resettable {
	b.Helper()
	dir, err := os.MkdirTemp("", "grout")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	s := resetGrout{grout.Start(b, dir), dir}
	s.Run("interface", "add", "bridge", "br0")
	return s
}

func (s resetGrout) sockets() string { return s.dir }

func (s resetGrout) config() string {
	return fmt.Sprintf("{name: switch0, type: grout, endpoint: %q, grcli: %q, bridges: [br0]}", s.Socket, s.Grcli)
}

func (s resetGrout) kill(bool) { s.Kill() }

func (s resetGrout) start(_ bool, script []scriptPort) {
	s.Restart()
	s.Run("interface", "add", "bridge", "br0")
	for i, p := range script {
		args := fmt.Sprintf("net_vhost%d,iface=%s", i, p.socket)
		switch p.kind {
		case vhostServer:
			args += ",client=1"
		case memifSlave:
			args = fmt.Sprintf("net_memif%d,role=server,socket=%s,socket-abstract=no", i, p.socket)
		}
		s.Run("interface", "add", "port", p.name, "devargs", args, "domain", "br0")
	}
}

// removeStaleSockets removes the sockets of ports that a killed switch left behind, before the switch starts. DPDK does
// not bind to a path that exists.
func removeStaleSockets(b *testing.B, s resettable, script []scriptPort) {
	b.Helper()
	stale, err := filepath.Glob(filepath.Join(s.sockets(), "jf*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range script {
		if p.kind != vhostServer {
			stale = append(stale, p.socket)
		}
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
	}
}
