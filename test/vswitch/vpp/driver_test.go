// SPDX-License-Identifier: Apache-2.0

package vpp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	driver "github.com/jackfield/jackfield/internal/port/vswitch/vpp"
	"github.com/jackfield/jackfield/test/vswitch/vpp"
)

// start starts a VPP with the bridge domains 1 and 2, and returns it with its driver and a directory for sockets.
func start(t *testing.T) (*vpp.Server, *driver.Driver, string) {
	t.Helper()
	// Short, for the sake of socket paths.
	dir, err := os.MkdirTemp("", "vpp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := vpp.Start(t, dir)
	s.AddBridge(1)
	s.AddBridge(2)
	return s, &driver.Driver{Switch: vswitch.Switch{Name: "vpp0", Endpoint: s.Socket}}, dir
}

// newPort returns a vhost-user port of pod n, whose socket VPP creates.
func newPort(dir string, n int) vswitch.Port {
	owner := vswitch.Owner{ContainerID: fmt.Sprintf("%064x", n+1<<60), Interface: "net1"}
	return vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, SwitchListens: true, Socket: fmt.Sprintf("%s/%d.sock", dir, n), Bridge: "1"}
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

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// changing returns the messages that change something.
func changing(calls []string) []string {
	return slices.DeleteFunc(calls, func(name string) bool {
		return strings.HasSuffix(name, "_dump") || name == "sockclnt_create" || name == "control_ping"
	})
}

func TestEnsureListAndRemove(t *testing.T) {
	for i, change := range []func(*vswitch.Port){
		func(*vswitch.Port) {},
		func(p *vswitch.Port) { p.SwitchListens, p.MTU = false, 1500 },
		func(p *vswitch.Port) { p.Type, p.Queues, p.Bridge = vswitch.Memif, 2, "2" },
		func(p *vswitch.Port) {
			p.Type, p.SwitchListens, p.Owner.ContainerID = vswitch.Memif, false, "cnitool-1"
		},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s, d, dir := start(t)
			p := newPort(dir, i)
			change(&p)
			p.Name = vswitch.PortName(p.Owner)
			got := ensure(t, d, p)
			have := s.Interfaces()
			if len(have) != 1 || !have[0].Up || fmt.Sprint(have[0].Bridge) != p.Bridge || have[0].Type != string(p.Type) || have[0].Listens != p.SwitchListens || have[0].MemifID != 0 {
				t.Fatalf("VPP has %+v", have)
			}
			if p.Type == vswitch.Memif && have[0].RxQueues != uint32(max(p.Queues, 1)) {
				t.Errorf("VPP has %d queues, want %d", have[0].RxQueues, p.Queues)
			}
			if exists(p.Socket) != p.SwitchListens {
				t.Errorf("the socket exists: %v", exists(p.Socket))
			}
			want := p
			want.Queues, want.MTU = 0, int(have[0].MTU) // VPP does not report queues
			if diff := cmp.Diff(want, got); diff != "" || p.MTU != 0 && got.MTU != p.MTU {
				t.Errorf("Ensure returns MTU %d and (-want +got):\n%s", got.MTU, diff)
			}
			if diff := cmp.Diff([]vswitch.Port{want}, list(t, d)); diff != "" {
				t.Errorf("List returns (-want +got):\n%s", diff)
			}
			s.Calls()
			ensure(t, d, p)
			if calls := changing(s.Calls()); len(calls) != 0 {
				t.Errorf("a second Ensure sends %q", calls)
			}
			for range 2 {
				if err := d.Remove(t.Context(), p.Owner); err != nil {
					t.Fatal(err)
				}
			}
			if len(s.Interfaces()) != 0 || s.MemifSockets() != 0 || exists(p.Socket) || len(list(t, d)) != 0 {
				t.Errorf("left after Remove: %+v, %d memif sockets, socket file %v", s.Interfaces(), s.MemifSockets(), exists(p.Socket))
			}
		})
	}
}

func TestEnsureChangesPort(t *testing.T) {
	s, d, dir := start(t)
	p := newPort(dir, 1)
	ensure(t, d, p)
	before := s.Interfaces()[0]
	p.MTU, p.Bridge = 1400, "2"
	ensure(t, d, p)
	want := before
	want.MTU, want.Bridge = 1400, 2
	if diff := cmp.Diff([]vpp.Interface{want}, s.Interfaces(), cmpopts.IgnoreUnexported(vpp.Interface{})); diff != "" {
		t.Errorf("MTU and bridge (-want +got):\n%s", diff)
	}
	old := p.Socket
	p.Socket += "2"
	ensure(t, d, p)
	if have := s.Interfaces(); len(have) != 1 || have[0].Socket != p.Socket || exists(old) || !exists(p.Socket) {
		t.Errorf("another path: VPP has %+v", have)
	}
	p.Type = vswitch.Memif
	ensure(t, d, p)
	if have := s.Interfaces(); len(have) != 1 || have[0].Type != "memif" {
		t.Errorf("another type: VPP has %+v", have)
	}
}

func TestListReportsInterfaceThatIsDown(t *testing.T) {
	s, d, dir := start(t)
	owner := vswitch.Owner{ContainerID: "cnitool-1", Interface: "net1"}
	p := vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: dir + "/sock"}
	s.AddInterface(vpp.Interface{Type: "vhost-user", Tag: "jf/cnitool-1/net1", Socket: p.Socket})
	if ports := list(t, d); len(ports) != 1 || ports[0].Fault == "" {
		t.Errorf("List returns %+v", ports)
	}
	if got := ensure(t, d, p); got.Fault != "" || list(t, d)[0].Fault != "" {
		t.Errorf("Ensure returns %+v", got)
	}
}

func TestEnsureRefusesWhatVPPCannotDo(t *testing.T) {
	s, d, dir := start(t)
	for _, tc := range []struct {
		name   string
		change func(*vswitch.Port)
		field  string
		kind   error
		says   string
	}{
		{"VLAN without an uplink", func(p *vswitch.Port) { p.VLAN = 7 }, "vlan", errdefs.ErrNotImplemented, "vswitches.vpp0.uplink: set uplink, or leave out vlan and name a bridge domain of its own"},
		{"high rate", func(p *vswitch.Port) { p.Rate = 4294967295001 }, "rate", errdefs.ErrOutOfRange, "leave out rate"},
		{"queues", func(p *vswitch.Port) { p.Type, p.Queues = vswitch.Memif, 256 }, "queues", errdefs.ErrOutOfRange, "255"},
		{"bridge that is a name", func(p *vswitch.Port) { p.Bridge = "br0" }, "bridge", errdefs.ErrInvalidArgument, "use a number"},
		{"bridge with another spelling", func(p *vswitch.Port) { p.Bridge = "01" }, "bridge", errdefs.ErrInvalidArgument, "use a number"},
		{"no bridge", func(p *vswitch.Port) { p.Bridge = "9" }, "bridge", errdefs.ErrNotFound, "vppctl create bridge-domain 9"},
		{"long path", func(p *vswitch.Port) { p.Socket = dir + strings.Repeat("/long", 30) }, "socketDir", errdefs.ErrInvalidArgument, "at most 107"},
		{"no directory", func(p *vswitch.Port) { p.Type, p.Socket = vswitch.Memif, dir+"/missing/sock" }, "socketDir", errdefs.ErrFailedPrecondition, "system call failed (-14): check that VPP sees"},
		{"a file in the way", func(p *vswitch.Port) { p.Socket = "/etc/passwd" }, "device.path", errdefs.ErrAlreadyExists, "not a socket"},
		{"another process' socket", func(p *vswitch.Port) { p.Socket = s.Socket }, "device.path", errdefs.ErrAlreadyExists, "another process"},
		{"long container ID", func(p *vswitch.Port) {
			p.Owner.ContainerID = strings.Repeat("z", 64)
			p.Name = vswitch.PortName(p.Owner)
		}, "containerID", errdefs.ErrInvalidArgument, "63"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPort(dir, 1)
			tc.change(&p)
			_, err := d.Ensure(t.Context(), p)
			var refusal *vswitch.Refusal
			if !errors.As(err, &refusal) || refusal.Field != tc.field || !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) || refusal.Remedy == "" {
				t.Errorf("Ensure: %v, want a refusal of %q that says %q", err, tc.field, tc.says)
			}
			if len(s.Interfaces()) != 0 || s.MemifSockets() != 0 {
				t.Errorf("left %+v, %d memif sockets", s.Interfaces(), s.MemifSockets())
			}
		})
	}
}

func TestPortsInParallel(t *testing.T) {
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
	if got, have := list(t, d), s.Interfaces(); len(got) != len(ports) || len(have) != len(ports) {
		t.Errorf("List returns %d ports and VPP has %d, want %d", len(got), len(have), len(ports))
	}
	for _, p := range ports {
		wg.Go(func() {
			if err := d.Remove(t.Context(), p.Owner); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if have := s.Interfaces(); len(have) != 0 {
		t.Errorf("left %+v", have)
	}
}

func TestRestartForgetsPortsAndEnsureRestoresThem(t *testing.T) {
	s, d, dir := start(t)
	ports := []vswitch.Port{newPort(dir, 1), newPort(dir, 2)}
	ports[1].Type = vswitch.Memif
	for _, p := range ports {
		ensure(t, d, p)
	}
	changes := watch(t, d)
	waitForChange(t, changes)
	s.Kill()
	waitForChange(t, changes)
	if !exists(ports[0].Socket) || !exists(ports[1].Socket) {
		t.Fatal("the sockets are removed; the test shows nothing")
	}
	s.Restart()
	s.AddBridge(1)
	waitForChange(t, changes)
	if left := list(t, d); len(left) != 0 {
		t.Fatalf("after a restart VPP has %+v", left)
	}
	for _, p := range ports {
		ensure(t, d, p)
	}
	if got := list(t, d); len(got) != len(ports) {
		t.Errorf("List returns %+v", got)
	}
}

func TestWatchReportsLostPort(t *testing.T) {
	s, d, dir := start(t)
	ensure(t, d, newPort(dir, 1))
	changes := watch(t, d)
	waitForChange(t, changes)
	s.Delete(s.Interfaces()[0].Index)
	waitForChange(t, changes)
}

// A VPP that has just started creates its bridge domains after a while, and reports none.
func TestWatchReportsAgainWhenVPPHasStarted(t *testing.T) {
	_, d, _ := start(t)
	changes := watch(t, d)
	waitForChange(t, changes)
	waitForChange(t, changes)
}

// watch runs Watch until the test ends.
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

func TestForeignInterfacesAreUntouched(t *testing.T) {
	s, d, dir := start(t)
	p, other := newPort(dir, 1), newPort(dir, 2)
	other.Owner.Interface = "net9"
	other.Name = vswitch.PortName(other.Owner)
	ensure(t, d, other)
	s.AddInterface(vpp.Interface{Type: "vhost-user", Tag: "uplink", Socket: p.Socket, Bridge: 2})
	s.AddInterface(vpp.Interface{Type: "memif", Tag: "jf/", Socket: "/run/x", Bridge: 2})
	before := s.Interfaces()
	if _, err := d.Ensure(t.Context(), p); !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), p.Socket) {
		t.Errorf("Ensure: %v", err)
	}
	if err := d.Remove(t.Context(), p.Owner); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if ports := list(t, d); len(ports) != 1 || ports[0].Owner != other.Owner {
		t.Errorf("List returns %+v", ports)
	}
	if diff := cmp.Diff(before, s.Interfaces(), cmpopts.IgnoreUnexported(vpp.Interface{})); diff != "" {
		t.Errorf("foreign interfaces have changed (-before +after):\n%s", diff)
	}
}

func TestMissingPluginIsARefusal(t *testing.T) {
	s, d, dir := start(t)
	s.Kill()
	s.Without = []string{"memif_dump", "memif_create_v2", "memif_socket_filename_add_del_v2"}
	s.Restart()
	s.AddBridge(1)
	p := newPort(dir, 1)
	p.Type = vswitch.Memif
	_, err := d.Ensure(t.Context(), p)
	if !errors.Is(err, errdefs.ErrNotImplemented) || !strings.Contains(err.Error(), "memif_socket_filename_add_del_v2_34223bdf") {
		t.Errorf("Ensure: %v", err)
	}
	p.Type = vswitch.VhostUser
	ensure(t, d, p)
}

// After any fault of any message the driver returns by its deadline, and the next Ensure succeeds.
func TestDriverRecoversFromFaultyReplies(t *testing.T) {
	resize := func(length uint32) func([]byte) []byte {
		return func(frame []byte) []byte {
			binary.BigEndian.PutUint32(frame[8:], length)
			return frame
		}
	}
	cut := func(body int) func([]byte) []byte {
		return func(frame []byte) []byte {
			frame = frame[:16+min(body, len(frame)-16)]
			binary.BigEndian.PutUint32(frame[8:], uint32(len(frame)-16))
			return frame
		}
	}
	faults := map[string]vpp.Fault{
		"no reply":              {Silent: true},
		"closed connection":     {Close: true},
		"half a frame":          {Close: true, Reply: func(frame []byte) []byte { return frame[:len(frame)/2] }},
		"a length of 4 GiB":     {Reply: resize(0xffffffff)},
		"an empty message":      {Reply: cut(0)},
		"only a message number": {Reply: cut(2)},
		"only a header":         {Reply: cut(6)},
		"too short by a byte":   {Reply: func(frame []byte) []byte { return cut(len(frame) - 17)(frame) }},
		"invalid bytes":         {Reply: func(frame []byte) []byte { return append(frame[:16:16], slices.Repeat([]byte{0xaa}, len(frame)-16)...) }},
	}
	for _, protocol := range []vswitch.Type{vswitch.VhostUser, vswitch.Memif} {
		messages := []string{"sockclnt_create", "sw_interface_dump", "sw_interface_vhost_user_dump", "memif_dump", "memif_socket_filename_dump", "bridge_domain_dump",
			"sw_interface_set_mtu", "sw_interface_set_l2_bridge", "sw_interface_set_flags"}
		if protocol == vswitch.Memif {
			messages = append(messages, "memif_socket_filename_add_del_v2", "memif_create_v2", "sw_interface_tag_add_del")
		} else {
			messages = append(messages, "create_vhost_user_if_v2")
		}
		for _, message := range messages {
			for name, fault := range faults {
				t.Run(fmt.Sprintf("%s %s %s", protocol, message, name), func(t *testing.T) {
					t.Parallel()
					s, d, dir := start(t)
					p := newPort(dir, 1)
					p.Type, p.MTU = protocol, 1500
					if strings.HasSuffix(message, "_dump") {
						// A dump of nothing has no message to damage.
						vhost, memif := newPort(dir, 2), newPort(dir, 3)
						memif.Type = vswitch.Memif
						ensure(t, d, vhost)
						ensure(t, d, memif)
					}
					s.SetFault(message, fault)
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					began := time.Now()
					_, err := d.Ensure(ctx, p)
					switch {
					case name == "no reply" && strings.HasSuffix(message, "_dump"):
						return // VPP answers the ping that ends the dump
					case err == nil && message == "create_vhost_user_if_v2":
						// The driver has found the interface that VPP created.
					case !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), message):
						t.Errorf("Ensure: %v, want unavailable and the message's name", err)
					}
					if name == "a length of 4 GiB" && (err == nil || !strings.Contains(err.Error(), "4294967295 bytes")) {
						t.Errorf("Ensure: %v, want the length", err)
					}
					if waited := time.Since(began); waited > 30*time.Second {
						t.Errorf("Ensure took %v", waited)
					}
					s.SetFault(message, vpp.Fault{})
					before := len(s.Interfaces())
					ensure(t, d, p)
					ports := 0
					for _, have := range list(t, d) {
						if have.Name == p.Name {
							ports++
						}
					}
					if ports != 1 || len(s.Interfaces()) > max(before, 1)+1 {
						t.Errorf("after a second Ensure VPP has %+v", s.Interfaces())
					}
				})
			}
		}
	}
}

func TestRefusedCallLeavesNothing(t *testing.T) {
	for _, tc := range []struct {
		protocol vswitch.Type
		message  string
		field    string
	}{
		{vswitch.VhostUser, "create_vhost_user_if_v2", "socketDir"},
		{vswitch.VhostUser, "sw_interface_set_mtu", "mtu"},
		{vswitch.VhostUser, "sw_interface_set_l2_bridge", "bridge"},
		{vswitch.VhostUser, "sw_interface_set_flags", ""},
		{vswitch.Memif, "memif_socket_filename_add_del_v2", "socketDir"},
		{vswitch.Memif, "memif_create_v2", "socketDir"},
		{vswitch.Memif, "sw_interface_tag_add_del", ""},
		{vswitch.Memif, "sw_interface_set_mtu", "mtu"},
	} {
		t.Run(fmt.Sprint(tc.protocol, " ", tc.message), func(t *testing.T) {
			s, d, dir := start(t)
			s.SetFault(tc.message, vpp.Fault{Retval: -7})
			p := newPort(dir, 1)
			p.Type, p.MTU = tc.protocol, 1500
			_, err := d.Ensure(t.Context(), p)
			var refusal *vswitch.Refusal
			if !errors.As(err, &refusal) || refusal.Field != tc.field || !strings.Contains(err.Error(), "invalid value (-7)") {
				t.Errorf("Ensure: %v, want a refusal of %q", err, tc.field)
			}
			if len(s.Interfaces()) != 0 || s.MemifSockets() != 0 {
				t.Errorf("left %+v, %d memif sockets", s.Interfaces(), s.MemifSockets())
			}
		})
	}
}

func TestHangingVPPIsUnavailable(t *testing.T) {
	dir, err := os.MkdirTemp("", "vpp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/api.sock") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	d := &driver.Driver{Switch: vswitch.Switch{Name: "vpp0", Endpoint: dir + "/api.sock"}}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.List(ctx); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "timed out") || !strings.Contains(err.Error(), `vswitch "vpp0"`) {
		t.Errorf("List: %v", err)
	}
	l.Close()
	if err := d.Remove(t.Context(), newPort(dir, 1).Owner); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("Remove without a VPP: %v", err)
	}
}

func TestEveryCallClosesItsConnection(t *testing.T) {
	s, d, dir := start(t)
	for i := range 5 {
		ensure(t, d, newPort(dir, i))
		list(t, d)
	}
	for end := time.Now().Add(time.Minute); s.Connections() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are open", s.Connections())
		}
	}
}

// VPP's listen queue has five places. A client waits for its turn until its own time is up.
func TestFullListenQueueIsWaitedFor(t *testing.T) {
	s, d, dir := start(t)
	s.Stop()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if _, err := d.Ensure(t.Context(), newPort(dir, i)); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // the queue fills
	s.Continue()
	wg.Wait()
	if n := len(s.Interfaces()); n != 40 {
		t.Errorf("VPP has %d interfaces", n)
	}
	s.Stop()
	defer s.Continue()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range 10 {
		wg.Go(func() {
			if _, err := d.List(ctx); !errors.Is(err, errdefs.ErrUnavailable) {
				t.Errorf("List: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestSessionHasOneConnection(t *testing.T) {
	s, d, dir := start(t)
	one, end, err := d.OpenSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var wg sync.WaitGroup
	s.Calls()
	for i := range 20 {
		wg.Go(func() {
			if _, err := one.Ensure(t.Context(), newPort(dir, i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if slices.Contains(s.Calls(), "sockclnt_create") || len(s.Interfaces()) != 20 {
		t.Errorf("VPP has %d interfaces, and another client has connected", len(s.Interfaces()))
	}
	// A port that fails is removed, and its session goes on.
	s.SetFault("sw_interface_set_flags", vpp.Fault{Retval: -7})
	if _, err := one.Ensure(t.Context(), newPort(dir, 20)); err == nil || len(s.Interfaces()) != 20 {
		t.Errorf("Ensure: %v; VPP has %d interfaces", err, len(s.Interfaces()))
	}
	s.SetFault("sw_interface_set_flags", vpp.Fault{})
	s.SetFault("sw_interface_dump", vpp.Fault{Close: true})
	for range 2 {
		if _, err := one.List(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("List: %v", err)
		}
	}
}

// An ADD that is killed between two messages leaves a memif without a tag, or only its socket.
func TestRemoveDeletesWhatAnInterruptedCreationLeft(t *testing.T) {
	for _, message := range []string{"memif_socket_filename_add_del_v2", "memif_create_v2", "sw_interface_tag_add_del"} {
		for _, listens := range []bool{true, false} {
			t.Run(fmt.Sprint(message, listens), func(t *testing.T) {
				s, d, dir := start(t)
				p := newPort(dir, 1)
				p.Type, p.SwitchListens = vswitch.Memif, listens
				foreign := s.AddInterface(vpp.Interface{Type: "memif", Socket: "/run/x", Listens: true})
				// The process ends when its request is carried out, so it cleans up nothing.
				s.SetFault(message, vpp.Fault{Silent: true})
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if _, err := d.Ensure(ctx, p); err == nil {
					t.Fatal("Ensure succeeds")
				}
				s.SetFault(message, vpp.Fault{})
				if err := vswitch.RemovePort(t.Context(), d, p); err != nil {
					t.Fatal(err)
				}
				if have := s.Interfaces(); len(have) != 1 || have[0].Index != foreign || s.MemifSockets() != 1 {
					t.Errorf("left %+v, %d memif sockets", have, s.MemifSockets())
				}
			})
		}
	}
}

// Whoever has used a memif without a tag owns it.
func TestRemoveKeepsForeignMemifOnThePortsSocket(t *testing.T) {
	s, d, dir := start(t)
	p := newPort(dir, 1)
	p.Type, p.SwitchListens = vswitch.Memif, false
	for _, foreign := range []vpp.Interface{
		{Up: true}, {Bridge: 2}, {Tag: "uplink"}, {Listens: true},
	} {
		foreign.Type, foreign.Socket = "memif", p.Socket
		index := s.AddInterface(foreign)
		if err := vswitch.RemovePort(t.Context(), d, p); err != nil {
			t.Fatal(err)
		}
		if have := s.Interfaces(); len(have) != 1 {
			t.Fatalf("VPP has %+v, and had %+v", have, foreign)
		}
		s.Delete(index)
	}
}

func TestUnknownVersionIsNamed(t *testing.T) {
	s, d, dir := start(t)
	s.Kill()
	s.Without, s.Version = []string{"sw_interface_dump"}, "27.10-release"
	s.Restart()
	_, err := d.List(t.Context())
	const want = `vswitch "vpp0" refuses the request: VPP 27.10-release has no message sw_interface_dump_aa610c27: `
	if !errors.Is(err, errdefs.ErrNotImplemented) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("List: %v, want %q", err, want)
	}
	// That VPP has none of the ports that the driver created on another version.
	if err := d.Remove(t.Context(), newPort(dir, 1).Owner); err != nil {
		t.Errorf("Remove: %v", err)
	}
}

// A memif that could be created and not be found is not created.
func TestPortIsNotCreatedWithoutTheMessagesToFindIt(t *testing.T) {
	s, d, dir := start(t)
	s.Kill()
	s.Without = []string{"memif_dump"}
	s.Restart()
	s.AddBridge(1)
	p := newPort(dir, 1)
	p.Type = vswitch.Memif
	if _, err := d.Ensure(t.Context(), p); !errors.Is(err, errdefs.ErrNotImplemented) || !strings.Contains(err.Error(), "memif_dump_") {
		t.Errorf("Ensure: %v", err)
	}
	if len(s.Interfaces()) != 0 || s.MemifSockets() != 0 {
		t.Errorf("left %+v, %d memif sockets", s.Interfaces(), s.MemifSockets())
	}
}

func TestWatchReportsInterfaceThatIsSetDown(t *testing.T) {
	s, d, dir := start(t)
	ensure(t, d, newPort(dir, 1))
	changes := watch(t, d)
	waitForChange(t, changes) // the connection
	waitForChange(t, changes) // VPP has had time to read its startup file
	s.SetDown(s.Interfaces()[0].Index)
	waitForChange(t, changes)
}
