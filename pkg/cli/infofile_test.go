// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
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

func TestOrphan(t *testing.T) {
	id := strings.Repeat("0a", 32)
	other := strings.Repeat("1b", 32)
	for _, tt := range []struct {
		name string
		keep []string
		want bool
	}{
		{"telco-east-" + id + "_net1", []string{other}, true},
		{"telco-east-" + id + "_net1", []string{other, id}, false},
		{"telco-east-" + id + "_net1", []string{id[:13]}, false},
		// An ID to keep anywhere in the name keeps the file.
		{"telco-" + other + "-" + id + "_net1", []string{other}, false},
		{"telco-east-" + other + "_a-" + id + "_net1", []string{other}, false},
		// What cannot be read as an ID is nobody's to remove.
		{"telco-east-" + id[1:] + "_net1", []string{other}, false},
		{"telco-east-" + strings.ToUpper(id) + "_net1", []string{other}, false},
		{"telco-east-" + id + "_a-name-too-long-for-it", []string{other}, false},
		{"telco-east-" + id, []string{other}, false},
		{"." + "telco-east-" + id + "_net1", []string{other}, false},
		{"-" + id + "_net1", []string{other}, false},
	} {
		if got := orphan(tt.name, tt.keep); got != tt.want {
			t.Errorf("orphan(%q, %q) = %v, want %v", tt.name, tt.keep, got, tt.want)
		}
	}
}
