// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/pkg/cdi"
)

var (
	churnFor = flag.Duration("cdi.churn", 3*time.Second, "how long writers and resolvers run against each other")
	renames  = flag.Int("cdi.renames", 2000, "how many files are renamed into place and looked up at once")
)

// runConcurrently calls work repeatedly on n goroutines until the returned function is called.
func runConcurrently(n int, work func()) (stopAndWait func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					work()
				}
			}
		})
	}
	return func() {
		close(stop)
		wg.Wait()
	}
}

// TestRenameThenLookup checks that a lookup finds every file that was renamed into place before
// it, also during lookups by other goroutines.
func TestRenameThenLookup(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			e := newEnv(t, m)
			for i := range 100 {
				e.renameIntoPlace(fmt.Sprintf("/etc/cdi/base-%d.json", i), specText("base", fmt.Sprint("base", i)))
			}
			defer runConcurrently(3, func() {
				e.r.Snapshot()
				time.Sleep(20 * time.Microsecond)
			})()
			misses := 0
			for i := range *renames {
				name, dir := fmt.Sprint("n", i%500), []string{"/etc/cdi", "/run/cdi"}[i/500%2]
				value := fmt.Sprint(i)
				e.renameIntoPlace(dir+"/"+name+".json", specText(value, name))
				d, err := e.r.Snapshot().Device("v.com/c=" + name)
				// The file in the directory of higher priority hides the other one.
				if err != nil || d.Priority == i/500%2 && d.Edits.Env[0] != "FROM="+value {
					misses++
					t.Errorf("file %d: %v, %v", i, d, err)
				}
			}
			t.Logf("%d files, %d misses", *renames, misses)
		})
	}
}

// TestLookupsDuringChurnSeeEveryFile changes files in all ways while eight goroutines look up devices. An unchanged
// device is always found, no lookup hangs, and in the end the registry agrees with a new one.
func TestLookupsDuringChurnSeeEveryFile(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			e := newEnv(t, m)
			for _, d := range []string{"/etc/cdi", "/swap"} {
				e.must(os.MkdirAll(e.top+d, 0o755))
				e.renameIntoPlace(d+"/stable.json", specText("stable", "stable"))
				for i := range 40 { // several goroutines read them
					e.renameIntoPlace(fmt.Sprintf("%s/many-%d.json", d, i), specText("many", fmt.Sprint("many", i)))
				}
			}
			stop := make(chan struct{})
			var writers, resolvers sync.WaitGroup
			for i := range 3 {
				writers.Go(func() { changeFiles(e, rand.New(rand.NewPCG(uint64(i), 5)), stop) })
			}
			writers.Go(func() { swapDirectories(e, stop) })
			var lookups, slowest atomic.Int64
			for i := range 8 {
				resolvers.Go(func() { resolveUntil(e, i, stop, &lookups, &slowest) })
			}
			time.Sleep(*churnFor / time.Duration(len(modes)))
			close(stop)
			writers.Wait()
			resolvers.Wait()
			t.Logf("%d lookups, the slowest took %v", lookups.Load(), time.Duration(slowest.Load()))
			if worst := time.Duration(slowest.Load()); worst > testkit.Hangs {
				t.Errorf("a lookup took %v", worst)
			}
			last := e.r.Snapshot()
			fresh := newCache(t, e, cdi.Options{DisableWatch: true}).Snapshot()
			if diff := cmp.Diff(fresh.Devices(), last.Devices()); diff != "" {
				t.Errorf("devices (-fresh +registry):\n%s", diff)
			}
			if diff := cmp.Diff(fileTexts(fresh), fileTexts(last)); diff != "" {
				t.Errorf("files (-fresh +registry):\n%s", diff)
			}
		})
	}
}

func newCache(t *testing.T, e *env, opts cdi.Options) *cdi.Cache {
	t.Helper()
	opts.Root, opts.SpecDirs = e.host.Dir(), e.dirs
	r, err := cdi.NewCache(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func fileTexts(s *cdi.Snapshot) []string {
	var out []string
	for _, f := range s.Files() {
		out = append(out, fmt.Sprintf("%s %s %q %d %v", f.Path, f.Kind, f.Devices, f.Size, f.Err))
	}
	return out
}

func resolveUntil(e *env, i int, stop chan struct{}, lookups, slowest *atomic.Int64) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		start := time.Now()
		s := e.r.Snapshot()
		d, err := s.Device("v.com/c=stable")
		if took := int64(time.Since(start)); took > slowest.Load() {
			slowest.Store(took)
		}
		lookups.Add(1)
		if err != nil || d.Edits.Env[0] != "FROM=stable" {
			e.Errorf("resolver %d: unchanged device: %v, %v", i, d, err)
			return
		}
		d.Edits.Env[0] = "changed by the caller"
		for k := range 8 {
			if d, err := s.Device(fmt.Sprint("v.com/c=c", k)); err == nil {
				d.SpecEdits.Env = append(d.SpecEdits.Env, "X=y")
			} else if err.Error() == "" {
				e.Error("error without text")
			}
		}
		if n%50 == 0 {
			s.Files()
			s.Devices()
			_, _ = s.Expand("v.com/c")
		}
		if n%8 == i {
			time.Sleep(time.Millisecond)
		}
	}
}

// changeFiles changes files at random. Operations may fail because of the other writers.
func changeFiles(e *env, rnd *rand.Rand, stop chan struct{}) {
	junk := strings.Repeat("{\"a\":[", 2000)
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		dir := e.top + []string{"/etc/cdi", "/run/cdi"}[rnd.IntN(2)]
		file := fmt.Sprintf("%s/c%d.%s", dir, rnd.IntN(6), []string{"json", "yaml"}[rnd.IntN(2)])
		tmp := fmt.Sprintf("%s/.tmp-%d", dir, rnd.Int64())
		device := fmt.Sprint("c", rnd.IntN(8))
		switch rnd.IntN(12) {
		case 0, 1, 2:
			_ = os.WriteFile(tmp, []byte(specText(fmt.Sprint(n), device, device+"x")), 0o644)
			_ = os.Rename(tmp, file)
		case 3:
			// O_NONBLOCK: another writer may create a FIFO there meanwhile, which has no reader.
			if st, err := os.Lstat(file); err == nil && st.Mode().IsRegular() {
				if f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o644); err == nil {
					_, _ = f.WriteString(specText(fmt.Sprint(n), device))
					f.Close()
				}
			}
		case 4:
			_ = os.Truncate(file, int64(rnd.IntN(200)))
		case 5, 6:
			_ = os.Remove(file)
		case 7:
			_ = unix.Mkfifo(tmp, 0o644)
			_ = os.Rename(tmp, file)
		case 8:
			if f, err := os.Create(tmp); err == nil {
				_ = f.Truncate(1 << 30)
				f.Close()
				_ = os.Rename(tmp, file)
			}
		case 9:
			_ = os.Symlink([]string{"c1.json", "missing/file", "c0.json", ".."}[rnd.IntN(4)], tmp)
			_ = os.Rename(tmp, file)
		case 10:
			_ = os.WriteFile(tmp, []byte(junk), 0o644)
			_ = os.Rename(tmp, file)
		case 11:
			// Use a descriptor, since chmod follows symlinks and could make a directory inaccessible.
			if fd, err := unix.Open(file, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
				_ = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), os.FileMode(0o644+0o22*rnd.IntN(2)))
				_ = unix.Close(fd)
			}
		}
		_ = os.Remove(tmp)
		if n%4 == 0 {
			time.Sleep(time.Duration(rnd.IntN(1000)) * time.Microsecond)
		}
	}
}

// swapDirectories exchanges the first directory, and renames and re-creates the second one.
func swapDirectories(e *env, stop chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		switch n % 4 {
		case 0, 2:
			e.mustInGoroutine(unix.Renameat2(unix.AT_FDCWD, e.top+"/etc/cdi", unix.AT_FDCWD, e.top+"/swap", unix.RENAME_EXCHANGE))
		case 1:
			_ = os.Rename(e.top+"/run/cdi", fmt.Sprintf("%s/old-%d", e.top, n))
		case 3:
			_ = os.MkdirAll(e.top+"/run/cdi", 0o755)
		}
	}
}

// mustInGoroutine reports an error from a goroutine other than the test's, where must is not allowed.
func (e *env) mustInGoroutine(err error) {
	if err != nil {
		e.Error(err)
	}
}

// TestCloseLeaksNothing checks that Close leaves no goroutine and no descriptor.
func TestCloseLeaksNothing(t *testing.T) {
	descriptors := func() []string {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("descriptors cannot be counted: %v", err)
		}
		var out []string
		for _, n := range names {
			if to, err := os.Readlink("/proc/self/fd/" + n.Name()); err == nil {
				out = append(out, to)
			}
		}
		slices.Sort(out)
		return out
	}
	e := newEnv(t, modes[0])
	for i := range 200 {
		e.renameIntoPlace(fmt.Sprintf("/etc/cdi/%d.json", i), specText("x", fmt.Sprint(i)))
	}
	e.must(os.Symlink("1.json", e.top+"/etc/cdi/link.json"))
	e.must(e.r.Close())
	runtime.GC()
	before, goroutines := descriptors(), runtime.NumGoroutine()
	for range 5 {
		r, err := cdi.NewCache(cdi.Options{Root: e.host.Dir(), SpecDirs: append(e.dirs, e.top+"/missing", e.top+"/etc/cdi/1.json")})
		e.must(err)
		for i := range 20 {
			e.renameIntoPlace(fmt.Sprintf("/run/cdi/%d.json", i), specText("x", fmt.Sprint("y", i)))
			r.Snapshot()
		}
		e.must(os.Rename(e.top+"/run/cdi", filepath.Join(e.top, "was")))
		r.Snapshot()
		e.must(os.RemoveAll(e.top + "/was"))
		e.must(os.MkdirAll(e.top+"/run/cdi", 0o755))
		r.Snapshot()
		e.must(r.Close())
		r.Snapshot()
	}
	// Finalizers may close descriptors of other tests meanwhile, so only new descriptors count.
	more := func() []string {
		after := descriptors()
		for _, d := range before {
			if i := slices.Index(after, d); i >= 0 {
				after = slices.Delete(after, i, i+1)
			}
		}
		return after
	}
	if !testkit.Until(func() bool { return len(more()) == 0 }) {
		t.Errorf("new descriptors: %q", more())
	}
	if !testkit.Until(func() bool { return runtime.NumGoroutine() <= goroutines }) {
		t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
	}
}
