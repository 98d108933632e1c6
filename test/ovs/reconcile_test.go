// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/reconcile"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// node has the records of some living sandboxes, and reconciles their ports.
type node struct {
	t          *testing.T
	s          *Switch
	store      *record.Store
	reconciler *reconcile.Reconciler

	mu        sync.Mutex // guards sandboxes, which the reconciler asks for while a test adds some
	sandboxes map[string]bool
}

func newNode(t *testing.T, s *Switch, count int) *node {
	t.Helper()
	host, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, s: s, sandboxes: map[string]bool{}}
	if n.store, err = record.Open(host, record.DefaultDir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.store.Close() })
	for i := range count {
		n.attach(testPort(s, fmt.Sprint("c", i)))
	}
	n.reconciler = reconcile.New(reconcile.Options{
		Switches: map[string]vswitch.Watcher{"ovs0": newDriver(s)}, Host: host, StateDir: record.DefaultDir,
		Sandboxes: func() (map[string]bool, bool) { return n.livingSandboxes(), true },
		Report: func(e reconcile.Event) {
			if err := e.Changes[0].Err; err != nil {
				t.Logf("%d %s: %v", len(e.Changes), e.Action, err)
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.reconciler.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return n
}

// attach writes the record of a port, as ADD does. The port's sandbox lives.
func (n *node) attach(p vswitch.Port) {
	n.t.Helper()
	record := &record.Record{
		Key:     record.Key{Network: "fast", ContainerID: p.Owner.ContainerID, Interface: p.Owner.Interface},
		InfoDir: "/d", InfoFile: "f",
		Info:   &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version, VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: p.Socket}},
		Switch: "ovs0", Port: &p,
	}
	if err := n.store.Create(record); err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sandboxes[p.Owner.ContainerID] = true
}

func (n *node) livingSandboxes() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.sandboxes)
}

// allBack waits until the switch has the ports, and returns how long that took.
func (n *node) allBack(recreated int) time.Duration {
	n.t.Helper()
	began := time.Now()
	want := len(n.livingSandboxes())
	eventually(n.t, func() error {
		status := n.reconciler.Status()["ovs0"]
		if !status.Answering || status.Ports != want || status.Missing != 0 || status.Recreated < recreated || status.Error != "" {
			return fmt.Errorf("found %+v, want %d ports, %d of them created again", status, want, recreated)
		}
		return nil
	})
	took := time.Since(began)
	list, err := newDriver(n.s).List(testContext(n.t))
	if err != nil || len(list) != want {
		n.t.Errorf("the switch has %d ports, %v", len(list), err)
	}
	return took
}

func TestLostPortsAreCreatedAgain(t *testing.T) {
	s := Start(t)
	const count = 100
	n := newNode(t, s, count)
	t.Logf("%d ports at the start: %v", count, n.allBack(count))

	s.Vsctl("del-port", testPort(s, "c7").Name)
	t.Logf("one port that was removed by hand: %v", n.allBack(count+1))

	s.Vsctl("set", "port", testPort(s, "c8").Name, "tag=9")
	n.allBack(count + 2)

	s.KillSwitch() // its ports are in the database
	s.StartSwitch()
	n.allBack(count + 2)

	s.KillDatabase()
	eventually(t, func() error {
		if n.reconciler.Status()["ovs0"].Answering {
			return errors.New("the switch is reported as answering")
		}
		return nil
	})
	s.WipeDatabase()
	s.StartDatabase()
	s.Configure(true)
	s.AddBridge("br0")
	t.Logf("%d ports after the loss of the database: %v after the bridge is there", count, n.allBack(2*count+2))
}

// A switch that was killed leaves the sockets behind that it had created, and cannot create them again. Where its database
// is lost, too, the ports come back at once; otherwise they come back with its next restart.
func TestStaleSocketsOfKilledSwitchAreRemoved(t *testing.T) {
	s := Start(t)
	n := newNode(t, s, 0)
	var sockets []string
	for i := range 3 {
		p := testPort(s, fmt.Sprint("c", i))
		p.SwitchListens = true
		n.attach(p)
		sockets = append(sockets, s.Dir+"/"+p.Name)
	}
	n.reconciler.Trigger()
	checkSockets := func() {
		t.Helper()
		for _, socket := range sockets {
			eventually(t, func() error {
				conn, err := net.Dial("unix", socket)
				if err != nil {
					return err
				}
				return conn.Close()
			})
		}
	}
	n.allBack(3)
	checkSockets()

	s.KillSwitch()
	s.StartSwitch()
	eventually(t, func() error {
		if found := n.reconciler.Status()["ovs0"]; !strings.Contains(found.Error, "restart Open vSwitch") {
			return fmt.Errorf("after a crash: found %+v, want that Open vSwitch has to be restarted", found)
		}
		for _, socket := range sockets {
			if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("stale socket %s: %v", socket, err)
			}
		}
		return nil
	})
	s.KillSwitch()
	s.StartSwitch()
	checkSockets()
	n.allBack(3)

	s.KillSwitch()
	s.KillDatabase()
	s.WipeDatabase()
	s.StartDatabase()
	s.Configure(true)
	s.StartSwitch()
	s.AddBridge("br0")
	checkSockets()
	n.allBack(6)
}

// The switch of a removed sandbox keeps no port, and the port of an ADD that runs stays.
func TestReconcilerAndCNIWorkTogether(t *testing.T) {
	t.Parallel()
	s := Start(t)
	n := newNode(t, s, 10)
	n.allBack(10)
	d := newDriver(s)
	for i := range 10 {
		// DEL, in the plugin's order, while the port is lost again and again.
		key := record.Key{Network: "fast", ContainerID: fmt.Sprint("c", i), Interface: "net1"}
		s.Vsctl("del-port", testPort(s, key.ContainerID).Name)
		unlock, err := n.store.LockRecord(key, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(testContext(t), vswitch.Owner{ContainerID: key.ContainerID, Interface: key.Interface}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // for a pass of the reconciler
		if err := n.store.Remove(key); err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	n.reconciler.Trigger()
	time.Sleep(2 * time.Second)
	if got := ports(s); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// The database's server answers while ovs-vswitchd hangs. Nothing happens on the node meanwhile.
func TestHungSwitchIsReported(t *testing.T) {
	t.Parallel() // it waits for a minute
	s := Start(t)
	n := newNode(t, s, 1)
	n.allBack(1)
	s.SignalSwitch(syscall.SIGSTOP)
	began := time.Now()
	eventually(t, func() error {
		if found := n.reconciler.Status()["ovs0"]; found.Answering || !strings.Contains(found.Error, "ovs-vswitchd has not processed the change") {
			return fmt.Errorf("found %+v, want a switch that does not answer", found)
		}
		return nil
	})
	if took := time.Since(began); took > 70*time.Second {
		t.Errorf("noticed after %v, want about a minute", took)
	}
	s.SignalSwitch(syscall.SIGCONT)
	n.allBack(1)
}
