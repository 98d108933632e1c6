// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/busytest"
)

// hook is the store of a process that makes or removes a container, and ends.
func (n *node) hook(present bool) *Store {
	n.t.Helper()
	s, err := Open(n.host, "/run/jackfield", Options{Mode: Mounts, Owner: HookOwner, Shared: true, Present: present})
	must(n.t, err)
	n.t.Cleanup(func() { must(n.t, s.Close()) })
	return s
}

// newShared is a host with a keeper.
func newShared(t *testing.T) *node {
	n := newNode(t)
	must(t, n.Tidy())
	n.open(Options{Owner: HookOwner, Shared: true, Present: true, Watch: true})
	if ok, err := n.Keep(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return n
}

// held waits until the keeper has so many containers.
func (n *node) holds(want int) {
	n.t.Helper()
	if !busytest.Until(func() bool { return len(n.Held()) == want }) {
		n.t.Fatalf("holds %v, want %d; failures: %v", n.Held(), want, n.events.failures())
	}
}

// A container that one process made has its sockets kept alive by another, until a
// third removes it.
func TestTheKeeperTakesUpWhatOthersMake(t *testing.T) {
	n := newShared(t)
	l := n.listen("run/vsw/p1/a.sock", "first")
	must(t, n.hook(false).Prepare(one("c1", "c1", "p1/a.sock")))
	at := n.in("c1", "net/net1/a.sock")
	n.answers(at, "first")
	n.holds(1)
	l.Close()
	l = n.listen("run/vsw/p1/a.sock", "second")
	n.answers(at, "second")
	// Another keeper, which finds it there, and what happened meanwhile.
	must(t, n.Close())
	l.Close()
	l = n.listen("run/vsw/p1/a.sock", "third")
	n.open(Options{Owner: HookOwner, Shared: true, Present: true, Watch: true})
	n.answers(at, "third")
	// Made once more, by a later stage.
	must(t, n.hook(false).Prepare(one("c1", "c1", "p1/a.sock")))
	n.holds(1)
	l.Close()
	n.listen("run/vsw/p1/a.sock", "fourth")
	n.answers(at, "fourth")
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
	gone := n.hook(true)
	must(t, gone.RemoveContainer("c1", "c1"))
	must(t, gone.RemoveSandbox("c1"))
	must(t, gone.Tidy())
	n.holds(0)
	if got := n.mounts(); len(got) > 0 || mountRoot(n.path("run/jackfield/containers")) {
		t.Errorf("left: %v", got)
	}
	for _, dir := range []string{"containers", "sandboxes", "ready"} {
		if names, err := readNames(n.path("run/jackfield/" + dir)); err != nil || len(names) > 0 {
			t.Errorf("left in %s: %v, %v", dir, names, err)
		}
	}
	// After that the next one can be made.
	must(t, n.hook(false).Prepare(one("c2", "c2", "p1/a.sock")))
	n.answers(n.in("c2", "net/net1/a.sock"), "fourth")
	must(t, gone.RemoveSandbox("c2"))
	must(t, gone.Tidy())
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}

// Who removed the last container took the mount of all of them away, between another
// process's look and its own mounts.
func TestAMountThatWentMeanwhileIsMadeAgain(t *testing.T) {
	n := newShared(t)
	n.listen("run/vsw/p1/a.sock", "first")
	early := n.hook(false)
	must(t, n.hook(true).Tidy())
	must(t, early.Prepare(one("c1", "c1", "p1/a.sock")))
	if _, on, err := mountsAt(n.path("run/jackfield/containers")); err != nil || on == nil || !on.Shared {
		t.Errorf("%+v, %v", on, err)
	}
	must(t, n.hook(true).RemoveSandbox("c1"))
	must(t, n.hook(true).Tidy())
}

// There is one keeper at a time, and it counts as long as it lives.
func TestKeep(t *testing.T) {
	n := newShared(t)
	if !Kept(n.host, "/run/jackfield") || Kept(n.host, "/run/other") {
		t.Error("it is not seen")
	}
	second, err := Open(n.host, "/run/jackfield", Options{Owner: HookOwner, Shared: true, Present: true, Watch: true})
	must(t, err)
	if ok, err := second.Keep(); ok || err != nil {
		t.Errorf("two keepers: %v", err)
	}
	must(t, n.Close())
	if Kept(n.host, "/run/jackfield") {
		t.Error("one that has ended is taken for alive")
	}
	if ok, err := second.Keep(); !ok || err != nil {
		t.Error(ok, err)
	}
	must(t, second.Close())
	if ok, err := second.Keep(); ok || !errors.Is(err, os.ErrClosed) {
		t.Error(ok, err)
	}
}

// Whoever only removes makes nothing where nothing is.
func TestPresentMakesNothing(t *testing.T) {
	n := newNode(t)
	s, err := Open(n.host, "/run/none", Options{Owner: HookOwner, Shared: true, Present: true})
	must(t, err)
	if left, err := s.Left(0, time.Second); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if _, err := os.Lstat(n.path("run/none")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// age makes a record, or a sandbox's directory, an hour old.
func (n *node) age(p string) {
	n.t.Helper()
	must(n.t, os.Chtimes(n.path("run/jackfield/sandboxes/"+p), time.Time{}, time.Now().Add(-time.Hour)))
}

// What is left of a container that never came to be, or whose end nobody told, goes;
// what some process has mounted stays, and so does what was made a moment ago.
func TestSweep(t *testing.T) {
	n := newShared(t)
	n.listen("run/vsw/p1/a.sock", "first")
	hook := n.hook(false)
	for _, id := range []string{"dead", "alive", "fresh", "elsewhere"} {
		must(t, hook.Prepare(one(id, id, "p1/a.sock")))
	}
	must(t, hook.Prepare(Container{ID: "app", SandboxID: "app", Files: []File{{"devices.json", []byte("[]")}},
		SocketDirs: []SocketDir{{Root: "/run/vsw", Rel: "mine/x", UID: -1, GID: -1}}}))
	// A process with a mount namespace of its own that has the directory.
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", `mkdir "$0" && mount --rbind "$1/net" "$0" && echo ready && exec sleep 600`,
		n.path("seen"), n.in("alive", ""))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dead", "alive", "elsewhere", "app"} {
		n.age(id + "/" + id + ".container")
	}
	// Made where processes are numbered differently.
	rec := hook.readRecord("elsewhere", "elsewhere")
	rec.See.PIDs++
	must(t, hook.rewrite(&rec))
	n.age("elsewhere/elsewhere.container")

	if got, err := n.Sweep(2*time.Hour, time.Minute); got != 0 || err != nil {
		t.Error(got, err)
	}
	if got, err := n.Sweep(Settled, -time.Second); got != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(got, err)
	}
	if got, err := n.Sweep(Settled, time.Minute); got != 2 || err != nil {
		t.Error(got, err)
	}
	n.holds(3)
	names, err := readNames(n.path("run/jackfield/containers"))
	if want := []string{"alive", "elsewhere", "fresh"}; err != nil || len(names) != 3 || names[0] != want[0] || names[1] != want[1] || names[2] != want[2] {
		t.Errorf("%v, %v, want %v", names, err, want)
	}
	if _, err := os.Lstat(n.path("run/vsw/mine")); !os.IsNotExist(err) {
		t.Errorf("the socket directory of a container that is gone: %v", err)
	}
	n.answers(n.in("alive", "net/net1/a.sock"), "first")
	for _, id := range []string{"alive", "fresh", "elsewhere"} {
		must(t, n.hook(true).RemoveSandbox(id))
	}
	must(t, n.hook(true).Tidy())
}

// A pod's socket directories stay when its container is gone, and go when the
// runtime's bundle of its sandbox is.
func TestSweepOfSandboxes(t *testing.T) {
	n := newShared(t)
	must(t, os.MkdirAll(n.path("run/bundles/s1/userdata"), 0o755))
	hook := n.hook(false)
	must(t, hook.Prepare(Container{ID: "c1", SandboxID: "s1", Bundle: "/run/bundles/c1/userdata", Files: []File{{"devices.json", []byte("[]")}},
		SocketDirs: []SocketDir{{Root: "/run/vsw", Rel: "mine/x", UID: -1, GID: -1}}}))
	n.age("s1/c1.container")
	n.age("s1")
	if got, err := n.Sweep(Settled, time.Minute); got != 1 || err != nil {
		t.Error(got, err)
	}
	n.age("s1")
	if got, err := n.Sweep(Settled, time.Minute); got != 0 || err != nil {
		t.Error(got, err)
	}
	must(t, os.RemoveAll(n.path("run/bundles/s1")))
	if got, err := n.Sweep(Settled, time.Minute); got != 1 || err != nil {
		t.Error(got, err)
	}
	for _, dir := range []string{"run/vsw/mine", "run/jackfield/sandboxes/s1"} {
		if _, err := os.Lstat(n.path(dir)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	// A pod of which nothing is left to be removed is forgotten with its container.
	must(t, hook.Prepare(Container{ID: "c2", SandboxID: "s2", Bundle: "/run/bundles/c2/userdata", Files: []File{{"devices.json", []byte("[]")}}}))
	must(t, n.hook(true).RemoveContainer("s2", "c2"))
	if names, err := readNames(n.path("run/jackfield/sandboxes")); err != nil || len(names) > 0 {
		t.Error(names, err)
	}
	must(t, n.hook(true).Tidy())
}

// Of many processes one sweeps, and none so soon again.
func TestSweepNowAndThen(t *testing.T) {
	n := newShared(t)
	hook := n.hook(false)
	for i, want := range []int{1, 0} {
		must(t, hook.Prepare(Container{ID: "c", SandboxID: "c", Files: []File{{"devices.json", []byte("[]")}}}))
		n.age("c/c.container")
		if got, err := hook.SweepNowAndThen(time.Minute); got != want || err != nil {
			t.Errorf("%d: %d, %v", i, got, err)
		}
	}
	must(t, os.Chtimes(filepath.Join(n.path("run/jackfield"), sweptFile), time.Time{}, time.Now().Add(-2*Settled)))
	if got, err := hook.SweepNowAndThen(time.Minute); got != 1 || err != nil {
		t.Error(got, err)
	}
	must(t, hook.Tidy())
	if err := unix.Access(n.path("run/jackfield/ready"), unix.F_OK); err != nil {
		t.Error(err)
	}
}

// A process that may not be looked at can be of any container that was begun before it
// was started, and of none later.
func TestSweepWithoutSight(t *testing.T) {
	denied := &os.PathError{Op: "readlink", Path: "/proc/self/ns/mnt", Err: unix.EACCES}
	var k look
	must(t, k.hidden("/proc/self", denied))
	if ago := time.Now().Unix() - k.unseen; ago < -2 || ago > 3600 {
		t.Errorf("this process was started %d s ago", ago)
	}
	k = look{}
	for _, err := range []error{unix.ENOENT, unix.ESRCH, unix.EINVAL} {
		must(t, k.hidden("/proc/self", err))
	}
	must(t, k.hidden("/proc/none", denied))
	if k.unseen != 0 {
		t.Errorf("processes that have ended: %d", k.unseen)
	}
	for stat, want := range map[string]struct {
		seconds    int64
		kernel, ok bool
	}{
		"7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4200 9 9":    {42, false, true},
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0": {1, true, true},
		"7 (a) S 1 7": {}, "": {}, "7 (a) S 1 7 7 0 -1 x 1 2 3 4 5 6 7 8 20 0 1 0 4200": {},
	} {
		if seconds, kernel, ok := startOf(stat); seconds != want.seconds || kernel != want.kernel || ok != want.ok {
			t.Errorf("%q: %d, %t, %t", stat, seconds, kernel, ok)
		}
	}
}
