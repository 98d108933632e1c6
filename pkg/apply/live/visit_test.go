// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// onThread runs f on a thread that nothing else of the test is run on.
func onThread(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// whereabouts are where the calling thread is: its mount namespace, its root, its
// working directory, and its umask.
type whereabouts struct {
	umask     int
	mntNS     string
	root, cwd [2]uint64
	path      string
}

func here(t *testing.T) (w whereabouts) {
	t.Helper()
	var err error
	if w.mntNS, err = os.Readlink("/proc/thread-self/ns/mnt"); err != nil {
		t.Error(err)
	}
	if w.path, err = unixGetwd(); err != nil {
		t.Error(err)
	}
	w.umask = unix.Umask(0)
	unix.Umask(w.umask)
	for name, at := range map[string]*[2]uint64{"/": &w.root, ".": &w.cwd} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			t.Error(err)
		}
		*at = [2]uint64{st.Dev, st.Ino}
	}
	return w
}

func unixGetwd() (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buf)
	return string(buf[:max(n-1, 0)]), err
}

func notStranded(t *testing.T) Options {
	return Options{Stranded: func(err error) { t.Errorf("stranded: %v", err) }}
}

// Whatever becomes of the edits, the thread that made them is on the host afterwards.
func TestVisitComesBack(t *testing.T) {
	target := start(t, 0)
	src := t.TempDir()
	for _, name := range []string{filepath.Join(target.Root, "file"), filepath.Join(src, "here")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := here(t)
	look := func(what string) {
		t.Helper()
		if now := here(t); now != before {
			t.Errorf("%s: the thread is at %+v, and was at %+v", what, now, before)
		}
	}
	onThread(t, func() {
		set := &edits.Set{Mounts: []edits.Mount{{Destination: "/data", Source: src, Options: []string{"bind", "ro"}}}}
		for range 2 {
			if err := Apply(hostfs.Host(), target, set, notStranded(t)); err != nil {
				t.Error(err)
			}
			look("a mount")
		}
		if _, err := os.Stat(target.inside("/data/here")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(target.Root, "data/here")); !os.IsNotExist(err) {
			t.Errorf("the mount is on the host: %v", err)
		}
		set.Mounts[0].Destination = "/file"
		if err := Apply(hostfs.Host(), target, set, notStranded(t)); !errdefs.IsConflict(err) {
			t.Error(err)
		}
		look("an edit that fails")
		gone := Target{Pid: target.Pid, Root: target.Root + "/none"}
		if err := Apply(hostfs.Host(), gone, set, notStranded(t)); !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
		look("a root that is not there")

		c, err := open(target, notStranded(t))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.close()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				look("a panic")
			}()
			_ = c.inside(func(int) error {
				if here(t).mntNS == before.mntNS {
					t.Error("it is not in the container's mount namespace")
				}
				panic("an edit")
			})
		}()
		unix.Close(c.mntNS)
		c.mntNS = -1
		if err := c.inside(func(int) error { return nil }); !errors.Is(err, unix.EBADF) {
			t.Error(err)
		}
		look("a namespace that cannot be entered")
	})
	look("the others")
}

// A process that was put into another root, and elsewhere in it, is put back there.
func TestBackIsWhereItWas(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "cwd"), 0o755); err != nil {
		t.Fatal(err)
	}
	onThread(t, func() {
		h, err := openHome()
		if err != nil {
			t.Error(err)
			return
		}
		defer h.close()
		for fd, name := range map[*int]string{&h.root: dir, &h.cwd: dir + "/cwd"} {
			unix.Close(*fd)
			if *fd, err = unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
				t.Error(err)
				return
			}
		}
		if _, err := alone(); err != nil {
			t.Error(err)
		}
		if err := h.back(); err != nil {
			t.Error(err)
		}
		if cwd, err := unixGetwd(); err != nil || cwd != "/cwd" {
			t.Errorf("%q, %v", cwd, err)
		}
	})
}

// A thread that does not come back does no more, and who ends the process is where it
// always was.
func TestStranded(t *testing.T) {
	target := start(t, 0)
	before := here(t)
	stranded := make(chan error)
	c, err := open(target, Options{Stranded: func(err error) {
		if now := here(t); now != before {
			t.Errorf("the thread is at %+v, and was at %+v", now, before)
		}
		stranded <- err
	}})
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(c.home.mntNS)
	c.home.mntNS = -1
	returned := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		_ = c.inside(func(int) error { return unix.EXDEV })
		close(returned)
	}()
	if err := <-stranded; !errors.Is(err, unix.EXDEV) || !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), "come back") {
		t.Error(err)
	}
	for range 100 {
		runtime.Gosched()
		select {
		case <-returned:
			t.Fatal("it went on in the container's mount namespace")
		default:
		}
	}
}
