// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	driver "github.com/jackfield/jackfield/internal/port/vswitch/ovs"
)

func newDriver(s *Switch) *driver.Driver {
	return &driver.Driver{Switch: vswitch.Switch{Name: "ovs0", Endpoint: s.Endpoint()}}
}

func testPort(s *Switch, container string) vswitch.Port {
	owner := vswitch.Owner{ContainerID: container, Interface: "net1", Network: "fast", Namespace: "tenants", Pod: "web-0"}
	return vswitch.Port{
		Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: s.Dir + "/" + container + ".sock", Bridge: "br0",
		MAC: "02:00:00:00:00:01", Addresses: []string{"10.0.0.2/24", "fd00::2/64"}, MTU: 1500, VLAN: 7, Queues: 2, Rate: 1_000_000_000,
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ensure creates a port and checks that List returns it.
func ensure(t *testing.T, d *driver.Driver, p vswitch.Port) vswitch.Port {
	t.Helper()
	got, err := d.Ensure(testContext(t), p)
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.List(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(l vswitch.Port) bool { return l.Name == p.Name })
	if i < 0 {
		t.Fatalf("List lacks %q: %+v", p.Name, list)
	}
	if diff := cmp.Diff(got, list[i]); diff != "" {
		t.Errorf("Ensure and List differ:\n%s", diff)
	}
	return got
}

func ports(s *Switch) []string { return strings.Fields(s.Vsctl("list-ports", "br0")) }

func TestPortIsCreatedChangedAndRemoved(t *testing.T) {
	s := Start(t)
	d := newDriver(s)
	p := testPort(s, "c1")
	if diff := cmp.Diff(p, ensure(t, d, p)); diff != "" {
		t.Errorf("the port differs from what was asked:\n%s", diff)
	}
	for column, want := range map[string]string{
		"type": "dpdkvhostuserclient", "options:vhost-server-path": `"` + p.Socket + `"`, "mtu_request": "1500",
		"ingress_policing_rate": "1000000", "ingress_policing_burst": "800000", "ofport": "1", "error": "[]",
		"external_ids:iface-id": "jackfield:tenants_web-0_net1", "external_ids:attached-mac": `"02:00:00:00:00:01"`, "external_ids:jackfield:owner": "c1/net1",
	} {
		if got := strings.TrimSpace(s.Vsctl("get", "interface", p.Name, strings.Replace(column, ":jackfield:", ":jackfield\\:", 1))); strings.Trim(got, `"`) != strings.Trim(want, `"`) {
			t.Errorf("%s: found %s, want %s", column, got, want)
		}
	}
	// What others added stays, and a repeated call changes nothing.
	s.Vsctl("set", "interface", p.Name, "external_ids:ovn-installed=true", "options:tx-retries-max=0")
	number := s.Vsctl("get", "Open_vSwitch", ".", "next_cfg")
	ensure(t, d, p)
	if again := s.Vsctl("get", "Open_vSwitch", ".", "next_cfg"); again != number {
		t.Errorf("a port that is as desired was changed")
	}
	s.AddBridge("br1")
	p.VLAN, p.MTU, p.Rate, p.MAC, p.Bridge, p.Addresses, p.Queues = 0, 9000, 0, "02:00:00:00:00:02", "br1", nil, 0
	if diff := cmp.Diff(p, ensure(t, d, p)); diff != "" {
		t.Errorf("the port differs from what was asked:\n%s", diff)
	}
	if got := s.Vsctl("get", "interface", p.Name, "external_ids:ovn-installed", "options:tx-retries-max"); got != "\"true\"\n\"0\"\n" {
		t.Errorf("settings of others: %s", got)
	}
	if got := strings.TrimSpace(s.Vsctl("iface-to-br", p.Name)); got != "br1" {
		t.Errorf("the port is on %s", got)
	}
	for range 2 { // a missing port is no error
		if err := d.Remove(testContext(t), vswitch.Owner{ContainerID: "c1", Interface: "net1"}); err != nil {
			t.Fatal(err)
		}
	}
	for table, columns := range map[string]string{"Port": "name", "Interface": "name"} {
		if out := s.Vsctl("--bare", "--columns="+columns, "list", table); strings.Contains(out, p.Name) {
			t.Errorf("%s is left in table %s", p.Name, table)
		}
	}
}

func TestSwitchListensInItsRunDirectory(t *testing.T) {
	s := Start(t)
	d := newDriver(s)
	p := testPort(s, "c1")
	p.SwitchListens, p.Socket = true, ""
	got := ensure(t, d, p)
	if want := s.Dir + "/" + p.Name; got.Socket != want {
		t.Errorf("the socket is %s, want %s", got.Socket, want)
	}
	eventually(t, func() error { return syscall.Access(got.Socket, 0) })
	// The same port with the other side as the server.
	p.SwitchListens, p.Socket = false, s.Dir+"/app.sock"
	if got = ensure(t, d, p); got.Socket != p.Socket || got.SwitchListens {
		t.Errorf("found %+v", got)
	}
}

func TestHandMadeChangesAreUndone(t *testing.T) {
	s := Start(t)
	d := newDriver(s)
	p := testPort(s, "c1")
	ensure(t, d, p)
	s.AddBridge("br1")
	for _, change := range [][]string{
		{"del-port", p.Name},
		{"clear", "port", p.Name, "tag"},
		{"set", "port", p.Name, "tag=9"},
		{"set", "interface", p.Name, "type=dpdkvhostuser"},
		{"set", "interface", p.Name, "options:vhost-server-path=/nowhere"},
		{"remove", "interface", p.Name, "external_ids", "attached-mac"},
		{"del-br", "br0", "--", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"},
		{"--id=@i", "create", "interface", "name=other0", "type=dpdkvhostuserclient", "--", "set", "port", p.Name, "interfaces=@i"},
	} {
		s.Vsctl(change...)
		if diff := cmp.Diff(p, ensure(t, d, p)); diff != "" {
			t.Errorf("after %q:\n%s", change, diff)
		}
		if got := ports(s); !slices.Equal(got, []string{p.Name}) {
			t.Errorf("after %q the bridge has %q", change, got)
		}
	}
}

func TestPortsOfOthersAreNotTouched(t *testing.T) {
	s := Start(t)
	d := newDriver(s)
	p := testPort(s, "c1")
	refused := func(want string) {
		t.Helper()
		before := s.Vsctl("list", "port") + s.Vsctl("--columns=name,type,options,external_ids", "list", "interface")
		_, err := d.Ensure(testContext(t), p)
		if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, want %q", err, want)
		}
		if err := d.Remove(testContext(t), p.Owner); err != nil {
			t.Error(err)
		}
		if after := s.Vsctl("list", "port") + s.Vsctl("--columns=name,type,options,external_ids", "list", "interface"); after != before {
			t.Errorf("the database changed:\n%s", cmp.Diff(before, after))
		}
	}
	s.Vsctl("add-port", "br0", p.Name, "--", "set", "interface", p.Name, "type=internal")
	refused("a port that Jackfield did not create")
	s.Vsctl("set", "port", p.Name, `external_ids:"jackfield:managed"="true"`)
	refused("a port that Jackfield did not create")
	s.Vsctl("set", "port", p.Name, `external_ids:"jackfield:owner"="c2/net1"`)
	refused(`the port of container "c2", interface "net1"`)
	s.Vsctl("del-port", p.Name)
	s.Vsctl("add-bond", "br0", "bond0", p.Name, "other1", "--", "set", "interface", p.Name, "type=internal", "--", "set", "interface", "other1", "type=internal")
	refused("an interface of another port")
	list, err := d.List(testContext(t))
	if err != nil || len(list) != 0 {
		t.Errorf("List has ports of others: %+v, %v", list, err)
	}
}

func TestRefusalNamesFieldAndRemedy(t *testing.T) {
	s := New(t)
	s.StartDatabase()
	d := newDriver(s)
	p := testPort(s, "c1")
	refused := func(p vswitch.Port, want ...string) {
		t.Helper()
		_, err := d.Ensure(testContext(t), p)
		if err == nil {
			t.Errorf("no error, want %q", want)
			return
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("found %v, want %q", err, text)
			}
		}
		t.Log(err)
		list, err := d.List(testContext(t))
		if err != nil || len(list) != 0 {
			t.Errorf("left behind: %+v, %v", list, err)
		}
	}
	refused(p, "ovs-vsctl init")
	s.Configure(false)
	refused(p, "bridge: there is no bridge \"br0\"", "ovs-vsctl add-br br0")
	s.StartSwitch()
	s.AddBridge("br1")
	refused(p, "name one of br1")
	s.AddBridge("br0")
	refused(p, "vswitches.ovs0: DPDK is not initialised", "could not open network device", "dpdk-init=true")
	s.Vsctl("--no-wait", "set", "bridge", "br0", "datapath_type=system")
	refused(p, "bridge: bridge \"br0\" has datapath_type \"system\"", "datapath_type=netdev")
	p.Bridge = "br1"
	for _, tc := range []struct {
		change func(*vswitch.Port)
		want   string
	}{
		{func(p *vswitch.Port) { p.Type = vswitch.Memif }, "type: Open vSwitch has no memif ports"},
		{func(p *vswitch.Port) { p.MTU = 9703 }, "mtu: invalid value 9703: use an MTU from 68 to 9702"},
		{func(p *vswitch.Port) { p.VLAN = 4095 }, "vlan: invalid value 4095"},
		{func(p *vswitch.Port) { p.Socket = "/" + strings.Repeat("x", 107) }, "socket: the path"},
		{func(p *vswitch.Port) { p.Bridge = "" }, "bridge: missing"},
	} {
		changed := p
		tc.change(&changed)
		refused(changed, tc.want)
	}
}

// The limit of the MTU is the switch's own, which it reports only in its log.
func TestMaximumMTUIsTheSwitchs(t *testing.T) {
	s := Start(t)
	p := testPort(s, "c1")
	p.MTU = 9702
	ensure(t, newDriver(s), p)
	if strings.Contains(s.Log(), "unsupported MTU") {
		t.Error("the switch refuses the largest MTU")
	}
	s.Vsctl("set", "interface", p.Name, "mtu_request=9703")
	if !strings.Contains(s.Log(), "unsupported MTU 9703") {
		t.Error("the switch takes a larger MTU")
	}
}

func TestSilentSwitchLeavesNothingBehind(t *testing.T) {
	s := New(t)
	s.StartDatabase()
	s.Configure(false)
	s.Vsctl("--no-wait", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	d := newDriver(s)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := d.Ensure(ctx, testPort(s, "c1"))
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "ovs-vswitchd has not processed the change") {
		t.Errorf("found %v", err)
	}
	if list, err := d.List(testContext(t)); err != nil || len(list) != 0 {
		t.Errorf("left behind: %+v, %v", list, err)
	}
	// A caller that gives up leaves nothing behind either.
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	if _, err = d.Ensure(ctx, testPort(s, "c1")); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
	if list, err := d.List(testContext(t)); err != nil || len(list) != 0 {
		t.Errorf("left behind: %+v, %v", list, err)
	}
}

func TestHundredPortsInParallel(t *testing.T) {
	s := Start(t)
	d := newDriver(s)
	const count = 100
	each := func(f func(i int) error) {
		t.Helper()
		var group sync.WaitGroup
		for i := range count {
			group.Go(func() {
				if err := f(i); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	began := time.Now()
	each(func(i int) error {
		_, err := d.Ensure(testContext(t), testPort(s, fmt.Sprint("c", i)))
		return err
	})
	t.Logf("%d ports in %v", count, time.Since(began))
	list, err := d.List(testContext(t))
	if err != nil || len(list) != count || len(ports(s)) != count {
		t.Errorf("%d ports, %v", len(list), err)
	}
	each(func(i int) error {
		return d.Remove(testContext(t), vswitch.Owner{ContainerID: fmt.Sprint("c", i), Interface: "net1"})
	})
	if got := ports(s); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// Many programs ask for the same port at once: all of them get it, and there is one.
func TestSamePortInParallel(t *testing.T) {
	s := Start(t)
	d := newDriver(s)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := d.Ensure(testContext(t), testPort(s, "c1")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := ports(s); len(got) != 1 {
		t.Errorf("the bridge has %q", got)
	}
}

// Thousands of transactions, some of them while the server is killed and started.
func TestServerIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel() // it waits for ovs-vswitchd to connect again
	s := Start(t)
	d := newDriver(s)
	var done atomic.Bool
	var group sync.WaitGroup
	var calls, failures atomic.Int64
	for worker := range 8 {
		group.Go(func() {
			p := testPort(s, fmt.Sprint("c", worker))
			for i := 0; !done.Load(); i++ {
				p.VLAN = 1 + i%4000
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				_, err := d.Ensure(ctx, p)
				if i%5 == 4 && err == nil {
					err = d.Remove(ctx, p.Owner)
				}
				cancel()
				calls.Add(1)
				if err != nil {
					failures.Add(1)
					if !errdefs.IsUnavailable(err) {
						t.Errorf("found %v", err)
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	for range 5 {
		// ovs-vswitchd connects again after a second or more.
		time.Sleep(4 * time.Second)
		s.KillDatabase()
		time.Sleep(20 * time.Millisecond)
		s.StartDatabase()
	}
	done.Store(true)
	group.Wait()
	t.Logf("%d calls, %d failed", calls.Load(), failures.Load())
	if calls.Load()-failures.Load() < 50 {
		t.Error("the server was hardly ever up: the test has lost its sense")
	}
	for worker := range 8 {
		ensure(t, d, testPort(s, fmt.Sprint("c", worker)))
	}
	if got := ports(s); len(got) != 8 {
		t.Errorf("the bridge has %q", got)
	}
}

func TestWatchReportsLostPorts(t *testing.T) {
	t.Parallel()
	s := Start(t)
	d := newDriver(s)
	changes := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Watch(ctx, func() { changes <- struct{}{} }) }()
	reported := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(patience):
			t.Fatalf("not reported: %s", what)
		}
		for quiet := false; !quiet; {
			select {
			case <-changes:
			case <-time.After(time.Second):
				quiet = true
			}
		}
	}
	reported("the connection")
	p := testPort(s, "c1")
	ensure(t, d, p)
	reported("the new port")
	s.Vsctl("add-port", "br0", "foreign0", "--", "set", "interface", "foreign0", "type=internal")
	select {
	case <-changes:
		t.Error("a port of another program was reported")
	case <-time.After(time.Second):
	}
	s.Vsctl("set", "port", p.Name, "tag=9")
	reported("the changed tag")
	s.Vsctl("del-port", p.Name)
	reported("the removed port")
	s.KillDatabase()
	s.StartDatabase()
	reported("the new connection")
	s.KillDatabase()
	s.WipeDatabase()
	s.StartDatabase()
	reported("the connection to an empty database")
	s.Configure(true)
	s.AddBridge("br0")
	reported("the new bridge")
	ensure(t, d, p)
	// A server that hangs for a while is not a lost connection.
	s.SignalDatabase(syscall.SIGSTOP)
	short, cancelShort := context.WithTimeout(t.Context(), time.Second)
	defer cancelShort()
	if _, err := d.List(short); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("found %v", err)
	}
	s.SignalDatabase(syscall.SIGCONT)
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("found %v", err)
		}
	case <-time.After(patience):
		t.Error("Watch does not end with its context")
	}
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
