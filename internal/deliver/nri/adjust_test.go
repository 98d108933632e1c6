// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/edit"
)

func TestEmptySetHasNoAdjustment(t *testing.T) {
	a, err := Adjustment(&edit.Set{}, capability.Capabilities{})
	if a != nil || err != nil {
		t.Errorf("got %v, %v", a, err)
	}
}

func TestEveryEditIsCarried(t *testing.T) {
	mode, uid, timeout := os.FileMode(0o640), uint32(7), 3
	set := &edit.Set{
		Env:     []edit.Env{{Name: "A", Value: "x=y"}},
		Devices: []edit.Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, FileMode: &mode, UID: &uid, GID: &uid}},
		Mounts:  []edit.Mount{{Destination: "/m", Source: "/s", Options: []string{"ro", "bind"}}},
	}
	set.Memlock = &edit.Memlock{Rlimit: edit.Rlimit{Soft: 1 << 20, Hard: quantity.Unlimited}}
	for _, s := range edit.Stages() {
		set.Hooks = append(set.Hooks, edit.Hook{Stage: s, Path: "/h", Args: []string{string(s)}, Env: []string{"E=1"}, Timeout: &timeout})
	}
	a, err := Adjustment(set, capability.Capabilities{})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Env) != 1 || a.Env[0].Key != "A" || a.Env[0].Value != "x=y" {
		t.Errorf("env is %v", a.Env)
	}
	d := a.Linux.Devices[0]
	if d.Path != "/dev/a" || d.Major != 1 || d.Minor != 3 || *d.FileMode.Get() != mode || *d.Uid.Get() != 7 || *d.Gid.Get() != 7 {
		t.Errorf("device is %v", d)
	}
	if l := a.Rlimits; len(l) != 1 || l[0].Type != "RLIMIT_MEMLOCK" || l[0].Soft != 1<<20 || l[0].Hard != math.MaxUint64 {
		t.Errorf("rlimits are %v", l)
	}
	if m := a.Mounts[0]; m.Type != "bind" || m.Source != "/s" || len(m.Options) != 2 {
		t.Errorf("mount is %v", m)
	}
	for stage, hooks := range map[edit.Stage][]*api.Hook{
		edit.Prestart: a.Hooks.Prestart, edit.CreateRuntime: a.Hooks.CreateRuntime, edit.CreateContainer: a.Hooks.CreateContainer,
		edit.StartContainer: a.Hooks.StartContainer, edit.Poststart: a.Hooks.Poststart, edit.Poststop: a.Hooks.Poststop,
	} {
		if len(hooks) != 1 || hooks[0].Args[0] != string(stage) || *hooks[0].Timeout.Get() != 3 {
			t.Errorf("%s hooks are %v", stage, hooks)
		}
	}
}

// rules returns the cgroup rules that the adjustment adds to those NRI derives.
func rules(t *testing.T, typ, access string, can capability.Capabilities) (string, error) {
	t.Helper()
	a, err := Adjustment(&edit.Set{Devices: []edit.Device{{Path: "/dev/a", Type: typ, Major: 240, Minor: 3, Access: access, Origin: edit.Origin{Request: "R", File: "/f"}}}}, can)
	if err != nil {
		return "", err
	}
	var out []string
	for _, r := range a.Linux.GetResources().GetDevices() {
		verb := "deny "
		if r.Allow {
			verb = "allow "
		}
		out = append(out, verb+r.Access)
	}
	return strings.Join(out, ", "), nil
}

func TestDeviceAccessNeedsCapability(t *testing.T) {
	new := capability.Capabilities{DeviceRules: true}
	for _, tc := range []struct {
		typ, access string
		can         capability.Capabilities
		want        string
		refused     bool
	}{
		{typ: "c", access: "", want: ""},
		{typ: "c", access: "rw", want: ""},
		{typ: "c", access: "rwm", want: ""},
		{typ: "b", access: "rw", want: ""},
		{typ: "c", access: "r", refused: true},
		{typ: "c", access: "none", refused: true},
		{typ: "u", access: "r", refused: true},
		{typ: "b", access: "r", refused: true},
		{typ: "u", access: "r", can: new, want: "deny rwm, allow r"},
		{typ: "c", access: "", can: new, want: ""},
		{typ: "c", access: "rw", can: new, want: ""},
		{typ: "c", access: "rwm", can: new, want: "allow m"},
		{typ: "c", access: "r", can: new, want: "deny rwm, allow r"},
		{typ: "c", access: "none", can: new, want: "deny rwm"},
		{typ: "b", access: "rw", can: new, want: "deny rwm, allow rw"},
		{typ: "b", access: "rm", can: new, want: "deny rwm, allow rm"},
	} {
		got, err := rules(t, tc.typ, tc.access, tc.can)
		if tc.refused {
			if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "/f") || !strings.Contains(err.Error(), "0.10") {
				t.Errorf("%s %q: %v, want a refusal that names the file and the version", tc.typ, tc.access, err)
			}
			granted := map[string]string{"b": `would grant "rwm"`}[tc.typ]
			if granted == "" {
				granted = `would grant "rw"`
			}
			if !strings.Contains(err.Error(), granted) {
				t.Errorf("%s %q: %v, want %s", tc.typ, tc.access, err, granted)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%s %q with %+v: %q, %v; want %q", tc.typ, tc.access, tc.can, got, err, tc.want)
		}
	}
}

// Cgroup rules apply to device numbers. A permission is denied only if no other node with the same
// number has it, so no container loses /dev/null.
func TestPermissionOfAnotherNodeStays(t *testing.T) {
	dev := func(path, access string, major, minor int64) edit.Device {
		return edit.Device{Path: path, HostPath: path, Type: "c", Major: major, Minor: minor, Access: access}
	}
	for name, tc := range map[string]struct {
		set  []edit.Device
		have []edit.Device
		want string
	}{
		"alone":                   {[]edit.Device{dev("/dev/a", "r", 240, 1)}, nil, "deny 240:1 rwm, allow 240:1 r"},
		"another number":          {[]edit.Device{dev("/dev/a", "r", 240, 1), dev("/dev/b", "rw", 240, 2)}, []edit.Device{dev("/dev/c", "", 240, 3)}, "deny 240:1 rwm, allow 240:1 r"},
		"another type":            {[]edit.Device{dev("/dev/a", "r", 240, 1), {Path: "/dev/b", Type: "b", Major: 240, Minor: 1}}, nil, "deny 240:1 rwm, allow 240:1 r"},
		"another node":            {[]edit.Device{dev("/dev/a", "r", 240, 1), dev("/dev/b", "rw", 240, 1)}, nil, ""},
		"another that has either": {[]edit.Device{dev("/dev/a", "r", 240, 1), dev("/dev/b", "w", 240, 1)}, nil, ""},
		"another that has the same": {[]edit.Device{dev("/dev/a", "r", 240, 1), dev("/dev/b", "r", 240, 1)}, nil,
			"deny 240:1 rwm, allow 240:1 r, deny 240:1 rwm, allow 240:1 r"},
		"another without any": {[]edit.Device{dev("/dev/a", "r", 240, 1), dev("/dev/b", "none", 240, 1)}, nil, "deny 240:1 rwm, allow 240:1 r, deny 240:1 rwm, allow 240:1 r"},
		"another of a block device": {[]edit.Device{{Path: "/dev/a", Type: "b", Major: 240, Minor: 1, Access: "r"}, {Path: "/dev/b", Type: "b", Major: 240, Minor: 1, Access: "m"}}, nil,
			"deny 240:1 rwm, allow 240:1 rm, deny 240:1 rwm, allow 240:1 rm"},
		"another with the default":  {[]edit.Device{dev("/dev/a", "none", 240, 1), dev("/dev/b", "", 240, 1)}, nil, ""},
		"one the container has":     {[]edit.Device{dev("/dev/a", "r", 240, 1)}, []edit.Device{dev("/dev/c", "", 240, 1)}, ""},
		"one that every one has":    {[]edit.Device{dev("/dev/a", "r", 1, 3), dev("/dev/b", "none", 5, 2)}, nil, ""},
		"one beside those all have": {[]edit.Device{dev("/dev/a", "r", 1, 11)}, nil, "deny 1:11 rwm, allow 1:11 r"},
	} {
		a, err := Adjustment(&edit.Set{Devices: tc.set}, capability.Capabilities{DeviceRules: true}, tc.have...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range a.Linux.GetResources().GetDevices() {
			verb := "deny"
			if r.Allow {
				verb = "allow"
			}
			got = append(got, fmt.Sprintf("%s %d:%d %s", verb, r.Major.GetValue(), r.Minor.GetValue(), r.Access))
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// The rule that NRI derives has the type of the node, and runc ends with "invalid
// cgroup device type" for any but a, b and c.
func TestFIFOAndUnbufferedDeviceNodes(t *testing.T) {
	for _, can := range []capability.Capabilities{{}, {DeviceRules: true}, {DeviceRules: true, UserNS: true}, {UserNS: true}} {
		for _, hostPath := range []string{"/dev/a", "/run/v/a"} {
			a, err := Adjustment(&edit.Set{Devices: []edit.Device{{Path: "/dev/a", HostPath: hostPath, Type: "u", Major: 1, Minor: 3}}}, can)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range a.Linux.Devices {
				if d.Type != "c" || d.Major != 1 || d.Minor != 3 {
					t.Errorf("%+v: adjustment of an unbuffered device: %v", can, d)
				}
			}
			for _, r := range a.Linux.GetResources().GetDevices() {
				if r.Type != "c" {
					t.Errorf("%+v: the rule is %v", can, r)
				}
			}
			_, err = Adjustment(&edit.Set{Devices: []edit.Device{{Path: "/dev/ff", HostPath: hostPath, Type: "p", Origin: edit.Origin{Request: "R", File: "/etc/cdi/f.json"}}}}, can)
			if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), `/etc/cdi/f.json`) || !strings.Contains(err.Error(), `FIFO "/dev/ff"`) || !strings.Contains(err.Error(), "under mounts") {
				t.Errorf("%+v: a FIFO: %v", can, err)
			}
		}
	}
}

// runc creates a bind mount if an option says so, and fails on the type alone.
func TestBindMountHasBindOption(t *testing.T) {
	for _, tc := range []struct {
		mount edit.Mount
		want  string
	}{
		{edit.Mount{}, "bind bind"},
		{edit.Mount{Options: []string{"ro"}}, "bind ro bind"},
		{edit.Mount{Type: "bind", Options: []string{"rbind", "ro"}}, "bind rbind ro"},
		{edit.Mount{Type: "none", Options: []string{"bind"}}, "none bind"},
		{edit.Mount{Type: "tmpfs", Options: []string{"size=1m"}}, "tmpfs size=1m"},
	} {
		a, err := Adjustment(&edit.Set{Mounts: []edit.Mount{tc.mount}}, capability.Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Mounts[0].Type + " " + strings.Join(a.Mounts[0].Options, " "); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.mount, got, tc.want)
		}
	}
}

func TestUnsupportedEditIsRefused(t *testing.T) {
	o := edit.Origin{Request: "R", File: "/etc/cdi/f.json"}
	for name, set := range map[string]*edit.Set{
		"group":          {GIDs: []edit.GID{{ID: 7, Origin: o}}},
		"network device": {NetDevices: []edit.NetDevice{{HostName: "eth1", Name: "n", Origin: o}}},
		"RDT":            {RDT: &edit.RDT{ClosID: "c", Origin: o}},
	} {
		_, err := Adjustment(set, capability.Capabilities{DeviceRules: true})
		if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "/etc/cdi/f.json") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all := capability.Capabilities{NetDevices: true, RDT: true}
	a, err := Adjustment(&edit.Set{NetDevices: []edit.NetDevice{{HostName: "eth1", Name: "n"}}, RDT: &edit.RDT{ClosID: "c", L3CacheSchema: "L3:0=f", EnableMonitoring: true}}, all)
	if err != nil || a.Linux.NetDevices["eth1"].Name != "n" || *a.Linux.Rdt.ClosId.Get() != "c" || a.Linux.Rdt.Schemata.GetValue()[0] != "L3:0=f" {
		t.Errorf("got %v, %v", a, err)
	}
}

func TestCapabilitiesFollowVersionOfNRI(t *testing.T) {
	for version, want := range map[string]capability.Capabilities{
		"": {}, "unknown": {}, "v0.3.0": {}, "0.0.0-unknown": {}, "0.4.0": {Rlimits: true}, "0.6.1": {Rlimits: true}, "v0.7.0": {Rlimits: true},
		"0.8.0":   {Rlimits: true, SyncPreinstalled: true},
		"v0.9.0":  {Rlimits: true, SyncPreinstalled: true},
		"v0.10.0": {Rlimits: true, SyncPreinstalled: true, DeviceRules: true, Validate: true},
		"v0.11.1": {Rlimits: true, SyncPreinstalled: true, DeviceRules: true, NetDevices: true, RDT: true, Validate: true},
		"v0.12.3": {Rlimits: true, SyncPreinstalled: true, DeviceRules: true, NetDevices: true, RDT: true, Validate: true},
		"v0.12.4": {Rlimits: true, SyncPreinstalled: true, DeviceRules: true, NetDevices: true, RDT: true, Validate: true, FailRequest: true},
		"v1.0.0":  {Rlimits: true, SyncPreinstalled: true, DeviceRules: true, NetDevices: true, RDT: true, Validate: true, FailRequest: true},
	} {
		if got := capability.ForVersion(version); got != want {
			t.Errorf("CapabilitiesOf(%q) = %+v, want %+v", version, got, want)
		}
	}
}

// In a user namespace, a node with another path on the host is a mount with a device
// cgroup rule. The runtime binds a node with the same path itself.
func TestNodesInUserNamespace(t *testing.T) {
	set := &edit.Set{Devices: []edit.Device{
		{Path: "/dev/a", HostPath: "/run/v/a", Type: "c", Major: 240, Minor: 3, Access: "r"},
		{Path: "/dev/b", HostPath: "/dev/b", Type: "c", Major: 1, Minor: 5},
		{Path: "/dev/c", HostPath: "/run/v/c", Type: "b", Major: 7, Minor: 0},
	}}
	a, err := Adjustment(set, capability.Capabilities{UserNS: true, DeviceRules: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Linux.Devices; len(got) != 1 || got[0].Path != "/dev/b" {
		t.Errorf("devices: %v", got)
	}
	if got := a.Mounts; len(got) != 2 || got[0].Source != "/run/v/a" || got[0].Destination != "/dev/a" || got[1].Destination != "/dev/c" {
		t.Errorf("mounts: %v", got)
	}
	var rules []string
	for _, r := range a.Linux.Resources.Devices {
		rules = append(rules, fmt.Sprintf("%t %s %d:%d %s", r.Allow, r.Type, r.Major.GetValue(), r.Minor.GetValue(), r.Access))
	}
	if want := []string{"true c 240:3 rw", "false c 240:3 rwm", "true c 240:3 r", "true b 7:0 rwm"}; !slices.Equal(rules, want) {
		t.Errorf("rules %q, want %q", rules, want)
	}
	// Without rules the node is there by its host path as well, once.
	set.Devices[0].Access = ""
	set.Devices = append(set.Devices, edit.Device{Path: "/dev/a2", HostPath: "/run/v/a", Type: "c", Major: 240, Minor: 3})
	if a, err = Adjustment(set, capability.Capabilities{UserNS: true}); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range a.Linux.Devices {
		paths = append(paths, d.Path)
	}
	if want := []string{"/run/v/a", "/dev/b", "/run/v/c"}; !slices.Equal(paths, want) || len(a.Mounts) != 3 {
		t.Errorf("devices %q, want %q; mounts %v", paths, want, a.Mounts)
	}
	if a, err = Adjustment(set, capability.Capabilities{}); err != nil || len(a.Mounts) != 0 || len(a.Linux.Devices) != 4 {
		t.Errorf("without a user namespace: %v, %v", a, err)
	}
}
