// SPDX-License-Identifier: Apache-2.0

package grout_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	driver "github.com/jackfield/jackfield/internal/port/vswitch/grout"
	"github.com/jackfield/jackfield/test/e2e/grout"
)

// start starts a grout with the bridges br0 and br1, and returns it with its driver and a directory for sockets.
func start(t *testing.T) (*grout.Switch, *driver.Driver, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "grout")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := grout.Start(t, dir)
	s.Run("interface", "add", "bridge", "br0")
	s.Run("interface", "add", "bridge", "br1")
	return s, &driver.Driver{Switch: vswitch.Switch{Name: "grout0", Endpoint: s.Socket}, Grcli: s.Grcli}, dir
}

// newPort returns a vhost-user port of pod n, whose socket grout creates.
func newPort(dir string, n int) vswitch.Port {
	owner := vswitch.Owner{ContainerID: fmt.Sprintf("%064x", n), Interface: "net1", Network: "ns/fast~1 $x"}
	return vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, SwitchListens: true, Socket: fmt.Sprintf("%s/%d.sock", dir, n), Bridge: "br0"}
}

func ensure(t *testing.T, d *driver.Driver, p vswitch.Port) vswitch.Port {
	t.Helper()
	got, err := d.Ensure(t.Context(), p)
	if err != nil {
		t.Fatalf("Ensure(%+v): %v", p, err)
	}
	return got
}

func list(t *testing.T, d *driver.Driver) []vswitch.Port {
	t.Helper()
	ports, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestEnsureListAndRemove(t *testing.T) {
	s, d, dir := start(t)
	for i, change := range []func(*vswitch.Port){
		func(*vswitch.Port) {},
		func(p *vswitch.Port) { p.SwitchListens, p.Queues = false, 2 },
		func(p *vswitch.Port) { p.Type, p.MTU, p.Queues = vswitch.Memif, 1600, 2 },
	} {
		p := newPort(dir, i)
		change(&p)
		t.Run(fmt.Sprintf("%s switch listens %v", p.Type, p.SwitchListens), func(t *testing.T) {
			got := ensure(t, d, p)
			have, ok := s.Interface(p.Name)
			if !ok || have.Domain != "br0" || !slices.Contains(have.Flags, "up") || have.Queues != max(p.Queues, 1) {
				t.Fatalf("grout has %+v", have)
			}
			want := p
			want.MTU, want.Queues = have.MTU, have.Queues
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Ensure returns (-want +got):\n%s", diff)
			}
			if exists(t, p.Socket) != p.SwitchListens {
				t.Errorf("socket %s exists: %v", p.Socket, !p.SwitchListens)
			}
			if diff := cmp.Diff([]vswitch.Port{want}, list(t, d)); diff != "" {
				t.Errorf("List returns (-want +got):\n%s", diff)
			}
			ensure(t, d, p)
			if again, _ := s.Interface(p.Name); !cmp.Equal(have, again) {
				t.Errorf("a second Ensure changes the interface (-first +second):\n%s", cmp.Diff(have, again))
			}
			for range 2 {
				if err := d.Remove(t.Context(), p.Owner); err != nil {
					t.Fatal(err)
				}
			}
			if ports := s.Ports(); len(ports) != 0 || len(list(t, d)) != 0 || exists(t, p.Socket) {
				t.Errorf("left after Remove: interfaces %q, socket %v", ports, exists(t, p.Socket))
			}
		})
	}
}

func TestEnsureChangesPort(t *testing.T) {
	s, d, dir := start(t)
	p := newPort(dir, 1)
	p.Queues = 2
	ensure(t, d, p)
	before, _ := s.Interface(p.Name)

	p.MTU, p.Bridge = 1400, "br1"
	ensure(t, d, p)
	after, _ := s.Interface(p.Name)
	if after.ID != before.ID || after.MTU != 1400 || after.Domain != "br1" {
		t.Errorf("MTU and bridge: grout has %+v, want the same interface with other values", after)
	}
	s.Run("interface", "set", "port", p.Name, "down", "vrf", "main")
	ensure(t, d, p)
	if after, _ := s.Interface(p.Name); !slices.Contains(after.Flags, "up") || after.Domain != "br1" {
		t.Errorf("after an administrator changed it: grout has %+v", after)
	}
	old := p.Socket
	p.Socket += "2"
	ensure(t, d, p)
	if exists(t, old) || !exists(t, p.Socket) {
		t.Errorf("another path: the old socket exists: %v; the new one: %v", exists(t, old), exists(t, p.Socket))
	}
	if ports := s.Ports(); len(ports) != 1 {
		t.Errorf("grout has ports %q, want one", ports)
	}
}

func TestEnsureRefusesWhatGroutCannotDo(t *testing.T) {
	s, d, dir := start(t)
	s.Run("interface", "add", "port", "uplink", "devargs", "net_vhostuplink,iface="+dir+"/uplink")
	for _, tc := range []struct {
		name   string
		change func(*vswitch.Port)
		field  string
		kind   error
		says   string
	}{
		{"MTU above grout's", func(p *vswitch.Port) { p.MTU = 9000 }, "mtu", errdefs.ErrOutOfRange, "--max-mtu"},
		{"MTU below grout's", func(p *vswitch.Port) { p.MTU = 100 }, "mtu", errdefs.ErrOutOfRange, "1280"},
		{"queues of vhost-user", func(p *vswitch.Port) { p.Queues = 129 }, "queues", errdefs.ErrOutOfRange, "at most 128"},
		{"queues of memif", func(p *vswitch.Port) { p.Type, p.Queues = vswitch.Memif, 2000 }, "queues", errdefs.ErrOutOfRange, "fewer"},
		{"VLAN", func(p *vswitch.Port) { p.VLAN = 7 }, "vlan", errdefs.ErrNotImplemented, "bridge of its own"},
		{"rate", func(p *vswitch.Port) { p.Rate = 1e9 }, "rate", errdefs.ErrNotImplemented, "leave out rate"},
		{"memif that the application creates", func(p *vswitch.Port) { p.Type, p.SwitchListens = vswitch.Memif, false }, "device.role", errdefs.ErrNotImplemented, "slave"},
		{"no bridge", func(p *vswitch.Port) { p.Bridge = "br9" }, "bridge", errdefs.ErrNotFound, "grcli interface add bridge br9"},
		{"part of a bridge's name", func(p *vswitch.Port) { p.Bridge = "b" }, "bridge", errdefs.ErrNotFound, `no bridge "b"`},
		{"an interface that is no bridge", func(p *vswitch.Port) { p.Bridge = "uplink" }, "bridge", errdefs.ErrNotFound, `no bridge "uplink"`},
		{"a command in the bridge's name", func(p *vswitch.Port) { p.Bridge = "br0\ninterface del br1" }, "bridge", errdefs.ErrInvalidArgument, "not the name"},
		{"devargs in the path", func(p *vswitch.Port) { p.Socket += ",client=1" }, "socketDir", errdefs.ErrInvalidArgument, "characters"},
		{"long path", func(p *vswitch.Port) { p.Socket = dir + strings.Repeat("/long", 30) }, "socketDir", errdefs.ErrInvalidArgument, "shorten"},
		{"a file in the way", func(p *vswitch.Port) { p.Socket = "/etc/passwd" }, "device.path", errdefs.ErrAlreadyExists, "not a socket"},
		{"another process' socket", func(p *vswitch.Port) { p.Socket = s.Socket }, "device.path", errdefs.ErrAlreadyExists, "another process"},
		{"another owner's name", func(p *vswitch.Port) { p.Owner.Interface = "net2" }, "name", errdefs.ErrInvalidArgument, "must be jf"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPort(dir, 1)
			tc.change(&p)
			_, err := d.Ensure(t.Context(), p)
			var refusal *vswitch.Refusal
			if !errors.As(err, &refusal) || refusal.Field != tc.field || !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) || refusal.Remedy == "" {
				t.Errorf("Ensure: %v, want a refusal of %q that says %q", err, tc.field, tc.says)
			}
			if ports := s.Ports(); !slices.Equal(ports, []string{"uplink"}) {
				t.Errorf("left ports %q", ports)
			}
		})
	}
	if !exists(t, s.Socket) || !exists(t, "/etc/passwd") {
		t.Error("Ensure removed a file that is not the port's")
	}
}

func TestTwentyPortsInParallel(t *testing.T) {
	s, d, dir := start(t)
	ports := make([]vswitch.Port, 20)
	var wg sync.WaitGroup
	for i := range ports {
		ports[i] = newPort(dir, i)
		// Each port twice: the CNI plugin and the reconciler may act at the same time.
		for range 2 {
			wg.Go(func() {
				if _, err := d.Ensure(t.Context(), ports[i]); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if got := list(t, d); len(got) != len(ports) {
		t.Errorf("List returns %d ports, want %d", len(got), len(ports))
	}
	for _, p := range ports {
		wg.Go(func() {
			if err := d.Remove(t.Context(), p.Owner); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ports := s.Ports(); len(ports) != 0 {
		t.Errorf("left ports %q", ports)
	}
}

func TestRestartForgetsPortsAndEnsureRestoresThem(t *testing.T) {
	s, d, dir := start(t)
	ports := []vswitch.Port{newPort(dir, 1), newPort(dir, 2), newPort(dir, 3)}
	ports[1].SwitchListens = false
	ports[2].Type = vswitch.Memif
	for _, p := range ports {
		ensure(t, d, p)
	}
	changes := watch(t, d)
	waitForChange(t, changes)
	s.Kill()
	if !exists(t, ports[0].Socket) || !exists(t, ports[2].Socket) {
		t.Fatal("a grout that was killed removes its sockets; the test shows nothing")
	}
	waitForChange(t, changes)
	drain(changes)
	s.Restart()
	waitForChange(t, changes)
	if left := list(t, d); len(left) != 0 {
		t.Fatalf("after a restart grout has %+v", left)
	}
	s.Run("interface", "add", "bridge", "br0")
	for _, p := range ports {
		ensure(t, d, p)
	}
	if got := list(t, d); len(got) != len(ports) {
		t.Errorf("List returns %+v", got)
	}
}

func TestWatchReportsLostPort(t *testing.T) {
	s, d, dir := start(t)
	p := newPort(dir, 1)
	ensure(t, d, p)
	changes := watch(t, d)
	// The call at the start, and the one after grcli has subscribed.
	waitForChange(t, changes)
	waitForChange(t, changes)
	s.Run("interface", "set", "port", p.Name, "vrf", "main")
	waitForChange(t, changes)
	time.Sleep(100 * time.Millisecond)
	drain(changes)
	s.Run("interface", "del", p.Name)
	waitForChange(t, changes)
}

// watch runs Watch until the test ends, and checks that it leaves no process.
func watch(t *testing.T, d *driver.Driver) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, done := make(chan struct{}, 100), make(chan error)
	go func() { done <- d.Watch(ctx, func() { changes <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
		if left := grcliProcesses(t); len(left) != 0 {
			t.Errorf("left processes %q", left)
		}
	})
	return changes
}

func waitForChange(t *testing.T, changes <-chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatal("Watch reports nothing")
	}
}

func drain(changes <-chan struct{}) {
	for {
		select {
		case <-changes:
		default:
			return
		}
	}
}

// grcliProcesses returns the command lines of all running grcli; the jail has a process namespace of its own.
func grcliProcesses(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "grcli") {
			found = append(found, string(text))
		}
	}
	return found
}

func TestForeignInterfaceIsUntouched(t *testing.T) {
	s, d, dir := start(t)
	p := newPort(dir, 1)
	s.Run("interface", "add", "port", p.Name, "devargs", "net_vhostforeign,iface="+dir+"/foreign", "domain", "br1")
	before, _ := s.Interface(p.Name)
	if _, err := d.Ensure(t.Context(), p); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("Ensure: %v", err)
	}
	if err := d.Remove(t.Context(), p.Owner); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if ports := list(t, d); len(ports) != 0 {
		t.Errorf("List returns %+v", ports)
	}
	if after, ok := s.Interface(p.Name); !ok || !cmp.Equal(before, after) {
		t.Errorf("the foreign interface has changed (-before +after):\n%s", cmp.Diff(before, after))
	}
}

func TestHangingGroutIsUnavailable(t *testing.T) {
	s, d, dir := start(t)
	s.Signal(unix.SIGSTOP)
	for name, call := range map[string]func(context.Context) error{
		"Ensure": func(ctx context.Context) error { _, err := d.Ensure(ctx, newPort(dir, 1)); return err },
		"Remove": func(ctx context.Context) error { return d.Remove(ctx, newPort(dir, 1).Owner) },
		"List":   func(ctx context.Context) error { _, err := d.List(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := call(ctx); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "timed out") {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if left := grcliProcesses(t); len(left) != 0 {
		t.Errorf("left processes %q", left)
	}
	s.Kill()
	if _, err := d.List(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "Connection refused") {
		t.Errorf("List of a dead grout: %v", err)
	}
}
