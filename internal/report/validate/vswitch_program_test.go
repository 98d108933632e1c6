// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// A configuration is valid without the program of its vswitch, which no port can be created without.
func TestMissingGrcliIsWarning(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	const text = "vswitches:\n- {name: grout0, type: grout, bridges: [br0], grcli: /opt/grcli}\n"
	if err := os.WriteFile(dir+"/config.yaml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for checkHost, want := range map[bool]bool{true: true, false: false} {
		v, err := New(host, "", "config", checkHost)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range v.CheckPath("/config.yaml", "config.yaml") {
			for _, d := range f.Findings {
				all = append(all, d.Error())
			}
		}
		found := strings.Join(all, "\n")
		if got := strings.Contains(found, "vswitches[0].grcli") && strings.Contains(found, "there is no such file on this host"); got != want {
			t.Errorf("checkHost %v: found %q", checkHost, found)
		}
	}
}
