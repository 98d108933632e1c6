// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"path"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestKindIsFoundByPlaceAndVersion(t *testing.T) {
	host, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(host, "/etc/vendor-cdi", "", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, data string
		want       kind
	}{
		{"/etc/vendor-cdi/a.json", "", kindCDI},
		{"/checkout/cdi/a.yml", "", kindCDI},
		{"/etc/vendor-cdi/README", "cdiVersion: 1.0.0", kindUnknown},
		{"/etc/vendor-cdi/config.yaml", "", kindCDI},
		{"/etc/containers/oci/hooks.d/a.json", "", kindHook},
		{"/checkout/hooks.d/a.json", "{", kindHook},
		{"/var/run/k8s.cni.cncf.io/devinfo/cni/a-b-c_net1", "", kindDeviceInfo},
		{"/checkout/devinfo/cdi/x.json", "", kindDeviceInfo},
		{"/var/lib/kubelet/plugins/d/dra-device-metadata/a_b/r/metadata.json", "", kindMetadata},
		{"/etc/jackfield/tenants", "", kindConfig},
		{"/home/a/config.yaml", "", kindConfig},
		{"/etc/nri/conf.d/50-jackfield.conf", "", kindConfig},
		{"/etc/cni/net.d/10-a.json", "", kindNetwork},
		{"/x/10-a.conflist", "", kindNetwork},
		{"/x/a.conf", "", kindNetwork},
		{"/x/a.json", `{"cdiVersion": "0.6.0"}`, kindCDI},
		{"/x/a.json", `{"devices": [{"type": "pci"}], "kind": "a.b/c"}`, kindCDI},
		{"/x/a.json", `{,"cdiVersion": "0.6.0", "kind": "a.b/c"}`, kindCDI},
		{"/x/a.yaml", "---\ncdiVersion: 0.6.0\n", kindCDI},
		{"/x/a.yaml", "kind: \"a.b/c\"\n", kindCDI},
		{"/x/a.json", `{"type": "jackfield-cni", "name": "n", "cniVersion": "1.0.0"}`, kindNetwork},
		{"/x/a.yaml", "kind: Pod\nmetadata: {name: a}\n", kindManifest},
		{"/x/a.yaml", "\ufeffapiVersion: apps/v1\nkind: Deployment\n", kindManifest},
		{"/x/a.json", `{"apiVersion": "metadata.resource.k8s.io/v1beta1", "meta`, kindMetadata},
		{"/x/a.json", `{"kind": "DeviceMetadata"}`, kindMetadata},
		{"/x/a.yaml", "policy: {}\n", kindUnknown},
		{"/x/a.json", `{"type": "pci", "version": "1.1.0"}`, kindUnknown},
		{"/x/a.json", "", kindUnknown},
		{"/x/README", "How to write a\nkind: of page.", kindUnknown},
		{"", `{"cdiVersion": "0.6.0"}`, kindCDI},
		{"", "policy: {}\n", kindUnknown},
		{"", strings.Repeat("[", 100000), kindUnknown},
	} {
		if got := v.kindOf(text{hostPath: tt.file, ext: path.Ext(tt.file), isNamed: tt.file == "", data: []byte(tt.data)}); got != tt.want {
			t.Errorf("%s with %.40q: kind %q, want %q", tt.file, tt.data, got, tt.want)
		}
	}
}
