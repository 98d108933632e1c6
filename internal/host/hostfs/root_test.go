// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func newTree(t *testing.T) (Root, string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"etc", "run/vsw/pod", "sys/a/b"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "etc/f"), []byte("inside"), 0o644))
	testkit.Must(t, os.Symlink("/etc/f", filepath.Join(dir, "run/vsw/abs")))
	testkit.Must(t, os.Symlink("../../../../../../etc/f", filepath.Join(dir, "run/vsw/up")))
	testkit.Must(t, os.Symlink("/run", filepath.Join(dir, "varrun")))
	testkit.Must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	r, err := New(dir)
	testkit.Must(t, err)
	return r, dir
}

func TestSymlinksStayInsideTheRoot(t *testing.T) {
	r, _ := newTree(t)
	for _, p := range []string{"/etc/f", "/run/vsw/abs", "/run/vsw/up", "/varrun/vsw/abs"} {
		b, err := r.ReadFile(p, 100)
		if err != nil || string(b) != "inside" {
			t.Errorf("ReadFile(%q) = %q, %v; want the file inside the root", p, b, err)
		}
		if real, err := r.Resolve(p); err != nil || real != "/etc/f" {
			t.Errorf("Resolve(%q) = %q, %v; want /etc/f", p, real, err)
		}
	}
	if _, err := r.ReadFile("/loop", 100); !errdefs.IsPermissionDenied(err) {
		t.Errorf("symlink loop: %v", err)
	}
	if real, err := r.Resolve("/"); err != nil || real != "/" {
		t.Errorf("Resolve(/) = %q, %v", real, err)
	}
}

func TestOpenBeneathFollowsNoSymlink(t *testing.T) {
	r, dir := newTree(t)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/pod/s"), nil, 0o644))
	f, err := r.OpenBeneath("/varrun/vsw", "pod/s", unix.O_PATH)
	testkit.Must(t, err)
	f.Close()
	for _, rel := range []string{"abs", "up", "../../etc/f", "/etc/f", "pod/../../../etc/f", "a\x00b"} {
		f, err := r.OpenBeneath("/run/vsw", rel, unix.O_PATH)
		if err == nil {
			f.Close()
			// This includes O_PATH without O_NOFOLLOW on a symlink.
			t.Errorf("OpenBeneath(%q) succeeded", rel)
			continue
		}
		if !errdefs.IsPermissionDenied(err) && !errdefs.IsInvalidArgument(err) {
			t.Errorf("OpenBeneath(%q) = %v; want permission denied or invalid argument", rel, err)
		}
	}
}

// A symlink to a neighbouring directory is refused, too, although it stays below the top directory: a user who can create
// symlinks could redirect to a neighbour's files.
func TestOpenBeneathFollowsNoSymlinkToNeighbour(t *testing.T) {
	r, dir := newTree(t)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "run/vsw/neighbour"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/neighbour/s"), nil, 0o644))
	testkit.Must(t, os.Symlink("../neighbour/s", filepath.Join(dir, "run/vsw/pod/file")))
	testkit.Must(t, os.Symlink("../neighbour", filepath.Join(dir, "run/vsw/pod/dir")))
	testkit.Must(t, os.Symlink("../pod", filepath.Join(dir, "run/vsw/pod/self")))
	at, err := r.Open("/run/vsw", unix.O_PATH|unix.O_DIRECTORY)
	testkit.Must(t, err)
	defer at.Close()
	for _, rel := range []string{"pod/file", "pod/dir", "pod/dir/s", "pod/self/../neighbour/s"} {
		for _, flags := range []int{unix.O_PATH, unix.O_RDONLY} {
			if f, err := r.OpenBeneath("/run/vsw", rel, flags); !errdefs.IsPermissionDenied(err) {
				t.Errorf("OpenBeneath(%q) = %v, %v; want permission denied", rel, f, err)
			}
			if fd, err := OpenatBeneath(int(at.Fd()), rel, flags); !errdefs.IsPermissionDenied(err) {
				t.Errorf("OpenatBeneath(%q) = %d, %v; want permission denied", rel, fd, err)
			}
		}
	}
	f, err := r.OpenBeneath("/run/vsw", "neighbour/s", unix.O_RDONLY)
	testkit.Must(t, err)
	f.Close()
}

// OpenNoSymlinks refuses every symlink, including one that stays inside the root.
func TestOpenNoSymlinksRefusesEverySymlink(t *testing.T) {
	r, dir := newTree(t)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/pod/s"), nil, 0o644))
	testkit.Must(t, os.Symlink("pod", filepath.Join(dir, "run/vsw/near")))
	fd, err := r.OpenNoSymlinks("/run/vsw/pod/s", unix.O_PATH)
	testkit.Must(t, err)
	unix.Close(fd)
	for _, p := range []string{"/varrun/vsw/pod/s", "/run/vsw/near", "/run/vsw/near/s", "/run/vsw/abs"} {
		if fd, err := r.OpenNoSymlinks(p, unix.O_PATH); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "symlink") {
			t.Errorf("OpenNoSymlinks(%q) = %d, %v", p, fd, err)
		}
	}
}

// A magic link of /proc leads out of any root or to another process's files.
func TestOpenFollowsNoMagicLink(t *testing.T) {
	for _, p := range []string{"/proc/self/exe", "/proc/self/cwd", "/proc/self/root/etc", "/proc/self/fd/0"} {
		if f, err := Host().Open(p, unix.O_PATH); !errdefs.IsPermissionDenied(err) {
			t.Errorf("Open(%q) = %v, %v; want permission denied", p, f, err)
		}
	}
}

func TestStatNoSymlinksRefusesEverySymlink(t *testing.T) {
	r, dir := newTree(t)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/pod/s"), nil, 0o644))
	if st, err := r.StatNoSymlinks("/run/vsw/pod/s"); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		t.Errorf("got %+v, %v", st, err)
	}
	for _, p := range []string{"/varrun/vsw/pod/s", "/run/vsw/abs", "/run/vsw/up"} {
		if _, err := r.StatNoSymlinks(p); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "symlink") {
			t.Errorf("StatNoSymlinks(%q) = %v", p, err)
		}
	}
	if _, err := r.StatNoSymlinks("/run/vsw/none"); !errdefs.IsNotFound(err) {
		t.Errorf("missing file: %v", err)
	}
}

func TestReadFileNeverBlocksAndIsBounded(t *testing.T) {
	r, dir := newTree(t)
	testkit.Must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	big, err := os.Create(filepath.Join(dir, "big"))
	testkit.Must(t, err)
	testkit.Must(t, big.Truncate(1<<30))
	big.Close()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "exact"), []byte(strings.Repeat("x", 4096)), 0o644))
	testkit.Cheap(t, 5*time.Second, func() {
		for _, p := range []string{"/fifo", "/big", "/etc"} {
			if _, err := r.ReadFile(p, 1<<20); !errdefs.IsInvalidArgument(err) {
				t.Errorf("ReadFile(%q) = %v; want invalid argument", p, err)
			}
		}
	})
	if b, err := r.ReadFile("/exact", 4096); err != nil || len(b) != 4096 {
		t.Errorf("file as large as the limit: %d bytes, %v", len(b), err)
	}
	if _, err := r.ReadFile("/exact", 4095); !errdefs.IsInvalidArgument(err) {
		t.Errorf("file above the limit: %v", err)
	}
	// Files of procfs have size 0.
	if b, err := Host().ReadFile("/proc/self/status", 1<<20); err != nil || len(b) == 0 {
		t.Errorf("ReadFile(/proc/self/status) = %d bytes, %v", len(b), err)
	}
	if _, err := Host().ReadFile("/proc/kallsyms", 4096); !errdefs.IsInvalidArgument(err) {
		t.Errorf("large file with size 0: %v", err)
	}
}

func TestErrorsAreSentinelAndErrno(t *testing.T) {
	r, _ := newTree(t)
	_, err := r.ReadFile("/nothing", 1)
	if !errdefs.IsNotFound(err) || !errors.Is(err, unix.ENOENT) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if got, want := err.Error(), "open /nothing: no such file or directory"; got != want {
		t.Errorf("error text %q, want %q", got, want)
	}
	for _, p := range []string{"", "relative", "/a\x00b"} {
		if _, err := r.Stat(p); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Stat(%q) = %v; want invalid argument", p, err)
		}
		if _, err := Host().Stat(p); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Host().Stat(%q) = %v; want invalid argument", p, err)
		}
	}
	if _, err := New(filepath.Join(r.Dir(), "etc/f")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("file as root: %v", err)
	}
}

func TestDirectoriesAndSymlinksStayInRoot(t *testing.T) {
	r, dir := newTree(t)
	names, err := r.ReadDir("/run/vsw", 10)
	testkit.Must(t, err)
	if got := strings.Join(names, " "); got != "abs pod up" {
		t.Errorf("ReadDir = %q", got)
	}
	if _, err := r.ReadDir("/run/vsw", 2); !errdefs.IsResourceExhausted(err) {
		t.Errorf("too many entries: %v", err)
	}
	if to, err := r.Readlink("/run/vsw/abs"); err != nil || to != "/etc/f" {
		t.Errorf("Readlink = %q, %v", to, err)
	}
	st, err := r.Lstat("/run/vsw/abs")
	testkit.Must(t, err)
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("Lstat returns a %s, want a symlink", TypeName(st.Mode))
	}
	if got, want := r.Path("/../etc/f"), filepath.Join(dir, "etc/f"); got != want {
		t.Errorf("Path = %q, want %q", got, want)
	}
}

func TestStatFollowsTheLastSymlinkAndLstatDoesNot(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	link := name + ".link"
	if _, err := Host().Stat(name); !errdefs.IsNotFound(err) {
		t.Errorf("missing file: %v, want not found", err)
	}
	if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.Symlink(name, link)); err != nil {
		t.Fatal(err)
	}
	var want unix.Stat_t
	if err := unix.Stat(name, &want); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{name, link} {
		if st, err := Host().Stat(path); err != nil || st.Ino != want.Ino || st.Mode != want.Mode || st.Size != want.Size {
			t.Errorf("%s: %+v, %v, want %+v", path, st, err, want)
		}
	}
	if st, err := Host().Lstat(link); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("Lstat of the symlink: %+v, %v", st, err)
	}
}
