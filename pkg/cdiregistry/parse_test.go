// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestBad holds the diagnostics of every broken file.
func TestBad(t *testing.T) {
	var out strings.Builder
	var v Validator
	for _, file := range glob(t, "testdata/bad/*") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		diags := v.Validate(text)
		if len(diags) == 0 {
			t.Errorf("%s is taken", file)
		}
		fmt.Fprintf(&out, "%s\n", filepath.Base(file))
		for _, d := range diags {
			fmt.Fprintf(&out, "    %s\n", d)
		}
	}
	golden(t, "bad.golden", out.String())
}

// TestGood holds what is read from every valid file.
func TestGood(t *testing.T) {
	var out bytes.Buffer
	var v Validator
	for _, file := range glob(t, "testdata/good/*") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spec, diags := v.Parse(text)
		if len(diags) > 0 {
			t.Errorf("%s: %v", file, diags)
			continue
		}
		if err := specs.ValidateVersion(spec); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		fmt.Fprintf(&out, "%s\n", filepath.Base(file))
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(spec); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "good.golden", out.String())
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// TestBlob holds what a lookup decodes to what encoding/json makes of the text.
func TestBlob(t *testing.T) {
	for _, file := range []string{"testdata/good/everything.json", "testdata/good/claim.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want specs.Spec
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		c := &checker{}
		p := c.parse(string(text), "")
		b := p.content(nil)
		if len(c.diags) > 0 {
			t.Fatal(c.diags)
		}
		if diff := cmp.Diff(&want, b.spec(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-json +blob):\n%s", file, diff)
		}
		for i, d := range want.Devices {
			var got Device
			b.fill(i, &got)
			wantDevice := Device{
				Kind: want.Kind, Index: i, CDIVersion: want.Version, Annotations: d.Annotations,
				SpecAnnotations: want.Annotations, SpecEdits: &want.ContainerEdits, Edits: &d.ContainerEdits,
			}
			if diff := cmp.Diff(wantDevice, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, device %d (-json +blob):\n%s", file, i, diff)
			}
			for _, room := range []int{0, 1, 64} {
				f := Found{Index: i, blob: b}
				lists := &Lists{memory: make([]string, 0, room)}
				spec, own := walked(f.SpecEdits(lists)), walked(f.Edits(lists))
				if diff := cmp.Diff([]*specs.ContainerEdits{&want.ContainerEdits, &d.ContainerEdits}, []*specs.ContainerEdits{spec, own}, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s, device %d, walked with room for %d (-json +blob):\n%s", file, i, room, diff)
				}
				if lists.Reset(); cap(lists.memory) < room || len(lists.memory) > 0 {
					t.Errorf("%s, device %d: the room is %d of %d", file, i, len(lists.memory), cap(lists.memory))
				}
			}
		}
	}
}

// walked is what a walk gives, in the types of the CDI project.
func walked(e Edits) *specs.ContainerEdits {
	out := &specs.ContainerEdits{}
	for e.Next() {
		switch e.List() {
		case Env:
			out.Env = append(out.Env, e.Env())
		case DeviceNodes:
			n := e.DeviceNode()
			out.DeviceNodes = append(out.DeviceNodes, &n)
		case NetDevices:
			n := e.NetDevice()
			out.NetDevices = append(out.NetDevices, &n)
		case Hooks:
			h := e.Hook()
			out.Hooks = append(out.Hooks, &h)
		case Mounts:
			m := e.Mount()
			out.Mounts = append(out.Mounts, &m)
		case IntelRdt:
			r := e.IntelRdt()
			out.IntelRdt = &r
		case AdditionalGIDs:
			out.AdditionalGIDs = append(out.AdditionalGIDs, e.AdditionalGID())
		}
	}
	if e.Next() {
		panic("there is more behind the end")
	}
	return out
}

// TestVersionRules holds the version of every field to the CDI project's own rules.
func TestVersionRules(t *testing.T) {
	features := map[string]func(*specs.Spec){
		"none": func(*specs.Spec) {},
		"mount type": func(s *specs.Spec) {
			s.Devices[0].ContainerEdits.Mounts = []*specs.Mount{{HostPath: "/a", ContainerPath: "/b", Type: "bind"}}
		},
		"host path":   func(s *specs.Spec) { s.ContainerEdits.DeviceNodes = []*specs.DeviceNode{{Path: "/a", HostPath: "/b"}} },
		"digit":       func(s *specs.Spec) { s.Devices[0].Name = "0" },
		"annotation":  func(s *specs.Spec) { s.Annotations = map[string]string{"a": "b"} },
		"device note": func(s *specs.Spec) { s.Devices[0].Annotations = map[string]string{"a": "b"} },
		"dot":         func(s *specs.Spec) { s.Kind = "v.com/a.b" },
		"rdt":         func(s *specs.Spec) { s.Devices[0].ContainerEdits.IntelRdt = &specs.IntelRdt{ClosID: "x"} },
		"gids":        func(s *specs.Spec) { s.ContainerEdits.AdditionalGIDs = []uint32{1} },
		"net": func(s *specs.Spec) {
			s.ContainerEdits.NetDevices = []*specs.LinuxNetDevice{{HostInterfaceName: "a", Name: "b"}}
		},
		"schemata":      func(s *specs.Spec) { s.ContainerEdits.IntelRdt = &specs.IntelRdt{Schemata: []string{"x"}} },
		"monitoring":    func(s *specs.Spec) { s.ContainerEdits.IntelRdt = &specs.IntelRdt{EnableMonitoring: true} },
		"no monitoring": func(s *specs.Spec) { s.ContainerEdits.IntelRdt = &specs.IntelRdt{} },
	}
	var v Validator
	for name, set := range features {
		for _, version := range append([]string{"0.1.0", "0.2.0", "0.9.0", "1.2.0", "", "v", "vv1.0.0", "1.0"}, knownVersions...) {
			for _, prefix := range []string{"", "v"} {
				s := &specs.Spec{Version: prefix + version, Kind: "v.com/a", Devices: []specs.Device{{Name: "d", ContainerEdits: specs.ContainerEdits{Env: []string{"A=b"}}}}}
				set(s)
				text, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				diags, want := v.Validate(text), specs.ValidateVersion(s)
				if (len(diags) == 0) != (want == nil) {
					t.Errorf("%s at %q: jackfield %v, specs-go %v", name, s.Version, diags, want)
				}
			}
		}
	}
}

// TestEarlyDevice holds the warning for what only upstream's loop overlooks.
func TestEarlyDevice(t *testing.T) {
	const text = `{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"a","containerEdits":{"mounts":[{"hostPath":"/a","containerPath":"/b","type":"bind"}]}},{"name":"b","containerEdits":{"env":["A=b"]}}]}`
	c := &checker{}
	c.parse(text, "")
	if len(c.diags) != 0 || len(c.warnings) != 1 || c.warnings[0].Field != "devices[0].containerEdits.mounts[0].type" {
		t.Errorf("errors %v, warnings %v", c.diags, c.warnings)
	}
}

// TestHostile holds that no text takes long, or deep, or much.
func TestHostile(t *testing.T) {
	var v Validator
	many := func(item string, n int) string { return strings.Repeat(item+",", n) + item }
	for name, text := range map[string]string{
		"brackets":       strings.Repeat("[", 1<<20),
		"braces":         strings.Repeat(`{"a":`, 1<<17),
		"yaml brackets":  "a: " + strings.Repeat("[", 1<<16),
		"unknown keys":   `{` + many(`"abcdefghij":1`, 1<<15) + `}`,
		"nulls":          `{"devices":[` + many("null", 1<<17) + `]}`,
		"devices":        `{"cdiVersion":"1.1.0","kind":"v/c","devices":[` + many(`{"name":"d"}`, 1<<15) + `]}`,
		"unclosed":       `"` + strings.Repeat("x", 1<<20),
		"escapes":        `"` + strings.Repeat(`\u0041`, 1<<17),
		"number":         strings.Repeat("1", 1<<20),
		"digits in name": `{"kind":"` + strings.Repeat("9", 1<<20) + `"}`,
	} {
		if diags := v.Validate([]byte(text)); len(diags) == 0 || len(diags) > maxDiagnostics {
			t.Errorf("%s: %d diagnostics", name, len(diags))
		} else if n := len(diags[0].String()); n > 1024 {
			t.Errorf("%s: a diagnostic of %d bytes", name, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*", "testdata/bad/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v Validator
		spec, diags := v.Parse(text)
		if len(diags) > 0 {
			for _, d := range diags {
				if d.Rule == "" || d.Line < 0 || d.Column < 0 {
					t.Fatalf("diagnostic %+v", d)
				}
			}
			return
		}
		// Nor does it matter what other files have.
		w := &words{}
		w.begin(manyFiles)
		for file := range 3 {
			c := &checker{}
			c.w.words, c.w.file = w.table.Load(), uint32(file)
			p := c.parse(string(text), "")
			b := p.content(w)
			if diff := cmp.Diff(spec, b.spec(), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("in file %d with words: %s", file, diff)
			}
		}
		// What is read, written again and read again is the same.
		again := marshal(t, spec)
		spec2, diags := v.Parse(again)
		if len(diags) > 0 {
			t.Fatalf("written again: %v\n%s", diags, again)
		}
		if twice := marshal(t, spec2); !bytes.Equal(again, twice) {
			t.Fatalf("written again:\n%s\n%s", again, twice)
		}
		// JSON is read as encoding/json reads it.
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		var std specs.Spec
		if json.Valid(text) && dec.Decode(&std) == nil {
			std.Version = strings.TrimPrefix(std.Version, "v")
			if want := marshal(t, &std); !bytes.Equal(want, again) {
				t.Fatalf("encoding/json reads\n%s\njackfield\n%s", want, again)
			}
		}
	})
}

func marshal(t *testing.T, spec *specs.Spec) []byte {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
