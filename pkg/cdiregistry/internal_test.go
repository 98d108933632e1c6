// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
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

// TestUnwatchable: a directory that the kernel does not watch is compared file by
// file at each snapshot, and watched once that is possible.
func TestUnwatchable(t *testing.T) {
	dir := t.TempDir()
	r, err := New(hostfs.Host(), []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// No inotify descriptor, so that every watch fails.
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.watch.fd = null
	want := func(device string) {
		t.Helper()
		if _, err := r.Snapshot().Device("v/c=" + device); err != nil {
			t.Fatal(err)
		}
	}
	placeFile(t, dir, "a.json", "a")
	want("a")
	if r.Snapshot().Dirs()[0].Watched {
		t.Error("the directory counts as watched")
	}
	placeFile(t, dir, "a.json", "b")
	want("b")
	time.Sleep(50 * time.Millisecond) // a file that has just changed is read again
	r.Snapshot()
	before := r.Snapshot()
	if r.Snapshot() != before {
		t.Error("nothing changed, and the snapshot is another")
	}
	if err := r.watch.close(); err != nil {
		t.Fatal(err)
	}
	want("b")
	if !r.Snapshot().Dirs()[0].Watched {
		t.Error("the directory is not watched")
	}
	placeFile(t, dir, "c.json", "c")
	want("c")
}

// TestOlderBatch: what a slow load brings does not replace what a newer one saw.
func TestOlderBatch(t *testing.T) {
	dir := t.TempDir()
	r, err := New(hostfs.Host(), []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Snapshot()
	begin := func() *batch {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		b := r.collect()
		if b == nil {
			t.Fatal("nothing was announced")
		}
		r.open = append(r.open, b)
		return b
	}
	load := func(b *batch) {
		for _, s := range b.scans {
			r.scan(b, s)
		}
		r.loadFiles(b)
	}
	publish := func(b *batch) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.commit(b)
		close(b.done)
	}
	// The older batch has loaded files of which one changes, one goes and one stays.
	for _, f := range []string{"changes", "goes", "stays"} {
		placeFile(t, dir, f+".json", f)
	}
	older := begin()
	load(older)
	placeFile(t, dir, "changes.json", "changed")
	if err := os.Remove(dir + "/goes.json"); err != nil {
		t.Fatal(err)
	}
	newer := begin()
	load(newer)
	publish(newer)
	publish(older)
	s := r.Snapshot()
	if got := fmt.Sprint(s.Devices()); got != "[v/c=changed v/c=stays]" {
		t.Errorf("devices are %s", got)
	}

	// The same with a listing of the whole directory as the newer one.
	placeFile(t, dir, "goes.json", "goes")
	older = begin()
	load(older)
	if err := os.Remove(dir + "/goes.json"); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.states[0].stale = true
	r.mu.Unlock()
	newer = begin()
	load(newer)
	publish(newer)
	publish(older)
	if got := fmt.Sprint(r.Snapshot().Devices()); got != "[v/c=changed v/c=stays]" {
		t.Errorf("devices are %s", got)
	}

	// And as the older one: it listed the directory before a file came.
	r.mu.Lock()
	r.states[0].stale = true
	r.mu.Unlock()
	older = begin()
	load(older)
	placeFile(t, dir, "new.json", "new")
	newer = begin()
	load(newer)
	publish(newer)
	publish(older)
	if got := fmt.Sprint(r.Snapshot().Devices()); got != "[v/c=changed v/c=new v/c=stays]" {
		t.Errorf("devices are %s", got)
	}
	if len(r.open) != 0 || len(r.committed) != 0 {
		t.Errorf("left over: %d batches, %v", len(r.open), r.committed)
	}
}

// TestNoGuard: where the ways cannot be watched, the paths are looked at.
func TestNoGuard(t *testing.T) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, d := range []string{"/one/cdi", "/two/cdi"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
		placeFile(t, dir+d, "a.json", d[1:4])
	}
	r, err := New(hostfs.Host(), []string{dir + "/one/cdi"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Snapshot()
	for tries := 1; !r.Guarded(); tries++ { // somebody else's mount takes it down
		if tries == 100 {
			t.Fatal("the guard is not up")
		}
	}
	// As when the limit of watches is reached.
	r.guard.mu.Lock()
	unix.Close(r.guard.ways)
	r.guard.ways, r.guard.ids = null, nil
	r.guard.mu.Unlock()
	if r.Guarded() {
		t.Fatal("the guard is up without a watch")
	}
	for range 3 {
		if err := unix.Renameat2(unix.AT_FDCWD, dir+"/one", unix.AT_FDCWD, dir+"/two", unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Snapshot().Device("v/c=two"); err != nil {
			t.Fatal(err)
		}
		if err := unix.Renameat2(unix.AT_FDCWD, dir+"/one", unix.AT_FDCWD, dir+"/two", unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Snapshot().Device("v/c=one"); err != nil {
			t.Fatal(err)
		}
	}
}
