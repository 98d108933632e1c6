// SPDX-License-Identifier: Apache-2.0

package devicemetadata_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
)

// object returns an object of one device. Empty parts are left out.
func object(version, attributes, networkData string) string {
	device := `{"driver": "d.example.com", "pool": "node", "name": "dev-1"`
	if attributes != "" {
		device += `, "attributes": {` + attributes + `}`
	}
	if networkData != "" {
		device += `, "networkData": {` + networkData + `}`
	}
	return `{"kind": "DeviceMetadata", "apiVersion": "` + version + `",
 "metadata": {"name": "claim", "namespace": "ns", "uid": "u-1", "generation": 2},
 "podClaimName": "nic", "requests": [{"name": "vf", "devices": [` + device + `}]}]}
`
}

const (
	beta  = "metadata.resource.k8s.io/v1beta1"
	alpha = "metadata.resource.k8s.io/v1alpha1"
)

func TestParseReadsFirstKnownVersion(t *testing.T) {
	network := `"interfaceName": "net1", "ips": ["192.0.2.5/24", "2001:db8::5/64"], "hardwareAddress": "C2:11:22:33:44:55"`
	all := object("metadata.resource.k8s.io/v2", `"x": 1`, "") +
		object(beta, `"resource.kubernetes.io/pciBusID": {"string": "0000:3B:00.2"}, "mtu": {"int": 9000}, "other": {"bool": true},
 "k8s.cni.cncf.io/deviceID": {"string": "0000:3b:00.2"}`, network) +
		object(alpha, `"resource.kubernetes.io/pciBusID": {"string": "0000:00:00.0"}`, "") + "what follows is not read"
	m, err := devicemetadata.Parse(all, "f")
	if err != nil {
		t.Fatal(err)
	}
	want := &devicemetadata.Metadata{Version: beta, Namespace: "ns", Claim: "claim", UID: "u-1", PodClaim: "nic",
		Requests: []devicemetadata.Request{{Name: "vf", Devices: []devicemetadata.Device{{
			Driver: "d.example.com", Pool: "node", Name: "dev-1", PCIAddress: "0000:3b:00.2", MTU: 9000,
			IfName: "net1", IPs: []string{"192.0.2.5/24", "2001:db8::5/64"}, MAC: "c2:11:22:33:44:55"}}}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got %+v\nwant %+v", m, want)
	}
}

func TestParseReadsAttributesOfSeveralNames(t *testing.T) {
	for attributes, want := range map[string]devicemetadata.Device{
		`"vhost-user-path": {"string": "/run/v/a.sock"}, "mtu": {"int": 1500}`: {VhostUserPath: "/run/v/a.sock", MTU: 1500},
		`"d.example.com/vhost-user-path": {"string": "/run/v/a.sock"}`:         {VhostUserPath: "/run/v/a.sock"},
		`"x.example.com/vhost-user-path": {"string": "/run/v/a.sock"}`:         {},
		`"k8s.cni.cncf.io/deviceID": {"string": "0000:3b:00.2"}`:               {PCIAddress: "0000:3b:00.2"},
		`"k8s.cni.cncf.io/deviceID": {"string": "port-7"}`:                     {},
		`"mtu": null, "vhost-user-path": null`:                                 {},
	} {
		m, err := devicemetadata.Parse(object(alpha, attributes, ""), "f")
		if err != nil {
			t.Errorf("%s: %v", attributes, err)
			continue
		}
		want.Driver, want.Pool, want.Name = "d.example.com", "node", "dev-1"
		if got := m.Requests[0].Devices[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", attributes, got, want)
		}
	}
}

func TestParseReportsFaults(t *testing.T) {
	const at = "requests[0].devices[0]."
	for name, tc := range map[string]struct{ text, want string }{
		"empty":           {" \n", `f: found no JSON value: must have an object in version metadata.resource.k8s.io/v1beta1 or v1alpha1`},
		"unknown version": {object("metadata.resource.k8s.io/v2", "", ""), `f: apiVersion: found "metadata.resource.k8s.io/v2": must have an object in version metadata.resource.k8s.io/v1beta1 or v1alpha1`},
		"no version":      {`{"kind": "DeviceMetadata"}`, `f:1:1: apiVersion: found nothing: is required`},
		"another kind":    {strings.Replace(object(beta, "", ""), `"DeviceMetadata"`, `"Pod"`, 1), `f:1:10: kind: invalid value "Pod": must be DeviceMetadata`},
		"cut short":       {object(beta, "", "")[:60], `f:1:61: found the end of the text: a string is not closed: the text is cut short`},
		"cut short after an unknown version": {object("x/v9", "", "") + `{"kind"`,
			`f:4:8: found the end of the text: a colon is required after the key "kind": the text is cut short`},
		"an array":      {`[]`, `f:1:1: found an array: must be an object`},
		"a key twice":   {strings.Replace(object(beta, "", ""), `"name": "claim"`, `"name": "claim", "name": "other"`, 1), `f:2:32: metadata: found "name": a key must occur only once`},
		"no claim":      {strings.Replace(object(beta, "", ""), `"name": "claim", `, ``, 1), `f:2:14: metadata.name: found nothing: is required`},
		"no metadata":   {strings.Replace(object(beta, "", ""), `"metadata": {`, `"meta": {`, 1), `f:1:1: metadata: found nothing: is required`},
		"generation":    {strings.Replace(object(beta, "", ""), `"generation": 2`, `"generation": 1.5`, 1), `f:2:79: metadata.generation: invalid value 1.5: must be a whole number from 0 to 18446744073709551615`},
		"empty driver":  {strings.Replace(object(beta, "", ""), `"d.example.com"`, `""`, 1), `f:3:76: ` + at + `driver: found "": must not be empty`},
		"control":       {strings.Replace(object(beta, "", ""), `"dev-1"`, `"dev\n1"`, 1), `f:3:117: ` + at + `name: invalid value "dev\n1": must be printable and without a space`},
		"pci address":   {object(beta, `"resource.kubernetes.io/pciBusID": {"string": "3b:00.2"}`, ""), `f:3:187: ` + at + `attributes.resource.kubernetes.io/pciBusID.string: invalid value "3b:00.2": must be a PCI address DDDD:BB:DD.F: did you mean 0000:3b:00.2?`},
		"pci type":      {object(beta, `"resource.kubernetes.io/pciBusID": {"int": 1}`, ""), `f:3:176: ` + at + `attributes.resource.kubernetes.io/pciBusID: found no key string: must be a string: {"string": "TEXT"}`},
		"two addresses": {object(beta, `"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.2"}, "k8s.cni.cncf.io/deviceID": {"string": "0000:3b:00.3"}`, ""), `f:3:243: ` + at + `attributes.k8s.cni.cncf.io/deviceID.string: found "0000:3b:00.3": resource.kubernetes.io/pciBusID says 0000:3b:00.2: both must name one device`},
		"mtu type":      {object(beta, `"mtu": {"string": "1500"}`, ""), `f:3:148: ` + at + `attributes.mtu: found no key int: must be a number: {"int": N}`},
		"mtu":           {object(beta, `"mtu": {"int": 67}`, ""), `f:3:156: ` + at + `attributes.mtu.int: invalid value "67": must be a whole number from 68 to 65535`},
		"relative path": {object(beta, `"vhost-user-path": {"string": "run/a.sock"}`, ""), `f:3:171: ` + at + `attributes.vhost-user-path.string: invalid value "run/a.sock": must be an absolute path without . and ..`},
		"path up":       {object(beta, `"vhost-user-path": {"string": "/run/../a.sock"}`, ""), `f:3:171: ` + at + `attributes.vhost-user-path.string: invalid value "/run/../a.sock": must be an absolute path without . and ..`},
		"long path":     {object(beta, `"vhost-user-path": {"string": "/`+strings.Repeat("a", 107)+`"}`, ""), `f:3:171: ` + at + `attributes.vhost-user-path.string: found 108 bytes: must have at most 107, the longest path of a UNIX socket`},
		"interface":     {object(beta, "", `"interfaceName": "a/b"`), `f:3:159: ` + at + `networkData.interfaceName: invalid value "a/b": must be an interface name, of at most 15 bytes`},
		"mac":           {object(beta, "", `"hardwareAddress": "c2:11"`), `f:3:161: ` + at + `networkData.hardwareAddress: invalid value "c2:11": must be a hardware address of 6, 8 or 20 bytes`},
		"ip":            {object(beta, "", `"ips": ["192.0.2.5"]`), `f:3:150: ` + at + `networkData.ips[0]: invalid value "192.0.2.5": must be an address with its prefix length, such as 192.0.2.5/24`},
	} {
		_, err := devicemetadata.Parse(tc.text, "f")
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, tc.want)
		}
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: the error is no errdefs.ErrInvalidArgument", name)
		}
	}
}

// FuzzParse checks that a text gives either valid metadata or a diagnostic with a place.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		object(beta, `"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.2"}`, `"interfaceName": "net1", "ips": ["192.0.2.5/24"]`),
		object("x/v2", "", "") + object(alpha, `"vhost-user-path": {"string": "/run/a.sock"}, "mtu": {"int": 1500}`, ""),
		"{}", "", `{"apiVersion":"` + beta + `","kind":"DeviceMetadata","metadata":{}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := devicemetadata.Parse(text, "f")
		if all, err := devicemetadata.Validate(text, "f", ""); err == nil && (len(all) == 0 || !reflect.DeepEqual(all[0], m)) {
			t.Fatalf("%q: validated as %+v, read as %+v", text, all, m)
		}
		if err != nil {
			var d *diag.Diagnostic
			if !errors.As(err, &d) || d.File != "f" || d.Rule == "" || !errdefs.IsInvalidArgument(err) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		if m.Namespace == "" || m.Claim == "" || m.Version == "" {
			t.Fatalf("%q: %+v", text, m)
		}
		for _, r := range m.Requests {
			for _, d := range r.Devices {
				if d.Driver == "" || d.Pool == "" || d.Name == "" {
					t.Fatalf("%q: %+v", text, d)
				}
				if p := d.VhostUserPath; p != "" && (p[0] != '/' || len(p) > 107 || strings.Contains(p, "/../") || strings.ContainsAny(p, "\x00\n ")) {
					t.Fatalf("%q: path %q", text, p)
				}
				if address, ok := diag.PCIAddress(d.PCIAddress); d.PCIAddress != "" && (!ok || address != d.PCIAddress) {
					t.Fatalf("%q: address %q", text, d.PCIAddress)
				}
				if len(d.IfName) > 15 || strings.ContainsAny(d.IfName, "/ ") || d.MTU != 0 && (d.MTU < 68 || d.MTU > 65535) {
					t.Fatalf("%q: %+v", text, d)
				}
			}
		}
	})
}
