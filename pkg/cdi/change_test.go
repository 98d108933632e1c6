// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestSnapshotSeesFileChanges changes a file by every method of the kernel.
func TestSnapshotSeesFileChanges(t *testing.T) {
	eachMode(t, func(e *env) {
		e.wantDevice("x", "")
		e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
		e.wantDevice("x", "1")
		e.renameIntoPlace("/etc/cdi/a.json", specText("2", "x")) // renamed over
		e.wantDevice("x", "2")
		e.writeInPlace("/etc/cdi/a.json", specText("3", "x")) // in place, same size
		e.wantDevice("x", "3")
		f, err := os.OpenFile(e.top+"/etc/cdi/a.json", os.O_WRONLY, 0)
		e.must(err)
		_, err = f.WriteAt([]byte(specText("4", "x")), 0) // not closed yet
		e.must(err)
		e.wantDevice("x", "4")
		e.must(f.Close())
		e.must(os.Rename(e.top+"/etc/cdi/a.json", e.top+"/etc/cdi/b.json"))
		e.wantDevice("x", "4")
		if files := e.listFiles(); len(files) != 1 || !strings.HasSuffix(files[0], "/etc/cdi/b.json") {
			e.Errorf("after a rename: %v", files)
		}
		e.must(unix.Truncate(e.top+"/etc/cdi/b.json", 10)) // without a descriptor, so there is no close event
		e.wantDevice("x", "")
		e.wantRefused("/etc/cdi/b.json", "not closed")
		e.writeInPlace("/etc/cdi/b.json", specText("5", "x"))
		e.wantDevice("x", "5")
		e.must(os.Rename(e.top+"/etc/cdi/b.json", e.top+"/away.json"))
		e.wantDevice("x", "")
		e.must(os.Rename(e.top+"/away.json", e.top+"/run/cdi/b.json"))
		e.wantDevice("x", "5")
		e.must(os.Remove(e.top + "/run/cdi/b.json"))
		e.wantDevice("x", "")

		// Write a file without a name, and link it into the directory.
		fd, err := unix.Open(e.top+"/etc/cdi", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		e.must(err)
		_, err = unix.Write(fd, []byte(specText("6", "x")))
		e.must(err)
		e.must(unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), unix.AT_FDCWD, e.top+"/etc/cdi/c.json", unix.AT_SYMLINK_FOLLOW))
		e.must(unix.Close(fd))
		e.wantDevice("x", "6")

		// Change the file through another hard link, which causes no event in the directory.
		e.must(os.Link(e.top+"/etc/cdi/c.json", e.top+"/elsewhere"))
		e.must(os.Chmod(e.top+"/etc/cdi/c.json", 0o644)) // link(2) of the other name caused no event, either
		e.wantDevice("x", "6")
		e.writeInPlace("/elsewhere", specText("7", "x"))
		e.wantDevice("x", "7")
		e.must(os.Remove(e.top + "/etc/cdi/c.json"))
		e.wantDevice("x", "")
		if files := e.listFiles(); len(files) != 0 {
			e.Errorf("files left: %v", files)
		}
	})
}

// TestSnapshotSeesChangesWithinOneClockTick writes a file again within one tick of the file
// system's clock.
func TestSnapshotSeesChangesWithinOneClockTick(t *testing.T) {
	eachMode(t, func(e *env) {
		for i := range 200 {
			v := fmt.Sprint(i % 10)
			e.writeInPlace("/etc/cdi/a.json", specText(v, "x"))
			e.wantDevice("x", v)
		}
	})
}

// TestSnapshotSeesSymlinkChanges changes symlinks and their targets.
func TestSnapshotSeesSymlinkChanges(t *testing.T) {
	eachMode(t, func(e *env) {
		e.must(os.MkdirAll(e.top+"/store", 0o755))
		e.writeInPlace("/store/one", specText("one", "x"))
		e.writeInPlace("/store/two", specText("two", "x"))
		link := func(to, name string) {
			e.Helper()
			tmp := e.top + "/store/.link"
			e.must(os.Symlink(to, tmp))
			e.must(os.Rename(tmp, e.top+name))
		}
		link("../../store/one", "/etc/cdi/a.json")
		e.wantDevice("x", "one")
		e.writeInPlace("/store/one", specText("changed", "x"))
		e.wantDevice("x", "changed")
		e.writeInPlace("/store/one", specText("CHANGED", "x"))
		e.wantDevice("x", "CHANGED")
		link("../../store/two", "/etc/cdi/a.json")
		e.wantDevice("x", "two")
		e.must(os.Remove(e.top + "/store/two"))
		e.wantDevice("x", "")
		e.wantRefused("/etc/cdi/a.json", "no such file")
		e.writeInPlace("/store/two", specText("back", "x"))
		e.wantDevice("x", "back")

		// A ConfigMap volume swaps its content by a symlink to a directory.
		e.must(os.MkdirAll(e.top+"/etc/cdi/..1", 0o755))
		e.must(os.MkdirAll(e.top+"/etc/cdi/..2", 0o755))
		e.writeInPlace("/etc/cdi/..1/m.json", specText("first", "m"))
		e.writeInPlace("/etc/cdi/..2/m.json", specText("second", "m"))
		link("..1", "/etc/cdi/..data")
		link("..data/m.json", "/etc/cdi/m.json")
		e.wantDevice("m", "first")
		link("..2", "/etc/cdi/..data")
		e.wantDevice("m", "second")

		link("../../store", "/etc/cdi/dir.json")
		e.wantRefused("/etc/cdi/dir.json", "a directory")
		link("loop.json", "/etc/cdi/loop.json")
		e.wantRefused("/etc/cdi/loop.json", "symbolic links")
		e.wantDevice("m", "second")
	})
}

// TestSnapshotSeesDirectoryChanges creates, removes and swaps spec directories, and replaces
// them by symlinks.
func TestSnapshotSeesDirectoryChanges(t *testing.T) {
	eachMode(t, func(e *env) {
		e.must(os.RemoveAll(e.top + "/run"))
		e.wantDevice("x", "")
		if d := e.r.Snapshot().Dirs()[1]; !d.Missing || d.Err != nil {
			e.Errorf("missing directory: %+v", d)
		}
		e.must(os.MkdirAll(e.top+"/run/cdi", 0o755))
		e.renameIntoPlace("/run/cdi/a.json", specText("new", "x"))
		e.wantDevice("x", "new")

		e.must(os.MkdirAll(e.top+"/other", 0o755))
		e.renameIntoPlace("/other/b.json", specText("other", "y"))
		e.must(unix.Renameat2(unix.AT_FDCWD, e.top+"/other", unix.AT_FDCWD, e.top+"/run/cdi", unix.RENAME_EXCHANGE))
		e.wantDevice("x", "")
		e.wantDevice("y", "other")
		e.renameIntoPlace("/run/cdi/c.json", specText("later", "z"))
		e.wantDevice("z", "later")
		e.renameIntoPlace("/other/d.json", specText("not seen", "x")) // in the former directory
		e.wantDevice("x", "")
		e.must(unix.Renameat2(unix.AT_FDCWD, e.top+"/other", unix.AT_FDCWD, e.top+"/run/cdi", unix.RENAME_EXCHANGE))
		e.wantRefused("/run/cdi/a.json", "v.com/c=x") // both files exist now

		e.must(os.RemoveAll(e.top + "/run/cdi"))
		e.must(os.MkdirAll(e.top+"/run/cdi", 0o755)) // perhaps the same inode number
		e.wantDevice("x", "")
		e.renameIntoPlace("/run/cdi/a.json", specText("recreated", "x"))
		e.wantDevice("x", "recreated")

		// A symlink in place of the directory, and above it.
		e.must(os.Rename(e.top+"/run/cdi", e.top+"/real1"))
		e.must(os.MkdirAll(e.top+"/real2", 0o755))
		e.renameIntoPlace("/real2/a.json", specText("two", "x"))
		e.must(os.Symlink("../real1", e.top+"/run/cdi"))
		e.wantDevice("x", "recreated")
		e.renameIntoPlace("/real1/a.json", specText("in real1", "x"))
		e.wantDevice("x", "in real1")
		e.must(os.Remove(e.top + "/run/cdi"))
		e.must(os.Symlink("../real2", e.top+"/run/cdi"))
		e.wantDevice("x", "two")
		e.must(os.MkdirAll(e.top+"/run2/cdi", 0o755))
		e.renameIntoPlace("/run2/cdi/a.json", specText("run2", "x"))
		e.must(os.RemoveAll(e.top + "/run"))
		e.must(os.Symlink("run2", e.top+"/run"))
		e.wantDevice("x", "run2")
		e.renameIntoPlace("/run2/cdi/a.json", specText("run2 again", "x"))
		e.wantDevice("x", "run2 again")

		// A path that is no directory is an error, and the other directories are read.
		e.must(os.RemoveAll(e.top + "/run2/cdi"))
		e.writeInPlace("/run2/cdi", "a file")
		e.renameIntoPlace("/etc/cdi/e.json", specText("etc", "w"))
		e.wantDevice("w", "etc")
		if d := e.r.Snapshot().Dirs()[1]; d.Err == nil || !strings.Contains(d.Err.Error(), "not a directory") {
			e.Errorf("file in place of a directory: %+v", d)
		}
	})
}

// TestSameDirectoryUnderTwoPaths checks that two paths to one inode share a watch.
func TestSameDirectoryUnderTwoPaths(t *testing.T) {
	e := newEnv(t, modes[0])
	e.must(os.Remove(e.top + "/run/cdi"))
	e.must(os.Symlink("../etc/cdi", e.top+"/run/cdi"))
	e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
	e.wantDevice("x", "1")
	if d, err := e.r.Snapshot().Device("v.com/c=x"); err != nil || d.Priority != 1 {
		t.Errorf("device %+v, %v", d, err)
	}
	e.renameIntoPlace("/etc/cdi/a.json", specText("2", "x"))
	e.wantDevice("x", "2")
	e.must(os.Remove(e.top + "/run/cdi"))
	e.wantDevice("x", "2")
	e.renameIntoPlace("/etc/cdi/a.json", specText("3", "x"))
	e.wantDevice("x", "3")
}

// TestSnapshotSeesChangesAfterQueueOverflow checks that no change is missed after the kernel
// drops events.
func TestSnapshotSeesChangesAfterQueueOverflow(t *testing.T) {
	var most int
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err != nil {
		t.Skipf("the size of the queue cannot be read: %v", err)
	} else if _, err := fmt.Sscan(string(text), &most); err != nil || most > 1<<17 {
		t.Skipf("a queue of %q is too long to fill", text)
	}
	e := newEnv(t, modes[0])
	e.renameIntoPlace("/etc/cdi/a.json", specText("a", "a"))
	e.renameIntoPlace("/etc/cdi/b.json", specText("b", "b"))
	e.wantDevice("a", "a")
	for i := range most + 100 {
		e.must(os.Chmod(e.top+"/etc/cdi/"+[]string{"a.json", "b.json"}[i%2], 0o644))
	}
	e.renameIntoPlace("/etc/cdi/c.json", specText("c", "c"))
	e.must(os.Remove(e.top + "/etc/cdi/b.json"))
	e.writeInPlace("/etc/cdi/a.json", specText("z", "a"))
	e.wantDevice("c", "c")
	e.wantDevice("b", "")
	e.wantDevice("a", "z")
	e.renameIntoPlace("/etc/cdi/d.json", specText("d", "d"))
	e.wantDevice("d", "d")
}

// TestManyChangesAtOnce changes so many files that several goroutines read them.
func TestManyChangesAtOnce(t *testing.T) {
	eachMode(t, func(e *env) {
		const n = 300
		e.wantDevice("x", "")
		for i := range n {
			e.renameIntoPlace(fmt.Sprintf("/etc/cdi/%d.json", i), specText(fmt.Sprint(i), fmt.Sprint("a", i), fmt.Sprint("b", i)))
		}
		for i := range n {
			e.wantDevice(fmt.Sprint("b", i), fmt.Sprint(i))
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

// TestSnapshotIsImmutable checks that later changes do not appear in a snapshot.
func TestSnapshotIsImmutable(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x", "y"))
		old := e.r.Snapshot()
		e.renameIntoPlace("/etc/cdi/a.json", specText("2", "x"))
		e.renameIntoPlace("/etc/cdi/b.json", specText("3", "z"))
		e.wantDevice("x", "2")
		d, err := old.Device("v.com/c=x")
		if err != nil || d.Edits.Env[0] != "FROM=1" || len(old.Devices()) != 2 || len(old.Files()) != 1 {
			e.Errorf("old snapshot: %v, %v, %v", d, err, old.Devices())
		}
	})
}

// TestFilesThatOthersCanWriteAreRefused changes owners and modes of files and directories.
func TestFilesThatOthersCanWriteAreRefused(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
		e.wantDevice("x", "1")
		// Root's group is root, as for the configuration.
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o664))
		e.wantDevice("x", "1")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o666))
		e.wantDevice("x", "")
		e.wantRefused("/etc/cdi/a.json", "mode 0666")
		e.wantRefused("/etc/cdi/a.json", "chmod go-w")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o646))
		e.wantRefused("/etc/cdi/a.json", "mode 0646")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o600))
		e.wantDevice("x", "1")
		e.must(os.Chmod(e.top+"/etc/cdi", os.ModeSticky|0o777))
		e.wantDevice("x", "")
		e.wantRefused("/etc/cdi/a.json", "mode 1777")
		e.must(os.Chmod(e.top+"/etc/cdi", 0o777))
		e.wantRefused("/etc/cdi/a.json", "mode 0777")
		e.must(os.Chmod(e.top+"/etc/cdi", 0o755))
		e.wantDevice("x", "1")

		// The directory that a symlink leads to must be trusted too.
		e.must(os.MkdirAll(e.top+"/store", 0o755))
		e.writeInPlace("/store/one", specText("one", "y"))
		e.must(os.Chmod(e.top+"/store", 0o777))
		e.must(os.Symlink("../../store/one", e.top+"/etc/cdi/l.json"))
		e.wantDevice("y", "")
		e.wantRefused("/etc/cdi/l.json", "mode 0777")
		e.must(os.Chmod(e.top+"/store", 0o755))
		e.wantDevice("y", "one")
		// Nobody else can replace a file of root in a sticky directory of root, such as /nix/store.
		e.must(os.Chmod(e.top+"/store", os.ModeSticky|0o777))
		e.wantDevice("y", "one")
		e.must(os.Remove(e.top + "/etc/cdi/l.json"))

		if os.Geteuid() == 0 {
			e.must(os.Chown(e.top+"/etc/cdi/a.json", 65534, 0))
			e.wantDevice("x", "")
			e.wantRefused("/etc/cdi/a.json", "owned by uid 65534")
			e.must(os.Chown(e.top+"/etc/cdi/a.json", 0, 0))
			e.must(os.Chown(e.top+"/etc/cdi", 65534, 0))
			e.wantDevice("x", "")
			e.wantRefused("/etc/cdi/a.json", "chown root")
		}
	})
	t.Run("anyone", func(t *testing.T) {
		e := newEnv(t, mode{opts: cdi.Options{TrustAnyone: true}})
		e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o666))
		e.must(os.Chmod(e.top+"/etc/cdi", 0o777))
		e.wantDevice("x", "1")
	})
}

// TestIrregularFilesAreRefused checks that FIFOs, sockets and devices are refused without blocking.
func TestIrregularFilesAreRefused(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
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
		e.wantDevice("x", "1")
		e.wantRefused("/etc/cdi/fifo.json", "a FIFO")
		e.wantRefused("/etc/cdi/link.json", "a FIFO")
		e.wantRefused("/etc/cdi/socket.json", "a socket")
		e.wantRefused("/etc/cdi/huge.json", "more than the 33554432 allowed: split it: several files can declare devices of one kind")
		if os.Geteuid() == 0 {
			if err := unix.Mknod(e.top+"/etc/cdi/dev.json", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))); err == nil {
				e.wantRefused("/etc/cdi/dev.json", "a character device")
			}
		}
	})
	t.Run("unreadable", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root reads everything")
		}
		e := newEnv(t, modes[0])
		e.renameIntoPlace("/etc/cdi/a.json", specText("1", "x"))
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0))
		e.wantRefused("/etc/cdi/a.json", "permission denied")
		e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o644))
		e.wantDevice("x", "1")
	})
}
