// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// A defect in one check is a finding of that check, and the others go on.
func TestDoctorSurvivesACheckThatPanics(t *testing.T) {
	d := doctor{}
	if d.inTime("first", doctorFew, func(d *doctor) {
		d.ok("first", "found before")
		d.node.Registered = true // nil
	}) {
		t.Error("the check counts as done")
	}
	d.inTime("second", doctorFew, func(d *doctor) { d.ok("second", "fine") })
	text := d.text(0)
	for _, want := range []string{"ok       first          found before\n", "ERROR    first          internal error of doctor, the check was not finished: ", "nil pointer", "ok       second         fine\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestDoctorTextFitsTheTerminal(t *testing.T) {
	d := doctor{out: []diagnosis{{Check: "nri", Severity: severityUnknown, Found: "one two three four fives\n- six " + strings.Repeat("x", 40), Remedy: "seven eight nine ten"}}}
	const wrapped = `unknown  nri            one two three four
                        fives
                        - six
                        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                        -> seven eight nine
                           ten

0 errors, 0 warnings, 1 unknown
`
	if got := d.text(47); got != strings.Replace(wrapped, "nine\n                           ten", "nine ten", 1) {
		t.Errorf("found\n%s", got)
	}
	d.out[0].Remedy = "seven eight nine ten eleven"
	if got, want := d.text(47), strings.Replace(wrapped, "nine\n                           ten", "nine ten\n                           eleven", 1); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	if got := d.text(0); strings.Count(got, "\n") != 5 {
		t.Errorf("what is read by a program is wrapped:\n%s", got)
	}
}
