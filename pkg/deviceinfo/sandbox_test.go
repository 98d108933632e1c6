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

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// newTestNode returns the root of a host with a CNI directory behind the symlink
// /var/run, as on a real node, and the path of that directory.
func newTestNode(t testing.TB) (root, dir string) {
	t.Helper()
	base := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(base, "var"), 0o755))
	testkit.Must(t, os.Symlink("/run", filepath.Join(base, "var/run")))
	dir = filepath.Join(base, "run/k8s.cni.cncf.io/devinfo/cni")
	testkit.Must(t, os.MkdirAll(dir, 0o755))
	return base, dir
}

func writeFile(t testing.TB, dir, name, content string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

// summarize returns one line for each entry.
func summarize(es []Entry) []string {
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

func TestReadSandboxReadsFilesOfOneSandbox(t *testing.T) {
	root, dir := newTestNode(t)
	read := CNIDir{Root: root}.ReadSandbox
	writeFile(t, dir, "ns-b-"+testID+"_net2", infoText("pci", pciMap))
	writeFile(t, dir, "ns-a-"+testID+"_net2", infoText("vdpa", vdpaMap))
	writeFile(t, dir, "ns-z-"+testID+"_net1", infoText("memif", memifMap))
	writeFile(t, dir, "ns-a-"+strings.Repeat("0", 64)+"_net1", "not opened")
	writeFile(t, dir, ".hidden-"+testID+"_net1", "not opened")
	writeFile(t, dir, "ns-a-"+testID+"_net1.tmp-1234567", "being written by another process")
	got, err := read(testID)
	testkit.Must(t, err)
	want := []string{"ns-z net1 memif", "ns-a net2 vdpa", "ns-b net2 pci"}
	if diff := cmp.Diff(want, summarize(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if want := DefaultCNIDir + "/ns-z-" + testID + "_net1"; got[0].File != want {
		t.Errorf("File = %q, want %q", got[0].File, want)
	}
	if got, err := read("none"); err != nil || got != nil {
		t.Errorf("unknown sandbox: %v, %v", got, err)
	}
	for _, id := range []string{"", "a/b", "a\x00b", strings.Repeat("a", 256)} {
		if _, err := read(id); !errdefs.IsInvalidArgument(err) {
			t.Errorf("sandbox %q: %v; want invalid argument", id, err)
		}
	}
}

func TestReadFilesReadsNamedFiles(t *testing.T) {
	root, dir := newTestNode(t)
	read := CNIDir{Root: root}.ReadFiles
	names := []string{"ns-b-" + testID + "_net2", "ns-a-" + testID + "_net1"}
	writeFile(t, dir, names[0], infoText("pci", pciMap))
	writeFile(t, dir, names[1], infoText("vdpa", vdpaMap))
	writeFile(t, dir, "ns-c-"+testID+"_net3", "not opened")
	got, err := read(testID, append(names, "ns-a-"+testID+"_removed"))
	testkit.Must(t, err)
	if diff := cmp.Diff([]string{"ns-a net1 vdpa", "ns-b net2 pci"}, summarize(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, file := range []string{"", ".", "..", "../cni/" + names[0], "a\x00b"} {
		if got, err := read(testID, []string{file}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("file %q: %v, %v; want invalid argument", file, got, err)
		}
	}
}

func TestReadSandboxDirectory(t *testing.T) {
	root, dir := newTestNode(t)
	read := CNIDir{Root: root}.ReadSandbox
	testkit.Must(t, os.Remove(dir))
	for range 2 {
		if got, err := read(testID); err != nil || got != nil {
			t.Errorf("missing directory: %v, %v", got, err)
		}
	}
	testkit.Must(t, os.Remove(filepath.Dir(dir)))
	writeFile(t, filepath.Dir(filepath.Dir(dir)), "devinfo", "a file in place of a directory")
	if got, err := read(testID); !errdefs.IsInvalidArgument(err) {
		t.Errorf("file in place of the directory: %v, %v", got, err)
	}
	for _, dir := range []string{"relative", "/a\x00b"} {
		if _, err := (CNIDir{Dir: dir}).ReadSandbox(testID); !errdefs.IsInvalidArgument(err) {
			t.Errorf("directory %q: %v; want invalid argument", dir, err)
		}
	}
}

// writeHostileFiles creates files in dir that must each cause a separate error. It
// returns a part of each error by the name of the interface.
func writeHostileFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	name := func(ifName string) string { return filepath.Join(dir, "ns-nad-"+testID+"_"+ifName) }
	testkit.Must(t, unix.Mkfifo(name("fifo"), 0o644))
	testkit.Must(t, os.Mkdir(name("dir"), 0o755))
	testkit.Must(t, os.Symlink("/etc/passwd", name("link")))
	testkit.Must(t, os.Symlink("ns-nad-"+testID+"_good", name("linkgood")))
	testkit.Must(t, os.Symlink("nowhere", name("dangling")))
	testkit.Must(t, os.Symlink("ns-nad-"+testID+"_loop", name("loop")))
	sparse, err := os.Create(name("sparse"))
	testkit.Must(t, err)
	testkit.Must(t, sparse.Truncate(1<<30))
	testkit.Must(t, sparse.Close())
	writeFile(t, dir, filepath.Base(name("latin1")), "{\"type\":\"pci\",\"x\":\"\xe9\"}")
	writeFile(t, dir, filepath.Base(name("truncated")), infoText("pci", pciMap)[:40])
	writeFile(t, dir, filepath.Base(name("deep")), strings.Repeat(`{"a":`, 13000))
	writeFile(t, dir, filepath.Base(name("empty")), "")
	writeFile(t, dir, filepath.Base(name("nuls")), strings.Repeat("\x00", 4096))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	// The path is too long for a socket's address, so use the directory's descriptor.
	d, err := os.Open(dir)
	testkit.Must(t, err)
	defer d.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/s", d.Fd())
	testkit.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: short}))
	testkit.Must(t, os.Rename(filepath.Join(dir, "s"), name("socket")))
	errs := map[string]string{
		"fifo": "a FIFO", "dir": "a directory", "link": "a symlink", "linkgood": "a symlink", "dangling": "a symlink", "loop": "a symlink",
		"sparse": "1073741824 bytes", "latin1": "the byte 0xe9", "truncated": "the end of the text", "deep": "nested deeper than 64 levels",
		"empty": "the text is empty", "nuls": `\x00`, "socket": "a socket",
	}
	if unix.Mknod(name("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil { // root only
		errs["null"] = "a character device"
	}
	return errs
}

func TestHostileFilesHarmOnlyThemselves(t *testing.T) {
	root, dir := newTestNode(t)
	read := CNIDir{Root: root}.ReadSandbox
	writeFile(t, dir, "ns-nad-"+testID+"_good", infoText("pci", pciMap))
	errs := writeHostileFiles(t, dir)
	var got []Entry
	var err error
	testkit.Cheap(t, time.Second, func() { got, err = read(testID) })
	testkit.Must(t, err)
	if len(got) != len(errs)+1 {
		t.Errorf("%d entries %v, want %d", len(got), summarize(got), len(errs)+1)
	}
	for _, e := range got {
		if e.IfName == "good" {
			if e.Err != nil || e.Info.Type != TypePCI {
				t.Errorf("valid file: %+v", e)
			}
			continue
		}
		if e.Err == nil || e.Info != nil || !strings.Contains(e.Err.Error(), errs[e.IfName]) || !strings.Contains(e.Err.Error(), e.File) {
			t.Errorf("%s: %v, want the file's name and %q", e.IfName, e.Err, errs[e.IfName])
			continue
		}
		diagnosticsOf(t, e.Err)
	}
}

func TestTooManyFilesOfOneSandbox(t *testing.T) {
	root, dir := newTestNode(t)
	read := CNIDir{Root: root}.ReadSandbox
	for i := range maxPerSandbox + 2 {
		writeFile(t, dir, fmt.Sprintf("ns-nad-%s_n%d", testID, i), infoText("pci", pciMap))
	}
	got, err := read(testID)
	testkit.Must(t, err)
	if len(got) != maxPerSandbox+1 {
		t.Fatalf("%d entries", len(got))
	}
	if last := got[maxPerSandbox]; !errdefs.IsResourceExhausted(last.Err) || last.File != DefaultCNIDir {
		t.Errorf("the last entry is %+v, want resource exhausted for the directory", last)
	}
}

func TestScanIsBounded(t *testing.T) {
	root, dir := newTestNode(t)
	for i := range 5 {
		writeFile(t, dir, fmt.Sprintf("f%d", i), "")
	}
	host, err := openRoot(root)
	testkit.Must(t, err)
	d, err := openDir(host, DefaultCNIDir)
	testkit.Must(t, err)
	defer d.Close()
	n := 0
	if err := d.visitNames(3, func(string) { n++ }); !errors.Is(err, errdefs.ErrResourceExhausted) || n != 3 {
		t.Errorf("%d names, %v; want 3 and resource exhausted", n, err)
	}
}

// Root can read every file, so the test needs another user.
func TestUnreadableFileIsErrorOfItsEntry(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read every file")
	}
	root, dir := newTestNode(t)
	writeFile(t, dir, "ns-nad-"+testID+"_net1", infoText("pci", pciMap))
	testkit.Must(t, os.Chmod(filepath.Join(dir, "ns-nad-"+testID+"_net1"), 0))
	got, err := CNIDir{Root: root}.ReadSandbox(testID)
	if err != nil || len(got) != 1 || !errdefs.IsPermissionDenied(got[0].Err) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A file can have more content than its size, for example while it grows, and in /proc. The limit
// applies to the content.
func TestReadIsBoundedWhateverTheSize(t *testing.T) {
	dir, err := os.Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// The size of every file of procfs is 0. smaps has several lines for each mapping.
	var maps [][]byte
	for range 2000 {
		m, err := unix.Mmap(-1, 0, 2*os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		// Different protection of the two halves makes two mappings.
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
	if data, err := (&directory{dir, "/proc/self"}).readFile("smaps"); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
}
