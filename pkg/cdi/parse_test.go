// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
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

var updateGolden = flag.Bool("update", false, "write the golden files")

// golden compares got with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *updateGolden {
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

// parseText returns the spec in a text, or its faults.
func parseText(text []byte) (*specs.Spec, FieldErrors) {
	spec, err := ParseSpec(text)
	if refused, ok := errors.AsType[*SpecError](err); ok {
		return spec, refused.Faults
	}
	return spec, nil
}

// TestInvalidSpecsAreRefusedWithPlaceAndRule checks the diagnostics of every invalid file.
func TestInvalidSpecsAreRefusedWithPlaceAndRule(t *testing.T) {
	var out strings.Builder
	for _, file := range glob(t, "testdata/bad/*") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, diags := parseText(text)
		if len(diags) == 0 {
			t.Errorf("%s is taken", file)
		}
		fmt.Fprintf(&out, "%s\n", filepath.Base(file))
		for _, d := range diags {
			fmt.Fprintf(&out, "    %s\n", d)
		}
	}
	compareGolden(t, "bad.golden", out.String())
}

// TestValidSpecsAreParsed checks the parsed content of every valid file.
func TestValidSpecsAreParsed(t *testing.T) {
	var out bytes.Buffer
	for _, file := range glob(t, "testdata/good/*") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spec, diags := parseText(text)
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
	compareGolden(t, "good.golden", out.String())
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// TestParseAgreesWithEncodingJSON compares the spec of a file, and the devices that a lookup
// copies from it, with what encoding/json makes of the text.
func TestParseAgreesWithEncodingJSON(t *testing.T) {
	for _, file := range []string{"testdata/good/everything.json", "testdata/good/claim.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want specs.Spec
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		spec, faults := parseText(text)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if diff := cmp.Diff(&want, spec, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-json +parsed):\n%s", file, diff)
		}
		f := &specFile{dir: &specDir{path: "/etc/cdi"}, name: "a.json", spec: spec, kind: spec.Kind}
		for i, d := range want.Devices {
			wantDevice := &Device{
				Name: want.Kind + "=" + d.Name, File: "/etc/cdi/a.json", Kind: want.Kind, Index: i, CDIVersion: want.Version, Annotations: d.Annotations,
				SpecAnnotations: want.Annotations, SpecEdits: &want.ContainerEdits, Edits: &d.ContainerEdits,
			}
			if diff := cmp.Diff(wantDevice, declaration{want.Kind + "=" + d.Name, f, i}.device(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, device %d (-json +copy):\n%s", file, i, diff)
			}
		}
	}
}

// TestRequiredVersionIsThatOfCDIProject compares the required version of every field with the rules of the CDI project.
func TestRequiredVersionIsThatOfCDIProject(t *testing.T) {
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
	for name, set := range features {
		for _, version := range append([]string{"0.1.0", "0.2.0", "0.9.0", "1.2.0", "", "v", "vv1.0.0", "1.0"}, knownVersions...) {
			for _, prefix := range []string{"", "v"} {
				s := &specs.Spec{Version: prefix + version, Kind: "v.com/a", Devices: []specs.Device{{Name: "d", ContainerEdits: specs.ContainerEdits{Env: []string{"A=b"}}}}}
				set(s)
				text, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				_, diags := parseText(text)
				want := specs.ValidateVersion(s)
				if (len(diags) == 0) != (want == nil) {
					t.Errorf("%s at %q: jackfield %v, specs-go %v", name, s.Version, diags, want)
				}
			}
		}
	}
}

// TestNewerFieldsInEarlierDevicesAreWarnings checks the warning for a field that upstream checks in the last device only.
func TestNewerFieldsInEarlierDevicesAreWarnings(t *testing.T) {
	const text = `{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"a","containerEdits":{"mounts":[{"hostPath":"/a","containerPath":"/b","type":"bind"}]}},{"name":"b","containerEdits":{"env":["A=b"]}}]}`
	p := parseSpec(text, false)
	if len(p.faults) != 0 || len(p.warnings) != 1 || p.warnings[0].Field != "devices[0].containerEdits.mounts[0].type" {
		t.Errorf("errors %v, warnings %v", p.faults, p.warnings)
	}
}

// TestHostileSpecsAreParsedCheaply checks that no text takes much time, memory or stack.
func TestHostileSpecsAreParsedCheaply(t *testing.T) {
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
		if _, diags := parseText([]byte(text)); len(diags) == 0 || len(diags) > maxFaults {
			t.Errorf("%s: %d diagnostics", name, len(diags))
		} else if n := len(diags[0].Error()); n > 1024 {
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
	const device = "cdiVersion: '0.5.0'\nkind: v.com/c\ndevices: [{name: %s, containerEdits: {env: [A=b]}}]"
	for _, name := range []string{`"\x61"`, "!!binary YWJj", "0x1F", "1_000", "'ab\n c'", ">-\n ab", "&a true"} {
		f.Add(fmt.Appendf(nil, device, name))
	}
	utf16 := []byte{0xff, 0xfe}
	for _, c := range fmt.Appendf(nil, device, "a") {
		utf16 = append(utf16, c, 0)
	}
	f.Add(utf16)
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, diags := parseText(text)
		if p := parseSpec(string(text), false); checkKind(p.kind) == nil {
			for _, name := range append(p.names, "all") {
				if checkName(name) == nil && !mayDeclare(string(text), []string{p.kind + "=" + name}) {
					t.Fatalf("%s=%s is overlooked in %q", p.kind, name, text)
				}
			}
		}
		if len(diags) > 0 {
			for _, d := range diags {
				if d.Rule == "" || d.Line < 0 || d.Column < 0 {
					t.Fatalf("diagnostic %+v", d)
				}
			}
			return
		}
		// A parsed spec is the same after it is written and parsed again.
		again := marshal(t, spec)
		spec2, diags := parseText(again)
		if len(diags) > 0 {
			t.Fatalf("written again: %v\n%s", diags, again)
		}
		if twice := marshal(t, spec2); !bytes.Equal(again, twice) {
			t.Fatalf("written again:\n%s\n%s", again, twice)
		}
		// The result agrees with encoding/json.
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

// TestMistakesHaveRemedies checks messages about frequent mistakes.
func TestMistakesHaveRemedies(t *testing.T) {
	const spec = "cdiVersion: %s\nkind: v.com/c\ndevices: [{name: d, containerEdits: %s}]\n"
	for edits, want := range map[string]string{
		`{deviceNodes: [{path: /dev/x, major: "1"}]}`:               `invalid value "1": must be a device number, 0 or more, without quotes`,
		`{deviceNodes: [{path: /dev/x, major: one}]}`:               `invalid value "one": must be a device number, 0 or more`,
		`{env: [{name: X, value: y}]}`:                              `found an object: must be a string NAME=VALUE, such as "FOO=bar"`,
		`{deviceNodes: [{path: /dev/x, type: c, fileMode: 25008}]}`: "is octal 60660, with the type bits of b, but the type is c: must be permission bits",
		`{deviceNodes: [{path: /dev/x, fileMode: 33206}]}`:          "is octal 100666, which is no mode of a device node: must be permission bits",
	} {
		if _, d := parseText(fmt.Appendf(nil, spec, "1.1.0", edits)); len(d) != 1 || !strings.Contains(d[0].Error(), want) {
			t.Errorf("%s: %v", edits, d)
		}
	}
	for version, want := range map[string]string{
		"1.2.0":  `found "1.2.0": is newer than this version of Jackfield, which reads CDI up to 1.1.0: update Jackfield, or set an earlier`,
		"v2.0.0": "is newer than this version of Jackfield",
		"0.2.0":  `invalid value "0.2.0": must be one of`,
		"1.0.1":  `invalid value "1.0.1": must be one of`,
		"latest": `invalid value "latest": must be one of`,
	} {
		if _, d := parseText(fmt.Appendf(nil, spec, version, "{env: [A=b]}")); len(d) != 1 || !strings.Contains(d[0].Error(), want) {
			t.Errorf("%s: %v", version, d)
		}
	}
}
