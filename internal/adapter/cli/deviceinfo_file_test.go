// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

func TestSplitDPName(t *testing.T) {
	vdpa := &deviceinfo.Info{Type: deviceinfo.TypeVDPA, VDPA: &deviceinfo.VDPA{ParentDevice: "vdpa-a/b", PCIAddress: ""}}
	for _, tt := range []struct {
		name         string
		info         *deviceinfo.Info
		resource, id string
	}{
		{"intel.com-sriov-0000:03:00.3-device.json", nil, "intel.com/sriov", "0000:03:00.3"},
		{"my-corp.com-sriov-0000:03:00.3-device.json", nil, "my-corp.com-sriov", "0000:03:00.3"},
		{"a.b-c-vdpa-a-b-device.json", vdpa, "a.b/c", "vdpa-a/b"},
		{"a.b-c-vhost-phy0-device.json", nil, "", ""},
		{"-0000:03:00.3-device.json", nil, "", ""},
		{"-device.json", vdpa, "", ""},
		{"", nil, "", ""},
	} {
		if r, id := splitDPName(tt.name, tt.info); r != tt.resource || id != tt.id {
			t.Errorf("splitDPName(%q) = %q, %q, want %q, %q", tt.name, r, id, tt.resource, tt.id)
		}
	}
}
