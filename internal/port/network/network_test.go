// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/config/policy"
)

const listHead = "{\"cniVersion\": \"1.0.0\", \"name\": \"n\",\n \"plugins\": [{\"type\": \"bridge\"},\n  "

func TestReadReadsListsAsADDDoes(t *testing.T) {
	const port = `{"type": "jackfield-cni", "vswitch": "ovs0", "vlan": 7, "device": {"type": "vhost-user", "mode": "server"}}`
	for text, want := range map[string]Network{
		`{"type": "bridge", "brigde": 1}`:                                             {},
		`{"type": "jackfield-cni", "cniVersion": "1.1.0", "device": {"type": "pci"}}`: {Plugins: 1},
		listHead + port + `]}`:                                                        {Plugins: 1, Ports: []policy.Port{{Switch: "ovs0", VLAN: 7}}},
		`{"cniVersions": ["0.2.0", "1.0.0"], "name": "n", "plugins": [` + port + `, ` + port + `]}`: {Plugins: 2,
			Ports: []policy.Port{{Switch: "ovs0", VLAN: 7}, {Switch: "ovs0", VLAN: 7}}},
	} {
		got, err := Read(text, "net")
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v, -want +got\n%s", text, err, d)
		}
	}
}

// Lines and columns are those of the whole text, also in a list.
func TestReadReportsFaultsWithPlace(t *testing.T) {
	for text, want := range map[string]string{
		listHead + `{"type": "jackfield-cni", "vlan": 4095}]}`:                                       "line 3, column 37: vlan",
		listHead + `{"type": "jackfield-cni", "brigde": "é"}]}`:                                      "did you mean bridge?",
		listHead + `{"type": "jackfield-cni"}]}`:                                                     "device",
		listHead + `]`:                                                                               "line 3, column 3: ",
		`{"name": "n", "plugins": [{"type": "jackfield-cni", "cniVersion": "1.0.0"}]}`:               `the configuration has version ""`,
		`{"cniVersion": "1.0.0", "type": "jackfield-cni", "name": "../x", "device": {"type":"pci"}}`: "name",
		`[]`: "must be an object",
		``:   "the text is empty",
	} {
		if _, err := Read(text, "net"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, must contain %q", text, err, want)
		}
	}
}
