// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// The driver with the real grout is tested in test/e2e/grout. Here are a grcli that misbehaves, and the texts.

var owner = vswitch.Owner{ContainerID: strings.Repeat("a", 64), Interface: "net1"}

// newDriver returns a driver whose grcli is a shell script. It is found in PATH: a program at a path must be in
// directories that only root can write, which the test's own is not.
func newDriver(t *testing.T, script string) *Driver {
	t.Helper()
	grcli := filepath.Join(t.TempDir(), "grcli")
	t.Setenv("PATH", filepath.Dir(grcli)+":"+os.Getenv("PATH"))
	if err := os.WriteFile(grcli, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Driver{Switch: vswitch.Switch{Name: "grout0", Endpoint: "/run/grout.sock"}, Grcli: "grcli"}
}

func TestBrokenGrcliIsAnError(t *testing.T) {
	port := vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: "/run/vsw/1/sock"}
	for _, tc := range []struct {
		name, script string
		kind         error
		says         string
	}{
		{"text", "echo hello", errdefs.ErrUnknown, `printed "hello": must be an interface in JSON`},
		{"terminal's escapes", `printf '\033[31mred\n'`, errdefs.ErrUnknown, `"\x1b[31mred"`},
		{"other JSON", "echo 7", errdefs.ErrUnknown, `printed "7"`},
		{"cut JSON", `echo '{"name":"jf'`, errdefs.ErrUnknown, `must be an interface`},
		{"fails without a word", "exit 3", errdefs.ErrUnavailable, "exit status 3"},
		{"fails with a word", "echo no library >&2; exit 127", errdefs.ErrUnavailable, "no library"},
		{"another version", `echo '{"error":"gr_connect: Protocol error","errno":71}' >&2; exit 1`, errdefs.ErrUnavailable, "must have the same version"},
		{"endless output", "exec cat /dev/zero", errdefs.ErrUnavailable, "prints more than 4194304 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDriver(t, tc.script)
			for name, call := range map[string]func() error{
				"Ensure": func() error { _, err := d.Ensure(t.Context(), port); return err },
				"Remove": func() error { return d.Remove(t.Context(), owner) },
				"List":   func() error { _, err := d.List(t.Context()); return err },
			} {
				err := call()
				if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), `vswitch "grout0"`) {
					t.Errorf("%s: %v, want one that says %q", name, err, tc.says)
				}
			}
		})
	}
}

func TestHangingGrcliIsKilledWithItsChildren(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, "(sleep 1; touch "+dir+"/alive) & wait")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.List(ctx); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("List: %v", err)
	}
	time.Sleep(1500 * time.Millisecond)
	if _, err := os.Stat(dir + "/alive"); err == nil {
		t.Error("a child of grcli goes on after the deadline")
	}
}

// grcli connects once, and fails where grout's listen queue is full.
func TestFullListenQueueIsWaitedFor(t *testing.T) {
	tried := filepath.Join(t.TempDir(), "tried")
	const full = `echo '{"error":"gr_connect: Resource temporarily unavailable","errno":11}' >&2; exit 1`
	d := newDriver(t, `[ -e `+tried+` ] && exit 0; touch `+tried+`; `+full)
	if err := d.Remove(t.Context(), owner); err != nil {
		t.Errorf("Remove while the queue is full for a moment: %v", err)
	}
	d = newDriver(t, full)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Remove(ctx, owner); !errors.Is(err, errdefs.ErrUnavailable) || ctx.Err() == nil || strings.Contains(err.Error(), "same version") {
		t.Errorf("Remove while the queue stays full: %v, context: %v", err, ctx.Err())
	}
}

// A grcli that is missing says nothing about grout.
func TestMissingGrcliNamesItsKey(t *testing.T) {
	d := &Driver{Switch: vswitch.Switch{Name: "grout0", Endpoint: "/run/grout.sock"}, Grcli: "/does/not/exist"}
	const want = `vswitch "grout0": cannot run "/does/not/exist": no such file or directory: install grcli, or correct vswitches.grout0.grcli`
	if _, err := d.List(t.Context()); errors.Is(err, errdefs.ErrUnavailable) || err == nil || diag.ErrorText(err) != want {
		t.Errorf("List: %v", err)
	}
}

func TestDevargsSurviveARoundTrip(t *testing.T) {
	for _, tc := range []struct {
		port vswitch.Port
		want string
	}{
		{vswitch.Port{Type: vswitch.VhostUser, Socket: "/s", SwitchListens: true}, "net_vhost01234567,iface=/s"},
		{vswitch.Port{Type: vswitch.VhostUser, Socket: "/s", Queues: 2}, "net_vhost01234567,iface=/s,queues=2,client=1"},
		{vswitch.Port{Type: vswitch.Memif, Socket: "/s", SwitchListens: true}, "net_memif01234567,role=server,socket=/s,socket-abstract=no"},
	} {
		tc.port.Name = "jf0123456789abc"
		if got := formatDevargs(tc.port); got != tc.want {
			t.Errorf("formatDevargs(%+v) = %q, want %q", tc.port, got, tc.want)
		}
		got := vswitch.Port{Name: tc.port.Name, Queues: tc.port.Queues} // the interface has the queues
		if err := parseDevargs(tc.want, &got); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tc.port, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.want, diff)
		}
	}
	for _, args := range []string{"", "0000:03:00.1", "net_tap0,iface=x", "net_vhost0"} {
		if err := parseDevargs(args, new(vswitch.Port)); err == nil {
			t.Errorf("parseDevargs(%q) accepts it", args)
		}
	}
}

func TestOwnerSurvivesARoundTrip(t *testing.T) {
	for _, o := range []vswitch.Owner{owner, {ContainerID: "a_b.c-d", Interface: "net 1;é'\"/"}, {ContainerID: "a", Interface: "b", Network: "ns/fast net"}} {
		text := formatOwner(o)
		if got, ok := parseOwner(text); !ok || got != o {
			t.Errorf("%q is %+v, want %+v", text, got, o)
		}
		if strings.ContainsAny(text, " ;'\"\\$`#\n") {
			t.Errorf("%q has characters that grcli acts on", text)
		}
	}
	for _, text := range []string{"", "uplink", "jackfield:", "jackfield:a", "jackfield:%zz/net1", "jackfield:a/", "jackfield:a/b/c/d"} {
		if o, ok := parseOwner(text); ok {
			t.Errorf("%q is the owner %+v", text, o)
		}
	}
}

func TestListReportsInterfaceThatIsDown(t *testing.T) {
	name := vswitch.PortName(owner)
	for flags, down := range map[string]bool{`"running"`: true, `"up", "running"`: false} {
		d := newDriver(t, `case "$(cat)" in
*"type port"*) echo '[{"name":"`+name+`"}]' ;;
*) echo '{"name":"`+name+`","type":"port","flags":[`+flags+`],"description":"`+formatOwner(owner)+`","devargs":"net_vhost0,iface=/s"}' ;;
esac`)
		ports, err := d.List(t.Context())
		if err != nil || len(ports) != 1 || ports[0].Fault != "" != down {
			t.Errorf("flags %s: List returns %+v, %v", flags, ports, err)
		}
	}
}

func TestEventsThatConcernPorts(t *testing.T) {
	for line, want := range map[string]bool{
		"> iface del: jf0123456789abc type=port id=5 cp_id=9 mode=VRF mtu=1500":    true,
		"> iface reconf: jf0123456789abc type=port id=5 cp_id=9 mode=VRF mtu=1500": true,
		"> iface add: jf0123456789abc type=port id=5 cp_id=9 mode=VRF mtu=1500":    false,
		"> iface up: jf0123456789abc type=port id=5 cp_id=9 mode=VRF mtu=1500":     false,
		"> iface post add: br0 type=bridge id=5 cp_id=9 mode=VRF mtu=0":            true,
		"> iface del: eth0 type=port id=5 cp_id=9 mode=VRF mtu=1500":               false,
		"": false,
	} {
		if got := concernsPort(line); got != want {
			t.Errorf("concernsPort(%q) = %v", line, got)
		}
	}
}

// An interface with the port's name and without its description is neither changed nor deleted.
func TestForeignInterfaceGetsNoCommand(t *testing.T) {
	port := vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: "/run/vsw/1/sock"}
	for _, description := range []string{"", "uplink", "jackfield:other/net1", "jackfield:" + owner.ContainerID + "/net2"} {
		commands := filepath.Join(t.TempDir(), "commands")
		d := newDriver(t, "cat >> "+commands+`; echo '{"name":"`+port.Name+`","type":"port","description":"`+description+`","devargs":"net_vhostuplink,iface=/x"}'`)
		if _, err := d.Ensure(t.Context(), port); !errors.Is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("description %q: Ensure: %v", description, err)
		}
		if err := d.Remove(t.Context(), owner); err != nil {
			t.Errorf("description %q: Remove: %v", description, err)
		}
		text, err := os.ReadFile(commands)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "del ") || strings.Contains(string(text), "set ") || strings.Contains(string(text), "add ") {
			t.Errorf("description %q: grcli gets %q", description, text)
		}
	}
}

// What comes from a network's configuration stays one word of one command.
func TestValuesAreNoCommands(t *testing.T) {
	commands := filepath.Join(t.TempDir(), "commands")
	d := newDriver(t, "cat >> "+commands)
	for _, change := range []func(*vswitch.Port){
		func(p *vswitch.Port) { p.Socket = "/run/vsw/1/sock,client=1" },
		func(p *vswitch.Port) { p.Socket = "/run/vsw/1/sock\ninterface del eth0" },
		func(p *vswitch.Port) { p.Socket = "/run/vsw/1/a b" },
		func(p *vswitch.Port) { p.Socket = "relative" },
		func(p *vswitch.Port) { p.Bridge = "br0 mtu 9000" },
		func(p *vswitch.Port) { p.Bridge = "br0\ninterface del eth0" },
		func(p *vswitch.Port) { p.Bridge = "'br0'" },
	} {
		port := vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: "/run/vsw/1/sock", Bridge: "br0"}
		change(&port)
		if _, err := d.Ensure(t.Context(), port); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("Ensure(%+v): %v", port, err)
		}
	}
	if text, err := os.ReadFile(commands); err == nil {
		t.Errorf("grcli gets %q", text)
	}
}
