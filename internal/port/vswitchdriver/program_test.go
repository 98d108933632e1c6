// SPDX-License-Identifier: Apache-2.0

package vswitchdriver

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestProgramOfDriverMustBeExecutable(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"program": 0o755, "text": 0o644} {
		if err := os.WriteFile(dir+"/"+name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/directory", 0o755); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"/program": "", "/text": "not executable", "/directory": "not a program", "/missing": "no such file on this host",
	} {
		err := CheckProgram(host, config.Vswitch{Type: config.VswitchGrout, Grcli: file})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir+"/program", 12345, -1); err != nil {
			t.Fatal(err)
		}
		err := CheckProgram(host, config.Vswitch{Type: config.VswitchGrout, Grcli: "/program"})
		if err == nil || !strings.Contains(err.Error(), "owned by uid 12345") {
			t.Errorf("another user's program: %v", err)
		}
	}
	if err := CheckProgram(host, config.Vswitch{Type: config.VswitchOVS}); err != nil {
		t.Errorf("a driver without a program: %v", err)
	}
}
