// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"strings"
	"testing"
)

// The configuration's page says how often files are read. The constants of the code say the same.
func TestIntervalsAreThoseOfTheCode(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ item, file, constant string }{
		{"- this file: every 0.5 s\n", "internal/host/filewatch/filewatch.go", "pollInterval = 500 * time.Millisecond"},
		{"- hooks.d directories: at each container, and every 2 s for the log\n", "nri/hook_dirs.go", "hooksCheckInterval = 2 * time.Second"},
		{"and at least every 45 s\n", "internal/port/reconcile/reconciler.go", "passInterval = 45 * time.Second"},
		{"- containers that the plugin missed: every minute,", "nri/missed_containers.go", "missedCheckInterval = time.Minute"},
		{"- whether a directory responds: every 5 s\n", "internal/host/dircheck/checker.go", "checkInterval = 5 * time.Second"},
	} {
		if !strings.Contains(string(page), c.item) {
			t.Errorf("the page does not have %q", c.item)
		}
		code, err := os.ReadFile("../../" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(code), c.constant) {
			t.Errorf("%s does not have %q, which the page says", c.file, c.constant)
		}
	}
}
