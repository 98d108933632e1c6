// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

func TestDiagnosticNamesItsPlace(t *testing.T) {
	for want, d := range map[string]diag.Diagnostic{
		"f: r":                                {File: "f", Rule: "r"},
		"f:3: r":                              {File: "f", Line: 3, Rule: "r"},
		"3:4: r":                              {Line: 3, Column: 4, Rule: "r"},
		"f:3:4: a.b: found x: r":              {File: "f", Line: 3, Column: 4, Field: "a.b", Found: "x", Rule: "r"},
		"f: warning: a: r (Spec 1.0, §2): do": {File: "f", Field: "a", Rule: "r", Section: "Spec 1.0, §2", Hint: "do", Severity: diag.SeverityWarning},
		"r":                                   {Rule: "r"},
	} {
		if got := d.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDiagnosticsAreErrors(t *testing.T) {
	one := &diag.Diagnostic{Rule: "one"}
	two := &diag.Diagnostic{Rule: "two", Kind: errdefs.ErrPermissionDenied}
	list := diag.List{one, two}
	if !errdefs.IsInvalidArgument(one) || errdefs.IsInvalidArgument(two) || !errdefs.IsPermissionDenied(list) || list.Error() != "one; two" {
		t.Errorf("%v", list)
	}
	other := errors.New("three")
	all := diag.All("f", errors.Join(fmt.Errorf("wrapped: %w", list[:1]), two, other))
	if len(all) != 3 || all[0] != one || all[1] != two || all[2].Error() != "f: three" || !errors.Is(all[2], other) {
		t.Errorf("%v", all)
	}
	if all := diag.All("f", nil); all != nil {
		t.Errorf("%v", all)
	}
}

func TestUnreadableIsUnavailable(t *testing.T) {
	_, err := os.Open("/nowhere/f")
	if d := diag.Unreadable("f", err); !errdefs.IsUnavailable(d) || d.Error() != "f: cannot be read: no such file or directory" {
		t.Errorf("%v", d)
	}
}

func TestWithFileCopiesFaults(t *testing.T) {
	list := diag.List{{File: "/host/f", Rule: "one", Kind: errdefs.ErrUnavailable}, {Rule: "two", Severity: diag.SeverityWarning}}
	named := list.WithFile("f")
	if named.Error() != "f: one; f: warning: two" || named[0].Severity != diag.SeverityError || !errdefs.IsInvalidArgument(named[0]) {
		t.Errorf("%v", named)
	}
	if list[0].File != "/host/f" || list[1].File != "" {
		t.Errorf("the list was changed: %v", list)
	}
}
