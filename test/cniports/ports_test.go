// SPDX-License-Identifier: Apache-2.0

package cniports

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

func portName(container string) string {
	return vswitch.PortName(vswitch.Owner{ContainerID: container, Interface: "net1"})
}

func TestAddCreatesPortAndDelRemovesIt(t *testing.T) {
	n := newNode(t)
	c := conf(server + `, "mtu": 9000, "rate": "1G", "runtimeConfig": {"mac": "02:00:00:00:00:05", "ips": ["10.0.0.5/24"]}`)
	if got, want := n.mustRun(environ("STATUS", ""), c).out, `{"cniVersion":"1.1.0","configFile":"`+configFile+`"}`; strings.TrimSpace(got) != want {
		t.Errorf("STATUS prints %s, want %s", got, want)
	}
	added := n.mustRun(environ("ADD", "c1"), c)
	info := n.info("c1")
	for column, want := range map[string]string{
		"type": "dpdkvhostuserclient", "options:vhost-server-path": info.VhostUser.Path, "mtu_request": "9000", "ingress_policing_rate": "1000000",
		"external_ids:attached-mac": "02:00:00:00:00:05", "external_ids:iface-id": "jackfield:apps_web-0_net1",
	} {
		if got := strings.Trim(strings.TrimSpace(n.s.Vsctl("get", "interface", portName("c1"), column)), `"`); got != want {
			t.Errorf("%s: found %s, want %s", column, got, want)
		}
	}
	if got := strings.TrimSpace(n.s.Vsctl("get", "port", portName("c1"), "tag")); got != "100" {
		t.Errorf("tag %s", got)
	}
	if i := info.Interface; i.MTU != 9000 || i.Queues != 2 || i.MAC != "02:00:00:00:00:05" || len(i.IPs) != 1 {
		t.Errorf("device-info has %+v", i)
	}
	if !strings.HasPrefix(info.VhostUser.Path, socketsDir) || info.VhostUser.Mode != "server" || !strings.Contains(added.out, info.VhostUser.Path) {
		t.Errorf("device-info has socket %+v, the result is %s", info.VhostUser, added.out)
	}
	checked := strings.TrimSuffix(c, "}") + `, "prevResult": ` + added.out + "}"
	n.mustRun(environ("CHECK", "c1"), checked)
	if a := n.run(environ("ADD", "c1"), c); a.Code != 100 {
		t.Errorf("second ADD: %s", a)
	}
	n.s.Vsctl("set", "port", portName("c1"), "tag=7")
	if a := n.run(environ("CHECK", "c1"), checked); a.Code != 101 || !strings.Contains(a.Details, "vlan") {
		t.Errorf("CHECK of a changed port: %s", a)
	}
	n.s.Vsctl("del-port", portName("c1"))
	if a := n.run(environ("CHECK", "c1"), checked); a.Code != 101 || !strings.Contains(a.Details, portName("c1")) {
		t.Errorf("CHECK of a missing port: %s", a)
	}
	for range 2 {
		n.mustRun(environ("DEL", "c1"), c)
	}
	n.checkNothingLeft("DEL")

	// The configuration of DEL may have lost its keys.
	n.mustRun(environ("ADD", "c1"), c)
	n.mustRun(environ("DEL", "c1"), `{"cniVersion": "1.1.0", "name": "fast", "type": "jackfield-cni"}`)
	n.checkNothingLeft("DEL without keys")
}

// With dpdkvhostuser, Open vSwitch decides where the socket is.
func TestAddReportsSocketThatSwitchChose(t *testing.T) {
	n := newNode(t)
	c := conf(client)
	added := n.mustRun(environ("ADD", "c1"), c)
	want := "/" + portName("c1") // endpoint's directory
	if got := n.info("c1").VhostUser; got.Path != want || got.Mode != "client" {
		t.Errorf("device-info has %+v, want path %s", got, want)
	}
	if !strings.Contains(added.out, `"socketPath": "`+want+`"`) {
		t.Errorf("the result is %s, want socketPath %s", added.out, want)
	}
	if _, err := os.Stat(filepath.Join(n.s.Dir, want)); err != nil {
		t.Error(err)
	}
	checked := strings.TrimSuffix(c, "}") + `, "prevResult": ` + added.out + "}"
	n.mustRun(environ("CHECK", "c1"), checked)
	// The socket that a killed switch leaves behind is in the way of the next one.
	n.s.KillSwitch()
	n.s.StartSwitch()
	unusable := func() bool {
		a := n.run(environ("CHECK", "c1"), checked)
		return a.Code == 101 && strings.Contains(a.Details, "is not usable")
	}
	if !testkit.Until(unusable) {
		t.Errorf("CHECK does not report a port that the switch cannot use: %s", n.run(environ("CHECK", "c1"), checked))
	}
	n.mustRun(environ("DEL", "c1"), c)
	n.checkNothingLeft("DEL")
}

func TestAddRefusesPortAndLeavesNothing(t *testing.T) {
	n := newNode(t)
	other := environ("ADD", "c1")
	other[len(other)-1] = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=other"
	for name, c := range map[string]struct {
		environ []string
		conf    string
		code    uint
		texts   []string
	}{
		"namespace without rule": {other, conf(server), 103, []string{`"ovs0/br0"`, "add to policy.rules in " + configFile, `namespaces: ["other"]`}},
		"outside Kubernetes":     {environ("ADD", "c1", "CNI_ARGS="), conf(server), 103, []string{`"ovs0/br0"`}},
		"VLAN without rule":      {environ("ADD", "c1"), strings.Replace(conf(server), "100", "200", 1), 103, []string{"VLAN 200", "fast-path"}},
		"no VLAN":                {environ("ADD", "c1"), strings.Replace(conf(server), `, "vlan": 100`, "", 1), 103, []string{"without a VLAN"}},
		"unknown vswitch":        {environ("ADD", "c1"), strings.Replace(conf(server), "ovs0", "ovs1", 1), 7, []string{configFile, `did you mean ovs0?`}},
		"bridge not listed":      {environ("ADD", "c1"), conf(server + `, "bridge": "br1"`), 7, []string{"bridge", "br0, br9"}},
		"bridge not on switch":   {environ("ADD", "c1"), conf(server + `, "bridge": "br9"`), 104, []string{"bridge", "br9", "add-br"}},
		"memif":                  {environ("ADD", "c1"), conf(`, "device": {"type": "memif", "role": "slave"}`), 104, []string{"memif"}},
		"configuration missing":  {environ("ADD", "c1"), conf(server + `, "configFile": "/etc/jackfield/other.yaml"`), 7, []string{"/etc/jackfield/other.yaml", "cni.configFiles"}},
	} {
		a := n.run(c.environ, c.conf)
		if a.Code != c.code {
			t.Errorf("%s: %s; want code %d", name, a, c.code)
		}
		for _, text := range c.texts {
			if !strings.Contains(a.String(), text) {
				t.Errorf("%s: %s; want %q", name, a, text)
			}
		}
		n.checkNothingLeft(name)
	}
}

func TestManyAddsAtOnce(t *testing.T) {
	n := newNode(t)
	const count = 100
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() {
			if a := n.run(environ("ADD", fmt.Sprintf("c%d", i)), conf(server)); a.Code != 0 {
				t.Errorf("ADD %d: %s", i, a)
			}
		})
	}
	group.Wait()
	if got := len(n.ports()); got != count {
		t.Errorf("%d ports, want %d", got, count)
	}
	n.mustRun(environ("GC", ""), conf(server+`, "cni.dev/valid-attachments": [{"containerID": "c7", "ifname": "net1"}]`))
	if got := n.ports(); len(got) != 1 || got[0] != portName("c7") {
		t.Errorf("after GC: ports %q", got)
	}
	n.mustRun(environ("DEL", "c7"), conf(server))
	n.checkNothingLeft("GC and DEL")
}

func TestOneOfManyAddsOfAPortWins(t *testing.T) {
	n := newNode(t)
	var group sync.WaitGroup
	codes := make(chan uint, 8)
	for range cap(codes) {
		group.Go(func() { codes <- n.run(environ("ADD", "c1"), conf(server)).Code })
	}
	group.Wait()
	close(codes)
	won := 0
	for code := range codes {
		switch code {
		case 0:
			won++
		case 11, 100:
		default:
			t.Errorf("code %d", code)
		}
	}
	if won != 1 || len(n.ports()) != 1 {
		t.Errorf("%d ADDs won; ports %q", won, n.ports())
	}
	n.mustRun(environ("DEL", "c1"), conf(server))
	n.checkNothingLeft("DEL")
}

func TestDelWaitsForSwitchThatIsDown(t *testing.T) {
	n := newNode(t)
	n.mustRun(environ("ADD", "c1"), conf(server))
	before := n.files()
	n.s.KillDatabase()
	for command, code := range map[string]uint{"DEL": 11, "STATUS": 51, "ADD": 11} {
		container := "c1"
		if command == "ADD" {
			container = "c2"
		}
		if a := n.run(environ(command, container), conf(server)); a.Code != code || !strings.Contains(a.Details, "db.sock") {
			t.Errorf("%s: %s; want code %d", command, a, code)
		}
	}
	// The undo of the ADD could not ask the vswitch, so its record stays for DEL.
	n.s.StartDatabase()
	n.mustRun(environ("DEL", "c2"), conf(server))
	if after := n.files(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("files %q, before %q", after, before)
	}
	n.mustRun(environ("STATUS", ""), conf(server))
	n.mustRun(environ("DEL", "c1"), conf(server))
	n.checkNothingLeft("DEL")
	n.s.KillDatabase()
	if a := n.run(environ("STATUS", ""), conf(server)); a.Code != 50 {
		t.Errorf("STATUS without ports: %s", a)
	}
	n.s.StartDatabase()
}

func TestHungSwitchEndsWithTryAgain(t *testing.T) {
	n := newNode(t)
	n.s.SignalDatabase(syscall.SIGSTOP)
	begin := time.Now()
	a := n.run(environ("ADD", "c1"), conf(server+`, "timeout": "3s"`))
	n.s.SignalDatabase(syscall.SIGCONT)
	if a.Code != 11 || time.Since(begin) > 2*time.Minute {
		t.Errorf("%s, after %s", a, time.Since(begin))
	}
	n.mustRun(environ("DEL", "c1"), conf(server))
	n.checkNothingLeft("DEL")
}

// The database's server answers while ovs-vswitchd hangs.
func TestStatusReportsHungSwitch(t *testing.T) {
	n := newNode(t)
	network := conf(server + `, "timeout": "3s"`)
	n.mustRun(environ("ADD", "c1"), network)
	n.s.SignalSwitch(syscall.SIGSTOP)
	begin := time.Now()
	a := n.run(environ("STATUS", ""), network)
	n.s.SignalSwitch(syscall.SIGCONT)
	if took := time.Since(begin); a.Code != 51 || !strings.Contains(a.Details, "ovs-vswitchd has not processed the change") || took > time.Minute {
		t.Errorf("%s, after %s", a, took)
	}
	n.mustRun(environ("STATUS", ""), network)
	n.mustRun(environ("DEL", "c1"), network)
	n.checkNothingLeft("DEL")
}

func TestDelKeepsRecordWhileSwitchIsNotConfigured(t *testing.T) {
	n := newNode(t)
	n.mustRun(environ("ADD", "c1"), conf(server))
	before := n.files()
	n.configure(strings.Replace(nodeConfig, "name: ovs0", "name: ovs7", 1))
	a := n.run(environ("DEL", "c1"), conf(server))
	for _, text := range []string{`"ovs0"`, configFile, portName("c1"), recordsDir + "/fast@c1@net1", "put the vswitch back"} {
		if a.Code != 7 || !strings.Contains(a.String(), text) {
			t.Errorf("%s; want code 7 with %q", a, text)
		}
	}
	if after := n.files(); fmt.Sprint(after) != fmt.Sprint(before) || len(n.ports()) != 1 {
		t.Errorf("files %q, ports %q; before %q", after, n.ports(), before)
	}
	n.configure(nodeConfig)
	n.mustRun(environ("DEL", "c1"), conf(server))
	n.checkNothingLeft("DEL")
}

// A port whose record was lost is removed by GC of its network, and by no other.
func TestGCRemovesPortsWithoutRecord(t *testing.T) {
	n := newNode(t)
	lose := func(container string, spoil func(file string) error) {
		t.Helper()
		n.mustRun(environ("ADD", container), conf(server))
		if err := spoil(filepath.Join(n.s.Dir, recordsDir, "fast@"+container+"@net1")); err != nil {
			t.Fatal(err)
		}
	}
	lose("lost", os.Remove)
	lose("broken", func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) })
	const empty = `, "cni.dev/valid-attachments": []`
	n.mustRun(environ("GC", ""), strings.Replace(conf(server+empty), `"fast"`, `"other"`, 1))
	if got := n.ports(); len(got) != 2 {
		t.Errorf("GC of another network left %q", got)
	}
	n.mustRun(environ("GC", ""), conf(server+empty))
	if got := n.ports(); len(got) != 0 {
		t.Errorf("GC left %q", got)
	}
}
