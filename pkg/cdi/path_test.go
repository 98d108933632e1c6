// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSnapshotSeesChangesAboveDirectory checks that the next lookup sees every change on the
// path to a spec directory.
func TestSnapshotSeesChangesAboveDirectory(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			e := newEnv(t, m)
			change := func(value string, do ...error) {
				e.Helper()
				for _, err := range do {
					e.must(err)
				}
				e.wantDevice("x", value)
			}
			for _, d := range []string{"a", "b"} {
				e.must(os.MkdirAll(e.top+"/store/"+d+"/deep/cdi", 0o755))
				e.renameIntoPlace("/store/"+d+"/deep/cdi/f.json", specText(d, "x"))
			}
			change("", os.RemoveAll(e.top+"/run/cdi"))
			// Two symlinks, one of them through "..", and a last element that appears later.
			change("", os.Symlink("../link/../../link/deep/cdi", e.top+"/run/cdi"))
			change("a", os.Symlink("store/a", e.top+"/link"))
			change("b", os.Symlink("store/b", e.top+"/new"), os.Rename(e.top+"/new", e.top+"/link"))
			change("", os.Rename(e.top+"/store/b", e.top+"/store/c"))
			change("b", os.Rename(e.top+"/store/c", e.top+"/store/b"))
			change("a", unix.Renameat2(unix.AT_FDCWD, e.top+"/store/a/deep", unix.AT_FDCWD, e.top+"/store/b/deep", unix.RENAME_EXCHANGE))
			change("", os.Rename(e.top+"/store", e.top+"/away"))
			change("a", os.Rename(e.top+"/away", e.top+"/store"))
			change("", os.RemoveAll(e.top+"/run"))
			change("", os.Mkdir(e.top+"/run", 0o755), os.Mkdir(e.top+"/run/cdi", 0o755))
			e.renameIntoPlace("/run/cdi/f.json", specText("last", "x"))
			change("last")
			// A change outside of the path causes no new snapshot.
			time.Sleep(50 * time.Millisecond) // a file that has just changed is read again
			e.r.Snapshot()
			before := e.r.Snapshot()
			for i := range 50 {
				e.writeInPlace("/run/other"+strconv.Itoa(i), "")
				if e.r.Snapshot() != before {
					t.Fatal("a new snapshot after a change outside of the path")
				}
			}
			change("last")
		})
	}
}

// TestSnapshotSeesSwappedDirectory checks that the next lookup sees a swapped directory, although
// other goroutines look up devices and drain the events.
func TestSnapshotSeesSwappedDirectory(t *testing.T) {
	e := newEnv(t, modes[0])
	for _, d := range []string{"0", "1"} {
		e.must(os.MkdirAll(e.top+"/store/"+d, 0o755))
		e.renameIntoPlace("/store/"+d+"/f.json", specText(d, "x"))
		e.must(os.Symlink("../store/"+d, e.top+"/run/to"+d))
	}
	e.must(os.Remove(e.top + "/run/cdi"))
	e.must(os.Symlink("../store/1", e.top+"/run/cdi"))
	defer runConcurrently(3, func() {
		e.r.Snapshot()
		runtime.Gosched()
	})()
	misses := 0
	for i := range *renames {
		to := strconv.Itoa(i % 2)
		if i%4 < 2 {
			e.must(os.Symlink("../store/"+to, e.top+"/run/.new"))
			e.must(os.Rename(e.top+"/run/.new", e.top+"/run/cdi"))
		} else {
			e.must(os.Remove(e.top + "/run/cdi"))
			e.must(os.Rename(e.top+"/run/to"+to, e.top+"/run/cdi"))
			e.must(os.Symlink("../store/"+to, e.top+"/run/to"+to))
		}
		d, err := e.r.Snapshot().Device("v.com/c=x")
		if err != nil || d.Edits.Env[0] != "FROM="+to {
			misses++
			t.Errorf("swap %d: %v, %v", i, d, err)
		}
	}
	t.Logf("%d swaps, %d misses", *renames, misses)
}

// TestSnapshotSeesMountOverDirectory checks that the next lookup sees a file system that was
// mounted over a spec directory or its parent, or unmounted.
func TestSnapshotSeesMountOverDirectory(t *testing.T) {
	// Use another process with a private mount namespace.
	const inside = "CDIREGISTRY_MOUNTS"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSnapshotSeesMountOverDirectory$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.Process == nil && os.Getenv("CI") != "true" {
			t.Skipf("no mount namespace can be made: %v", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	e := newEnv(t, modes[0])
	e.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	e.renameIntoPlace("/run/cdi/f.json", specText("below", "x"))
	e.must(os.MkdirAll(e.top+"/other/cdi", 0o755))
	e.renameIntoPlace("/other/cdi/f.json", specText("other", "x"))
	e.wantDevice("x", "below")
	change := func(value string, do ...error) {
		e.Helper()
		for _, err := range do {
			e.must(err)
		}
		e.wantDevice("x", value)
	}
	change("", unix.Mount("tmpfs", e.top+"/run/cdi", "tmpfs", 0, ""))
	e.must(os.Chmod(e.top+"/run/cdi", 0o755))
	e.renameIntoPlace("/run/cdi/f.json", specText("above", "x"))
	change("above")
	change("below", unix.Unmount(e.top+"/run/cdi", unix.MNT_DETACH))
	change("other", unix.Mount(e.top+"/other", e.top+"/run", "", unix.MS_BIND, ""))
	e.renameIntoPlace("/run/cdi/f.json", specText("written", "x"))
	change("written")
	change("below", unix.Unmount(e.top+"/run", 0))
	change("written", unix.Mount(e.top+"/other/cdi", e.top+"/run/cdi", "", unix.MS_BIND, ""))
	change("below", unix.Unmount(e.top+"/run/cdi", 0))
	for i := range 200 {
		change("written", unix.Mount(e.top+"/other", e.top+"/run", "", unix.MS_BIND, ""))
		change("below", unix.Unmount(e.top+"/run", 0))
		if i%10 == 0 {
			time.Sleep(50 * time.Millisecond) // a file that has just changed is read again
			e.r.Snapshot()
			before := e.r.Snapshot()
			e.must(unix.Mount("tmpfs", e.top+"/etc", "tmpfs", 0, "size=1m"))
			e.must(unix.Unmount(e.top+"/etc", 0))
			e.wantDevice("x", "below")
			if e.r.Snapshot() != before {
				t.Error("a new snapshot after a mount elsewhere")
			}
		}
	}
}
