// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr[T any](v T) *T { return &v }

var (
	cdi = edits.Origin{Source: edits.CDI, Request: `CDI device "vendor.com/net=a"`, File: "/etc/cdi/x.json"}
	att = edits.Origin{Source: edits.Attachment, Request: `network "ns/n" on net1`, File: "/run/devinfo/f"}
)

func hook(stage edits.Stage, path string) edits.Hook {
	return edits.Hook{Stage: stage, Path: path, Args: []string{path, "-x"}, Env: []string{"E=1"}, Timeout: ptr(3), Origin: cdi}
}

// cases are the edits whose outcome the golden files hold, applied to base.json.
var cases = map[string]edits.Set{
	"env": {Env: []edits.Env{{Name: "A", Value: "new=<&>"}, {Name: "C", Value: ""}, {Name: "PAT", Value: "x"}}},
	"devices": {Devices: []edits.Device{
		{Path: "/dev/old", Type: "c", Major: 1, Minor: 5, Origin: cdi},
		{Path: "/dev/full", Type: "b", Major: 7, Minor: 0, FileMode: ptr(os.FileMode(0o640)), UID: ptr[uint32](5), GID: ptr[uint32](6), Access: "mr", Origin: cdi},
		{Path: "/dev/att", Type: "c", Major: 1, Minor: 8, Access: "rw", Origin: att},
		{Path: "/dev/none", Type: "c", Major: 1, Minor: 9, Access: edits.NoAccess, Origin: cdi},
		{Path: "/dev/fifo", Type: "p", Origin: cdi},
		{Path: "/dev/unbuffered", Type: "u", Major: 1, Minor: 7, Origin: cdi},
		{Path: "/dev/again", Type: "c", Major: 1, Minor: 8, Access: "rw", Origin: cdi},
	}},
	"no-access": {Devices: []edits.Device{{Path: "/dev/none", Type: "c", Major: 1, Minor: 9, Access: edits.NoAccess, Origin: cdi}}},
	"bound-devices": {Devices: []edits.Device{
		{Path: "/dev/bound", HostPath: "/dev/zero", Type: "c", Major: 1, Minor: 5, Bind: true, Access: "rw", Origin: cdi},
		{Path: "/dev/bound1", HostPath: "/dev/full", Type: "c", Major: 1, Minor: 7, Bind: true, Origin: att},
	}},
	"mounts": {Mounts: []edits.Mount{
		{Destination: "/data", Source: "/new", Type: "bind", Options: []string{"ro", "bind"}, Origin: cdi},
		{Destination: "/a/b/c/d", Source: "/deep", Options: []string{"rbind"}, Origin: cdi},
		{Destination: "/opt", Source: "tmpfs", Type: "tmpfs", Origin: cdi},
	}},
	"hooks": {Hooks: []edits.Hook{
		hook(edits.Prestart, "/1"), hook(edits.CreateRuntime, "/2"), hook(edits.CreateContainer, "/3"), hook(edits.StartContainer, "/4"),
		hook(edits.Poststart, "/5"), hook(edits.Poststop, "/6"), {Stage: edits.Poststop, Path: "/7", Origin: cdi},
	}},
	"net-devices": {NetDevices: []edits.NetDevice{{HostName: "eth1", Name: "net1", Origin: cdi}, {HostName: "eth2", Name: "net2", Origin: cdi}}},
	"rdt":         {RDT: &edits.RDT{ClosID: "gold", L3CacheSchema: "L3:0=f", MemBwSchema: "MB:0=50", Schemata: []string{"L3:0=ff"}, EnableMonitoring: true, Origin: cdi}},
	"gids":        {GIDs: []edits.GID{{ID: 7, Origin: cdi}, {ID: 44, Origin: cdi}, {ID: 7, Origin: cdi}, {ID: 0, Origin: cdi}}},
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func decodeSpec(tb testing.TB, text []byte) *rspec.Spec {
	tb.Helper()
	var s rspec.Spec
	if err := json.Unmarshal(text, &s); err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	return &s
}

// sameSpec compares as runtimes do, for whom an empty list is none.
func sameSpec(a, b *rspec.Spec) string { return cmp.Diff(a, b, cmpopts.EquateEmpty()) }

// applyText applies to a text, and holds what both ways of applying have in common.
func applyText(t *testing.T, text []byte, set *edits.Set) []byte {
	t.Helper()
	c, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Apply(set)
	if err != nil {
		t.Fatal(err)
	}
	spec := decodeSpec(t, text)
	if err := Apply(spec, set); err != nil {
		t.Fatal(err)
	}
	if diff := sameSpec(spec, decodeSpec(t, out)); diff != "" {
		t.Errorf("the value and the text differ: %s", diff)
	}
	return out
}

func TestGolden(t *testing.T) {
	base := read(t, "base.json")
	for name, set := range cases {
		t.Run(name, func(t *testing.T) {
			out := applyText(t, base, &set)
			file := name + ".golden"
			if *update {
				if err := os.WriteFile(filepath.Join("testdata", file), out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, file)), string(out)); diff != "" {
				t.Error(diff)
			}
			if again := applyText(t, out, &set); !bytes.Equal(again, out) && len(set.Hooks) == 0 {
				t.Errorf("a second time it changes: %s", cmp.Diff(string(out), string(again)))
			}
		})
	}
}

func TestEmptySpecGetsEverything(t *testing.T) {
	for name, set := range cases {
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{
				`{"ociVersion":"1.0.0"}`,
				"{\n  \"ociVersion\": \"1.0.0\"\n}\n",
				`{"ociVersion":"1.0.0","process":null,"mounts":null,"hooks":null,"linux":null}`,
				`{"ociVersion":"1.0.0","process":{},"mounts":[],"hooks":{},"linux":{}}`,
				`{"ociVersion":"1.0.0","process":{"user":{},"env":null},"hooks":{"prestart":null},"linux":{"devices":[],"resources":{},"netDevices":{},"intelRdt":null}}`,
			} {
				applyText(t, []byte(text), &set)
			}
		})
	}
	out := applyText(t, []byte("{\n  \"ociVersion\": \"1.0.0\"\n}\n"), ptr(cases["gids"]))
	want := "{\n  \"ociVersion\": \"1.0.0\",\n  \"process\": {\n    \"user\": {\n      \"additionalGids\": [\n        7,\n        44\n      ]\n    }\n  }\n}\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsDoneForNothing(t *testing.T) {
	if err := Apply(nil, &edits.Set{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a nil spec: %v", err)
	}
	spec := &rspec.Spec{}
	for _, set := range []*edits.Set{nil, {}} {
		if err := Apply(spec, set); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(&rspec.Spec{}, spec); diff != "" {
		t.Error(diff)
	}
	text := []byte(` {"ociVersion":"1" , "linux":{} } `)
	c, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Apply(nil); err != nil || !bytes.Equal(out, text) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestUserNamespaceMapsBindMounts(t *testing.T) {
	for _, tc := range []struct {
		typ     string
		options []string
		want    string
		origin  edits.Origin
	}{
		{typ: "bind", want: "idmap", origin: cdi},
		{typ: "bind", options: []string{"rbind"}, want: "rbind ridmap", origin: cdi},
		{options: []string{"ro", "bind"}, want: "ro bind idmap", origin: cdi},
		{options: []string{"bind", "ridmap"}, want: "bind ridmap", origin: cdi},
		{options: []string{"rbind", "bind"}, want: "rbind bind idmap", origin: cdi},
		{typ: "tmpfs", options: []string{"mode=755"}, want: "mode=755", origin: cdi},
		{typ: "bind", options: []string{"bind"}, want: "bind", origin: att},
	} {
		set := &edits.Set{Mounts: []edits.Mount{{Destination: "/m", Source: "/s", Type: tc.typ, Options: tc.options, Origin: tc.origin}}}
		spec := &rspec.Spec{Linux: &rspec.Linux{Namespaces: []rspec.LinuxNamespace{{Type: rspec.PIDNamespace}, {Type: rspec.UserNamespace}}}}
		if err := Apply(spec, set); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(spec.Mounts[0].Options, " "); got != tc.want {
			t.Errorf("%q %v: %q, want %q", tc.typ, tc.options, got, tc.want)
		}
		spec = &rspec.Spec{}
		if err := Apply(spec, set); err != nil || len(spec.Mounts[0].Options) != len(tc.options) {
			t.Errorf("without a user namespace: %v, %v", spec.Mounts[0].Options, err)
		}
	}
}

// What is mounted on the host later reaches a mount that is to have it, whatever the
// root was; CDI's own mounts are left to those who wrote them.
func TestTheRootFollowsAStagedMount(t *testing.T) {
	for _, tc := range []struct {
		have, want string
		origin     edits.Origin
	}{
		{"", "rslave", att}, {"private", "rslave", att}, {"rprivate", "rslave", att}, {"slave", "slave", att}, {"rshared", "rshared", att}, {"", "", cdi},
	} {
		set := &edits.Set{Mounts: []edits.Mount{{Destination: "/m", Source: "/s", Type: "bind", Options: []string{"rbind", "rslave"}, Origin: tc.origin}}}
		text := `{"ociVersion":"1","linux":{"rootfsPropagation":"` + tc.have + `","cgroupsPath":"/c"}}`
		if tc.have == "" {
			text = `{"ociVersion":"1"}`
		}
		if l := decodeSpec(t, applyText(t, []byte(text), set)).Linux; (l == nil && tc.want != "") || l != nil && l.RootfsPropagation != tc.want {
			t.Errorf("%q: %+v, want %q", tc.have, l, tc.want)
		}
	}
}

func TestOnlyTheFirstMountAtAPlaceGoes(t *testing.T) {
	spec := &rspec.Spec{Mounts: []rspec.Mount{{Destination: "/a/b"}, {Destination: "/m/", Source: "1"}, {Destination: "/m", Source: "2"}}}
	if err := Apply(spec, &edits.Set{Mounts: []edits.Mount{{Destination: "/m", Source: "3"}}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range spec.Mounts {
		got = append(got, m.Destination+" "+m.Source)
	}
	if diff := cmp.Diff([]string{"/m 2", "/m 3", "/a/b "}, got); diff != "" {
		t.Error(diff)
	}
}

func TestARuleIsAddedWhereItIsNeeded(t *testing.T) {
	allow := func(access string) rspec.LinuxDeviceCgroup {
		return rspec.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](3), Access: access}
	}
	deny := rspec.LinuxDeviceCgroup{Access: "rwm"}
	set := &edits.Set{Devices: []edits.Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "rw"}}}
	for name, tc := range map[string]struct {
		have []rspec.LinuxDeviceCgroup
		want int
	}{
		"none":        {nil, 1},
		"there":       {[]rspec.LinuxDeviceCgroup{deny, allow("rw")}, 2},
		"denied":      {[]rspec.LinuxDeviceCgroup{allow("rw"), deny}, 3},
		"less":        {[]rspec.LinuxDeviceCgroup{allow("r")}, 2},
		"any numbers": {[]rspec.LinuxDeviceCgroup{{Allow: true, Type: "c", Access: "rw"}}, 2},
	} {
		spec := &rspec.Spec{Linux: &rspec.Linux{Resources: &rspec.LinuxResources{Devices: tc.have}}}
		if err := Apply(spec, set); err != nil {
			t.Fatal(err)
		}
		if got := spec.Linux.Resources.Devices; len(got) != tc.want || !got[len(got)-1].Allow {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAnErrorLeavesTheSpecAsItWas(t *testing.T) {
	all := edits.Set{RDT: cases["rdt"].RDT, Env: cases["env"].Env, Devices: cases["devices"].Devices, Mounts: cases["mounts"].Mounts, GIDs: cases["gids"].GIDs, Hooks: cases["hooks"].Hooks}
	net, stage, own := all, all, all
	net.NetDevices = []edits.NetDevice{{HostName: "eth1", Name: "net1", Origin: cdi}, {HostName: "eth2", Name: "net1", Origin: att}}
	own.NetDevices = []edits.NetDevice{{HostName: "eth1", Name: "net0", Origin: cdi}}
	stage.Hooks = append(stage.Hooks[:len(stage.Hooks):len(stage.Hooks)], edits.Hook{Stage: "later", Path: "/h", Origin: cdi})
	text := read(t, "base.json")
	text = bytes.Replace(text, []byte(`"resources"`), []byte(`"netDevices": {"eth0": {"name": "net0"}}, "resources"`), 1)
	for _, tc := range []struct {
		set   edits.Set
		is    func(error) bool
		names []string
	}{
		{net, errdefs.IsConflict, []string{"net1", "eth1", "eth2", cdi.File, att.File}},
		{own, errdefs.IsConflict, []string{"net0", "eth0", "eth1", cdi.File, "as it was"}},
		{stage, errdefs.IsInvalidArgument, []string{"later", "/h", cdi.File}},
	} {
		spec, before := decodeSpec(t, text), decodeSpec(t, text)
		err := Apply(spec, &tc.set)
		if err == nil || !tc.is(err) {
			t.Fatalf("got %v", err)
		}
		for _, n := range tc.names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("the error does not name %q: %v", n, err)
			}
		}
		if diff := cmp.Diff(before, spec); diff != "" {
			t.Errorf("half edited: %s", diff)
		}
		c, err := ParseConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.Apply(&tc.set); err == nil || out != nil {
			t.Errorf("the text: %v", err)
		}
	}
	// A host device that the spec moves already gets the name that is asked for.
	own.NetDevices[0] = edits.NetDevice{HostName: "eth0", Name: "net9", Origin: cdi}
	out := applyText(t, text, &own)
	if got := decodeSpec(t, out).Linux.NetDevices; len(got) != 1 || got["eth0"].Name != "net9" {
		t.Errorf("network devices are %v", got)
	}
}

// What a caller keeps of a spec, or of a set, is not written to.
func TestNothingIsShared(t *testing.T) {
	all := edits.Set{Env: cases["env"].Env, Devices: cases["devices"].Devices, Mounts: cases["mounts"].Mounts, Hooks: cases["hooks"].Hooks,
		RDT: cases["rdt"].RDT, GIDs: cases["gids"].GIDs, NetDevices: cases["net-devices"].NetDevices}
	text := read(t, "base.json")
	spec, before := decodeSpec(t, text), decodeSpec(t, text)
	spec.Linux.NetDevices = map[string]rspec.LinuxNetDevice{"eth9": {}}
	kept := *spec
	process, linux := *spec.Process, *spec.Linux
	hooks := *spec.Hooks
	kept.Process, kept.Linux, kept.Hooks = &process, &linux, &hooks
	resources := *spec.Linux.Resources
	linux.Resources = &resources
	if err := Apply(spec, &all); err != nil {
		t.Fatal(err)
	}
	delete(linux.NetDevices, "eth9")
	if diff := sameSpec(before, &kept); diff != "" {
		t.Errorf("a copy made before was changed: %s", diff)
	}
	want, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Mounts {
		for i := range m.Options {
			m.Options[i] = "scribble"
		}
	}
	for _, d := range spec.Linux.Devices {
		if d.FileMode != nil {
			*d.FileMode, *d.UID = 0, 0
		}
	}
	for i := range edits.Stages() {
		for _, h := range hooksOf(spec, i) {
			if h.Timeout != nil {
				*h.Timeout, h.Args[0], h.Env[0] = 0, "scribble", "scribble"
			}
		}
	}
	spec.Linux.IntelRdt.Schemata[0] = "scribble"
	if got, err := json.Marshal(all); err != nil || !bytes.Equal(want, got) {
		t.Errorf("the set was changed: %s, %v", got, err)
	}
}

func TestExisting(t *testing.T) {
	c, err := ParseConfig(read(t, "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	have := Existing(c.Spec())
	want := edits.Existing{
		CDIReplaces: true,
		Env:         []string{"PATH=/bin", "A=first", "B=<", "A=second"},
		Devices:     []edits.Device{{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}, {Path: "/dev/old", Type: "c", Major: 1, Minor: 3}},
		Hooks:       []edits.Hook{{Stage: edits.Poststop, Path: "/usr/bin/clean"}},
	}
	var mounts [][2]string
	for i := 0; ; i++ {
		destination, source, ok := have.More.MountAt(i)
		if !ok {
			break
		}
		mounts = append(mounts, [2]string{destination, source})
	}
	have.More = nil
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][2]string{{"/proc", "proc"}, {"/dev/shm", "shm"}, {"/data", "/srv/old"}, {"/etc/hosts", "/srv/hosts"}}, mounts); diff != "" {
		t.Error(diff)
	}
	if u := c.Spec().Process.User; u.UID != 1000 || u.GID != 100 {
		t.Errorf("user is %+v", u)
	}
	if diff := cmp.Diff(edits.Existing{CDIReplaces: true}, Existing(&rspec.Spec{})); diff != "" {
		t.Error(diff)
	}
}

// TestAMountTakesThePlaceOfEverySpelling: a mount is compared with those that are
// equally deep, and two spellings of one place are.
func TestAMountTakesThePlaceOfEverySpelling(t *testing.T) {
	spellings := []string{"/a/data", "/a/data/", "//a/data", "/a/./data", "/a/b/../data", "/a//data/."}
	for _, have := range spellings {
		for _, want := range spellings {
			spec := &rspec.Spec{Mounts: []rspec.Mount{{Destination: "/a/dat_", Source: "/other"}, {Destination: have, Source: "/old"}}}
			set := &edits.Set{Mounts: []edits.Mount{{Destination: want, Source: "/new", Origin: cdi}}}
			if err := Apply(spec, set); err != nil {
				t.Fatal(err)
			}
			if m := spec.Mounts; len(m) != 2 || m[0].Source != "/other" || m[1].Source != "/new" || m[1].Destination != want {
				t.Errorf("%q for %q: the mounts are %+v", want, have, m)
			}
		}
	}
}
