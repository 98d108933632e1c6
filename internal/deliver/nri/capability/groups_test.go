// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/edit"
)

func TestAdditionalGroupIsRefusedOnlyWhereNeeded(t *testing.T) {
	origin := edit.Origin{Request: "gpu", File: "/etc/cdi/gpu.yaml"}
	mode := func(m os.FileMode) *os.FileMode { return &m }
	node := edit.Device{Path: "/dev/dri/card1", Type: "c", Major: 226, UID: new(uint32(1000)), GID: new(uint32(44)), FileMode: mode(0o660), Origin: origin}
	with := func(change func(d *edit.Device)) []edit.Device {
		d := node
		change(&d)
		return []edit.Device{d}
	}
	root, user, other := new(uint32), new(uint32(1000)), new(uint32(1001))
	for name, tc := range map[string]struct {
		can     Capabilities
		devices []edit.Device
		refused string
	}{
		"owner":                       {Capabilities{UID: user}, with(func(*edit.Device) {}), ""},
		"root":                        {Capabilities{UID: root}, with(func(d *edit.Device) { d.UID = nil }), ""},
		"another owner":               {Capabilities{UID: other}, with(func(*edit.Device) {}), "add 44 to supplementalGroups"},
		"one of two nodes":            {Capabilities{UID: user}, append(with(func(*edit.Device) {}), with(func(d *edit.Device) { d.UID = root })...), "add 44 to supplementalGroups"},
		"owner has less":              {Capabilities{UID: user}, with(func(d *edit.Device) { d.FileMode = mode(0o460) }), "add 44 to supplementalGroups"},
		"unknown user":                {Capabilities{}, with(func(*edit.Device) {}), "--feature-flag=no-additional-gids-for-device-nodes"},
		"user namespace":              {Capabilities{UID: user, UserNS: true}, with(func(*edit.Device) {}), "generate the file without additionalGids"},
		"no nodes":                    {Capabilities{UID: root}, nil, "generate the file without additionalGids"},
		"nodes of another file alone": {Capabilities{UID: root}, with(func(d *edit.Device) { d.Origin.File = "/etc/cdi/b.yaml" }), "generate the file without additionalGids"},
	} {
		set := &edit.Set{Devices: tc.devices, GIDs: []edit.GID{{ID: 44, Origin: origin}}}
		err := Check(set, tc.can, "gpu")
		reason := tc.can.UnneededGroup(set, &set.GIDs[0])
		switch {
		case tc.refused == "" && (err != nil || !strings.Contains(reason, "additional group 44 is not delivered")):
			t.Errorf("%s: %v, reason %q", name, err, reason)
		case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused) || reason != ""):
			t.Errorf("%s: %v, reason %q", name, err, reason)
		}
	}
}
