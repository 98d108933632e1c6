// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A check that panics becomes a finding, and the other checks run.
func TestCheckSurvivesPanic(t *testing.T) {
	n := newNode(Options{})
	say := func(text string) func(context.Context, *node) findings {
		return func(context.Context, *node) (found findings) {
			found.addOK("%s", text)
			return found
		}
	}
	n.examine(t.Context(), check{"before", fewFilesTimeout, nil, say("fine before")})
	n.examine(t.Context(), check{"first", fewFilesTimeout, nil, func(_ context.Context, n *node) findings {
		n.configName = "half read"
		n.daemon.Registered = true // a nil pointer
		return nil
	}})
	n.examine(t.Context(), check{"second", fewFilesTimeout, nil, say("fine")})
	want := []Finding{
		{Check: "before", Severity: OK, Found: "fine before"},
		{Check: "first", Severity: Error, Found: "internal error of doctor, the check was not finished: "},
		{Check: "second", Severity: OK, Found: "fine"},
	}
	if len(n.findings) != len(want) || n.configName != "" {
		t.Fatalf("%+v, %q", n.findings, n.configName)
	}
	for i, f := range n.findings {
		if f.Check != want[i].Check || f.Severity != want[i].Severity || !strings.HasPrefix(f.Found, want[i].Found) {
			t.Errorf("%+v, want %+v", f, want[i])
		}
	}
	if !strings.Contains(n.findings[1].Found, "nil pointer") {
		t.Errorf("%+v", n.findings[1])
	}
}

// With Fix the runner corrects findings, and reports why one cannot be corrected.
func TestRunnerFixesFindings(t *testing.T) {
	for _, fix := range []bool{false, true} {
		n, calls := newNode(Options{Fix: fix}), 0
		n.examine(t.Context(), check{"c", fewFilesTimeout, nil, func(context.Context, *node) (found findings) {
			found.add(Error, "", "a").correct = func(context.Context) error { calls++; return nil }
			found.add(Error, "", "b").correct = func(context.Context) error { calls++; return errors.New("no right") }
			return found
		}})
		first, second := n.findings[0], n.findings[1]
		if first.Fixed != fix || second.Fixed || calls != 2 && fix || calls != 0 && !fix {
			t.Errorf("fix %v: %d calls, %+v", fix, calls, n.findings)
		}
		if fix && second.Found != "b; it cannot be corrected: no right" {
			t.Errorf("%+v", second)
		}
	}
}
