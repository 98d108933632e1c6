// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/status"
)

// Each state of a vswitch has a finding that names the switch, and a remedy if there is a fault.
func TestEachVswitchStateHasFindingAndRemedy(t *testing.T) {
	at := vswitch.Status{Name: "ovs0", Type: "ovs", Endpoint: "/run/openvswitch/db.sock"}
	with := func(change func(v *vswitch.Status)) *status.Node {
		v := at
		v.Checked, v.Answering, v.Ports = true, true, 3
		change(&v)
		return &status.Node{Registered: true, Vswitches: []vswitch.Status{v}}
	}
	for name, tc := range map[string]struct {
		node     *status.Node
		severity Severity
		found    string
	}{
		"answers":         {with(func(*vswitch.Status) {}), OK, `"ovs0" (ovs at /run/openvswitch/db.sock) answers and has 3 ports of running pods`},
		"is unreachable":  {with(func(v *vswitch.Status) { v.Answering, v.Error = false, "connection refused" }), Error, "is unreachable: connection refused"},
		"lacks ports":     {with(func(v *vswitch.Status) { v.Missing, v.Error = 1, "no bridge br0" }), Error, "lacks 1 port of running pods: no bridge br0"},
		"another failure": {with(func(v *vswitch.Status) { v.Error = "a record cannot be read" }), Warning, "answers and has 3 ports of running pods: a record cannot be read"},
		"not checked":     {with(func(v *vswitch.Status) { *v = at }), Unknown, "is not checked yet"},
		"no plugin":       {nil, Unknown, "is not registered"},
		"not registered":  {&status.Node{}, Unknown, "is not registered"},
	} {
		n := &node{cfg: &config.Config{Vswitches: []config.Vswitch{{Name: "ovs0"}}}, daemon: tc.node}
		found := checkVswitches(t.Context(), n)
		if len(found) != 1 || found[0].Severity != tc.severity || !strings.Contains(found[0].Found, tc.found) {
			t.Errorf("%s: found %+v, want %s: %s", name, found, tc.severity, tc.found)
		} else if f := found[0]; (f.Severity == Error) && f.Remedy == "" {
			t.Errorf("%s: no remedy", name)
		}
	}
	if n := (&node{cfg: &config.Config{}, daemon: &status.Node{Registered: true}}); n.hasVswitches() {
		t.Error("a node without vswitches has some")
	}
}

// A missing program of a vswitch is reported whether the plugin runs or not.
func TestMissingGrcliIsFinding(t *testing.T) {
	grout := config.Vswitch{Name: "grout0", Type: config.VswitchGrout, Grcli: "/does/not/exist"}
	n := &node{cfg: &config.Config{Vswitches: []config.Vswitch{grout}}, Options: Options{Host: hostfs.Host()}}
	found := checkVswitches(t.Context(), n)
	if len(found) != 2 || found[0].Severity != Warning || !strings.Contains(found[0].Found, "no such file") ||
		!strings.Contains(found[0].Remedy, "vswitches.grout0.grcli") {
		t.Errorf("found %+v", found)
	}
}
