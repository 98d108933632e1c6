// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/busytest"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// testNode makes a host root whose CNI directory exists, reached through the
// symlink /var/run as on a real node; dir is where it is on this machine.
func testNode(t testing.TB) (root hostfs.Root, dir string) {
	t.Helper()
	base := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(base, "var"), 0o755))
	must(t, os.Symlink("/run", filepath.Join(base, "var/run")))
	dir = filepath.Join(base, "run/k8s.cni.cncf.io/devinfo/cni")
	must(t, os.MkdirAll(dir, 0o755))
	root, err := hostfs.New(base)
	must(t, err)
	return root, dir
}

func put(t testing.TB, dir, name, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

// summary is an entry in a line, for comparisons.
func summary(es []Entry) []string {
	var s []string
	for _, e := range es {
		what := "error"
		if e.Err == nil {
			what = string(e.Info.Type)
		}
		s = append(s, fmt.Sprintf("%s %s %s", e.Network, e.IfName, what))
	}
	return s
}

// bothReaders run a test for ReadSandbox and for an Index.
func bothReaders(t *testing.T, f func(t *testing.T, root hostfs.Root, dir string, read func(id string) ([]Entry, error))) {
	t.Run("ReadSandbox", func(t *testing.T) {
		root, dir := testNode(t)
		f(t, root, dir, func(id string) ([]Entry, error) { return ReadSandbox(root, "", id) })
	})
	t.Run("Index", func(t *testing.T) {
		root, dir := testNode(t)
		ix, err := NewIndex(root, "", IndexOptions{})
		must(t, err)
		defer ix.Close()
		f(t, root, dir, ix.Lookup)
	})
}

func TestReadSandbox(t *testing.T) {
	bothReaders(t, func(t *testing.T, root hostfs.Root, dir string, read func(string) ([]Entry, error)) {
		put(t, dir, "ns-b-"+testID+"_net2", info("pci", pciMap))
		put(t, dir, "ns-a-"+testID+"_net2", info("vdpa", vdpaMap))
		put(t, dir, "ns-z-"+testID+"_net1", info("memif", memifMap))
		put(t, dir, "ns-a-"+strings.Repeat("0", 64)+"_net1", "not opened")
		put(t, dir, ".hidden-"+testID+"_net1", "not opened")
		put(t, dir, "ns-a-"+testID+"_net1.tmp-1234567", "being written by somebody else")
		got, err := read(testID)
		must(t, err)
		want := []string{"ns-z net1 memif", "ns-a net2 vdpa", "ns-b net2 pci"}
		if diff := cmp.Diff(want, summary(got)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if want := DefaultCNIDir + "/ns-z-" + testID + "_net1"; got[0].File != want {
			t.Errorf("File = %q, want %q", got[0].File, want)
		}
		if got, err := read("none"); err != nil || got != nil {
			t.Errorf("an unknown sandbox: %v, %v", got, err)
		}
		for _, id := range []string{"", "a/b", "a\x00b", strings.Repeat("a", 256)} {
			if _, err := read(id); !errdefs.IsInvalidArgument(err) {
				t.Errorf("sandbox %q: %v; want invalid argument", id, err)
			}
		}
	})
}

func TestReadSandboxDirectory(t *testing.T) {
	bothReaders(t, func(t *testing.T, root hostfs.Root, dir string, read func(string) ([]Entry, error)) {
		must(t, os.Remove(dir))
		for range 2 {
			if got, err := read(testID); err != nil || got != nil {
				t.Errorf("a missing directory: %v, %v", got, err)
			}
		}
		must(t, os.Remove(filepath.Dir(dir)))
		put(t, filepath.Dir(filepath.Dir(dir)), "devinfo", "a file in place of a directory")
		if got, err := read(testID); !errdefs.IsInvalidArgument(err) {
			t.Errorf("a file in place of the directory: %v, %v", got, err)
		}
	})
	for _, dir := range []string{"relative", "/a\x00b"} {
		if _, err := ReadSandbox(hostfs.Host(), dir, testID); !errdefs.IsInvalidArgument(err) {
			t.Errorf("directory %q: %v; want invalid argument", dir, err)
		}
		if _, err := NewIndex(hostfs.Host(), dir, IndexOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("directory %q: %v; want invalid argument", dir, err)
		}
	}
}

// plantHostile puts files into dir that must each be an error of its own. It
// returns what their errors must contain, by interface.
func plantHostile(t testing.TB, dir string) map[string]string {
	t.Helper()
	name := func(ifName string) string { return filepath.Join(dir, "ns-nad-"+testID+"_"+ifName) }
	must(t, unix.Mkfifo(name("fifo"), 0o644))
	must(t, os.Mkdir(name("dir"), 0o755))
	must(t, os.Symlink("/etc/passwd", name("link")))
	must(t, os.Symlink("ns-nad-"+testID+"_good", name("linkgood")))
	must(t, os.Symlink("nowhere", name("dangling")))
	must(t, os.Symlink("ns-nad-"+testID+"_loop", name("loop")))
	sparse, err := os.Create(name("sparse"))
	must(t, err)
	must(t, sparse.Truncate(1<<30))
	must(t, sparse.Close())
	put(t, dir, filepath.Base(name("latin1")), "{\"type\":\"pci\",\"x\":\"\xe9\"}")
	put(t, dir, filepath.Base(name("truncated")), info("pci", pciMap)[:40])
	put(t, dir, filepath.Base(name("deep")), strings.Repeat(`{"a":`, 13000))
	put(t, dir, filepath.Base(name("empty")), "")
	put(t, dir, filepath.Base(name("nuls")), strings.Repeat("\x00", 4096))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	// The name is too long for an address; by way of the directory it is not.
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/s", d.Fd())
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: short}))
	must(t, os.Rename(filepath.Join(dir, "s"), name("socket")))
	errs := map[string]string{
		"fifo": "a FIFO", "dir": "a directory", "link": "a symlink", "linkgood": "a symlink", "dangling": "a symlink", "loop": "a symlink",
		"sparse": "1073741824 bytes", "latin1": "the byte 0xe9", "truncated": "the end of the file", "deep": "a nesting deeper than 32",
		"empty": "an empty file", "nuls": `\x00`, "socket": "a socket",
	}
	if unix.Mknod(name("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil { // root only
		errs["null"] = "a character device"
	}
	return errs
}

func TestHostileFilesHarmOnlyThemselves(t *testing.T) {
	bothReaders(t, func(t *testing.T, root hostfs.Root, dir string, read func(string) ([]Entry, error)) {
		put(t, dir, "ns-nad-"+testID+"_good", info("pci", pciMap))
		errs := plantHostile(t, dir)
		var got []Entry
		var err error
		busytest.Cheap(t, time.Second, func() { got, err = read(testID) })
		must(t, err)
		if len(got) != len(errs)+1 {
			t.Errorf("%d entries %v, want %d", len(got), summary(got), len(errs)+1)
		}
		for _, e := range got {
			if e.IfName == "good" {
				if e.Err != nil || e.Info.Type != TypePCI {
					t.Errorf("the good file: %+v", e)
				}
				continue
			}
			if e.Err == nil || e.Info != nil || !strings.Contains(e.Err.Error(), errs[e.IfName]) || !strings.Contains(e.Err.Error(), e.File) {
				t.Errorf("%s: %v, want the file's name and %q", e.IfName, e.Err, errs[e.IfName])
				continue
			}
			findings(t, e.Err)
		}
	})
}

func TestTooManyFilesOfOneSandbox(t *testing.T) {
	bothReaders(t, func(t *testing.T, root hostfs.Root, dir string, read func(string) ([]Entry, error)) {
		for i := range maxPerSandbox + 2 {
			put(t, dir, fmt.Sprintf("ns-nad-%s_n%d", testID, i), info("pci", pciMap))
		}
		got, err := read(testID)
		must(t, err)
		if len(got) != maxPerSandbox+1 {
			t.Fatalf("%d entries", len(got))
		}
		if last := got[maxPerSandbox]; !errdefs.IsResourceExhausted(last.Err) || last.File != DefaultCNIDir {
			t.Errorf("the last entry is %+v, want resource exhausted for the directory", last)
		}
	})
}

func TestScanIsBounded(t *testing.T) {
	root, dir := testNode(t)
	for i := range 5 {
		put(t, dir, fmt.Sprintf("f%d", i), "")
	}
	f, err := openDir(root, DefaultCNIDir)
	must(t, err)
	defer f.Close()
	n := 0
	if err := scanDir(f, DefaultCNIDir, 3, func(string) { n++ }); !errors.Is(err, errdefs.ErrResourceExhausted) || n != 3 {
		t.Errorf("%d names, %v; want 3 and resource exhausted", n, err)
	}
}

// Unreadable files are one more error; only somebody who is not root sees it.
func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	root, dir := testNode(t)
	put(t, dir, "ns-nad-"+testID+"_net1", info("pci", pciMap))
	must(t, os.Chmod(filepath.Join(dir, "ns-nad-"+testID+"_net1"), 0))
	got, err := ReadSandbox(root, "", testID)
	if err != nil || len(got) != 1 || !errdefs.IsPermissionDenied(got[0].Err) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A file that has more to read than its size says, as one that grows and as the kernel's
// own, is read up to the bound and no further.
func TestReadIsBoundedWhateverTheSize(t *testing.T) {
	dir, err := os.Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// The size of every file here is 0. This one has a line for each mapping.
	var maps [][]byte
	for range 2000 {
		m, err := unix.Mmap(-1, 0, 2*os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		// Two halves with different rights are two mappings.
		if err := unix.Mprotect(m[:os.Getpagesize()], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		maps = append(maps, m)
	}
	defer func() {
		for _, m := range maps {
			_ = unix.Munmap(m)
		}
	}()
	if data, err := readAt(int(dir.Fd()), "smaps", "smaps"); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
}
