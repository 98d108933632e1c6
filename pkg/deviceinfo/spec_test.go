// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// Each test of this file tests one requirement of §3. docs/contributing/conformance-device-info.md
// lists the tests by name.

// want is a source and the field and section of the diagnostic that it must cause. An empty section
// means that the source is valid.
type want struct {
	src, key, section string
}

// checkSources parses each source and checks its diagnostics.
func checkSources(t *testing.T, cases ...want) {
	t.Helper()
	for _, c := range cases {
		_, err := Parse([]byte(c.src), "f")
		if c.section == "" {
			if err != nil {
				t.Errorf("%s\nrefused: %v", c.src, err)
			}
			continue
		}
		var ds FieldErrors
		if !errors.As(err, &ds) {
			t.Errorf("%s\naccepted, want a diagnostic about %q by §%s", c.src, c.key, c.section)
			continue
		}
		if !slices.ContainsFunc(ds, func(d *FieldError) bool { return d.Field == c.key && d.Section == inSection(c.section) }) {
			t.Errorf("%s\ncaused %v, want a diagnostic about %q by §%s", c.src, err, c.key, c.section)
		}
	}
}

// infoText returns a device-info map with one type map.
func infoText(typ, m string) string {
	return fmt.Sprintf(`{"type":%q,"version":"1.1.0",%q:{%s}}`, typ, typ, m)
}

const (
	pciMap   = `"pci-address":"0000:01:02.2"`
	vdpaMap  = `"parent-device":"vdpa3","driver":"vhost","path":"/dev/vhost-vdpa-3"`
	vhostMap = `"mode":"client","path":"/run/v.sock"`
	memifMap = `"role":"slave","path":"/run/m.sock","mode":"ip"`
)

func TestMapKeys(t *testing.T) {
	checkSources(t,
		want{`[]`, "", "4"},
		want{`{}`, "type", "3.1.1"},
		want{`{}`, "version", "3.1.2"},
		want{infoText("pci", pciMap+`,"later":1`), "", ""},
		want{`{"type":"pci","version":"1.1.0","pci":{` + pciMap + `},"later":{}}`, "", ""},
	)
}

func TestType(t *testing.T) {
	for typ, m := range map[string]string{"pci": pciMap, "vdpa": vdpaMap, "vhost-user": vhostMap, "memif": memifMap} {
		got, err := Parse([]byte(infoText(typ, m)), "f")
		if err != nil || string(got.Type) != typ {
			t.Errorf("type %q: %+v, %v", typ, got, err)
		}
	}
	checkSources(t,
		want{`{"version":"1.1.0","pci":{` + pciMap + `}}`, "type", "3.1.1"},
		want{`{"type":1,"version":"1.1.0"}`, "type", "3.1.1"},
		want{`{"type":"","version":"1.1.0"}`, "type", "3.1.1"},
		want{`{"type":"Pci","version":"1.1.0","pci":{` + pciMap + `}}`, "type", "3.1.1"},
		want{`{"type":"vhostuser","version":"1.1.0"}`, "type", "3.1.1"},
	)
}

func TestVersion(t *testing.T) {
	src := func(v string) string {
		return fmt.Sprintf(`{"type":"pci","version":%s,"pci":{%s}}`, v, pciMap)
	}
	for _, v := range []string{`"1.0.0"`, `"1.1.0"`, `"1.0.1"`, `"1.20.300"`} {
		got, err := Parse([]byte(src(v)), "f")
		testkit.Must(t, err)
		known := v == `"1.0.0"` || v == `"1.1.0"`
		if known != (len(got.Warnings) == 0) {
			t.Errorf("version %s: warnings %v", v, got.Warnings)
		}
	}
	for _, v := range []string{`""`, `"1"`, `"1.1"`, `"1.1.0.0"`, `"v1.1.0"`, `"1.1.x"`, `"01.1.0"`, `"1.1.00"`, `"0.1.0"`, `"2.0.0"`,
		`" 1.1.0"`, `"1..0"`, `"-1.1.0"`, `"1.1.9999999999"`, `1.1`, `null`, `["1.1.0"]`} {
		checkSources(t, want{src(v), "version", "3.1.2"})
	}
	checkSources(t, want{`{"type":"pci","pci":{` + pciMap + `}}`, "version", "3.1.2"})
}

func TestTypeMap(t *testing.T) {
	for typ, section := range map[string]string{"pci": "3.1.3", "vdpa": "3.1.4", "vhost-user": "3.1.5", "memif": "3.1.6"} {
		checkSources(t,
			want{fmt.Sprintf(`{"type":%q,"version":"1.1.0"}`, typ), typ, section},
			want{fmt.Sprintf(`{"type":%q,"version":"1.1.0",%q:"x"}`, typ, typ), typ, section},
			want{fmt.Sprintf(`{"type":%q,"version":"1.1.0",%q:null}`, typ, typ), typ, section},
			want{fmt.Sprintf(`{"type":%q,"version":"1.1.0",%q:[]}`, typ, typ), typ, section},
			want{fmt.Sprintf(`{"type":%q,"version":"1.1.0",%q:{}}`, typ, strings.ToUpper(typ)), strings.ToUpper(typ), "3.1"},
		)
	}
	// A map of another type is optional, and must be valid.
	checkSources(t,
		want{`{"type":"pci","version":"1.1.0","pci":{` + pciMap + `},"memif":{` + memifMap + `}}`, "", ""},
		want{`{"type":"pci","version":"1.1.0","pci":{` + pciMap + `},"memif":{}}`, "memif.role", "3.1.6.1"},
	)
}

// checkAddressKey checks a key whose value is a PCI address. rest has the other keys of the map.
func checkAddressKey(t *testing.T, typ, key, section, rest string, required bool) {
	t.Helper()
	src := func(v string) string { return infoText(typ, fmt.Sprintf(`%s"%s":%s`, rest, key, v)) }
	for _, v := range []string{`"0000:00:00.0"`, `"ffff:ff:1f.7"`, `"00aB:Cd:1F.7"`} {
		checkSources(t, want{src: src(v)})
	}
	for _, v := range []string{`""`, `"0000:02:01:6"`, `"0000:02:01"`, `"02:01.6"`, `"0000:02:20.0"`, `"0000:02:01.8"`, `"0000:02:01.f"`,
		`"000:02:01.0"`, `"00000:02:01.0"`, `"0000-02-01.0"`, `"0000:02:01.0 "`, `"0000:02:01.0\n"`, `"0x00:02:01.0"`, `"0000:+2:01.0"`,
		`"0000:02:01.00"`, `"٠000:02:01.0"`, `3`, `null`, `["0000:02:01.0"]`} {
		checkSources(t, want{src(v), typ + "." + key, section})
	}
	missing := want{src: infoText(typ, strings.TrimSuffix(rest, ","))}
	if required {
		missing.key, missing.section = typ+"."+key, section
	}
	checkSources(t, missing)
}

func TestPCIAddress(t *testing.T) { checkAddressKey(t, "pci", "pci-address", "3.1.3.1", "", true) }
func TestPCIPFAddress(t *testing.T) {
	checkAddressKey(t, "pci", "pf-pci-address", "3.1.3.4", pciMap+",", false)
}
func TestVDPAPCIAddress(t *testing.T) {
	checkAddressKey(t, "vdpa", "pci-address", "3.1.4.4", vdpaMap+",", false)
}
func TestVDPAPFAddress(t *testing.T) {
	checkAddressKey(t, "vdpa", "pf-pci-address", "3.1.4.5", vdpaMap+",", false)
}

func TestPCIAddressIsCanonical(t *testing.T) {
	got, err := Parse([]byte(infoText("pci", `"pci-address":"00AB:CD:1F.7","pf-pci-address":"00AB:CD:1F.0"`)), "f")
	testkit.Must(t, err)
	if got.PCI.PCIAddress != "00ab:cd:1f.7" || got.PCI.PFPCIAddress != "00ab:cd:1f.0" {
		t.Errorf("got %+v, want lower case", got.PCI)
	}
}

// checkStringKey checks an optional or required key of type string.
func checkStringKey(t *testing.T, typ, key, section, rest string, required bool, good, bad []string) {
	t.Helper()
	src := func(v string) string { return infoText(typ, fmt.Sprintf(`%s"%s":%s`, rest, key, v)) }
	for _, v := range good {
		checkSources(t, want{src: src(quote(t, v))})
	}
	for _, v := range bad {
		checkSources(t, want{src(quote(t, v)), typ + "." + key, section})
	}
	for _, v := range []string{`""`, `1`, `true`, `null`, `{}`, `["x"]`} {
		checkSources(t, want{src(v), typ + "." + key, section})
	}
	missing := want{src: infoText(typ, strings.TrimSuffix(rest, ","))}
	if required {
		missing.key, missing.section = typ+"."+key, section
	}
	checkSources(t, missing, want{infoText(typ, fmt.Sprintf(`%s"%s":"x"`, rest, strings.ToUpper(key))), typ + "." + strings.ToUpper(key), section[:5]})
}

func quote(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	testkit.Must(t, err)
	return string(b)
}

var badPaths = []string{"relative", "./a", "../a", "/", "/a/../b", "/a/./b", "//a", "/a/", "/a\x00b", "/a\nb", " /a", "~/a", "@a", "/" + strings.Repeat("a", 4095)}

func TestPCIVhostNet(t *testing.T) {
	checkStringKey(t, "pci", "vhost-net", "3.1.3.2", pciMap+",", false, []string{"/dev/vhost-net"}, badPaths)
}

func TestPCIRDMADevice(t *testing.T) {
	checkStringKey(t, "pci", "rdma-device", "3.1.3.3", pciMap+",", false, []string{"mlx5_0", "mlx5_0,mlx5_1"},
		[]string{",", "a,", "a, b", "a/b", "..", "a\x00", strings.Repeat("a", 256)})
	got, err := Parse([]byte(infoText("pci", pciMap+`,"rdma-device":"mlx5_4,mlx5_5"`)), "f")
	testkit.Must(t, err)
	if names := got.PCI.RDMADevices(); !slices.Equal(names, []string{"mlx5_4", "mlx5_5"}) {
		t.Errorf("RDMADevices = %q", names)
	}
	if names := (&PCI{}).RDMADevices(); names != nil {
		t.Errorf("RDMADevices of none = %q", names)
	}
}

func TestPCIRepresentor(t *testing.T) {
	checkStringKey(t, "pci", "representor-device", "3.1.3.5", pciMap+",", false, []string{"eth3", "pf0vf3", strings.Repeat("a", 127)},
		[]string{"a b", "a/b", ".", "..", strings.Repeat("a", 128)})
}

func TestVDPARepresentor(t *testing.T) {
	checkStringKey(t, "vdpa", "representor-device", "3.1.4.6", vdpaMap+",", false, []string{"eth3"}, []string{"a b", "a/b", ".."})
}

func TestVDPAParentDevice(t *testing.T) {
	checkStringKey(t, "vdpa", "parent-device", "3.1.4.1", `"driver":"vhost","path":"/dev/vhost-vdpa-3",`, true,
		[]string{"vdpa3", "vdpa:0000:65:00.3"}, []string{".", "..", "a/b", "/sys/bus/vdpa/devices/vdpa3", "a\x00b", "a b"})
}

func TestVDPADriver(t *testing.T) {
	checkStringKey(t, "vdpa", "driver", "3.1.4.2", `"parent-device":"vdpa3","path":"/dev/vhost-vdpa-3",`, true,
		[]string{"vhost", "virtio"}, []string{"Vhost", "vhost_vdpa", "vfio", "vhost "})
}

func TestVDPAPath(t *testing.T) {
	checkStringKey(t, "vdpa", "path", "3.1.4.3", `"parent-device":"vdpa3","driver":"vhost",`, true,
		[]string{"/dev/vhost-vdpa4", "/dev/sys/bus/virtio/devices/virtio5"}, append([]string{"pci/0000:65:00.3"}, badPaths...))
}

// sriov-network-device-plugin omits the path where the driver is virtio.
func TestVDPAPathOfVirtio(t *testing.T) {
	src := []byte(infoText("vdpa", `"parent-device":"vdpa3","driver":"virtio"`))
	got, err := Parse(src, "f")
	testkit.Must(t, err)
	if len(got.Warnings) != 1 || got.Warnings[0].Field != "vdpa.path" || got.Warnings[0].Section != inSection("3.1.4.3") {
		t.Errorf("warnings %v, want one about vdpa.path", got.Warnings)
	}
	if _, err = (marshalOptions{requireVDPAPath: true}).parse(src, "f"); err == nil {
		t.Error("accepted although the path is required")
	}
	checkSources(t, want{infoText("vdpa", `"parent-device":"vdpa3","driver":"virtio","path":"x"`), "vdpa.path", "3.1.4.3"})
}

func TestVhostUserMode(t *testing.T) {
	checkStringKey(t, "vhost-user", "mode", "3.1.5.1", `"path":"/run/v.sock",`, true, []string{"client", "server"}, []string{"Client", "master", "server "})
	if !(&VhostUser{Mode: VhostUserClient}).HostCreates() || (&VhostUser{Mode: VhostUserServer}).HostCreates() {
		t.Error("client means that the host creates the socket, server that the application does")
	}
}

func TestVhostUserPath(t *testing.T) {
	longest := "/" + strings.Repeat("a", 106)
	checkStringKey(t, "vhost-user", "path", "3.1.5.2", `"mode":"client",`, true, []string{"/run/v.sock", longest}, append([]string{longest + "a"}, badPaths...))
}

func TestMemifRole(t *testing.T) {
	checkStringKey(t, "memif", "role", "3.1.6.1", `"path":"/run/m.sock","mode":"ip",`, true, []string{"master", "slave"}, []string{"Master", "client"})
	if !(&Memif{Role: MemifSlave}).HostCreates() || (&Memif{Role: MemifMaster}).HostCreates() {
		t.Error("slave means that the host creates the socket, master that the application does")
	}
}

func TestMemifPath(t *testing.T) {
	longest := "/" + strings.Repeat("é", 53)
	bad := slices.DeleteFunc(slices.Clone(badPaths), func(p string) bool { return p == "@a" })
	checkStringKey(t, "memif", "path", "3.1.6.2", `"role":"slave","mode":"ip",`, true,
		[]string{"/run/m.sock", longest, "@name", "@a/b/../c", "@" + strings.Repeat("a", 106)},
		append([]string{longest + "a", "@", "@a\x00b", "@" + strings.Repeat("a", 107)}, bad...))
	if !(&Memif{Path: "@x"}).Abstract() || (&Memif{Path: "/x"}).Abstract() {
		t.Error("a path is abstract when it starts with @")
	}
}

func TestMemifMode(t *testing.T) {
	checkStringKey(t, "memif", "mode", "3.1.6.3", `"role":"slave","path":"/run/m.sock",`, true,
		[]string{"ethernet", "ip", "inject-punt"}, []string{"Ethernet", "l2", "inject_punt"})
}
