// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func cdi(req string) Origin { return Origin{Source: CDI, Request: req, File: "/etc/cdi/x.json"} }
func att(req string) Origin { return Origin{Source: Attachment, Request: req, File: "/run/devinfo/f"} }

func wantConflict(t *testing.T, err error, names ...string) {
	t.Helper()
	if !errdefs.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	for _, n := range names {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("conflict does not name %q: %v", n, err)
		}
	}
}

func TestCDIEditsReplaceOnlyCDIEdits(t *testing.T) {
	b := NewBuilder(Existing{})
	testkit.Must(t,
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Origin: cdi("one")}),
		b.AddDevice(&Device{Path: "/dev/b", Type: "c", Major: 1, Minor: 3, Origin: cdi("one")}),
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: cdi("two")}),
		b.AddEnv(&Env{Name: "E", Value: "1", Origin: cdi("one")}),
		b.AddEnv(&Env{Name: "F", Value: "1", Origin: cdi("one")}),
		b.AddEnv(&Env{Name: "E", Value: "2", Origin: cdi("two")}),
		b.AddMount(&Mount{Destination: "/m", Source: "/1", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/m", Source: "/2", Origin: cdi("two")}))
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 9, Minor: 9, Origin: att("net1")}), "/dev/a", "net1", "two", "9:9")
	wantConflict(t, b.AddEnv(&Env{Name: "E", Value: "3", Origin: att("net1")}), `"E"`, "net1", "two")
	wantConflict(t, b.AddMount(&Mount{Destination: "/m", Source: "/3", Origin: att("net1")}), `"/m"`, "net1", "two")
	s := b.Set()
	if s.Devices[0].Path != "/dev/b" || s.Devices[1].Minor != 5 {
		t.Errorf("a replacing device must be last: %+v", s.Devices)
	}
	if s.Env[0].Value != "2" || s.Env[1].Name != "F" {
		t.Errorf("a replacing variable must keep its position: %+v", s.Env)
	}
	if len(s.Mounts) != 1 || s.Mounts[0].Source != "/2" {
		t.Errorf("mounts are %+v", s.Mounts)
	}
}

func TestEqualEditsAreMerged(t *testing.T) {
	b := NewBuilder(Existing{})
	d := Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "r", Origin: cdi("one")}
	testkit.Must(t, b.AddDevice(&d))
	d.Origin, d.Access = att("net1"), "w"
	testkit.Must(t, b.AddDevice(&d))
	m := Mount{Destination: "/var/run/x", Source: "/s", Options: []string{"ro"}, Origin: att("net1")}
	testkit.Must(t, b.AddMount(&m))
	m.Destination = "/run/x"
	testkit.Must(t, b.AddMount(&m))
	s := b.Set()
	if len(s.Devices) != 1 || s.Devices[0].Access != "rw" {
		t.Errorf("devices are %+v, want one with rw", s.Devices)
	}
	if len(s.Mounts) != 1 {
		t.Errorf("/var/run/x and /run/x are two mounts: %+v", s.Mounts)
	}
}

func TestExistingThingsAreNotReplaced(t *testing.T) {
	b := NewBuilder(Existing{
		Devices: []Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3}},
		Mounts:  []Mount{{Destination: "/m", Source: "/s"}},
		Hooks:   []Hook{{Stage: Prestart, Path: "/h", Args: []string{"h"}}},
		Env:     []string{"E=1"},
	})
	testkit.Must(t,
		b.AddDevice(&Device{Path: "/dev//a", Type: "c", Major: 1, Minor: 3, Origin: cdi("one")}),
		b.AddDevice(&Device{Path: "/dev/a", Type: "u", Major: 1, Minor: 3, Origin: cdi("one")}), // the kernel's other name for c
		b.AddMount(&Mount{Destination: "/m/", Source: "/s", Options: []string{"ro"}, Origin: cdi("one")}),
		b.AddEnv(&Env{Name: "E", Value: "1", Origin: cdi("one")}))
	b.AddHook(&Hook{Stage: Prestart, Path: "/h", Args: []string{"h"}, Origin: cdi("one")})
	if b.Changes() != 0 {
		t.Errorf("%d changes", b.Changes())
	}
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: cdi("one")}), "as the runtime created it", "1:3", "1:5")
	wantConflict(t, b.AddMount(&Mount{Destination: "/m", Source: "/t", Origin: cdi("one")}), "as the runtime created it", "/t")
	// A CDI variable replaces the container's, as CDI prescribes.
	testkit.Must(t, b.AddEnv(&Env{Name: "E", Value: "2", Origin: cdi("one")}))
	s := b.Set()
	if len(s.Env) != 1 || s.Env[0].Value != "2" || len(s.Devices)+len(s.Mounts)+len(s.Hooks) != 0 {
		t.Errorf("the set is %+v", s)
	}
}

func TestCDIReplacesExistingThings(t *testing.T) {
	have := Existing{
		Devices:     []Device{{Path: "/dev//a", Type: "c", Major: 1, Minor: 3}, {Path: "/dev/b", Type: "c", Major: 1, Minor: 3}},
		Mounts:      []Mount{{Destination: "/m/", Source: "/s"}, {Destination: "/n", Source: "/s"}, {Destination: "/var/run/x", Source: "/s"}},
		CDIReplaces: true,
	}
	b := NewBuilder(have)
	base := b
	b = base.Delta()
	testkit.Must(t,
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/m", Source: "/t", Origin: cdi("one")}))
	if b.Changes() != 2 {
		t.Errorf("%d changes", b.Changes())
	}
	// The replaced items are removed, and their replacements are claimed.
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Origin: att("net1")}), "one", "net1")
	wantConflict(t, b.AddMount(&Mount{Destination: "/m", Source: "/s", Origin: att("net1")}), "one", "net1")
	// Only CDI replaces.
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/b", Type: "c", Major: 1, Minor: 5, Origin: att("net1")}), "as the runtime created it")
	wantConflict(t, b.AddMount(&Mount{Destination: "/n", Source: "/t", Origin: att("net1")}), "as the runtime created it")
	// The base of the delta is unchanged.
	wantConflict(t, base.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: att("net1")}), "as the runtime created it")
	if have.Devices[0].Path != "/dev//a" || have.Mounts[0].Destination != "/m/" {
		t.Error("the caller's lists were changed")
	}
}

// The OCI runtime makes device nodes after the mounts, and none that a bind mount covers.
func TestBindMountHidesDevice(t *testing.T) {
	bind := func(source, destination string, options ...string) Mount {
		return Mount{Source: source, Destination: destination, Type: "bind", Options: options, Origin: cdi("mount")}
	}
	for name, tc := range map[string]struct {
		mount   Mount
		device  Device
		visible bool
	}{
		"/dev of the host, renamed node":    {bind("/dev", "/dev"), Device{Path: "/dev/vf0", HostPath: "/dev/loop0"}, false},
		"/dev of the host, the node itself": {bind("/dev", "/dev"), Device{Path: "/dev/vf0", HostPath: "/dev/vf0"}, true},
		"/dev of the host, no host path":    {bind("/dev/", "/dev/"), Device{Path: "/dev/vf0"}, true},
		"a directory of the host":           {bind("/dev/vfio", "/dev/vfio"), Device{Path: "/dev/vfio/13", HostPath: "/dev/vfio/13"}, true},
		"a directory of the host, renamed":  {bind("/dev/vfio", "/dev/vfio"), Device{Path: "/dev/vfio/0", HostPath: "/dev/vfio/13"}, false},
		"a volume at the node":              {bind("/volume", "/dev/vf0"), Device{Path: "/dev/vf0", HostPath: "/dev/vf0"}, false},
		"a volume above the node":           {bind("/volume", "/dev/vfio"), Device{Path: "/dev/vfio/13", HostPath: "/dev/vfio/13"}, false},
		"the node, mounted by hand":         {bind("/dev/loop0", "/dev/vf0"), Device{Path: "/dev/vf0", HostPath: "/dev/loop0"}, true},
		"/run for /var/run":                 {bind("/volume", "/var/run/x"), Device{Path: "/run/x/d", HostPath: "/dev/d"}, false},
		"rbind without a type":              {Mount{Source: "/dev", Destination: "/dev", Options: []string{"rbind"}}, Device{Path: "/dev/a", HostPath: "/dev/b"}, false},
		"the tmpfs of the runtime":          {Mount{Source: "tmpfs", Destination: "/dev", Type: "tmpfs"}, Device{Path: "/dev/a", HostPath: "/dev/b"}, true},
		"a mount beside the node":           {bind("/volume", "/dev/vf"), Device{Path: "/dev/vf0", HostPath: "/dev/x"}, true},
	} {
		tc.device.Type, tc.device.Origin = "c", cdi("device")
		b := NewBuilder(Existing{Mounts: []Mount{tc.mount}}).Delta()
		testkit.Must(t, b.AddDevice(&tc.device))
		if err := b.HiddenDevice(); (err == nil) != tc.visible {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCDIReplacesRuntimeMounts checks mounts that the runtime makes into every container, such as /dev/shm.
func TestCDIReplacesRuntimeMounts(t *testing.T) {
	b := NewBuilder(Existing{
		Mounts:      []Mount{{Destination: "/dev/shm", Source: "/sandbox/shm"}, {Destination: "/data", Source: "/volume"}, {Destination: "/etc/hostname", Source: "/sandbox/h"}},
		Replaceable: []string{"/dev/shm", "/etc/hostname"},
	})
	testkit.Must(t,
		b.AddMount(&Mount{Destination: "/dev/shm/", Source: "/mps", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/new", Source: "/mps", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/etc/hostname", Source: "/sandbox/h", Origin: cdi("one")}))
	wantConflict(t, b.AddMount(&Mount{Destination: "/data", Source: "/mps", Origin: cdi("one")}), "remove the pod's mount or the request")
	wantConflict(t, b.AddMount(&Mount{Destination: "/dev/shm", Source: "/sandbox/shm", Origin: att("net1")}), "one", "net1")
	wantConflict(t, b.AddMount(&Mount{Destination: "/etc/hostname", Source: "/x", Origin: att("net1")}), "as the runtime created it")
	var visible []string
	b.Mounts(func(m *Mount) bool { visible = append(visible, m.Destination+" "+m.Source); return true })
	if got := strings.Join(visible, ", "); got != "/data /volume, /etc/hostname /sandbox/h, /dev/shm/ /mps, /new /mps" {
		t.Errorf("the container has %s", got)
	}
	if m := b.Set().Mounts; len(m) != 2 || m[0].Replaces != "" || m[1].Replaces != "/dev/shm" {
		t.Errorf("the set has %+v", m)
	}
}

// TestWidenedAccessIsAChange checks that access that only one of two requests brings counts as a change of that request.
func TestWidenedAccessIsAChange(t *testing.T) {
	b := NewBuilder(Existing{})
	testkit.Must(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "r", Origin: cdi("one")}))
	testkit.Must(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "r", Origin: att("net1")}))
	if d := b.Edits().Devices[0]; b.Changes() != 1 || d.Origin != cdi("one") {
		t.Errorf("the same access: %d changes, %+v", b.Changes(), d)
	}
	testkit.Must(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "w", Origin: att("net1")}))
	if d := b.Edits().Devices[0]; b.Changes() != 2 || d.Access != "rw" || d.Origin != att("net1") {
		t.Errorf("more access: %d changes, %+v", b.Changes(), d)
	}
}

func TestAccessOfNodeOfTwoCDIDevices(t *testing.T) {
	for _, tc := range []struct{ first, second, want string }{
		{"rw", "r", "rw"}, {"r", "w", "rw"}, {"mr", "mr", "mr"}, {"", "r", ""}, {"none", "r", "r"}, {"none", "none", "none"},
	} {
		b := NewBuilder(Existing{})
		for _, access := range []string{tc.first, tc.second} {
			testkit.Must(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: access, Origin: cdi("one")}))
		}
		if d := b.Set().Devices; len(d) != 1 || d[0].Access != tc.want {
			t.Errorf("%q and %q: %+v, want %q", tc.first, tc.second, d, tc.want)
		}
	}
	// Another node at that path replaces the first one with its access.
	b := NewBuilder(Existing{})
	testkit.Must(t,
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "rwm", Origin: cdi("one")}),
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Access: "r", Origin: cdi("two")}))
	if d := b.Set().Devices; len(d) != 1 || d[0].Access != "r" {
		t.Errorf("devices are %+v", d)
	}
}

func TestCDIMountsBelowRunAndVarRunAreBothKept(t *testing.T) {
	b := NewBuilder(Existing{})
	testkit.Must(t,
		b.AddMount(&Mount{Destination: "/run/x", Source: "/1", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/var/run/x", Source: "/1", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/run//x", Source: "/2", Origin: cdi("two")}))
	if m := b.Set().Mounts; len(m) != 2 || m[0].Destination != "/var/run/x" || m[1].Source != "/2" {
		t.Errorf("mounts are %+v", m)
	}
}

func TestLastVariableOfANameCounts(t *testing.T) {
	b := NewBuilder(Existing{Env: []string{"A=1", "A=2", "NOTHING"}})
	testkit.Must(t, b.AddEnv(&Env{Name: "A", Value: "2", Origin: cdi("one")}))
	if b.Changes() != 0 {
		t.Error("an existing variable was added")
	}
	testkit.Must(t, b.AddEnv(&Env{Name: "A", Value: "1", Origin: cdi("one")}), b.AddEnv(&Env{Name: "NOTHING", Value: "", Origin: cdi("one")}))
	if s := b.Set(); len(s.Env) != 2 {
		t.Errorf("env is %+v", s.Env)
	}
}

func TestEqualHooksAreAllKept(t *testing.T) {
	b := NewBuilder(Existing{})
	for range 2 {
		b.AddHook(&Hook{Stage: CreateRuntime, Path: "/h", Origin: cdi("one")})
	}
	if s := b.Set(); len(s.Hooks) != 2 {
		t.Errorf("hooks are %+v", s.Hooks)
	}
}

func TestMountsAreSortedByDepth(t *testing.T) {
	b := NewBuilder(Existing{})
	for _, d := range []string{"/a/b/c", "/z", "/a", "/var/run/x", "/a/b"} {
		testkit.Must(t, b.AddMount(&Mount{Destination: d, Source: "/s" + d, Origin: cdi("one")}))
	}
	var got []string
	for _, m := range b.Set().Mounts {
		got = append(got, m.Destination)
	}
	if diff := cmp.Diff([]string{"/z", "/a", "/var/run/x", "/a/b", "/a/b/c"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNetDevicesAndGroups(t *testing.T) {
	b := NewBuilder(Existing{})
	testkit.Must(t, b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net1", Origin: cdi("one")}), b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net1", Origin: cdi("two")}))
	wantConflict(t, b.AddNetDevice(NetDevice{HostName: "eth2", Name: "net1", Origin: cdi("two")}), "eth2", "one", "two")
	wantConflict(t, b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net2", Origin: cdi("two")}), "eth1")
	for _, g := range []uint32{0, 7, 7, 8} {
		b.AddGID(GID{ID: g})
	}
	if s := b.Set(); len(s.NetDevices) != 1 || len(s.GIDs) != 2 {
		t.Errorf("the set is %+v", s)
	}
}

// TestDeltaChangesItsBaseOnlyByMerge also checks that a merged delta has the effect of the same edits without a delta.
func TestDeltaChangesItsBaseOnlyByMerge(t *testing.T) {
	addFirst := func(b *Builder) {
		testkit.Must(t,
			b.AddEnv(&Env{Name: "A", Value: "1", Origin: cdi("one")}), b.AddEnv(&Env{Name: "B", Value: "1", Origin: cdi("one")}),
			b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "r", Origin: cdi("one")}),
			b.AddDevice(&Device{Path: "/dev/b", Type: "c", Major: 1, Minor: 3, Access: "r", Origin: cdi("one")}),
			b.AddMount(&Mount{Destination: "/m", Source: "/1", Origin: cdi("one")}), b.AddMount(&Mount{Destination: "/n", Source: "/1", Origin: cdi("one")}),
			b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net1", Origin: cdi("one")}))
		b.AddGID(GID{ID: 7})
		b.SetRDT(RDT{ClosID: "one"})
	}
	addSecond := func(b *Builder) {
		testkit.Must(t,
			b.AddEnv(&Env{Name: "A", Value: "2", Origin: cdi("two")}), b.AddEnv(&Env{Name: "C", Value: "2", Origin: cdi("two")}),
			b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "w", Origin: cdi("two")}),
			b.AddDevice(&Device{Path: "/dev/b", Type: "c", Major: 1, Minor: 3, Access: "w", Origin: att("net1")}),
			b.AddMount(&Mount{Destination: "/m", Source: "/2", Origin: cdi("two")}),
			b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net1", Origin: cdi("two")}), b.AddNetDevice(NetDevice{HostName: "eth2", Name: "net2", Origin: cdi("two")}))
		wantConflict(t, b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net3", Origin: cdi("two")}), "eth1")
		wantConflict(t, b.AddEnv(&Env{Name: "B", Value: "2", Origin: att("net1")}), `"B"`, "net1")
		b.AddHook(&Hook{Stage: Prestart, Path: "/h", Origin: cdi("two")})
		b.AddGID(GID{ID: 7})
		b.AddGID(GID{ID: 8})
		b.SetRDT(RDT{ClosID: "two"})
	}
	direct, first, base := NewBuilder(Existing{}), NewBuilder(Existing{}), NewBuilder(Existing{})
	addFirst(direct)
	addSecond(direct)
	addFirst(first)
	addFirst(base)
	delta := base.Delta()
	addSecond(delta)
	if diff := cmp.Diff(first.Edits(), base.Edits()); diff != "" {
		t.Errorf("the delta changed its base: %s", diff)
	}
	if e := delta.Edits(); len(e.Env) != 2 || len(e.Devices) != 2 || len(e.Mounts) != 1 || len(e.NetDevices) != 1 || len(e.GIDs) != 1 {
		t.Errorf("the delta has edits of its base: %+v", e)
	}
	preview := delta.Preview()
	if diff := cmp.Diff(first.Edits(), base.Edits()); diff != "" {
		t.Errorf("the preview changed the base: %s", diff)
	}
	base.Merge(delta)
	if diff := cmp.Diff(base.Edits(), preview); diff != "" {
		t.Errorf("preview: %s", diff)
	}
	if diff := cmp.Diff(direct.Set(), base.Set()); diff != "" || base.Changes() != direct.Changes() {
		t.Errorf("merged: %d changes instead of %d, %s", base.Changes(), direct.Changes(), diff)
	}
}

func TestIsUnderKnowsRunAlias(t *testing.T) {
	for _, tc := range []struct {
		dir, p string
		want   bool
	}{{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/", "/x", true}, {"/var/run", "/run/x", true}, {"/run", "/var/run/x/../y", true}, {"/var/runx", "/run", false}} {
		if got := IsUnder(tc.dir, tc.p); got != tc.want {
			t.Errorf("IsUnder(%q, %q) = %v", tc.dir, tc.p, got)
		}
	}
}

func TestSameContainerPath(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"/a", "/a", true}, {"/a", "/a/", true}, {"/a/.", "/a", true}, {"/a/b/..", "/a", true}, {"/run/x", "/var/run/x", true}, {"a", "/a", true}, {"", "/", true}, {"/a", "/b", false}, {"/xa", "/ya", false}} {
		if got := SameContainerPath(tc.a, tc.b); got != tc.want {
			t.Errorf("SameContainerPath(%q, %q) = %v", tc.a, tc.b, got)
		}
		if got := SameContainerPath(tc.b, tc.a); got != tc.want {
			t.Errorf("SameContainerPath(%q, %q) = %v", tc.b, tc.a, got)
		}
	}
}

// TestDepthIgnoresUncleanForm covers paths that are not clean.
func TestDepthIgnoresUncleanForm(t *testing.T) {
	for _, p := range []string{"", "/", "//", "/.", "/..", ".", "..", "a", "a/b", "/a", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/.b", "/a.b/c", "/a/b/c", "a/../..", "/var/run/x", "x/y/"} {
		if got, want := Depth(p), strings.Count(path.Clean(p), "/"); got != want {
			t.Errorf("%q: %d, want %d", p, got, want)
		}
	}
}

func TestLastEnvFindsVariableThatCounts(t *testing.T) {
	for _, tc := range []struct {
		env  []string
		name string
		want int
	}{
		{[]string{"A=1", "A=2", "B=3"}, "A", 1},
		{[]string{"AB=1", "A=2"}, "A", 1},
		{[]string{"A=2", "AB=1"}, "A", 0},
		{[]string{"A", "B"}, "A", 0},
		{[]string{"A=1", "A"}, "A", 1},
		{[]string{"NOTHING=1"}, "N", -1},
		{nil, "A", -1},
	} {
		if got := LastEnv(tc.env, tc.name); got != tc.want {
			t.Errorf("LastEnv(%q, %q) = %d, want %d", tc.env, tc.name, got, tc.want)
		}
	}
}

// "all" of a kind can be thousands of devices, within the runtime's deadline. A list that is searched for each
// edit would take a minute.
func TestTimeOfEditsIsProportionalToTheirNumber(t *testing.T) {
	b := NewBuilder(Existing{CDIReplaces: true})
	testkit.Cheap(t, 10*time.Second, func() {
		for i := range 40_000 {
			n := strconv.Itoa(i)
			testkit.Must(t,
				b.AddDevice(&Device{Path: "/dev/shared", Type: "c", Major: 1, Minor: 3, Origin: cdi("a")}),
				b.AddDevice(&Device{Path: "/dev/d" + n, Type: "c", Major: 2, Minor: int64(i), Origin: cdi("a")}),
				b.AddMount(&Mount{Source: "/usr", Destination: "/shared", Origin: cdi("a")}),
				b.AddMount(&Mount{Source: "/usr", Destination: "/m/" + n, Origin: cdi("a")}),
				b.AddEnv(&Env{Name: "SHARED", Value: n, Origin: cdi("a")}),
				b.AddEnv(&Env{Name: "V" + n, Origin: cdi("a")}),
			)
		}
	})
	set := b.Set()
	if len(set.Devices) != 40_001 || len(set.Mounts) != 40_001 || len(set.Env) != 40_001 {
		t.Errorf("%d devices, %d mounts, %d variables", len(set.Devices), len(set.Mounts), len(set.Env))
	}
	if last := set.Devices[len(set.Devices)-2]; last.Path != "/dev/shared" {
		t.Errorf("the shared device is not at the position of the last request: %s", last.Path)
	}
}
