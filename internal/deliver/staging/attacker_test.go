// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// A file at a socket's path is checked on its descriptor, and only a socket is bound.
func TestOnlySocketsBelowTheRootAreBound(t *testing.T) {
	n := newNode(t)
	n.listen("outside/secret.sock", "secret")
	n.listen("run/vsw/good/a.sock", "good")
	bad := n.path("run/vsw/bad")
	testkit.Must(t, os.MkdirAll(bad, 0o755))
	testkit.Must(t, unix.Mkfifo(filepath.Join(bad, "fifo"), 0o666))
	testkit.Must(t, unix.Mknod(filepath.Join(bad, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	testkit.Must(t, os.WriteFile(filepath.Join(bad, "file"), nil, 0o666))
	testkit.Must(t, os.Symlink(n.path("outside/secret.sock"), filepath.Join(bad, "link")))
	testkit.Must(t, os.Symlink("../good/a.sock", filepath.Join(bad, "near")))
	testkit.Must(t, os.Symlink(n.path("outside"), filepath.Join(bad, "dir")))
	for _, rel := range []string{"bad/fifo", "bad/device", "bad/file", "bad/link", "bad/near", "bad/dir/secret.sock", "bad", "../outside/secret.sock",
		"/outside/secret.sock", "good/../../outside/secret.sock", "good/a.sock\x00", "bad/no\nthing", ".."} {
		c := newContainer("c1", "s1", "good/a.sock")
		c.Sockets[0].Rel = rel
		err := n.Prepare(c)
		if !errdefs.IsInvalidArgument(err) && !errdefs.IsPermissionDenied(err) && !errdefs.IsNotFound(err) {
			t.Errorf("%q: %v", rel, err)
		}
		if got := n.mounts(); len(got) > 0 || exists(n.stagedPath("c1", "")) {
			t.Fatalf("%q: left: %v", rel, got)
		}
	}
	// Unusual names are valid.
	n.listen("run/vsw/good/a\nb .sock", "odd")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "good/a\nb .sock")))
	n.wantAnswer(n.stagedPath("c1", "net/net1/a\nb .sock"), "odd")
}

// A tenant that can write a socket directory cannot replace the host's socket in another pod.
func TestSocketInDirectoryOfAnotherSandboxIsRefused(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, n.Prepare(edit.Container{ID: "c1", SandboxID: "s1", Dirs: []edit.Dir{{Path: "net/net1"}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "tenant", At: "net/net1"}}}))
	n.listen("run/vsw/tenant/a.sock", "tenant")
	if err := n.Prepare(newContainer("c2", "s2", "tenant/a.sock")); !errdefs.IsConflict(err) {
		t.Errorf("another pod: %v", err)
	}
	testkit.Must(t, n.Prepare(newContainer("c3", "s1", "tenant/a.sock")))
	n.wantAnswer(n.stagedPath("c3", "net/net1/a.sock"), "tenant")
}

// A tenant that attacks from a directory that it can write, with a watched socket of its own,
// binds only sockets of that directory and delays no other pod.
func TestTenantInItsOwnDirectoryReachesNothingElse(t *testing.T) {
	n := newNode(t)
	n.listen("outside/secret.sock", "secret")
	testkit.Must(t, n.Prepare(edit.Container{ID: "app", SandboxID: "evil", Dirs: []edit.Dir{{Path: "net/net1"}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "evil", At: "net/net1"}}}))
	n.listen("run/vsw/evil/a.sock", "evil")
	testkit.Must(t, n.Prepare(newContainer("victim", "evil", "evil/a.sock")))
	n.listen("run/vsw/good/b.sock", "good")
	testkit.Must(t, n.Prepare(newContainer("other", "good", "good/b.sock")))
	// The baseline is the same attack in a directory that is not watched.
	testkit.Must(t, os.MkdirAll(n.path("elsewhere"), 0o755))
	baseline := n.measureUnderAttack(n.path("elsewhere"))
	took := n.measureUnderAttack(n.stagedPath("app", "net/net1")) // as the application sees it
	t.Logf("another pod's re-created socket answers after p50 %v, p95 %v, maximum %v; in the baseline after %v, %v, %v",
		took[30], took[57], took[59], baseline[30], baseline[57], baseline[59])
	if took[57] > time.Second && took[57] > 5*baseline[57] {
		t.Errorf("p95 is %v, in the baseline %v", took[57], baseline[57])
	}
	if got := n.mounts(); len(got) > 4 {
		t.Errorf("%d mounts", len(got))
	}
	testkit.Must(t, n.RemoveSandbox("evil"))
	testkit.Must(t, n.RemoveSandbox("good"))
	if got := n.mounts(); len(got) > 0 {
		t.Errorf("mounts: %v", got)
	}
}

// measureUnderAttack attacks from a directory and returns, sorted, how long the socket of another pod
// takes to answer after each of 60 re-creations.
func (n *node) measureUnderAttack(dir string) (took []time.Duration) {
	n.t.Helper()
	stop := make(chan struct{})
	var attack sync.WaitGroup
	attack.Go(func() { // ten thousand sockets
		for i := range 10_000 {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, fmt.Sprint("s", i)), Net: "unix"})
			if err != nil {
				continue
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}
	})
	attack.Go(func() { // renames against the watcher
		at, tmp := filepath.Join(dir, "a.sock"), filepath.Join(dir, "tmp")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.RemoveAll(tmp)
			switch i % 5 {
			case 0:
				_ = os.Symlink(n.path("outside/secret.sock"), tmp)
			case 1:
				_ = unix.Mkfifo(tmp, 0o666)
			case 2:
				_ = os.Mkdir(tmp, 0o777)
				os.RemoveAll(at)
			case 3:
				_ = os.Symlink("../../outside/secret.sock", tmp)
			case 4:
				os.RemoveAll(at)
				if l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"}); err == nil {
					l.SetUnlinkOnClose(false)
					l.Close()
				}
			}
			_ = os.Rename(tmp, at)
			if got, err := readSocket(n.stagedPath("victim", "net/net1/a.sock")); err == nil && got == "secret" {
				n.t.Error("a socket outside the root was bound")
				return
			}
		}
	})
	for i := range 60 {
		text := fmt.Sprint("good ", i)
		l := n.listen("run/vsw/good/b.sock", text)
		began := time.Now()
		n.wantAnswer(n.stagedPath("other", "net/net1/b.sock"), text)
		took = append(took, time.Since(began))
		l.Close()
	}
	close(stop)
	attack.Wait()
	slices.Sort(took)
	return took
}
