// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func records(t *testing.T) (*Records, string) {
	t.Helper()
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecords(host, "/run/jackfield")
	if err != nil {
		t.Fatal(err)
	}
	return r, filepath.Join(dir, "run/jackfield/status")
}

func TestRecordsIgnoreForeignFilesAndInvalidIDs(t *testing.T) {
	r, dir := records(t)
	c := &Container{Since: time.Unix(1e9, 0).UTC(), ContainerID: "c1", Pod: "p", Edits: []Edit{{What: "device /dev/x"}}}
	big := &Container{ContainerID: "big", Edits: []Edit{{What: strings.Repeat("x", maxRecord)}}}
	for _, c := range []*Container{c, big} {
		if err := r.Write(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"", ".x", "../x", "a/b", strings.Repeat("x", 129)} {
		if err := r.Write(&Container{ContainerID: bad}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("ID %q: %v", bad, err)
		}
		if err := r.Remove(bad); err == nil {
			t.Errorf("ID %q was removed", bad)
		}
	}
	// Foreign entries are not followed, waited for or trusted.
	for name, put := range map[string]func(file string) error{
		"fifo":   func(file string) error { return unix.Mkfifo(file, 0o600) },
		"link":   func(file string) error { return os.Symlink("/etc/passwd", file) },
		"forged": func(file string) error { return os.WriteFile(file, []byte(`{"containerID":"c1"}`), 0o600) },
		"large":  func(file string) error { return os.WriteFile(file, make([]byte, maxRecord+1), 0o600) },
		"dir":    func(file string) error { return os.Mkdir(file, 0o700) },
	} {
		if err := put(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Read()
	for _, name := range []string{"fifo", "link", "forged", "large", "dir"} {
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	Sort(got)
	if len(got) != 2 || got[0].ContainerID != "big" || got[0].More == "" || got[1].Pod != "p" || len(got[1].Edits) != 1 || !got[1].Since.Equal(c.Since) {
		t.Errorf("read %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "forged")); !os.IsNotExist(err) {
		t.Errorf("a file that is not a record is left: %v", err)
	}
	if err := errors.Join(r.Remove("c1"), r.Remove("c1")); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"containerID":"a","requests":[{"request":"r"}],"edits":[{"what":"w"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := store("").Decode("a", data); err == nil && c.ContainerID != "a" {
			t.Error("the record of another container was accepted")
		}
	})
}
