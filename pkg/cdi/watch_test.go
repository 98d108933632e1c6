// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/host/watch"
)

func placeFile(t *testing.T, dir, name, device string) {
	t.Helper()
	text := fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"v/c","devices":[{"name":%q,"containerEdits":{"env":["A=b"]}}]}`, device)
	if err := os.WriteFile(dir+"/.tmp", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/.tmp", dir+"/"+name); err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryWithoutWatch checks that a directory without a watch is compared file by file for
// each snapshot, and is watched once that is possible.
func TestDirectoryWithoutWatch(t *testing.T) {
	dir := t.TempDir()
	r, err := NewCache(Options{SpecDirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.reader.watch.Close(); err != nil { // every watch fails
		t.Fatal(err)
	}
	want := func(device string) {
		t.Helper()
		if _, err := r.Snapshot().Device("v/c=" + device); err != nil {
			t.Fatal(err)
		}
	}
	placeFile(t, dir, "a.json", "a")
	want("a")
	if r.Snapshot().Dirs()[0].Watched {
		t.Error("the directory is reported as watched")
	}
	placeFile(t, dir, "a.json", "b")
	want("b")
	time.Sleep(50 * time.Millisecond) // a file that has just changed is read again
	r.Snapshot()
	before := r.Snapshot()
	file := r.reader.dirs[0].files["a.json"]
	if r.Snapshot() != before {
		t.Error("a new snapshot although nothing changed")
	}
	if r.reader.dirs[0].files["a.json"] != file {
		t.Error("a file that did not change is read again")
	}
	r.reader.watch = &watch.Queue{}
	want("b")
	if !r.Snapshot().Dirs()[0].Watched {
		t.Error("the directory is not watched")
	}
	placeFile(t, dir, "c.json", "c")
	want("c")
}
