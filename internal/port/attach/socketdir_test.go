// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
)

// The name of an attachment's directory is one element, whatever a record says.
func TestRemoveSocketDirRefusesPath(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(dir, "run/vsw/precious/file"), filepath.Join(dir, "run/vsw/sockets/own/file")}
	for _, file := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := &Attachment{Root: host}
	for _, name := range []string{"../precious", "..", ".", "own/..", "own/file", "/run/vsw/precious"} {
		r := &record.Record{SocketDir: "/run/vsw/sockets", Directory: name, ClaimsDir: "/run/claims", Claimed: "/run/vsw/sockets/" + name}
		if err := (&removal{Attachment: a}).removeClaimedDir(r); err == nil {
			t.Errorf("%q was removed", name)
		}
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
