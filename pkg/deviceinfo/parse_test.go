// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func TestParseReadsEveryField(t *testing.T) {
	src := `{
		"type": "memif", "version": "1.0.0", "later": [1, "x"],
		"pci": {"pci-address": "0000:01:02.2", "vhost-net": "/dev/vhost-net", "rdma-device": "mlx5_0",
			"pf-pci-address": "0000:01:02.0", "representor-device": "eth3", "p": 1},
		"vdpa": {"parent-device": "vdpa2", "driver": "vhost", "path": "/dev/vhost-vdpa-2", "pci-address": "0000:01:02.3",
			"pf-pci-address": "0000:01:02.1", "representor-device": "eth4", "v": {"a": null}},
		"vhost-user": {"mode": "server", "path": "/run/v.sock", "u": true},
		"memif": {"role": "master", "path": "@m", "mode": "ethernet", "m": -1.5e3}
	}`
	raw := func(k, v string) map[string]json.RawMessage {
		return map[string]json.RawMessage{k: json.RawMessage(v)}
	}
	want := &Info{
		Type: TypeMemif, Version: version100, Extra: raw("later", `[1,"x"]`),
		PCI: &PCI{PCIAddress: "0000:01:02.2", VhostNet: "/dev/vhost-net", RDMADevice: "mlx5_0", PFPCIAddress: "0000:01:02.0",
			RepresentorDevice: "eth3", Extra: raw("p", "1")},
		VDPA: &VDPA{ParentDevice: "vdpa2", Driver: VDPAVhost, Path: "/dev/vhost-vdpa-2", PCIAddress: "0000:01:02.3",
			PFPCIAddress: "0000:01:02.1", RepresentorDevice: "eth4", Extra: raw("v", `{"a":null}`)},
		VhostUser: &VhostUser{Mode: VhostUserServer, Path: "/run/v.sock", Extra: raw("u", "true")},
		Memif:     &Memif{Role: MemifMaster, Path: "@m", Mode: MemifEthernet, Extra: raw("m", "-1.5e3")},
	}
	got, err := Parse([]byte(src), "f")
	testkit.Must(t, err)
	if len(got.Warnings) != 2 {
		t.Errorf("warnings %v, want two about representor-device", got.Warnings)
	}
	got.Warnings = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	clone := got.Clone()
	if diff := cmp.Diff(got, clone, cmp.Transformer("nil", func(d FieldErrors) int { return len(d) })); diff != "" {
		t.Errorf("clone:\n%s", diff)
	}
	clone.PCI.PCIAddress, clone.VDPA.Path, clone.VhostUser.Path, clone.Memif.Path = "x", "x", "x", "x"
	clone.Extra["later"][0], clone.Memif.Extra["m"][0] = 'x', 'x'
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a change of the clone changed the original:\n%s", diff)
	}
}

func TestDiagnosticNamesEverything(t *testing.T) {
	src := "{\n  \"type\": \"vdpa\",\n  \"version\": \"1.1.0\",\n  \"vdpa\": {\n    \"ä\": \"ö\", \"parent-device\": \"vdpa2\", \"driver\": \"vhost\",\n" +
		"    \"path\": \"/dev/vhost-vdpa-0\",\n    \"é\": \"ü\", \"pci-address\": \"0000:02:01:6\"\n  }\n}\n"
	_, err := Parse([]byte(src), "/run/x.json")
	var d *FieldError
	if !errors.As(err, &d) {
		t.Fatal(err)
	}
	want := &FieldError{File: "/run/x.json", Line: 7, Column: 30, Field: "vdpa.pci-address", Found: `"0000:02:01:6"`,
		Rule: "must be a PCI address dddd:BB:DD.f such as 0000:02:01.6", Section: "Device Information Specification 1.1.0, §3.1.4.4"}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const text = `/run/x.json:7:30: vdpa.pci-address: invalid value "0000:02:01:6": must be a PCI address dddd:BB:DD.f such as 0000:02:01.6 (Device Information Specification 1.1.0, §3.1.4.4)`
	if d.Error() != text || err.Error() != text {
		t.Errorf("got  %s\nwant %s", err, text)
	}
	if !errors.Is(err, errdefs.ErrInvalidArgument) || !errors.Is(d, errdefs.ErrInvalidArgument) {
		t.Error("not an invalid argument")
	}
}

func TestAllFaultsAreReportedInOrder(t *testing.T) {
	_, err := Parse([]byte("{\"type\": \"memif\", \"Version\": \"1.1.0\", \"memif\": {\"role\": \"x\",\n \"path\": \"y\", \"mode\": \"IP\"}}"), "f")
	var keys []string
	for _, d := range diagnosticsOf(t, err) {
		keys = append(keys, d.Field)
	}
	if diff := cmp.Diff([]string{"Version", "memif.role", "memif.path", "memif.mode"}, keys); diff != "" {
		t.Errorf("-want +got:\n%s\n%v", diff, err)
	}
}

func TestParseBoundsSize(t *testing.T) {
	src := []byte(infoText("pci", pciMap))
	exact := append(src, bytes.Repeat([]byte{' '}, MaxSize-len(src))...)
	if _, err := Parse(exact, "f"); err != nil {
		t.Errorf("%d bytes: %v", len(exact), err)
	}
	if _, err := Parse(append(exact, ' '), "f"); err == nil || !strings.Contains(err.Error(), "262145 bytes") {
		t.Errorf("%d bytes: %v", len(exact)+1, err)
	}
}

// A hostile source is refused in a time that is linear in its size.
func TestHostileSourcesEndAtOnce(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, MaxSize/len(s)) }
	var keys strings.Builder
	for i := 0; keys.Len() < MaxSize-20; i++ {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	for name, src := range map[string]string{
		"maps":       fill(`{"a":`),
		"lists":      `{"a":` + fill(`[`)[:MaxSize-5],
		"quotes":     `{` + fill(`"`)[1:],
		"curly":      `{` + fill(`“`)[:MaxSize-4],
		"commas":     `{` + fill(`,`)[1:],
		"comments":   fill("#\n"),
		"slashes":    `{` + fill("/")[1:],
		"colons":     `{"a"` + fill(`:`)[4:],
		"backslash":  `{"` + fill(`\`)[2:],
		"duplicates": `{` + fill(`"a":0,`)[6:],
		"keys":       `{` + keys.String() + `"x":0}`,
		"words":      `{` + fill(`a `)[2:],
		"spaces":     fill(` `),
		"nbsp":       fill("\u00a0"),
		"nul":        fill("\x00"),
		"lines":      `{` + fill("\"\n")[2:],
	} {
		began, err := testkit.CPU(), error(nil)
		_, err = Parse([]byte(src), "f")
		if d := testkit.CPU() - began; d > 2*time.Second {
			t.Errorf("%s cost %v of processor time", name, d)
		}
		if err == nil {
			t.Errorf("%s accepted", name)
			continue
		}
		if ds := diagnosticsOf(t, err); len(ds) > maxFieldErrors+1 || len(err.Error()) > 64<<10 {
			t.Errorf("%s: %d diagnostics, %d bytes", name, len(ds), len(err.Error()))
		}
	}
}
