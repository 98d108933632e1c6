// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// watchName watches a name and returns a channel of the notifications.
func watchName(t *testing.T, opts Options, dir, name string, mask uint32) (<-chan string, *Watch) {
	t.Helper()
	w, err := New(hostfs.Host(), opts)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = w.Close() })
	names := make(chan string, 1000)
	x, err := w.Add(dir, name, mask, func(name string) { names <- name })
	testkit.Must(t, err)
	return names, x
}

// realDir returns a temporary directory whose path has no symlink.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	return dir
}

func expect(t *testing.T, names <-chan string, want string) {
	t.Helper()
	select {
	case got := <-names:
		if got != want {
			t.Errorf("notified of %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no notification of %q", want)
	}
}

func expectNone(t *testing.T, names <-chan string) {
	t.Helper()
	select {
	case got := <-names:
		t.Errorf("notified of %q, want nothing", got)
	case <-time.After(20 * time.Millisecond):
	}
}

func TestWatcherReportsNameThatAppears(t *testing.T) {
	dir := realDir(t)
	names, _ := watchName(t, Options{}, dir, "sock", 0)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o644))
	expectNone(t, names)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "sock"), nil, 0o644))
	expect(t, names, "sock")
	expectNone(t, names) // its removal is not in the mask
	testkit.Must(t, os.Remove(filepath.Join(dir, "sock")))
	expectNone(t, names)
	testkit.Must(t, os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "sock")))
	expect(t, names, "sock")
}

func TestWatcherReportsEventsOfMask(t *testing.T) {
	dir := realDir(t)
	file := filepath.Join(dir, "f")
	testkit.Must(t, os.WriteFile(file, nil, 0o644))
	attributes, _ := watchName(t, Options{}, dir, "f", Attributes)
	removed, _ := watchName(t, Options{Pause: time.Millisecond}, dir, "", Removed)
	written, _ := watchName(t, Options{}, dir, "f", Written)
	testkit.Must(t, os.Chmod(file, 0o600))
	expect(t, attributes, "f")
	testkit.Must(t, os.WriteFile(file, []byte("x"), 0o644))
	expect(t, written, "f")
	testkit.Must(t, os.Rename(file, filepath.Join(dir, "g")))
	expect(t, removed, "f")
	expect(t, removed, "g")
	testkit.Must(t, os.Remove(filepath.Join(dir, "g")))
	expect(t, removed, "g")
}

func TestWatcherFollowsParentDirectories(t *testing.T) {
	root := realDir(t)
	names, _ := watchName(t, Options{}, filepath.Join(root, "a/b"), "sock", 0)
	testkit.Must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	expect(t, names, "sock")
	drainNames(names)
	testkit.Must(t, os.WriteFile(filepath.Join(root, "a/b/sock"), nil, 0o644))
	expect(t, names, "sock")
	drainNames(names)
	// Another directory takes its place.
	testkit.Must(t, os.MkdirAll(filepath.Join(root, "new/b"), 0o755), os.Rename(filepath.Join(root, "a"), filepath.Join(root, "old")))
	expect(t, names, "sock")
	testkit.Must(t, os.Rename(filepath.Join(root, "new"), filepath.Join(root, "a")))
	drainNames(names)
	testkit.Must(t, os.WriteFile(filepath.Join(root, "a/b/sock"), nil, 0o644))
	expect(t, names, "sock")
	// The directory that was moved away is not watched any more.
	drainNames(names)
	testkit.Must(t, os.Remove(filepath.Join(root, "old/b/sock")), os.WriteFile(filepath.Join(root, "old/b/sock"), nil, 0o644))
	expectNone(t, names)
}

// Directories that are created in a row are all watched: each is checked after the one above it is
// watched.
func TestWatcherFollowsDirectoriesCreatedInARow(t *testing.T) {
	root := realDir(t)
	for i := range 100 {
		dir := filepath.Join(root, fmt.Sprint(i), "a/b/c/d/e/f/g/h")
		w, err := New(hostfs.Host(), Options{})
		testkit.Must(t, err)
		_, err = w.Add(dir, "", 0, func(string) {})
		testkit.Must(t, err)
		testkit.Must(t, os.MkdirAll(dir, 0o755))
		watched := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.dirs[dir].wd >= 0
		}
		if !testkit.Until(watched) {
			t.Fatalf("attempt %d: the directory is not watched", i)
		}
		testkit.Must(t, w.Close())
	}
}

// drainNames waits until no more notifications come.
func drainNames(names <-chan string) {
	for {
		select {
		case <-names:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

func TestWatcherFollowsNoSymlink(t *testing.T) {
	root := realDir(t)
	testkit.Must(t, os.Mkdir(filepath.Join(root, "real"), 0o755), os.Symlink("real", filepath.Join(root, "link")))
	names, _ := watchName(t, Options{}, filepath.Join(root, "link"), "", 0)
	testkit.Must(t, os.WriteFile(filepath.Join(root, "real/x"), nil, 0o644))
	expectNone(t, names)
}

func TestStoppedWatchReportsNothing(t *testing.T) {
	dir := realDir(t)
	names, x := watchName(t, Options{}, filepath.Join(dir, "sub"), "", 0)
	x.Stop()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	expectNone(t, names)
	w := x.watcher
	if len(w.dirs) > 0 || len(w.wds) > 1 {
		t.Errorf("watched after Stop: %v", w.wds)
	}
}

// Failed can end a watch, or wait for somebody who does: the watcher holds no lock meanwhile.
func TestFailedCanStopWatch(t *testing.T) {
	dir := realDir(t)
	sub := filepath.Join(dir, "sub")
	testkit.Must(t, os.Mkdir(sub, 0o755))
	failed, watch := make(chan error, 1), make(chan *Watch, 1)
	_, x := watchName(t, Options{Failed: func(err error) {
		(<-watch).Stop()
		failed <- err
	}}, sub, "", 0)
	watch <- x
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	err := os.Rename(sub, sub+"2") // to be watched again, for which there is no descriptor
	reported := false
	select {
	case <-failed:
		reported = true
	case <-time.After(testkit.Hangs):
	}
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was), err)
	if !reported {
		t.Fatal("the failure is not reported")
	}
}

func TestWatcherRefusesPathsThatAreNotClean(t *testing.T) {
	w, err := New(hostfs.Host(), Options{})
	testkit.Must(t, err)
	for _, c := range [][2]string{{"relative", "x"}, {"/a/../b", "x"}, {"/a/", "x"}, {"/a", "x/y"}} {
		if _, err := w.Add(c[0], c[1], 0, func(string) {}); err == nil {
			t.Errorf("%q in %q is accepted", c[1], c[0])
		}
	}
	testkit.Must(t, w.Close())
	if _, err := w.Add("/", "x", 0, func(string) {}); err == nil {
		t.Error("a closed watcher accepts a path")
	}
}
