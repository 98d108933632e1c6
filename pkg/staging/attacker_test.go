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
)

// What lies in the place of a socket is looked at on the descriptor, and nothing but
// a socket is bound.
func TestOnlySocketsBelowTheRootAreBound(t *testing.T) {
	n := newNode(t)
	n.listen("outside/secret.sock", "secret")
	n.listen("run/vsw/good/a.sock", "good")
	bad := n.path("run/vsw/bad")
	must(t, os.MkdirAll(bad, 0o755))
	must(t, unix.Mkfifo(filepath.Join(bad, "fifo"), 0o666))
	must(t, unix.Mknod(filepath.Join(bad, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, os.WriteFile(filepath.Join(bad, "file"), nil, 0o666))
	must(t, os.Symlink(n.path("outside/secret.sock"), filepath.Join(bad, "link")))
	must(t, os.Symlink("../good/a.sock", filepath.Join(bad, "near")))
	must(t, os.Symlink(n.path("outside"), filepath.Join(bad, "dir")))
	for _, rel := range []string{"bad/fifo", "bad/device", "bad/file", "bad/link", "bad/near", "bad/dir/secret.sock", "bad", "../outside/secret.sock",
		"/outside/secret.sock", "good/../../outside/secret.sock", "good/a.sock\x00", "bad/no\nthing", ".."} {
		c := one("c1", "s1", "good/a.sock")
		c.Sockets[0].Rel = rel
		err := n.Prepare(c)
		if !errdefs.IsInvalidArgument(err) && !errdefs.IsPermissionDenied(err) && !errdefs.IsNotFound(err) {
			t.Errorf("%q: %v", rel, err)
		}
		if got := n.mounts(); len(got) > 0 || exists(n.in("c1", "")) {
			t.Fatalf("%q: left: %v", rel, got)
		}
	}
	// An odd name is a name.
	n.listen("run/vsw/good/a\nb .sock", "odd")
	must(t, n.Prepare(one("c1", "s1", "good/a\nb .sock")))
	n.answers(n.in("c1", "net/net1/a\nb .sock"), "odd")
}

// Whoever can write a socket directory cannot stand for the host in another pod.
func TestASocketInAnothersDirectoryIsRefused(t *testing.T) {
	n := newNode(t)
	must(t, n.Prepare(Container{ID: "c1", SandboxID: "s1", Dirs: []Dir{{Path: "net/net1"}},
		SocketDirs: []SocketDir{{Root: "/run/vsw", Rel: "tenant", At: "net/net1", UID: -1, GID: -1}}}))
	n.listen("run/vsw/tenant/a.sock", "tenant")
	if err := n.Prepare(one("c2", "s2", "tenant/a.sock")); !errdefs.IsConflict(err) {
		t.Errorf("another pod: %v", err)
	}
	must(t, n.Prepare(one("c3", "s1", "tenant/a.sock")))
	n.answers(n.in("c3", "net/net1/a.sock"), "tenant")
}

// A tenant that does its worst in a directory that it can write, where it has the
// socket of its own pod watched, binds nothing but sockets of that directory, and
// delays no other pod.
func TestAnAttackerInItsOwnDirectory(t *testing.T) {
	n := newNode(t)
	n.listen("outside/secret.sock", "secret")
	must(t, n.Prepare(Container{ID: "app", SandboxID: "evil", Dirs: []Dir{{Path: "net/net1"}},
		SocketDirs: []SocketDir{{Root: "/run/vsw", Rel: "evil", At: "net/net1", UID: -1, GID: -1}}}))
	n.listen("run/vsw/evil/a.sock", "evil")
	must(t, n.Prepare(one("victim", "evil", "evil/a.sock")))
	n.listen("run/vsw/good/b.sock", "good")
	must(t, n.Prepare(one("other", "good", "good/b.sock")))
	// The same is done first where nobody watches: what another pod's socket takes then
	// is what this machine takes.
	must(t, os.MkdirAll(n.path("elsewhere"), 0o755))
	calm := n.underAttack(n.path("elsewhere"))
	took := n.underAttack(n.in("app", "net/net1")) // as the application has it
	t.Logf("another pod's socket, made anew under attack, answers after p50 %v, p95 %v, most %v; where the attack is on nothing after %v, %v, %v",
		took[30], took[57], took[59], calm[30], calm[57], calm[59])
	if took[57] > time.Second && took[57] > 5*calm[57] {
		t.Errorf("p95 is %v, and %v where the attack is on nothing", took[57], calm[57])
	}
	if got := n.mounts(); len(got) > 4 {
		t.Errorf("%d mounts", len(got))
	}
	must(t, n.RemoveSandbox("evil"))
	must(t, n.RemoveSandbox("good"))
	if got := n.mounts(); len(got) > 0 {
		t.Errorf("mounts: %v", got)
	}
}

// underAttack does an attacker's worst in a directory, and gives, sorted, how long the
// socket of another pod takes each of 60 times to answer when it is made anew.
func (n *node) underAttack(dir string) (took []time.Duration) {
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
			if got, err := ask(n.in("victim", "net/net1/a.sock")); err == nil && got == "secret" {
				n.t.Error("a socket outside the root was bound")
				return
			}
		}
	})
	for i := range 60 {
		text := fmt.Sprint("good ", i)
		l := n.listen("run/vsw/good/b.sock", text)
		began := time.Now()
		n.answers(n.in("other", "net/net1/b.sock"), text)
		took = append(took, time.Since(began))
		l.Close()
	}
	close(stop)
	attack.Wait()
	slices.Sort(took)
	return took
}
