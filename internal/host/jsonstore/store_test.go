// SPDX-License-Identifier: Apache-2.0

package jsonstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

type thing struct {
	Name string `json:"name"`
}

func things(t *testing.T) Store[thing] {
	return Store[thing]{Dir: t.TempDir(), MaxSize: 64, Check: func(file string, r *thing) error {
		if r.Name != file {
			return errors.New("another thing")
		}
		return nil
	}}
}

func TestRecordsAreWrittenListedAndRemoved(t *testing.T) {
	s := things(t)
	if r, err := s.Read("a"); r != nil || err != nil {
		t.Errorf("a missing record is %v, %v", r, err)
	}
	testkit.Must(t, s.Write("b", &thing{"b"}), s.Write("a", &thing{"x"}), s.Write("a", &thing{"a"}))
	if r, err := s.Read("a"); err != nil || r.Name != "a" {
		t.Errorf("%v, %v", r, err)
	}
	if files, err := s.Files(); err != nil || strings.Join(files, " ") != "a b" {
		t.Errorf("%v, %v", files, err)
	}
	testkit.Must(t, s.Remove("a"), s.Remove("a"))
	if files, err := s.Files(); err != nil || strings.Join(files, " ") != "b" {
		t.Errorf("%v, %v", files, err)
	}
}

func TestDamagedAndForeignFilesAreErrors(t *testing.T) {
	s := things(t)
	put := func(name, content string) error {
		return os.WriteFile(filepath.Join(s.Dir, name), []byte(content), 0o600)
	}
	testkit.Must(t, put("cut", `{"name":"c`), put("other", `{"name":"x"}`), put("type", `{"name":1}`), put("empty", ""),
		put("large", strings.Repeat(" ", 65)), unix.Mkfifo(filepath.Join(s.Dir, "fifo"), 0o600),
		put("target", `{"name":"link"}`), os.Symlink("target", filepath.Join(s.Dir, "link")))
	for _, file := range []string{"cut", "other", "type", "empty"} {
		if r, err := s.Read(file); r != nil || !errors.Is(err, ErrDamaged) || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, %v", file, r, err)
		}
	}
	for _, file := range []string{"large", "fifo", "link", "../x", ".x", ""} {
		if r, err := s.Read(file); r != nil || err == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v, %v", file, r, err)
		}
	}
	dir, err := os.Open(s.Dir)
	testkit.Must(t, err)
	defer dir.Close()
	for _, file := range []string{"fifo", "link", "../x", filepath.Join(s.Dir, "target"), ""} {
		if r, err := s.ReadAt(int(dir.Fd()), file); r != nil || err == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("%q in the open directory: %v, %v", file, r, err)
		}
	}
	if s.Write("../x", &thing{}) == nil || s.Remove("../x") == nil {
		t.Error("a name led out of the directory")
	}
}
