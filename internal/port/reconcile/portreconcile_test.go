// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// memorySwitch keeps its ports in memory. The tests with a real switch are in test/ovs.
type memorySwitch struct {
	mu       sync.Mutex
	ports    map[string]vswitch.Port
	ensured  []string
	down     error
	refuse   error
	onList   func()
	onEnsure func()
	hang     bool
}

func (m *memorySwitch) Ensure(_ context.Context, p vswitch.Port) (vswitch.Port, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onEnsure != nil {
		m.onEnsure()
	}
	if err := errors.Join(m.down, m.refuse); err != nil {
		return vswitch.Port{}, err
	}
	m.ensured = append(m.ensured, p.Owner.ContainerID)
	m.ports[p.Name] = p
	return p, nil
}

func (m *memorySwitch) Remove(_ context.Context, o vswitch.Owner) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ports, vswitch.PortName(o))
	return m.down
}

func (*memorySwitch) Probe(context.Context) error { return nil }

func (m *memorySwitch) List(ctx context.Context) ([]vswitch.Port, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hang {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return nil, ctx.Err()
	}
	list := slices.Collect(maps.Values(m.ports))
	for i := range list { // a switch stores no more of the owner
		list[i].Owner = vswitch.Owner{ContainerID: list[i].Owner.ContainerID, Interface: list[i].Owner.Interface}
	}
	if m.onList != nil {
		m.onList()
	}
	return list, m.down
}

func (m *memorySwitch) Watch(ctx context.Context, changed func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// fixture has a switch, a directory of records, and sandboxes.
type fixture struct {
	t         *testing.T
	ovs       *memorySwitch
	store     *record.Store
	dir       string
	sandboxes map[string]bool
	known     bool
	events    []Event
	state     *switchState
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, ovs: &memorySwitch{ports: map[string]vswitch.Port{}}, sandboxes: map[string]bool{}, known: true}
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	f.dir = filepath.Join(root, record.DefaultDir)
	if f.store, err = record.Open(host, record.DefaultDir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.store.Close() })
	r := New(Options{Switches: map[string]vswitch.Watcher{"ovs0": f.ovs}, Host: host, StateDir: record.DefaultDir,
		Sandboxes: func() (map[string]bool, bool) { return f.sandboxes, f.known },
		Report:    func(e Event) { f.events = append(f.events, e) }})
	f.state = r.switches["ovs0"]
	return f
}

// attach writes the record of a container's port, as ADD does.
func (f *fixture) attach(container string) *record.Record {
	f.t.Helper()
	owner := vswitch.Owner{ContainerID: container, Interface: "net1", Network: "fast", Namespace: "apps", Pod: container}
	r := &record.Record{
		Key:     record.Key{Network: "fast", ContainerID: container, Interface: "net1"},
		InfoDir: "/d", InfoFile: "f",
		Info:   &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version, VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: "/s/x"}},
		Switch: "ovs0", Port: &vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: "/s/x", Bridge: "br0", VLAN: 7},
	}
	if err := f.store.Create(r); err != nil {
		f.t.Fatal(err)
	}
	return r
}

// pass runs one pass and returns the containers whose ports it ensured.
func (f *fixture) pass() []string {
	f.t.Helper()
	f.ovs.ensured = nil
	f.state.pass(f.t.Context())
	slices.Sort(f.ovs.ensured)
	return f.ovs.ensured
}

func (f *fixture) wantEnsured(want ...string) {
	f.t.Helper()
	if got := f.pass(); !slices.Equal(got, want) {
		f.t.Errorf("ensured %q, want %q", got, want)
	}
}

func TestLostAndChangedPortsOfLivingSandboxesAreEnsured(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "b", "starting"} {
		f.attach(name)
	}
	f.sandboxes["a"], f.sandboxes["b"] = true, true
	f.wantEnsured("a", "b")
	f.wantEnsured()
	a, b := vswitch.PortName(vswitch.Owner{ContainerID: "a", Interface: "net1"}), vswitch.PortName(vswitch.Owner{ContainerID: "b", Interface: "net1"})
	delete(f.ovs.ports, a)
	f.wantEnsured("a")
	p := f.ovs.ports[b]
	p.VLAN = 9
	f.ovs.ports[b] = p
	f.wantEnsured("b")
	if got := f.ovs.ports[b].VLAN; got != 7 {
		t.Errorf("the VLAN is %d", got)
	}
	f.wantEnsured()
	p.VLAN, p.Fault = 7, "could not open network device"
	f.ovs.ports[b] = p
	f.wantEnsured("b")
	f.wantEnsured()
	if want := (vswitch.Status{Checked: true, Answering: true, Ports: 2, Recreated: 5}); f.state.status != want {
		t.Errorf("found %+v, want %+v", f.state.status, want)
	}
	var actions []Action
	for _, e := range f.events {
		actions = append(actions, e.Action)
	}
	if want := []Action{Recreated, Recreated, Changed, Changed}; !slices.Equal(actions, want) {
		t.Errorf("reported %q, want %q", actions, want)
	}
}

func TestNothingChangesUntilTheRuntimeIsKnown(t *testing.T) {
	f := newFixture(t)
	f.attach("a")
	f.sandboxes["a"], f.known = true, false
	f.wantEnsured()
}

// The runtime does not report containers of Podman. Their records do, until their network namespace is gone.
func TestLostPortsOfPodmanAreEnsured(t *testing.T) {
	f := newFixture(t)
	f.known = false
	for container, change := range map[string]func(r *record.Record){
		"running":  func(r *record.Record) { r.Netns = "/run/netns/a" },
		"ended":    func(r *record.Record) { r.Netns = "/run/netns/b" },
		"leftover": func(r *record.Record) { r.Netns, r.Leftover = "/run/netns/a", true },
	} {
		r := f.attach(container)
		r.Adapter = "netavark"
		change(r)
		if err := f.store.Update(r); err != nil {
			t.Fatal(err)
		}
	}
	cni := f.attach("cni")
	cni.Netns = "/run/netns/a"
	if err := f.store.Update(cni); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(f.state.options.Host.Path("/run/netns/a"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.wantEnsured("running")
	f.wantEnsured() // it is as it should be
	clear(f.ovs.ports)
	f.wantEnsured("running")
}

func TestOrphanIsRemovedAfterSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		gone := f.attach("gone")
		f.attach("starting")
		f.attach("living")
		for _, name := range []string{"gone", "starting", "living", "unrecorded"} {
			owner := vswitch.Owner{ContainerID: name, Interface: "net1"}
			f.ovs.ports[vswitch.PortName(owner)] = vswitch.Port{Name: vswitch.PortName(owner), Owner: owner}
		}
		f.ovs.ports["jfforeign"] = vswitch.Port{Name: "jfforeign"} // a driver that does not store the owner
		f.sandboxes["living"], f.sandboxes["unrecorded"] = true, true
		if err := f.store.Remove(gone.Key); err != nil {
			t.Fatal(err)
		}
		f.pass()
		time.Sleep(orphanTime / 2)
		f.pass()
		if len(f.ovs.ports) != 5 {
			t.Errorf("removed too early: %v", f.ovs.ports)
		}
		time.Sleep(orphanTime / 2)
		f.pass()
		if _, left := f.ovs.ports[gone.Port.Name]; left || len(f.ovs.ports) != 4 || f.state.status.Removed != 1 {
			t.Errorf("found %v", f.ovs.ports)
		}
	})
}

// A failure to read the switch, the records or the runtime's sandboxes removes nothing.
func TestNothingIsRemovedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		owner := vswitch.Owner{ContainerID: "gone", Interface: "net1"}
		f.ovs.ports["jf0"] = vswitch.Port{Name: "jf0", Owner: owner}
		broken := filepath.Join(f.dir, "fast@other@net1")
		for name, tc := range map[string]struct{ fail, mend func() }{
			"record":    {func() { _ = os.WriteFile(broken, []byte("{"), 0o600) }, func() { _ = os.Remove(broken) }},
			"switch":    {func() { f.ovs.down = errors.New("down") }, func() { f.ovs.down = nil }},
			"runtime":   {func() { f.known = false }, func() { f.known = true }},
			"directory": {func() { _ = os.Chmod(f.dir, 0o777) }, func() { _ = os.Chmod(f.dir, 0o700) }},
		} {
			tc.fail()
			for range 3 {
				f.pass()
				time.Sleep(2 * orphanTime)
			}
			if answering := f.state.status.Answering; answering != (name != "switch") {
				t.Errorf("%s: the switch answers: %v", name, answering)
			}
			tc.mend()
			if len(f.ovs.ports) != 1 {
				t.Fatalf("%s: removed after a failure", name)
			}
		}
	})
}

// A DEL that runs beside a pass removes the port for good: the pass does not create it again.
func TestPortIsNotCreatedWhileDELRuns(t *testing.T) {
	f := newFixture(t)
	r := f.attach("a")
	f.sandboxes["a"] = true
	f.wantEnsured("a")
	delete(f.ovs.ports, r.Port.Name) // DEL removed the port and holds the lock
	unlock, err := f.store.LockRecord(r.Key, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f.wantEnsured()
	if f.state.status.Missing != 1 || f.state.status.Errors != 0 {
		t.Errorf("found %+v", f.state.status)
	}
	if err := f.store.Remove(r.Key); err != nil {
		t.Fatal(err)
	}
	unlock()
	f.wantEnsured()
	// A DEL that ends between the reading of the records and the creation of the port.
	r = f.attach("b")
	f.sandboxes["b"] = true
	f.state.options.Sandboxes = func() (map[string]bool, bool) {
		_ = f.store.Remove(r.Key)
		return f.sandboxes, true
	}
	f.wantEnsured()
}

// A DEL and another ADD may end between the reading of the records and the creation of the port. The port is that of the
// new record.
func TestPortOfReplacedRecordIsKept(t *testing.T) {
	f := newFixture(t)
	old := f.attach("a")
	f.sandboxes["a"] = true
	replaced, port := *old, *old.Port
	port.VLAN, replaced.Port = 9, &port
	f.state.options.Sandboxes = func() (map[string]bool, bool) {
		if err := errors.Join(f.store.Remove(old.Key), f.store.Create(&replaced)); err != nil {
			t.Fatal(err)
		}
		f.ovs.ports[port.Name] = port
		return f.sandboxes, true
	}
	if again := f.state.pass(t.Context()); again != time.Second {
		t.Errorf("the next pass is in %v", again)
	}
	if got := f.ovs.ports[port.Name].VLAN; got != 9 {
		t.Errorf("the VLAN is %d", got)
	}
	// A pod that was removed meanwhile has no port that is missing.
	f.state.options.Sandboxes = func() (map[string]bool, bool) {
		if err := f.store.Remove(old.Key); err != nil {
			t.Fatal(err)
		}
		return f.sandboxes, true
	}
	delete(f.ovs.ports, port.Name)
	if again := f.state.pass(t.Context()); again != time.Second {
		t.Errorf("after DEL the next pass is in %v", again)
	}
	f.wantEnsured()
	if f.state.status.Missing != 0 {
		t.Errorf("found %+v", f.state.status)
	}
}

// An ADD that ends while a pass runs keeps its port, in any order of their steps.
func TestPortOfRunningADDIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range 3 {
			name := fmt.Sprint("add", i)
			f.ovs.onList = func() {
				r := f.attach(name)
				f.ovs.ports[r.Port.Name] = *r.Port
				f.ovs.onList = nil
			}
			f.pass()
			time.Sleep(2 * orphanTime)
			f.pass()
		}
		if len(f.ovs.ports) != 3 {
			t.Errorf("found %v", f.ovs.ports)
		}
	})
}

// The failures of all ports in a pass are one event, and are not reported again in the next pass.
func TestFailureIsReportedOnceAndRetried(t *testing.T) {
	f := newFixture(t)
	const count = 20
	for i := range count {
		name := fmt.Sprint("c", i)
		f.attach(name)
		f.sandboxes[name] = true
	}
	f.ovs.refuse = errors.New("no bridge")
	for _, wait := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry} {
		if again := f.state.pass(t.Context()); again != wait {
			t.Errorf("the next pass is in %v, want %v", again, wait)
		}
	}
	if len(f.events) != 1 || f.events[0].Action != Failed || len(f.events[0].Changes) != count ||
		!slices.IsSortedFunc(f.events[0].Changes, func(a, b Change) int { return strings.Compare(a.Port.Name, b.Port.Name) }) {
		t.Errorf("reported %+v", f.events)
	}
	if want := (vswitch.Status{Checked: true, Answering: true, Missing: count, Errors: 3 * count, Error: "no bridge"}); f.state.status != want {
		t.Errorf("found %+v, want %+v", f.state.status, want)
	}
	f.ovs.refuse = nil
	if got := f.pass(); len(got) != count {
		t.Errorf("ensured %q", got)
	}
	if f.state.status.Error != "" {
		t.Errorf("found %+v", f.state.status)
	}
}

// A port that exists on the switch and cannot be ensured, because its bridge is gone, is missing for its pod.
func TestPortThatCannotBeEnsuredIsMissing(t *testing.T) {
	f := newFixture(t)
	r := f.attach("a")
	f.sandboxes["a"] = true
	f.wantEnsured("a")
	p := *r.Port
	p.Bridge = ""
	f.ovs.ports[p.Name], f.ovs.refuse = p, errors.New("no bridge")
	f.pass()
	if f.state.status.Ports != 0 || f.state.status.Missing != 1 {
		t.Errorf("found %+v", f.state.status)
	}
}

// A switch that hangs, or changes a port without an event, is noticed within a minute.
func TestChangeWithoutEventIsNoticedWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		r := f.attach("a")
		f.sandboxes["a"] = true
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { f.state.run(ctx) })
		defer ended.Wait()
		defer cancel()
		time.Sleep(time.Second)
		f.ovs.mu.Lock()
		p := f.ovs.ports[r.Port.Name]
		p.VLAN = 9
		f.ovs.ports[p.Name] = p
		f.ovs.mu.Unlock()
		time.Sleep(time.Minute)
		f.ovs.mu.Lock()
		if got := f.ovs.ports[p.Name].VLAN; got != 7 {
			t.Errorf("the VLAN is %d", got)
		}
		f.ovs.hang = true
		f.ovs.mu.Unlock()
		time.Sleep(time.Minute)
		f.state.mu.Lock()
		defer f.state.mu.Unlock()
		if f.state.status.Answering || f.state.status.Error == "" {
			t.Errorf("found %+v", f.state.status)
		}
	})
}

// sessionSwitch counts its sessions.
type sessionSwitch struct {
	*memorySwitch
	opened, ended int
}

func (s *sessionSwitch) OpenSession(context.Context) (vswitch.Driver, func(), error) {
	s.opened++
	return s.memorySwitch, func() { s.ended++ }, nil
}

func TestPassOpensOneSession(t *testing.T) {
	f := newFixture(t)
	s := &sessionSwitch{memorySwitch: f.ovs}
	f.state.driver = s
	for _, name := range []string{"a", "b", "c"} {
		f.attach(name)
		f.sandboxes[name] = true
	}
	f.wantEnsured("a", "b", "c")
	f.wantEnsured()
	if s.opened != 1 || s.ended != 1 {
		t.Errorf("opened %d sessions and ended %d", s.opened, s.ended)
	}
}

// The failures of several records are reported once, too.
func TestEachUnreadableRecordIsReportedOnce(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"fast@a@net1", "fast@b@net1"} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		f.pass()
	}
	if len(f.events) != 1 || len(f.events[0].Changes) != 2 {
		t.Errorf("reported %+v", f.events)
	}
}

// Run passes at its start and after each trigger, and ends with its context.
func TestRunFollowsTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.sandboxes["a"] = true
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.state.run(ctx)
		}()
		time.Sleep(time.Second)
		f.attach("a")
		for range 100 {
			f.state.trigger()
		}
		time.Sleep(time.Second)
		cancel()
		<-ended
		if len(f.ovs.ports) != 1 {
			t.Errorf("found %v", f.ovs.ports)
		}
	})
}
