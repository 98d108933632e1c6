// SPDX-License-Identifier: Apache-2.0

package vpp_test

import (
	"context"
	"errors"
	"fmt"
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

// startWithUplink starts a VPP with an uplink, and returns the uplink's index, too.
func startWithUplink(t *testing.T) (*vpp.Server, *driver.Driver, string, uint32) {
	t.Helper()
	s, d, dir := start(t)
	d.Uplink = "Ethernet0/0/0"
	return s, d, dir, s.AddInterface(vpp.Interface{Type: "hardware", Name: d.Uplink, Up: true, Bridge: 1})
}

// vlanPort returns newPort in a VLAN of bridge 1.
func vlanPort(dir string, n, vlan int) vswitch.Port {
	p := newPort(dir, n)
	p.VLAN = vlan
	return p
}

// members returns the interfaces in a bridge domain.
func members(s *vpp.Server, domain uint32) (list []vpp.Interface) {
	for _, i := range s.Interfaces() {
		if i.Bridge == domain {
			list = append(list, i)
		}
	}
	return list
}

// The ports of a VLAN share a bridge domain with nothing but the uplink's sub-interface, which removes the tag.
func TestVLANIsABridgeDomainOfItsOwn(t *testing.T) {
	s, d, dir, uplink := startWithUplink(t)
	ports := []vswitch.Port{vlanPort(dir, 1, 100), vlanPort(dir, 2, 100), vlanPort(dir, 3, 200), newPort(dir, 4)}
	for _, p := range ports {
		if got := ensure(t, d, p); got.VLAN != p.VLAN || got.Bridge != "1" || got.Fault != "" {
			t.Errorf("Ensure returns %+v", got)
		}
	}
	for vlan, count := range map[uint32]int{100: 2, 200: 1} {
		have := members(s, 1<<12|vlan)
		if len(have) != count+1 {
			t.Fatalf("VLAN %d has %+v", vlan, have)
		}
		subs := 0
		for _, i := range have {
			if i.Type == "sub" {
				subs++
				if i.Sup != uplink || i.VLAN != vlan || i.Rewrite != 3 || !i.Up {
					t.Errorf("VLAN %d has the sub-interface %+v", vlan, i)
				}
			}
		}
		if subs != 1 {
			t.Errorf("VLAN %d has %d sub-interfaces", vlan, subs)
		}
	}
	if have := members(s, 1); len(have) != 2 {
		t.Errorf("without a VLAN: %+v", have)
	}
	s.Calls()
	for _, p := range ports {
		ensure(t, d, p)
	}
	if calls := changing(s.Calls()); len(calls) != 0 {
		t.Errorf("a second Ensure sends %q", calls)
	}
	for i, p := range ports {
		if err := d.Remove(t.Context(), p.Owner); err != nil {
			t.Fatal(err)
		}
		if _, left := s.Bridges()[1<<12|100]; left != (i == 0) {
			t.Errorf("after %d ports VLAN 100 exists: %v", i+1, left)
		}
	}
	if len(s.Interfaces()) != 1 || len(s.Bridges()) != 2 {
		t.Errorf("left %+v and %v", s.Interfaces(), s.Bridges())
	}
}

func TestForeignVLANsAreUntouched(t *testing.T) {
	for name, add := range map[string]func(s *vpp.Server, uplink uint32){
		"sub-interface": func(s *vpp.Server, uplink uint32) {
			s.AddInterface(vpp.Interface{Type: "sub", Name: "Ethernet0/0/0.100", Sup: uplink, VLAN: 100, Up: true, Bridge: 2})
		},
		"new sub-interface": func(s *vpp.Server, uplink uint32) {
			s.AddInterface(vpp.Interface{Type: "sub", Name: "Ethernet0/0/0.100", Sup: uplink, VLAN: 100})
		},
		"bridge domain": func(s *vpp.Server, uplink uint32) { s.AddBridge(1<<12 | 100) },
	} {
		t.Run(name, func(t *testing.T) {
			s, d, dir, uplink := startWithUplink(t)
			ensure(t, d, vlanPort(dir, 2, 200))
			add(s, uplink)
			before, bridges := s.Interfaces(), s.Bridges()
			p := vlanPort(dir, 1, 100)
			if _, err := d.Ensure(t.Context(), p); !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), "jf-vlan/1/100") {
				t.Errorf("Ensure: %v", err)
			}
			if err := vswitch.RemovePort(t.Context(), d, p); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, s.Interfaces(), cmpopts.IgnoreUnexported(vpp.Interface{})); diff != "" {
				t.Errorf("interfaces have changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(bridges, s.Bridges()); diff != "" {
				t.Errorf("bridge domains have changed (-before +after):\n%s", diff)
			}
		})
	}
}

// The number of a VLAN's bridge domain is no name for it: the policy grants VLANs of bridges.
func TestBridgeDomainOfVLANIsNoBridge(t *testing.T) {
	s, d, dir, _ := startWithUplink(t)
	ensure(t, d, vlanPort(dir, 1, 100))
	p := newPort(dir, 2)
	p.Bridge = fmt.Sprint(1<<12 | 100)
	if _, err := d.Ensure(t.Context(), p); !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), "is VLAN 100 of bridge 1") {
		t.Errorf("Ensure: %v", err)
	}
	if have := members(s, 1<<12|100); len(have) != 2 {
		t.Errorf("VLAN 100 has %+v", have)
	}
}

func TestVLANIsRefusedWithTheReason(t *testing.T) {
	s, d, dir, _ := startWithUplink(t)
	for _, tc := range []struct {
		change func(*vswitch.Port)
		uplink string
		field  string
		says   string
	}{
		{func(p *vswitch.Port) {}, "", "vlan", "no vswitches.vpp0.uplink"},
		{func(p *vswitch.Port) {}, "Ethernet9/0/0", "vswitches.vpp0.uplink", `no interface "Ethernet9/0/0"`},
		{func(p *vswitch.Port) { p.VLAN = 4095 }, "Ethernet0/0/0", "vlan", "1 to 4094"},
		{func(p *vswitch.Port) { p.Bridge = "4096" }, "Ethernet0/0/0", "bridge", "1 to 4095"},
		{func(p *vswitch.Port) { p.Bridge = "" }, "Ethernet0/0/0", "bridge", "1 to 4095"},
	} {
		d.Uplink = tc.uplink
		p := vlanPort(dir, 1, 100)
		tc.change(&p)
		_, err := d.Ensure(t.Context(), p)
		var refusal *vswitch.Refusal
		if !errors.As(err, &refusal) || refusal.Field != tc.field || !strings.Contains(err.Error(), tc.says) || refusal.Remedy == "" {
			t.Errorf("Ensure: %v, want a refusal of %q that says %q", err, tc.field, tc.says)
		}
		if len(s.Interfaces()) != 1 || len(s.Bridges()) != 2 {
			t.Errorf("left %+v and %v", s.Interfaces(), s.Bridges())
		}
	}
}

// Whatever message is not answered, DEL leaves nothing, and another ADD succeeds.
func TestInterruptedVLANAndRateLeaveNothing(t *testing.T) {
	for _, message := range []string{"bridge_domain_add_del_v2", "create_vlan_subif", "l2_interface_vlan_tag_rewrite", "sw_interface_tag_add_del",
		"sw_interface_set_l2_bridge", "policer_add_del", "policer_input"} {
		for _, retry := range []bool{false, true} {
			t.Run(fmt.Sprint(message, retry), func(t *testing.T) {
				s, d, dir, _ := startWithUplink(t)
				p := vlanPort(dir, 1, 100)
				p.Rate = 1e6
				s.SetFault(message, vpp.Fault{Silent: true})
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if _, err := d.Ensure(ctx, p); err == nil {
					t.Fatal("Ensure succeeds")
				}
				s.SetFault(message, vpp.Fault{})
				if retry {
					ensure(t, d, p)
				}
				if err := vswitch.RemovePort(t.Context(), d, p); err != nil {
					t.Fatal(err)
				}
				if len(s.Interfaces()) != 1 || len(s.Bridges()) != 2 || len(s.Policers()) != 0 {
					t.Errorf("left %+v, %v and %v", s.Interfaces(), s.Bridges(), s.Policers())
				}
			})
		}
	}
}

// Ports join and leave a VLAN at the same time, in several processes.
func TestVLANSurvivesJoinAndLeave(t *testing.T) {
	s, d, dir, _ := startWithUplink(t)
	var wg sync.WaitGroup
	for i := range 8 {
		p := vlanPort(dir, i, 100)
		wg.Go(func() {
			for range 3 {
				if _, err := d.Ensure(t.Context(), p); err != nil {
					t.Error(err)
				}
				if ports := list(t, d); len(ports) > 8 {
					t.Errorf("List returns %d ports", len(ports))
				}
				for _, have := range list(t, d) {
					if have.Name == p.Name && (have.VLAN != 100 || have.Fault != "") {
						t.Errorf("List returns %+v", have)
					}
				}
				if err := d.Remove(t.Context(), p.Owner); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(s.Interfaces()) != 1 || len(s.Bridges()) != 2 {
		t.Errorf("left %+v and %v", s.Interfaces(), s.Bridges())
	}
}

// A sub-interface that was changed by hand is a fault of each port, and the next Ensure corrects it.
func TestEnsureCorrectsSubInterface(t *testing.T) {
	s, d, dir, _ := startWithUplink(t)
	p := vlanPort(dir, 1, 100)
	ensure(t, d, p)
	for _, i := range s.Interfaces() {
		if i.Type == "sub" {
			s.SetDown(i.Index)
		}
	}
	if ports := list(t, d); len(ports) != 1 || !strings.Contains(ports[0].Fault, "VLAN 100") {
		t.Errorf("List returns %+v", ports)
	}
	ensure(t, d, p)
	if ports := list(t, d); ports[0].Fault != "" {
		t.Errorf("List returns %+v", ports)
	}
}

func TestRateIsAPolicerWithTheTag(t *testing.T) {
	s, d, dir := start(t)
	s.AddPolicer("jf")
	p := newPort(dir, 1)
	p.Rate = 10_000_500
	if got := ensure(t, d, p); got.Rate != 10_001_000 {
		t.Errorf("Ensure returns %+v", got)
	}
	have := s.Interfaces()[0]
	if have.Policer != have.Tag || s.Policers()[have.Tag] != 10_001 {
		t.Errorf("VPP has %+v and %v", have, s.Policers())
	}
	p.Rate = 20_000_000
	ensure(t, d, p)
	if have := s.Interfaces()[0]; have.Policer != have.Tag || s.Policers()[have.Tag] != 20_000 {
		t.Errorf("VPP has %+v and %v", have, s.Policers())
	}
	p.Rate = 0
	if got := ensure(t, d, p); got.Rate != 0 || s.Interfaces()[0].Policer != "" || len(s.Policers()) != 1 {
		t.Errorf("Ensure returns %+v; VPP has %v", got, s.Policers())
	}
	p.Rate = 1
	ensure(t, d, p)
	s.Calls()
	if err := d.Remove(t.Context(), p.Owner); err != nil {
		t.Fatal(err)
	}
	// A policer that is deleted first stays on the interface.
	want := []string{"policer_input", "delete_vhost_user_if", "policer_add_del"}
	if diff := cmp.Diff(want, changing(s.Calls())); diff != "" {
		t.Errorf("Remove sends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"jf": 0}, s.Policers()); diff != "" {
		t.Errorf("policers (-want +got):\n%s", diff)
	}
	// The interface was deleted by hand.
	ensure(t, d, p)
	s.Delete(s.Interfaces()[0].Index)
	if err := d.Remove(t.Context(), p.Owner); err != nil || len(s.Policers()) != 1 {
		t.Errorf("Remove: %v; VPP has %v", err, s.Policers())
	}
}

func TestRateIsRefusedWithoutPolicers(t *testing.T) {
	s, d, dir := start(t)
	s.Kill()
	s.Without = []string{"policer_add_del", "policer_input", "policer_dump"}
	s.Restart()
	s.AddBridge(1)
	p := newPort(dir, 1)
	ensure(t, d, p)
	p = newPort(dir, 2)
	p.Rate = 1e9
	_, err := d.Ensure(t.Context(), p)
	var refusal *vswitch.Refusal
	if !errors.As(err, &refusal) || refusal.Field != "rate" || !errors.Is(err, errdefs.ErrNotImplemented) || !strings.Contains(err.Error(), "policer_plugin.so") {
		t.Errorf("Ensure: %v", err)
	}
	if len(s.Interfaces()) != 1 {
		t.Errorf("left %+v", s.Interfaces())
	}
}
