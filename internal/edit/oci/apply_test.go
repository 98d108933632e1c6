// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr[T any](v T) *T { return &v }

var (
	cdi = edit.Origin{Source: edit.CDI, Request: `CDI device "vendor.com/net=a"`, File: "/etc/cdi/x.json"}
	att = edit.Origin{Source: edit.Attachment, Request: `network "ns/n" on net1`, File: "/run/devinfo/f"}
)

func hook(stage edit.Stage, path string) edit.Hook {
	return edit.Hook{Stage: stage, Path: path, Args: []string{path, "-x"}, Env: []string{"E=1"}, Timeout: ptr(3), Origin: cdi}
}

// cases are edits of base.json. The golden files hold the results.
var cases = map[string]edit.Set{
	"env": {Env: []edit.Env{{Name: "A", Value: "new=<&>"}, {Name: "C", Value: ""}, {Name: "PAT", Value: "x"}}},
	"devices": {Devices: []edit.Device{
		{Path: "/dev/old", Type: "c", Major: 1, Minor: 5, Origin: cdi},
		{Path: "/dev/full", Type: "b", Major: 7, Minor: 0, FileMode: ptr(os.FileMode(0o640)), UID: ptr[uint32](5), GID: ptr[uint32](6), Access: "mr", Origin: cdi},
		{Path: "/dev/att", Type: "c", Major: 1, Minor: 8, Access: "rw", Origin: att},
		{Path: "/dev/none", Type: "c", Major: 1, Minor: 9, Access: edit.NoAccess, Origin: cdi},
		{Path: "/dev/fifo", Type: "p", Origin: cdi},
		{Path: "/dev/unbuffered", Type: "u", Major: 1, Minor: 7, Origin: cdi},
		{Path: "/dev/again", Type: "c", Major: 1, Minor: 8, Access: "rw", Origin: cdi},
	}},
	"no-access": {Devices: []edit.Device{{Path: "/dev/none", Type: "c", Major: 1, Minor: 9, Access: edit.NoAccess, Origin: cdi}}},
	"bound-devices": {Devices: []edit.Device{
		{Path: "/dev/bound", HostPath: "/dev/zero", Type: "c", Major: 1, Minor: 5, Bind: true, Access: "rw", Origin: cdi},
		{Path: "/dev/bound1", HostPath: "/dev/full", Type: "c", Major: 1, Minor: 7, Bind: true, Origin: att},
	}},
	"mounts": {Mounts: []edit.Mount{
		{Destination: "/data", Source: "/new", Type: "bind", Options: []string{"ro", "bind"}, Origin: cdi},
		{Destination: "/a/b/c/d", Source: "/deep", Options: []string{"rbind"}, Origin: cdi},
		{Destination: "/opt", Source: "tmpfs", Type: "tmpfs", Origin: cdi},
	}},
	"hooks": {Hooks: []edit.Hook{
		hook(edit.Prestart, "/1"), hook(edit.CreateRuntime, "/2"), hook(edit.CreateContainer, "/3"), hook(edit.StartContainer, "/4"),
		hook(edit.Poststart, "/5"), hook(edit.Poststop, "/6"), {Stage: edit.Poststop, Path: "/7", Origin: cdi},
	}},
	"net-devices": {NetDevices: []edit.NetDevice{{HostName: "eth1", Name: "net1", Origin: cdi}, {HostName: "eth2", Name: "net2", Origin: cdi}}},
	"rdt":         {RDT: &edit.RDT{ClosID: "gold", L3CacheSchema: "L3:0=f", MemBwSchema: "MB:0=50", Schemata: []string{"L3:0=ff"}, EnableMonitoring: true, Origin: cdi}},
	"memlock":     {Memlock: &edit.Memlock{Rlimit: edit.Rlimit{Soft: 2 << 20, Hard: quantity.Unlimited}, Origin: cdi}},
	"gids":        {GIDs: []edit.GID{{ID: 7, Origin: cdi}, {ID: 44, Origin: cdi}, {ID: 7, Origin: cdi}, {ID: 0, Origin: cdi}}},
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

// applyText applies set to text.
func applyText(t *testing.T, text []byte, set *edit.Set) []byte {
	t.Helper()
	c, err := ParseConfig("config.json", text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Apply(set)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// applySpec applies set to the text of spec.
func applySpec(t *testing.T, spec *rspec.Spec, set *edit.Set) *rspec.Spec {
	t.Helper()
	spec.Version = "1.2.0"
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return decodeSpec(t, applyText(t, text, set))
}

func TestApplyWritesGoldenConfigurations(t *testing.T) {
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
				t.Errorf("the second application changes: %s", cmp.Diff(string(out), string(again)))
			}
		})
	}
}

// withoutEmpty removes null, empty lists and empty objects from a JSON value.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if v[key] = withoutEmpty(member); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

func TestEmptyConfigGetsEveryEdit(t *testing.T) {
	for name, set := range cases {
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{
				`{"ociVersion":"1.0.0"}`,
				"{\n  \"ociVersion\": \"1.0.0\"\n}\n",
				`{"ociVersion":"1.0.0","process":null,"mounts":null,"hooks":null,"linux":null}`,
				`{"ociVersion":"1.0.0","process":{},"mounts":[],"hooks":{},"linux":{}}`,
				`{"ociVersion":"1.0.0","process":{"user":{},"env":null},"hooks":{"prestart":null},"linux":{"devices":[],"resources":{},"netDevices":{},"intelRdt":null}}`,
			} {
				var got, want any
				if err := errors.Join(json.Unmarshal(applyText(t, []byte(text), &set), &got), json.Unmarshal(applyText(t, []byte(`{"ociVersion":"1.0.0"}`), &set), &want)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(withoutEmpty(want), withoutEmpty(got)); diff != "" {
					t.Errorf("%s: %s", text, diff)
				}
			}
		})
	}
	out := applyText(t, []byte("{\n  \"ociVersion\": \"1.0.0\"\n}\n"), ptr(cases["gids"]))
	want := "{\n  \"ociVersion\": \"1.0.0\",\n  \"process\": {\n    \"user\": {\n      \"additionalGids\": [\n        7,\n        44\n      ]\n    }\n  }\n}\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

func TestEmptySetChangesNothing(t *testing.T) {
	text := []byte(` {"ociVersion":"1" , "linux":{} } `)
	for _, set := range []*edit.Set{nil, {}, {GIDs: []edit.GID{{ID: 0}}}} {
		if out := applyText(t, text, set); !bytes.Equal(out, text) {
			t.Errorf("%s", out)
		}
	}
}

func TestUserNamespaceMapsBindMounts(t *testing.T) {
	mapping := []rspec.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	for _, tc := range []struct {
		typ     string
		options []string
		want    string
		origin  edit.Origin
	}{
		{typ: "bind", want: "idmap", origin: cdi},
		{typ: "bind", options: []string{"rbind"}, want: "rbind ridmap", origin: cdi},
		{options: []string{"ro", "bind"}, want: "ro bind idmap", origin: cdi},
		{options: []string{"bind", "ridmap"}, want: "bind ridmap", origin: cdi},
		{options: []string{"rbind", "bind"}, want: "rbind bind idmap", origin: cdi},
		{typ: "tmpfs", options: []string{"mode=755"}, want: "mode=755", origin: cdi},
		{typ: "bind", options: []string{"bind"}, want: "bind", origin: att},
	} {
		set := &edit.Set{Mounts: []edit.Mount{{Destination: "/m", Source: "/s", Type: tc.typ, Options: tc.options, Origin: tc.origin}}}
		spec := &rspec.Spec{Linux: &rspec.Linux{Namespaces: []rspec.LinuxNamespace{{Type: rspec.PIDNamespace}, {Type: rspec.UserNamespace}},
			UIDMappings: mapping, GIDMappings: mapping}}
		if got := strings.Join(applySpec(t, spec, set).Mounts[0].Options, " "); got != tc.want {
			t.Errorf("%q %v: %q, want %q", tc.typ, tc.options, got, tc.want)
		}
		spec.Linux.GIDMappings = nil
		for _, unmapped := range []*rspec.Spec{{}, spec} {
			if got := applySpec(t, unmapped, set).Mounts[0].Options; len(got) != len(tc.options) {
				t.Errorf("without a user namespace or one of its mappings: %v", got)
			}
		}
	}
}

// Later mounts of the host reach a staged mount, whatever the propagation of the root was. CDI's own
// mounts do not change the root.
func TestRootPropagationAllowsStagedMount(t *testing.T) {
	for _, tc := range []struct {
		have, want string
		origin     edit.Origin
	}{
		{"", "rslave", att}, {"private", "rslave", att}, {"rprivate", "rslave", att}, {"slave", "slave", att}, {"rshared", "rshared", att}, {"", "", cdi},
	} {
		set := &edit.Set{Mounts: []edit.Mount{{Destination: "/m", Source: "/s", Type: "bind", Options: []string{"rbind", "rslave"}, Origin: tc.origin}}}
		text := `{"ociVersion":"1","linux":{"rootfsPropagation":"` + tc.have + `","cgroupsPath":"/c"}}`
		if tc.have == "" {
			text = `{"ociVersion":"1"}`
		}
		if l := decodeSpec(t, applyText(t, []byte(text), set)).Linux; (l == nil && tc.want != "") || l != nil && l.RootfsPropagation != tc.want {
			t.Errorf("%q: %+v, want %q", tc.have, l, tc.want)
		}
	}
}

func TestOnlyTheFirstMountAtADestinationIsReplaced(t *testing.T) {
	spec := &rspec.Spec{Mounts: []rspec.Mount{{Destination: "/a/b"}, {Destination: "/m/", Source: "1"}, {Destination: "/m", Source: "2"}}}
	var got []string
	for _, m := range applySpec(t, spec, &edit.Set{Mounts: []edit.Mount{{Destination: "/m", Source: "3"}}}).Mounts {
		got = append(got, m.Destination+" "+m.Source)
	}
	if diff := cmp.Diff([]string{"/m 2", "/m 3", "/a/b "}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDeviceRuleIsAddedUnlessItTakesEffectAlready(t *testing.T) {
	allow := func(access string) rspec.LinuxDeviceCgroup {
		return rspec.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](3), Access: access}
	}
	deny := rspec.LinuxDeviceCgroup{Access: "rwm"}
	set := &edit.Set{Devices: []edit.Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3, Access: "rw"}}}
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
		if got := applySpec(t, spec, set).Linux.Resources.Devices; len(got) != tc.want || !got[len(got)-1].Allow {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestConflictingEditsAreRefused(t *testing.T) {
	all := edit.Set{RDT: cases["rdt"].RDT, Env: cases["env"].Env, Devices: cases["devices"].Devices, Mounts: cases["mounts"].Mounts, GIDs: cases["gids"].GIDs, Hooks: cases["hooks"].Hooks}
	net, stage, own := all, all, all
	net.NetDevices = []edit.NetDevice{{HostName: "eth1", Name: "net1", Origin: cdi}, {HostName: "eth2", Name: "net1", Origin: att}}
	own.NetDevices = []edit.NetDevice{{HostName: "eth1", Name: "net0", Origin: cdi}}
	stage.Hooks = append(stage.Hooks[:len(stage.Hooks):len(stage.Hooks)], edit.Hook{Stage: "later", Path: "/h", Origin: cdi})
	text := read(t, "base.json")
	text = bytes.Replace(text, []byte(`"resources"`), []byte(`"netDevices": {"eth0": {"name": "net0"}}, "resources"`), 1)
	for _, tc := range []struct {
		set   edit.Set
		is    func(error) bool
		names []string
	}{
		{net, errdefs.IsConflict, []string{"net1", "eth1", "eth2", cdi.File, att.File}},
		{own, errdefs.IsConflict, []string{"net0", "eth0", "eth1", cdi.File, "before the edits"}},
		{stage, errdefs.IsInvalidArgument, []string{"later", "/h", cdi.File}},
	} {
		c, err := ParseConfig("config.json", text)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Apply(&tc.set)
		if err == nil || !tc.is(err) || out != nil {
			t.Fatalf("got %v", err)
		}
		for _, n := range tc.names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("the error does not name %q: %v", n, err)
			}
		}
	}
	// A host device that the configuration already moves gets the new name.
	own.NetDevices[0] = edit.NetDevice{HostName: "eth0", Name: "net9", Origin: cdi}
	out := applyText(t, text, &own)
	if got := decodeSpec(t, out).Linux.NetDevices; len(got) != 1 || got["eth0"].Name != "net9" {
		t.Errorf("network devices are %v", got)
	}
}

// Neither the set nor the configuration changes.
func TestApplyChangesNoInput(t *testing.T) {
	all := edit.Set{Env: cases["env"].Env, Devices: cases["devices"].Devices, Mounts: cases["mounts"].Mounts, Hooks: cases["hooks"].Hooks,
		RDT: cases["rdt"].RDT, GIDs: cases["gids"].GIDs, NetDevices: cases["net-devices"].NetDevices}
	c, err := ParseConfig("config.json", read(t, "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	marshal := func() string {
		text, err := json.Marshal([]any{all, c.Spec()})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := marshal()
	first, err := c.Apply(&all)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := c.Apply(&all); err != nil || !bytes.Equal(first, second) {
		t.Errorf("the second result differs: %v", err)
	}
	if diff := cmp.Diff(before, marshal()); diff != "" {
		t.Error(diff)
	}
}

func TestExistingReadsWhatConfigurationHas(t *testing.T) {
	c, err := ParseConfig("config.json", read(t, "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	have := Existing(c.Spec())
	want := edit.Existing{
		CDIReplaces: true,
		Env:         []string{"PATH=/bin", "A=first", "B=<", "A=second"},
		Devices:     []edit.Device{{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}, {Path: "/dev/old", Type: "c", Major: 1, Minor: 3}},
		Mounts: []edit.Mount{{Destination: "/proc", Source: "proc"}, {Destination: "/dev/shm", Source: "shm"},
			{Destination: "/data", Source: "/srv/old"}, {Destination: "/etc/hosts", Source: "/srv/hosts"}},
		Hooks: []edit.Hook{{Stage: edit.Poststop, Path: "/usr/bin/clean"}},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if u := c.Spec().Process.User; u.UID != 1000 || u.GID != 100 {
		t.Errorf("user is %+v", u)
	}
	if diff := cmp.Diff(edit.Existing{CDIReplaces: true}, Existing(&rspec.Spec{})); diff != "" {
		t.Error(diff)
	}
}

func TestMountReplacesOtherSpellingOfItsDestination(t *testing.T) {
	spellings := []string{"/a/data", "/a/data/", "//a/data", "/a/./data", "/a/b/../data", "/a//data/."}
	for _, have := range spellings {
		for _, want := range spellings {
			spec := &rspec.Spec{Mounts: []rspec.Mount{{Destination: "/a/dat_", Source: "/other"}, {Destination: have, Source: "/old"}}}
			set := &edit.Set{Mounts: []edit.Mount{{Destination: want, Source: "/new", Origin: cdi}}}
			if m := applySpec(t, spec, set).Mounts; len(m) != 2 || m[0].Source != "/other" || m[1].Source != "/new" || m[1].Destination != want {
				t.Errorf("%q for %q: the mounts are %+v", want, have, m)
			}
		}
	}
}

// "all" of a kind can be thousands of devices. Lists that are searched for each edit would take a minute.
func TestTimeOfApplyIsProportionalToTheEdits(t *testing.T) {
	set := &edit.Set{}
	for i := range 40_000 {
		n := strconv.Itoa(i)
		set.Devices = append(set.Devices, edit.Device{Path: "/dev/d" + n, Type: "c", Major: 1, Minor: int64(i)})
		set.Mounts = append(set.Mounts, edit.Mount{Source: "/usr", Destination: "/m/" + n})
		set.Env = append(set.Env, edit.Env{Name: "V" + n})
		set.Hooks = append(set.Hooks, edit.Hook{Stage: edit.CreateRuntime, Path: "/bin/true"})
	}
	c, err := ParseConfig("config.json", []byte(`{"ociVersion": "1.0.2"}`))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Cheap(t, 30*time.Second, func() {
		text, err := c.Apply(set)
		if err != nil {
			t.Fatal(err)
		}
		edited, err := ParseConfig("config.json", text)
		if err != nil {
			t.Fatal(err)
		}
		got := edited.Spec()
		for what, n := range map[string]int{"devices": len(got.Linux.Devices), "rules": len(got.Linux.Resources.Devices), "mounts": len(got.Mounts),
			"variables": len(got.Process.Env), "hooks": len(got.Hooks.CreateRuntime)} {
			if n != 40_000 {
				t.Errorf("%d %s", n, what)
			}
		}
	})
}
