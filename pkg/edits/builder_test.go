// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

func cdi(req string) Origin { return Origin{Source: CDI, Request: req, File: "/etc/cdi/x.json"} }
func att(req string) Origin { return Origin{Source: Attachment, Request: req, File: "/run/devinfo/f"} }

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func wantConflict(t *testing.T, err error, names ...string) {
	t.Helper()
	var c *ConflictError
	if !errors.As(err, &c) || !errdefs.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	for _, n := range names {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("the conflict does not name %q: %v", n, err)
		}
	}
}

func TestCDIDevicesReplaceEachOtherAndNobodyElse(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{})
	must(t,
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
		t.Errorf("a replaced device goes to the end: %+v", s.Devices)
	}
	if s.Env[0].Value != "2" || s.Env[1].Name != "F" {
		t.Errorf("a replaced variable stays in place: %+v", s.Env)
	}
	if len(s.Mounts) != 1 || s.Mounts[0].Source != "/2" {
		t.Errorf("mounts are %+v", s.Mounts)
	}
}

func TestTheSameEditTwiceIsOne(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{})
	d := Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "r", Origin: cdi("one")}
	must(t, b.AddDevice(&d))
	d.Origin, d.Access = att("net1"), "w"
	must(t, b.AddDevice(&d))
	m := Mount{Destination: "/var/run/x", Source: "/s", Options: []string{"ro"}, Origin: att("net1")}
	must(t, b.AddMount(&m))
	m.Destination = "/run/x"
	must(t, b.AddMount(&m))
	s := b.Set()
	if len(s.Devices) != 1 || s.Devices[0].Access != "rw" {
		t.Errorf("devices are %+v, want one with rw", s.Devices)
	}
	if len(s.Mounts) != 1 {
		t.Errorf("/var/run/x and /run/x are two mounts: %+v", s.Mounts)
	}
}

func TestWhatTheContainerHasIsLeftAsItIs(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{
		Devices: []Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3}},
		Mounts:  []Mount{{Destination: "/m", Source: "/s"}},
		Hooks:   []Hook{{Stage: Prestart, Path: "/h", Args: []string{"h"}}},
		Env:     []string{"E=1"},
	})
	must(t,
		b.AddDevice(&Device{Path: "/dev//a", Type: "c", Major: 1, Minor: 3, Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/m/", Source: "/s", Options: []string{"ro"}, Origin: cdi("one")}),
		b.AddEnv(&Env{Name: "E", Value: "1", Origin: cdi("one")}))
	b.AddHook(&Hook{Stage: Prestart, Path: "/h", Args: []string{"h"}, Origin: cdi("one")})
	if b.Changes() != 0 {
		t.Errorf("%d changes", b.Changes())
	}
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: cdi("one")}), "as the runtime made it", "1:3", "1:5")
	wantConflict(t, b.AddMount(&Mount{Destination: "/m", Source: "/t", Origin: cdi("one")}), "as the runtime made it", "/t")
	// A variable of CDI takes the place of the container's, as CDI prescribes.
	must(t, b.AddEnv(&Env{Name: "E", Value: "2", Origin: cdi("one")}))
	s := b.Set()
	if len(s.Env) != 1 || s.Env[0].Value != "2" || len(s.Devices)+len(s.Mounts)+len(s.Hooks) != 0 {
		t.Errorf("the set is %+v", s)
	}
}

func TestCDIReplacesWhereThePersonWantsIt(t *testing.T) {
	have := Existing{
		Devices:     []Device{{Path: "/dev//a", Type: "c", Major: 1, Minor: 3}, {Path: "/dev/b", Type: "c", Major: 1, Minor: 3}},
		Mounts:      []Mount{{Destination: "/m/", Source: "/s"}, {Destination: "/n", Source: "/s"}, {Destination: "/var/run/x", Source: "/s"}},
		CDIReplaces: true,
	}
	b := NewBuilder(&Set{}, have)
	before := b.Clone()
	must(t,
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/m", Source: "/t", Origin: cdi("one")}))
	if b.Changes() != 2 {
		t.Errorf("%d changes", b.Changes())
	}
	// What was replaced is gone, and what came instead is claimed.
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Origin: att("net1")}), "one", "net1")
	wantConflict(t, b.AddMount(&Mount{Destination: "/m", Source: "/s", Origin: att("net1")}), "one", "net1")
	// Nobody else replaces anything.
	wantConflict(t, b.AddDevice(&Device{Path: "/dev/b", Type: "c", Major: 1, Minor: 5, Origin: att("net1")}), "as the runtime made it")
	wantConflict(t, b.AddMount(&Mount{Destination: "/n", Source: "/t", Origin: att("net1")}), "as the runtime made it")
	// A copy made before still has everything.
	wantConflict(t, before.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Origin: att("net1")}), "as the runtime made it")
	if have.Devices[0].Path != "/dev//a" || have.Mounts[0].Destination != "/m/" {
		t.Error("the caller's lists were changed")
	}
}

func TestOneNodeForTwoCDIDevices(t *testing.T) {
	for _, tc := range []struct{ first, second, want string }{
		{"rw", "r", "rw"}, {"r", "w", "rw"}, {"mr", "mr", "mr"}, {"", "r", ""}, {"none", "r", "r"}, {"none", "none", "none"},
	} {
		b := NewBuilder(&Set{}, Existing{})
		for _, access := range []string{tc.first, tc.second} {
			must(t, b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: access, Origin: cdi("one")}))
		}
		if d := b.Set().Devices; len(d) != 1 || d[0].Access != tc.want {
			t.Errorf("%q and %q: %+v, want %q", tc.first, tc.second, d, tc.want)
		}
	}
	// Another node at that path: the rights of the first go with it.
	b := NewBuilder(&Set{}, Existing{})
	must(t,
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "rwm", Origin: cdi("one")}),
		b.AddDevice(&Device{Path: "/dev/a", Type: "c", Major: 1, Minor: 5, Access: "r", Origin: cdi("two")}))
	if d := b.Set().Devices; len(d) != 1 || d[0].Access != "r" {
		t.Errorf("devices are %+v", d)
	}
}

func TestCDIMountsAtRunAndVarRunAreTwo(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{})
	must(t,
		b.AddMount(&Mount{Destination: "/run/x", Source: "/1", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/var/run/x", Source: "/1", Origin: cdi("one")}),
		b.AddMount(&Mount{Destination: "/run//x", Source: "/2", Origin: cdi("two")}))
	if m := b.Set().Mounts; len(m) != 2 || m[0].Destination != "/var/run/x" || m[1].Source != "/2" {
		t.Errorf("mounts are %+v", m)
	}
}

func TestTheLastOfTwoVariablesCounts(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{Env: []string{"A=1", "A=2", "NOTHING"}})
	must(t, b.AddEnv(&Env{Name: "A", Value: "2", Origin: cdi("one")}))
	if b.Changes() != 0 {
		t.Error("a variable that is there was added")
	}
	must(t, b.AddEnv(&Env{Name: "A", Value: "1", Origin: cdi("one")}), b.AddEnv(&Env{Name: "NOTHING", Value: "", Origin: cdi("one")}))
	if s := b.Set(); len(s.Env) != 2 {
		t.Errorf("env is %+v", s.Env)
	}
}

func TestHooksAccumulate(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{})
	for range 2 {
		b.AddHook(&Hook{Stage: CreateRuntime, Path: "/h", Origin: cdi("one")})
	}
	if s := b.Set(); len(s.Hooks) != 2 {
		t.Errorf("hooks are %+v", s.Hooks)
	}
}

func TestMountsAreSortedByDepth(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{})
	for _, d := range []string{"/a/b/c", "/z", "/a", "/var/run/x", "/a/b"} {
		must(t, b.AddMount(&Mount{Destination: d, Source: "/s" + d, Origin: cdi("one")}))
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
	b := NewBuilder(&Set{}, Existing{})
	must(t, b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net1", Origin: cdi("one")}), b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net1", Origin: cdi("two")}))
	wantConflict(t, b.AddNetDevice(NetDevice{HostName: "eth2", Name: "net1", Origin: cdi("two")}), "eth2", "one", "two")
	wantConflict(t, b.AddNetDevice(NetDevice{HostName: "eth1", Name: "net2", Origin: cdi("two")}), "eth1")
	for _, g := range []uint32{0, 7, 7, 8} {
		b.AddGID(GID{ID: g})
	}
	if s := b.Set(); len(s.NetDevices) != 1 || len(s.GIDs) != 2 {
		t.Errorf("the set is %+v", s)
	}
}

func TestCloneSharesNothingThatChanges(t *testing.T) {
	b := NewBuilder(&Set{}, Existing{})
	must(t, b.AddEnv(&Env{Name: "A", Value: "1", Origin: cdi("one")}))
	c := b.Clone()
	must(t, b.AddEnv(&Env{Name: "A", Value: "2", Origin: cdi("two")}), b.AddDevice(&Device{Path: "/dev/a", Origin: cdi("two")}))
	if s := c.Set(); s.Env[0].Value != "1" || len(s.Devices) != 0 {
		t.Errorf("the clone changed: %+v", s)
	}
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		dir, p string
		want   bool
	}{{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/", "/x", true}, {"/var/run", "/run/x", true}, {"/run", "/var/run/x/../y", true}, {"/var/runx", "/run", false}} {
		if got := Within(tc.dir, tc.p); got != tc.want {
			t.Errorf("Within(%q, %q) = %v", tc.dir, tc.p, got)
		}
	}
}

func TestSamePlace(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"/a", "/a", true}, {"/a", "/a/", true}, {"/a/.", "/a", true}, {"/a/b/..", "/a", true}, {"/run/x", "/var/run/x", true}, {"a", "/a", true}, {"", "/", true}, {"/a", "/b", false}, {"/xa", "/ya", false}} {
		if got := SamePlace(tc.a, tc.b); got != tc.want {
			t.Errorf("SamePlace(%q, %q) = %v", tc.a, tc.b, got)
		}
		if got := SamePlace(tc.b, tc.a); got != tc.want {
			t.Errorf("SamePlace(%q, %q) = %v", tc.b, tc.a, got)
		}
	}
}

// TestDepth: as path.Clean has it, however a path is spelled.
func TestDepth(t *testing.T) {
	for _, p := range []string{"", "/", "//", "/.", "/..", ".", "..", "a", "a/b", "/a", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/.b", "/a.b/c", "/a/b/c", "a/../..", "/var/run/x", "x/y/"} {
		if got, want := Depth(p), strings.Count(path.Clean(p), "/"); got != want {
			t.Errorf("%q: %d, want %d", p, got, want)
		}
	}
}
