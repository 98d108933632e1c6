// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
)

func newDir(t testing.TB) *Dirs {
	t.Helper()
	host, err := hostfs.New(t.TempDir())
	testkit.Must(t, err)
	return New(host, ClaimsDir("/run/jackfield"))
}

func files(t *testing.T, d *Dirs) []string {
	t.Helper()
	entries, err := os.ReadDir(d.claims.dir)
	testkit.Must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestMain(m *testing.M) {
	if args := os.Args; len(args) == 5 && args[1] == "claim" {
		_, err := New(hostfs.Root{}, args[2]).Claim(args[3], Holder{Sandbox: args[4], Adapter: Hook}, false)
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
				_, err := New(d.host, ClaimsDir("/run/jackfield")).Claim(dir, Holder{Sandbox: fmt.Sprint("s", i),
					Adapter: [...]string{NRI, Hook, Inject, CNI}[i%4]}, false)
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
	testkit.Must(t, err)
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

func holdSocket(d *Dirs, socket string, h Holder) error {
	_, err := d.HoldSockets([]string{socket}, h)
	return err
}

// A sandbox that claims a directory and one that holds a socket in it exclude each other,
// in either order. Of many concurrent callers only one kind succeeds.
func TestSocketsAndDirectories(t *testing.T) {
	a, b := Holder{Sandbox: "a", Adapter: NRI}, Holder{Sandbox: "b", Adapter: Hook}
	d := newDir(t)
	_, err := d.Claim("/run/vsw/a", a, false)
	testkit.Must(t, err)
	testkit.Must(t, holdSocket(d, "/run/vsw/a/x.sock", a))
	for _, socket := range []string{"/run/vsw/a/x.sock", "/run/vsw/a/b/c/x.sock"} {
		if err := holdSocket(d, socket, b); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "sandbox a") {
			t.Errorf("%s: %v", socket, err)
		}
	}
	testkit.Must(t, holdSocket(d, "/run/vsw/shared/x.sock", a))
	testkit.Must(t, holdSocket(d, "/run/vsw/shared/x.sock", b))
	sockets := []string{"/run/vsw/b.sock", "/run/vsw/a/x.sock", "/run/vsw/c.sock"}
	if held, err := d.HoldSockets(sockets, b); held != 1 || !errdefs.IsConflict(err) || !strings.Contains(err.Error(), sockets[1]) {
		t.Errorf("held %d sockets, then %v", held, err)
	}
	for _, dir := range []string{"/run/vsw/shared", "/run/vsw", "/run"} {
		if _, err := d.Claim(dir, b, false); !errdefs.IsConflict(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	_, err = d.Claim("/run/vsw/share", b, false)
	testkit.Must(t, err)
	testkit.Must(t, d.Release(func(h Holder) bool { return h == a }))
	_, err = d.Claim("/run/vsw/shared", b, false)
	testkit.Must(t, err)
	testkit.Must(t, d.Release(func(h Holder) bool { return h == b }))
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
					if _, err := d.Claim("/run/vsw/a", h, false); err == nil {
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
	fresh, err := d.Claim("/run/vsw/a", byCNI, true)
	if !fresh || err != nil {
		t.Fatal(fresh, err)
	}
	id := hostfs.FileID{Device: 7, Inode: 8}
	testkit.Must(t, d.setCreation("/run/vsw/a", creation{Creator: &byCNI, Created: &id}))
	if c, fresh, err := d.claim("/run/vsw/a", byNRI, true); !fresh || err != nil || *c.Created != id || !c.isCreatedBy(byCNI) {
		t.Fatal(c, fresh, err)
	}
	if fresh, err := d.Claim("/run/vsw/a", byNRI, false); fresh || err != nil {
		t.Fatal(fresh, err)
	}
	testkit.Must(t, d.ReleaseDirectory("/run/vsw/a", byCNI))
	if _, err := d.Claim("/run/vsw/a", Holder{Sandbox: "s2"}, false); !errdefs.IsConflict(err) {
		t.Errorf("after the first release: %v", err)
	}
	for _, c := range []struct {
		sandbox string
		id      hostfs.FileID
		want    bool
	}{{"s1", id, true}, {"s2", id, false}, {"s1", hostfs.FileID{Device: 7, Inode: 9}, false}, {"s1", hostfs.FileID{Device: 8, Inode: 8}, false}} {
		if got, err := d.isCreatedFor("/run/vsw/a", c.sandbox, c.id); got != c.want || err != nil {
			t.Errorf("%+v: %t, %v", c, got, err)
		}
	}
	testkit.Must(t, d.ReleaseDirectory("/run/vsw/a", byNRI))
	testkit.Must(t, d.ReleaseDirectory("/run/vsw/a", byNRI))
	if left := files(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A file that a crash cut short is no claim.
func TestFileCutShortIsNoClaim(t *testing.T) {
	d := newDir(t)
	testkit.Must(t, os.MkdirAll(d.claims.dir, 0o700))
	for _, text := range []string{"", "\x00\x00", `{"holders":[{"sandb`, "../x", `{"holders":null}`} {
		testkit.Must(t, os.WriteFile(filepath.Join(d.claims.dir, "%2Frun%2Fvsw%2Fb"), []byte(text), 0o600))
		if _, err := d.Claim("/run/vsw/b", Holder{Sandbox: "s2"}, false); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		testkit.Must(t, d.Release(func(h Holder) bool { return h.Sandbox == "s2" }))
	}
	testkit.Must(t, os.Chmod(d.claims.dir, 0o777))
	if _, err := d.Claim("/run/vsw/c", Holder{Sandbox: "s2"}, false); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a directory that others can write: %v", err)
	}
}

// A claim of any content has no parent that is not above its directory. A name belongs to one path.
func FuzzClaims(f *testing.F) {
	for _, text := range []string{"/run/vsw/a", "/run/vsw/100%", "/%2F", "=", "/=/%25",
		`{"holders":[{"sandbox":"s1","adapter":"nri"}],"creator":{"sandbox":"s1","adapter":"nri"},"parents":[{"path":"/run/vsw/a"}]}`,
		`{"parents":[{"path":"/etc"}]}`, `{"parents":[{"path":"/run/vsw/a/../a"}]}`, `{"parents":[{"path":"/run/vsw/a/b"}]}`} {
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
		c, err := claimsIn("").Decode(nameOfDirectory("/run/vsw/a/b"), []byte(text))
		if err != nil {
			return
		}
		for _, p := range c.Parents {
			if filepath.Clean(p.Path) != p.Path || !strings.HasPrefix("/run/vsw/a/b", p.Path+"/") {
				t.Errorf("%q leads to %q", text, p.Path)
			}
		}
	})
}

// No claim is written through a symlink, which could lead to a directory of another user.
func TestClaimsFollowNoSymlink(t *testing.T) {
	d := newDir(t)
	h := Holder{Sandbox: "a", Adapter: NRI}
	_, err := d.Claim("/run/vsw/a", h, false)
	testkit.Must(t, err)
	testkit.Must(t, os.Rename(d.claims.dir, d.claims.dir+".moved"))
	testkit.Must(t, os.Symlink(filepath.Base(d.claims.dir)+".moved", d.claims.dir))
	open, err := d.claims.lock(true)
	open.Close()
	if !errdefs.IsPermissionDenied(err) {
		t.Errorf("claims at a symlink are locked: %v", err)
	}
	if _, err := d.Claim("/run/vsw/b", h, false); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a claim is written through a symlink: %v", err)
	}
}

// A claim names directories that are removed with it, so it must not lead elsewhere.
func TestClaimWithForeignParentsIsDamaged(t *testing.T) {
	for _, parent := range []string{"/etc", "/run/vsw/a/../a", "/run/vsw/a/b", "run", "/run/vsw/ab"} {
		text := []byte(`{"parents":[{"path":"` + parent + `"}]}`)
		if c, err := claimsIn("").Decode(nameOfDirectory("/run/vsw/a/b"), text); !errors.Is(err, jsonstore.ErrDamaged) {
			t.Errorf("%s: %+v, %v", parent, c, err)
		}
	}
}
