// SPDX-License-Identifier: Apache-2.0

package cdiregistry_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// guarded has the guard up; a test that holds nothing without it fails. A mount that
// somebody else makes on this machine takes it down again.
func (e *env) guarded() {
	e.Helper()
	for range 100 {
		if e.r.Guarded() {
			return
		}
	}
	e.Fatal("the guard is not up")
}

// TestWaysChange: whatever is changed on the way to a directory while the guard is up
// is seen by the next lookup.
func TestWaysChange(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			e := newEnv(t, m)
			change := func(value string, do ...error) {
				e.Helper()
				for _, err := range do {
					e.must(err)
				}
				e.want("x", value)
				e.guarded()
			}
			for _, d := range []string{"a", "b"} {
				e.must(os.MkdirAll(e.top+"/store/"+d+"/deep/cdi", 0o755))
				e.place("/store/"+d+"/deep/cdi/f.json", spec(d, "x"))
			}
			change("", os.RemoveAll(e.top+"/run/cdi"))
			// Two hops, one of them through "..", and the element that appears last.
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
			e.place("/run/cdi/f.json", spec("last", "x"))
			change("last")
			// What happens beside the ways changes nothing.
			before := e.r.Snapshot()
			for i := range 50 {
				e.put("/run/other"+strconv.Itoa(i), "")
				if e.r.Snapshot() != before {
					t.Fatal("another snapshot")
				}
			}
			change("last")
		})
	}
}

// TestSwapThenLookup: a directory that was swapped is seen at once, always, while
// others look and take the announcements.
func TestSwapThenLookup(t *testing.T) {
	e := newEnv(t, modes[0])
	for _, d := range []string{"0", "1"} {
		e.must(os.MkdirAll(e.top+"/store/"+d, 0o755))
		e.place("/store/"+d+"/f.json", spec(d, "x"))
		e.must(os.Symlink("../store/"+d, e.top+"/run/to"+d))
	}
	e.must(os.Remove(e.top + "/run/cdi"))
	e.must(os.Symlink("../store/1", e.top+"/run/cdi"))
	e.guarded()
	defer beside(3, func() {
		e.r.Guarded()
		runtime.Gosched()
	})()
	misses := 0
	for i := range *renames {
		to := strconv.Itoa(i % 2)
		e.r.Guarded()
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

// TestMountThenLookup: a file system mounted over a directory, or over one on the way
// to it, and unmounted again, is seen at once.
func TestMountThenLookup(t *testing.T) {
	// In a process of its own, whose mounts nobody else sees.
	const inside = "CDIREGISTRY_MOUNTS"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMountThenLookup$", "-test.v")
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
	e.place("/run/cdi/f.json", spec("below", "x"))
	e.must(os.MkdirAll(e.top+"/other/cdi", 0o755))
	e.place("/other/cdi/f.json", spec("other", "x"))
	e.want("x", "below")
	change := func(value string, do ...error) {
		e.Helper()
		for _, err := range do {
			e.must(err)
		}
		e.want("x", value)
		e.guarded()
	}
	change("", unix.Mount("tmpfs", e.top+"/run/cdi", "tmpfs", 0, ""))
	e.must(os.Chmod(e.top+"/run/cdi", 0o755))
	e.place("/run/cdi/f.json", spec("above", "x"))
	change("above")
	change("below", unix.Unmount(e.top+"/run/cdi", unix.MNT_DETACH))
	change("other", unix.Mount(e.top+"/other", e.top+"/run", "", unix.MS_BIND, ""))
	e.place("/run/cdi/f.json", spec("written", "x"))
	change("written")
	change("below", unix.Unmount(e.top+"/run", 0))
	change("written", unix.Mount(e.top+"/other/cdi", e.top+"/run/cdi", "", unix.MS_BIND, ""))
	change("below", unix.Unmount(e.top+"/run/cdi", 0))
	for i := range 200 {
		e.guarded()
		change("written", unix.Mount(e.top+"/other", e.top+"/run", "", unix.MS_BIND, ""))
		e.guarded()
		change("below", unix.Unmount(e.top+"/run", 0))
		if i%10 == 0 { // a mount elsewhere changes nothing
			before := e.r.Snapshot()
			e.must(unix.Mount("tmpfs", e.top+"/etc", "tmpfs", 0, "size=1m"))
			e.must(unix.Unmount(e.top+"/etc", 0))
			e.want("x", "below")
			if now := e.r.Snapshot(); now.Generation() != before.Generation() {
				t.Error(fmt.Sprint("generation ", before.Generation(), " became ", now.Generation()))
			}
		}
	}
}

// TestGuardKeepsOut: where much happens on the way, the guard is set up ever more
// seldom, and lookups stay right.
func TestGuardKeepsOut(t *testing.T) {
	e := newEnv(t, modes[0])
	e.place("/run/cdi/f.json", spec("1", "x"))
	e.want("x", "1")
	up := 0
	for i := range 2000 {
		e.put("/run/noise", strconv.Itoa(i))
		e.must(os.Remove(e.top + "/run/noise"))
		before := cdiregistry.GuardUp(e.r)
		e.r.Snapshot()
		if !before && cdiregistry.GuardUp(e.r) {
			up++
		}
	}
	if up > 12 {
		t.Errorf("set up %d times", up)
	}
	e.place("/run/cdi/f.json", spec("2", "x"))
	e.want("x", "2")
}
