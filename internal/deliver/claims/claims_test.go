// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func newDir(t testing.TB) *Dir {
	t.Helper()
	host, err := hostfs.New(t.TempDir())
	must(t, err)
	return Open(host, Path("/run/jackfield"))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, d *Dir) []string {
	t.Helper()
	entries, err := os.ReadDir(d.dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestMain(m *testing.M) {
	if args := os.Args; len(args) == 5 && args[1] == "claim" {
		_, _, err := Open(hostfs.Root{}, args[2]).ClaimDirectory(args[3], Holder{Sandbox: args[4], Adapter: Hook})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// If several sandboxes claim one directory at the same time, by any adapter, one of them
// gets it.
func TestOneOfManySandboxesGetsDirectory(t *testing.T) {
	for round := range 50 {
		d := newDir(t)
		var got atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			dir := "/run/vsw/a"
			if i%2 == 1 {
				dir = "/run/vsw/a/b"
			}
			all.Go(func() {
				_, _, err := (&Dir{own: d.own, dir: d.dir}).ClaimDirectory(dir, Holder{Sandbox: fmt.Sprint("s", i), Adapter: [...]string{NRI, Hook, Inject, CNI}[i%4]})
				if err == nil {
					got.Add(1)
				} else if !errdefs.IsConflict(err) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got.Load() != 1 {
			t.Fatalf("round %d: %d sandboxes got the directory: %v", round, got.Load(), files(t, d))
		}
	}
}

func TestOneOfManyProcessesGetsDirectory(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	for range 5 {
		dir := filepath.Join(t.TempDir(), "claims")
		var got atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				out, err := exec.Command(self, "claim", dir, "/run/vsw/a", fmt.Sprint("s", i)).CombinedOutput()
				if err == nil {
					got.Add(1)
				} else if !strings.Contains(string(out), "belongs to sandbox") {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		all.Wait()
		if got.Load() != 1 {
			t.Fatalf("%d processes got the directory", got.Load())
		}
	}
}

func holdSocket(d *Dir, socket string, h Holder) error {
	_, err := d.HoldSockets([]string{socket}, h)
	return err
}

// A sandbox that claims a directory and one that holds a socket in it exclude each other,
// in either order. Of many concurrent callers only one kind succeeds.
func TestSocketsAndDirectories(t *testing.T) {
	a, b := Holder{Sandbox: "a", Adapter: NRI}, Holder{Sandbox: "b", Adapter: Hook}
	d := newDir(t)
	_, _, err := d.ClaimDirectory("/run/vsw/a", a)
	must(t, err)
	must(t, holdSocket(d, "/run/vsw/a/x.sock", a))
	for _, socket := range []string{"/run/vsw/a/x.sock", "/run/vsw/a/b/c/x.sock"} {
		if err := holdSocket(d, socket, b); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "sandbox a") {
			t.Errorf("%s: %v", socket, err)
		}
	}
	must(t, holdSocket(d, "/run/vsw/shared/x.sock", a))
	must(t, holdSocket(d, "/run/vsw/shared/x.sock", b))
	sockets := []string{"/run/vsw/b.sock", "/run/vsw/a/x.sock", "/run/vsw/c.sock"}
	if held, err := d.HoldSockets(sockets, b); held != 1 || !errdefs.IsConflict(err) || !strings.Contains(err.Error(), sockets[1]) {
		t.Errorf("held %d sockets, then %v", held, err)
	}
	for _, dir := range []string{"/run/vsw/shared", "/run/vsw", "/run"} {
		if _, _, err := d.ClaimDirectory(dir, b); !errdefs.IsConflict(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	_, _, err = d.ClaimDirectory("/run/vsw/share", b)
	must(t, err)
	must(t, d.Release(func(h Holder) bool { return h == a }))
	_, _, err = d.ClaimDirectory("/run/vsw/shared", b)
	must(t, err)
	must(t, d.Release(func(h Holder) bool { return h == b }))
	if left := files(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for range 50 {
		d := newDir(t)
		var all sync.WaitGroup
		var dirs, sockets atomic.Int32
		for i := range 8 {
			all.Go(func() {
				h := Holder{Sandbox: fmt.Sprint("s", i)}
				if i%2 == 0 {
					if _, _, err := d.ClaimDirectory("/run/vsw/a", h); err == nil {
						dirs.Add(1)
					}
				} else if holdSocket(d, "/run/vsw/a/x.sock", h) == nil {
					sockets.Add(1)
				}
			})
		}
		all.Wait()
		if dirs.Load() > 1 || (dirs.Load() == 1) == (sockets.Load() > 0) {
			t.Fatalf("%d directories and %d sockets", dirs.Load(), sockets.Load())
		}
	}
}

// A claim belongs to the sandbox until each adapter that made it has released it.
func TestClaimHasManyAdapters(t *testing.T) {
	d := newDir(t)
	byCNI, byNRI := Holder{"s1", CNI, "/run/jackfield/cni"}, Holder{"s1", NRI, "/run/jackfield"}
	_, fresh, err := d.ClaimDirectory("/run/vsw/a", byCNI)
	if !fresh || err != nil {
		t.Fatal(fresh, err)
	}
	id := Identity{7, 8}
	must(t, d.SetCreated("/run/vsw/a", id, nil))
	if c, fresh, err := d.ClaimDirectory("/run/vsw/a", byNRI); !fresh || err != nil || *c.Created != id {
		t.Fatal(c, fresh, err)
	}
	if _, fresh, err := d.ClaimDirectory("/run/vsw/a", byNRI); fresh || err != nil {
		t.Fatal(fresh, err)
	}
	must(t, d.ReleaseDirectory("/run/vsw/a", byCNI))
	if _, _, err := d.ClaimDirectory("/run/vsw/a", Holder{Sandbox: "s2"}); !errdefs.IsConflict(err) {
		t.Errorf("after the first release: %v", err)
	}
	for _, c := range []struct {
		sandbox string
		id      Identity
		want    bool
	}{{"s1", id, true}, {"s2", id, false}, {"s1", Identity{7, 9}, false}, {"s1", Identity{8, 8}, false}} {
		if got, err := d.Created("/run/vsw/a", c.sandbox, c.id); got != c.want || err != nil {
			t.Errorf("%+v: %t, %v", c, got, err)
		}
	}
	must(t, d.ReleaseDirectory("/run/vsw/a", byNRI))
	must(t, d.ReleaseDirectory("/run/vsw/a", byNRI))
	if left := files(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A file that a crash cut short is no claim.
func TestFileCutShortIsNoClaim(t *testing.T) {
	d := newDir(t)
	must(t, os.MkdirAll(d.dir, 0o700))
	for _, text := range []string{"", "\x00\x00", `{"holders":[{"sandb`, "../x", `{"holders":null}`} {
		must(t, os.WriteFile(filepath.Join(d.dir, "%2Frun%2Fvsw%2Fb"), []byte(text), 0o600))
		if _, _, err := d.ClaimDirectory("/run/vsw/b", Holder{Sandbox: "s2"}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		must(t, d.Release(func(h Holder) bool { return h.Sandbox == "s2" }))
	}
	must(t, os.Chmod(d.dir, 0o777))
	if _, _, err := d.ClaimDirectory("/run/vsw/c", Holder{Sandbox: "s2"}); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a directory that others can write: %v", err)
	}
}

func FuzzNames(f *testing.F) {
	for _, text := range []string{"/run/vsw/a", "/run/vsw/100%", "/%2F", "=", "/=/%25"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := escape(text)
		if unescape(name) != text || strings.Contains(name, "/") {
			t.Errorf("%q is named %q, which is %q", text, name, unescape(name))
		}
		if path, isSocket := pathOfFile(nameOfSocket("/" + text)); !isSocket || path != filepath.Clean("/"+text) {
			t.Errorf("socket %q is %q", text, path)
		}
	})
}

// No claim is written through a symlink, which could lead to a directory of another user.
func TestClaimsFollowNoSymlink(t *testing.T) {
	d := newDir(t)
	h := Holder{Sandbox: "a", Adapter: NRI}
	_, _, err := d.ClaimDirectory("/run/vsw/a", h)
	must(t, err)
	must(t, os.Rename(d.dir, d.dir+".moved"))
	must(t, os.Symlink(filepath.Base(d.dir)+".moved", d.dir))
	open, err := d.lock(true)
	open.Close()
	if !errdefs.IsPermissionDenied(err) {
		t.Errorf("claims at a symlink are locked: %v", err)
	}
	if _, _, err := d.ClaimDirectory("/run/vsw/b", h); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a claim is written through a symlink: %v", err)
	}
}
