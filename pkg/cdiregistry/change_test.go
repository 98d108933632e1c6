// SPDX-License-Identifier: Apache-2.0

package cdiregistry_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// TestFileChanges: every way in which a file can come, change and go.
func TestFileChanges(t *testing.T) {
	eachMode(t, func(e *env) {
		e.want("x", "")
		e.place("/etc/cdi/a.json", spec("1", "x"))
		e.want("x", "1")
		e.place("/etc/cdi/a.json", spec("2", "x")) // renamed over
		e.want("x", "2")
		e.put("/etc/cdi/a.json", spec("3", "x")) // in place, same size
		e.want("x", "3")
		f, err := os.OpenFile(e.top+"/etc/cdi/a.json", os.O_WRONLY, 0)
		e.must(err)
		_, err = f.WriteAt([]byte(spec("4", "x")), 0) // not closed yet
		e.must(err)
		e.want("x", "4")
		e.must(f.Close())
		e.must(os.Rename(e.top+"/etc/cdi/a.json", e.top+"/etc/cdi/b.json"))
		e.want("x", "4")
		if files := e.files(); len(files) != 1 || !strings.HasSuffix(files[0], "/etc/cdi/b.json") {
			e.Errorf("after a rename: %v", files)
		}
		e.must(unix.Truncate(e.top+"/etc/cdi/b.json", 10)) // no descriptor is ever closed
		e.want("x", "")
		e.refused("/etc/cdi/b.json", "not closed")
		e.put("/etc/cdi/b.json", spec("5", "x"))
		e.want("x", "5")
		e.must(os.Rename(e.top+"/etc/cdi/b.json", e.top+"/away.json"))
		e.want("x", "")
		e.must(os.Rename(e.top+"/away.json", e.top+"/run/cdi/b.json"))
		e.want("x", "5")
		e.must(os.Remove(e.top + "/run/cdi/b.json"))
		e.want("x", "")

		// Linked from a file without a name, as careful writers do.
		fd, err := unix.Open(e.top+"/etc/cdi", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		e.must(err)
		_, err = unix.Write(fd, []byte(spec("6", "x")))
		e.must(err)
		e.must(unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), unix.AT_FDCWD, e.top+"/etc/cdi/c.json", unix.AT_SYMLINK_FOLLOW))
		e.must(unix.Close(fd))
		e.want("x", "6")

		// Changed through another hard link, where nothing is announced.
		e.must(os.Link(e.top+"/etc/cdi/c.json", e.top+"/elsewhere"))
		e.must(os.Chmod(e.top+"/etc/cdi/c.json", 0o644)) // the link itself is not announced either
		e.want("x", "6")
		e.put("/elsewhere", spec("7", "x"))
		e.want("x", "7")
		e.must(os.Remove(e.top + "/etc/cdi/c.json"))
		e.want("x", "")
		if files := e.files(); len(files) != 0 {
			e.Errorf("files left: %v", files)
		}
	})
}

// TestSameTick: changes within one tick of the file system's clock.
func TestSameTick(t *testing.T) {
	eachMode(t, func(e *env) {
		for i := range 200 {
			v := fmt.Sprint(i % 10)
			e.put("/etc/cdi/a.json", spec(v, "x"))
			e.want("x", v)
		}
	})
}

// TestSymlinks: links, and what they lead to, change.
func TestSymlinks(t *testing.T) {
	eachMode(t, func(e *env) {
		e.must(os.MkdirAll(e.top+"/store", 0o755))
		e.put("/store/one", spec("one", "x"))
		e.put("/store/two", spec("two", "x"))
		link := func(to, name string) {
			e.Helper()
			tmp := e.top + "/store/.link"
			e.must(os.Symlink(to, tmp))
			e.must(os.Rename(tmp, e.top+name))
		}
		link("../../store/one", "/etc/cdi/a.json")
		e.want("x", "one")
		e.put("/store/one", spec("changed", "x"))
		e.want("x", "changed")
		e.put("/store/one", spec("CHANGED", "x"))
		e.want("x", "CHANGED")
		link("../../store/two", "/etc/cdi/a.json")
		e.want("x", "two")
		e.must(os.Remove(e.top + "/store/two"))
		e.want("x", "")
		e.refused("/etc/cdi/a.json", "no such file")
		e.put("/store/two", spec("back", "x"))
		e.want("x", "back")

		// As a ConfigMap volume swaps its content.
		e.must(os.MkdirAll(e.top+"/etc/cdi/..1", 0o755))
		e.must(os.MkdirAll(e.top+"/etc/cdi/..2", 0o755))
		e.put("/etc/cdi/..1/m.json", spec("first", "m"))
		e.put("/etc/cdi/..2/m.json", spec("second", "m"))
		link("..1", "/etc/cdi/..data")
		link("..data/m.json", "/etc/cdi/m.json")
		e.want("m", "first")
		link("..2", "/etc/cdi/..data")
		e.want("m", "second")

		link("../../store", "/etc/cdi/dir.json")
		e.refused("/etc/cdi/dir.json", "a directory")
		link("loop.json", "/etc/cdi/loop.json")
		e.refused("/etc/cdi/loop.json", "symbolic links")
		e.want("m", "second")
	})
}

// TestDirectories: directories appear, vanish, are swapped, and lie behind symlinks.
func TestDirectories(t *testing.T) {
	eachMode(t, func(e *env) {
		e.must(os.RemoveAll(e.top + "/run"))
		e.want("x", "")
		if d := e.r.Snapshot().Dirs()[1]; !d.Missing || d.Err != nil {
			e.Errorf("a missing directory is %+v", d)
		}
		e.must(os.MkdirAll(e.top+"/run/cdi", 0o755))
		e.place("/run/cdi/a.json", spec("new", "x"))
		e.want("x", "new")

		e.must(os.MkdirAll(e.top+"/other", 0o755))
		e.place("/other/b.json", spec("other", "y"))
		e.must(unix.Renameat2(unix.AT_FDCWD, e.top+"/other", unix.AT_FDCWD, e.top+"/run/cdi", unix.RENAME_EXCHANGE))
		e.want("x", "")
		e.want("y", "other")
		e.place("/run/cdi/c.json", spec("later", "z"))
		e.want("z", "later")
		e.place("/other/d.json", spec("not seen", "x")) // the old one is of no interest
		e.want("x", "")
		e.must(unix.Renameat2(unix.AT_FDCWD, e.top+"/other", unix.AT_FDCWD, e.top+"/run/cdi", unix.RENAME_EXCHANGE))
		e.refused("/run/cdi/a.json", "v.com/c=x") // both are there now

		e.must(os.RemoveAll(e.top + "/run/cdi"))
		e.must(os.MkdirAll(e.top+"/run/cdi", 0o755)) // perhaps the same inode number
		e.want("x", "")
		e.place("/run/cdi/a.json", spec("recreated", "x"))
		e.want("x", "recreated")

		// A symlink in place of the directory, and above it.
		e.must(os.Rename(e.top+"/run/cdi", e.top+"/real1"))
		e.must(os.MkdirAll(e.top+"/real2", 0o755))
		e.place("/real2/a.json", spec("two", "x"))
		e.must(os.Symlink("../real1", e.top+"/run/cdi"))
		e.want("x", "recreated")
		e.place("/real1/a.json", spec("in real1", "x"))
		e.want("x", "in real1")
		e.must(os.Remove(e.top + "/run/cdi"))
		e.must(os.Symlink("../real2", e.top+"/run/cdi"))
		e.want("x", "two")
		e.must(os.MkdirAll(e.top+"/run2/cdi", 0o755))
		e.place("/run2/cdi/a.json", spec("run2", "x"))
		e.must(os.RemoveAll(e.top + "/run"))
		e.must(os.Symlink("run2", e.top+"/run"))
		e.want("x", "run2")
		e.place("/run2/cdi/a.json", spec("run2 again", "x"))
		e.want("x", "run2 again")

		// Something that is no directory is told, and the others are read.
		e.must(os.RemoveAll(e.top + "/run2/cdi"))
		e.put("/run2/cdi", "a file")
		e.place("/etc/cdi/e.json", spec("etc", "w"))
		e.want("w", "etc")
		if d := e.r.Snapshot().Dirs()[1]; d.Err == nil || !strings.Contains(d.Err.Error(), "not a directory") {
			e.Errorf("a file in place of a directory is %+v", d)
		}
	})
}

// TestSameDirectoryTwice: one inode under two names has one watch.
func TestSameDirectoryTwice(t *testing.T) {
	e := newEnv(t, modes[0])
	e.must(os.Remove(e.top + "/run/cdi"))
	e.must(os.Symlink("../etc/cdi", e.top+"/run/cdi"))
	e.place("/etc/cdi/a.json", spec("1", "x"))
	e.want("x", "1")
	if d, err := e.r.Snapshot().Device("v.com/c=x"); err != nil || d.Priority != 1 {
		t.Errorf("device %+v, %v", d, err)
	}
	e.place("/etc/cdi/a.json", spec("2", "x"))
	e.want("x", "2")
	e.must(os.Remove(e.top + "/run/cdi"))
	e.want("x", "2")
	e.place("/etc/cdi/a.json", spec("3", "x"))
	e.want("x", "3")
}

// TestOverflow: the kernel drops announcements, and nothing is missed.
func TestOverflow(t *testing.T) {
	var most int
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err != nil {
		t.Skipf("the size of the queue cannot be read: %v", err)
	} else if _, err := fmt.Sscan(string(text), &most); err != nil || most > 1<<17 {
		t.Skipf("a queue of %q is too long to fill", text)
	}
	e := newEnv(t, modes[0])
	e.place("/etc/cdi/a.json", spec("a", "a"))
	e.place("/etc/cdi/b.json", spec("b", "b"))
	e.want("a", "a")
	for i := range most + 100 {
		e.must(os.Chmod(e.top+"/etc/cdi/"+[]string{"a.json", "b.json"}[i%2], 0o644))
	}
	e.place("/etc/cdi/c.json", spec("c", "c"))
	e.must(os.Remove(e.top + "/etc/cdi/b.json"))
	e.put("/etc/cdi/a.json", spec("z", "a"))
	e.want("c", "c")
	e.want("b", "")
	e.want("a", "z")
	e.place("/etc/cdi/d.json", spec("d", "d"))
	e.want("d", "d")
}

// TestManyChanges: a batch that is worth several processors.
func TestManyChanges(t *testing.T) {
	eachMode(t, func(e *env) {
		const n = 300
		e.want("x", "")
		for i := range n {
			e.place(fmt.Sprintf("/etc/cdi/%d.json", i), spec(fmt.Sprint(i), fmt.Sprint("a", i), fmt.Sprint("b", i)))
		}
		for i := range n {
			e.want(fmt.Sprint("b", i), fmt.Sprint(i))
		}
		for i := range n {
			if i%2 == 0 {
				e.must(os.Remove(fmt.Sprintf("%s/etc/cdi/%d.json", e.top, i)))
			}
		}
		if got := len(e.r.Snapshot().Devices()); got != n {
			e.Errorf("%d devices, want %d", got, n)
		}
	})
}

// TestOldSnapshot: a snapshot does not change.
func TestOldSnapshot(t *testing.T) {
	eachMode(t, func(e *env) {
		e.place("/etc/cdi/a.json", spec("1", "x", "y"))
		old := e.r.Snapshot()
		e.place("/etc/cdi/a.json", spec("2", "x"))
		e.place("/etc/cdi/b.json", spec("3", "z"))
		e.want("x", "2")
		d, err := old.Device("v.com/c=x")
		if err != nil || d.Edits.Env[0] != "FROM=1" || len(old.Devices()) != 2 || len(old.Files()) != 1 {
			e.Errorf("the old snapshot has %v, %v, %v", d, err, old.Devices())
		}
		if old.Generation() >= e.r.Snapshot().Generation() {
			e.Error("the generation does not grow")
		}
	})
}

// TestTrust: what others can write is refused, as soon as they can.
func TestTrust(t *testing.T) {
	eachMode(t, func(e *env) {
		e.place("/etc/cdi/a.json", spec("1", "x"))
		e.want("x", "1")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o664))
		e.want("x", "")
		e.refused("/etc/cdi/a.json", "mode 0664")
		e.refused("/etc/cdi/a.json", "chmod go-w")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o646))
		e.refused("/etc/cdi/a.json", "mode 0646")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o600))
		e.want("x", "1")
		e.must(os.Chmod(e.top+"/etc/cdi", os.ModeSticky|0o777))
		e.want("x", "")
		e.refused("/etc/cdi/a.json", "mode 1777")
		e.must(os.Chmod(e.top+"/etc/cdi", 0o775))
		e.refused("/etc/cdi/a.json", "mode 0775")
		e.must(os.Chmod(e.top+"/etc/cdi", 0o755))
		e.want("x", "1")

		// A symlink is as good as the directory it leads to.
		e.must(os.MkdirAll(e.top+"/store", 0o755))
		e.put("/store/one", spec("one", "y"))
		e.must(os.Chmod(e.top+"/store", 0o777))
		e.must(os.Symlink("../../store/one", e.top+"/etc/cdi/l.json"))
		e.want("y", "")
		e.refused("/etc/cdi/l.json", "mode 0777")
		e.must(os.Chmod(e.top+"/store", 0o755))
		e.want("y", "one")
		e.must(os.Chmod(e.top+"/store", 0o775))
		e.want("y", "")
		e.refused("/etc/cdi/l.json", "mode 0775")
		e.must(os.Remove(e.top + "/etc/cdi/l.json"))

		if os.Geteuid() == 0 {
			e.must(os.Chown(e.top+"/etc/cdi/a.json", 65534, 0))
			e.want("x", "")
			e.refused("/etc/cdi/a.json", "owned by uid 65534")
			e.must(os.Chown(e.top+"/etc/cdi/a.json", 0, 0))
			e.must(os.Chown(e.top+"/etc/cdi", 65534, 0))
			e.want("x", "")
			e.refused("/etc/cdi/a.json", "chown root")
		}
	})
	t.Run("anyone", func(t *testing.T) {
		e := newEnv(t, mode{opts: cdiregistry.Options{Trust: cdiregistry.TrustAnyone}})
		e.place("/etc/cdi/a.json", spec("1", "x"))
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o666))
		e.must(os.Chmod(e.top+"/etc/cdi", 0o777))
		e.want("x", "1")
	})
}

// TestNotRegular: what is no file is an error at once.
func TestNotRegular(t *testing.T) {
	eachMode(t, func(e *env) {
		e.place("/etc/cdi/a.json", spec("1", "x"))
		e.must(unix.Mkfifo(e.top+"/etc/cdi/fifo.json", 0o644))
		e.must(os.Symlink("fifo.json", e.top+"/etc/cdi/link.json"))
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		e.must(err)
		defer unix.Close(fd)
		dir, err := os.Open(e.top + "/etc/cdi") // sun_path is short
		e.must(err)
		defer dir.Close()
		e.must(unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/socket.json", dir.Fd())}))
		f, err := os.Create(e.top + "/etc/cdi/huge.json")
		e.must(err)
		e.must(f.Truncate(1 << 30))
		e.must(f.Close())
		e.want("x", "1")
		e.refused("/etc/cdi/fifo.json", "a FIFO")
		e.refused("/etc/cdi/link.json", "a FIFO")
		e.refused("/etc/cdi/socket.json", "a socket")
		e.refused("/etc/cdi/huge.json", "at most 1048576")
		if os.Geteuid() == 0 {
			if err := unix.Mknod(e.top+"/etc/cdi/dev.json", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))); err == nil {
				e.refused("/etc/cdi/dev.json", "a character device")
			}
		}
	})
	t.Run("unreadable", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root reads everything")
		}
		e := newEnv(t, modes[0])
		e.place("/etc/cdi/a.json", spec("1", "x"))
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0))
		e.refused("/etc/cdi/a.json", "permission denied")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o644))
		e.want("x", "1")
	})
}
