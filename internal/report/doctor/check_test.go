// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
)

// A check that panics becomes a finding, and the other checks run.
func TestCheckSurvivesPanic(t *testing.T) {
	d := doctor{}
	if d.runCheck("first", fewFilesTimeout, func(d *doctor) {
		d.reportOK("first", "found before")
		d.node.Registered = true // a nil pointer
	}) {
		t.Error("the check counts as done")
	}
	d.runCheck("second", fewFilesTimeout, func(d *doctor) { d.reportOK("second", "fine") })
	want := []Finding{
		{Check: "first", Severity: OK, Found: "found before"},
		{Check: "first", Severity: Error, Found: "internal error of doctor, the check was not finished: "},
		{Check: "second", Severity: OK, Found: "fine"},
	}
	if len(d.findings) != len(want) {
		t.Fatalf("%+v", d.findings)
	}
	for i, f := range d.findings {
		if f.Check != want[i].Check || f.Severity != want[i].Severity || !strings.HasPrefix(f.Found, want[i].Found) {
			t.Errorf("%+v, want %+v", f, want[i])
		}
	}
	if !strings.Contains(d.findings[1].Found, "nil pointer") {
		t.Errorf("%+v", d.findings[1])
	}
}
