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

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// openHookStore opens a store like a short-lived process.
func (n *node) openHookStore(noCreate bool) *Store {
	n.t.Helper()
	s, err := Open(n.host, "/run/jackfield", Options{Mode: ModeMount, Owner: HookOwner, Shared: true, NoCreate: noCreate})
	testkit.Must(n.t, err)
	n.t.Cleanup(func() { testkit.Must(n.t, s.Close()) })
	return s
}

// newSharedNode returns a node with a rebinder.
func newSharedNode(t *testing.T) *node {
	n := newNode(t)
	testkit.Must(t, n.UnmountIfEmpty())
	n.open(Options{Owner: HookOwner, Shared: true, NoCreate: true, Watch: true})
	if ok, err := n.BecomeRebinder(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return n
}

// wantTracked waits until the rebinder tracks a number of containers.
func (n *node) wantTracked(want int) {
	n.t.Helper()
	if !testkit.Until(func() bool { return len(n.TrackedContainers()) == want }) {
		n.t.Fatalf("tracks %v, want %d; failures: %v", n.TrackedContainers(), want, n.events.failures())
	}
}

// One process stages a container, another rebinds its sockets, and a third removes it.
func TestRebinderTracksContainersOfOtherProcesses(t *testing.T) {
	n := newSharedNode(t)
	l := n.listen("run/vsw/p1/a.sock", "first")
	testkit.Must(t, n.openHookStore(false).Prepare(newContainer("c1", "c1", "p1/a.sock")))
	at := n.stagedPath("c1", "net/net1/a.sock")
	n.wantAnswer(at, "first")
	n.wantTracked(1)
	l.Close()
	l = n.listen("run/vsw/p1/a.sock", "second")
	n.wantAnswer(at, "second")
	// Another rebinder finds the container and what changed meanwhile.
	testkit.Must(t, n.Close())
	l.Close()
	l = n.listen("run/vsw/p1/a.sock", "third")
	n.open(Options{Owner: HookOwner, Shared: true, NoCreate: true, Watch: true})
	n.wantAnswer(at, "third")
	// A later hook stage prepares it again.
	testkit.Must(t, n.openHookStore(false).Prepare(newContainer("c1", "c1", "p1/a.sock")))
	n.wantTracked(1)
	l.Close()
	n.listen("run/vsw/p1/a.sock", "fourth")
	n.wantAnswer(at, "fourth")
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
	gone := n.openHookStore(true)
	testkit.Must(t, gone.RemoveContainer("c1", "c1"))
	testkit.Must(t, gone.RemoveSandbox("c1"))
	testkit.Must(t, gone.UnmountIfEmpty())
	n.wantTracked(0)
	if got := n.mounts(); len(got) > 0 || isMountRoot(n.path("run/jackfield/containers")) {
		t.Errorf("left: %v", got)
	}
	for _, dir := range []string{"containers", "sandboxes", "ready"} {
		if names, err := listNames(n.path("run/jackfield/" + dir)); err != nil || len(names) > 0 {
			t.Errorf("left in %s: %v, %v", dir, names, err)
		}
	}
	// Then the next container can be staged.
	testkit.Must(t, n.openHookStore(false).Prepare(newContainer("c2", "c2", "p1/a.sock")))
	n.wantAnswer(n.stagedPath("c2", "net/net1/a.sock"), "fourth")
	testkit.Must(t, gone.RemoveSandbox("c2"))
	testkit.Must(t, gone.UnmountIfEmpty())
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}

// A process that removes the last container unmounts the shared mount while another process
// stages a container.
func TestSharedMountIsCreatedAgain(t *testing.T) {
	n := newSharedNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	early := n.openHookStore(false)
	testkit.Must(t, n.openHookStore(true).UnmountIfEmpty())
	testkit.Must(t, early.Prepare(newContainer("c1", "c1", "p1/a.sock")))
	if _, on, err := hostfs.FindMount(n.path("run/jackfield/containers")); err != nil || on == nil || !on.Shared {
		t.Errorf("%+v, %v", on, err)
	}
	testkit.Must(t, n.openHookStore(true).RemoveSandbox("c1"))
	testkit.Must(t, n.openHookStore(true).UnmountIfEmpty())
}

// There is one rebinder at a time.
func TestOneProcessIsTheRebinder(t *testing.T) {
	n := newSharedNode(t)
	if !RebinderRunning(n.host, "/run/jackfield") || RebinderRunning(n.host, "/run/other") {
		t.Error("RebinderRunning is wrong")
	}
	second, err := Open(n.host, "/run/jackfield", Options{Owner: HookOwner, Shared: true, NoCreate: true, Watch: true})
	testkit.Must(t, err)
	if ok, err := second.BecomeRebinder(); ok || err != nil {
		t.Errorf("two rebinders: %v", err)
	}
	testkit.Must(t, n.Close())
	if RebinderRunning(n.host, "/run/jackfield") {
		t.Error("a closed rebinder is reported as running")
	}
	if ok, err := second.BecomeRebinder(); !ok || err != nil {
		t.Error(ok, err)
	}
	testkit.Must(t, second.Close())
	if ok, err := second.BecomeRebinder(); ok || !errors.Is(err, os.ErrClosed) {
		t.Error(ok, err)
	}
}

// A store with NoCreate creates nothing.
func TestNoCreateCreatesNothing(t *testing.T) {
	n := newNode(t)
	s, err := Open(n.host, "/run/none", Options{Owner: HookOwner, Shared: true, NoCreate: true})
	testkit.Must(t, err)
	if left, err := s.Orphans(0, time.Second); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if _, err := os.Lstat(n.path("run/none")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// makeOld sets the time of a record, or of a sandbox's directory, to an hour ago.
func (n *node) makeOld(p string) {
	n.t.Helper()
	testkit.Must(n.t, os.Chtimes(n.path("run/jackfield/sandboxes/"+p), time.Time{}, time.Now().Add(-time.Hour)))
}

// A container that was never created, or whose end was not reported, is removed. A container that
// a process has mounted stays, and so does one that was staged a moment ago.
func TestSweepRemovesDeadContainersOnly(t *testing.T) {
	n := newSharedNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	hook := n.openHookStore(false)
	for _, id := range []string{"dead", "alive", "fresh", "elsewhere"} {
		testkit.Must(t, hook.Prepare(newContainer(id, id, "p1/a.sock")))
	}
	testkit.Must(t, hook.Prepare(edit.Container{ID: "app", SandboxID: "app", Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "mine/x"}}}))
	// Another process has the directory mounted in its mount namespace.
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", `mkdir "$0" && mount --rbind "$1/net" "$0" && echo ready && exec sleep 600`,
		n.path("seen"), n.stagedPath("alive", ""))
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dead", "alive", "elsewhere", "app"} {
		n.makeOld(id + "/" + id + ".container")
	}
	// A container that was staged in another PID namespace.
	rec := hook.records.read("elsewhere", "elsewhere")
	rec.View.PIDs++
	testkit.Must(t, hook.records.rewrite(&rec))
	n.makeOld("elsewhere/elsewhere.container")

	if got, err := n.Sweep(2*time.Hour, time.Minute); got != 0 || err != nil {
		t.Error(got, err)
	}
	if got, err := n.Sweep(MinOrphanAge, -time.Second); got != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(got, err)
	}
	if got, err := n.Sweep(MinOrphanAge, time.Minute); got != 2 || err != nil {
		t.Error(got, err)
	}
	n.wantTracked(3)
	names, err := listNames(n.path("run/jackfield/containers"))
	if want := []string{"alive", "elsewhere", "fresh"}; err != nil || len(names) != 3 || names[0] != want[0] || names[1] != want[1] || names[2] != want[2] {
		t.Errorf("%v, %v, want %v", names, err, want)
	}
	if _, err := os.Lstat(n.path("run/vsw/mine")); !os.IsNotExist(err) {
		t.Errorf("socket directory of a removed container: %v", err)
	}
	n.wantAnswer(n.stagedPath("alive", "net/net1/a.sock"), "first")
	for _, id := range []string{"alive", "fresh", "elsewhere"} {
		testkit.Must(t, n.openHookStore(true).RemoveSandbox(id))
	}
	testkit.Must(t, n.openHookStore(true).UnmountIfEmpty())
}

// A process that is killed while it replaces a file leaves a hidden file beside it.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	leave := func(n *node, file string) string {
		t.Helper()
		file = n.path(file)
		testkit.Must(t, os.MkdirAll(filepath.Dir(file), privateDir))
		testkit.Must(t, os.WriteFile(file, []byte("{"), 0o600))
		return file
	}
	gone := func(file string) {
		t.Helper()
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("%s: %v", file, err)
		}
	}
	none := func(string) bool { return false }
	n := newNode(t)
	claim, right := leave(n, "run/jackfield/claims/.%2Frun%2Fvsw%2Fp1.new"), leave(n, "run/jackfield/rights/8/.8f.json.new")
	testkit.Must(t, n.Retain(time.Now(), none, none))
	gone(claim)
	gone(right)

	shared := newSharedNode(t)
	ready := leave(shared, "run/jackfield/ready/.c1.new")
	if _, err := shared.Sweep(MinOrphanAge, time.Minute); err != nil {
		t.Error(err)
	}
	gone(ready)
}

// A pod's socket directories stay after its container, and are removed once the runtime has
// removed the bundle of its sandbox.
func TestSocketDirectoriesEndWithBundleOfSandbox(t *testing.T) {
	n := newSharedNode(t)
	testkit.Must(t, os.MkdirAll(n.path("run/bundles/s1/userdata"), 0o755))
	hook := n.openHookStore(false)
	testkit.Must(t, hook.Prepare(edit.Container{ID: "c1", SandboxID: "s1", Bundle: "/run/bundles/c1/userdata", Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "mine/x"}}}))
	n.makeOld("s1/c1.container")
	n.makeOld("s1")
	if got, err := n.Sweep(MinOrphanAge, time.Minute); got != 1 || err != nil {
		t.Error(got, err)
	}
	n.makeOld("s1")
	if got, err := n.Sweep(MinOrphanAge, time.Minute); got != 0 || err != nil {
		t.Error(got, err)
	}
	testkit.Must(t, os.RemoveAll(n.path("run/bundles/s1")))
	if got, err := n.Sweep(MinOrphanAge, time.Minute); got != 1 || err != nil {
		t.Error(got, err)
	}
	for _, dir := range []string{"run/vsw/mine", "run/jackfield/sandboxes/s1"} {
		if _, err := os.Lstat(n.path(dir)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	// The record of a pod without socket directories is removed with its container.
	testkit.Must(t, hook.Prepare(edit.Container{ID: "c2", SandboxID: "s2", Bundle: "/run/bundles/c2/userdata", Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}}}))
	testkit.Must(t, n.openHookStore(true).RemoveContainer("s2", "c2"))
	if names, err := listNames(n.path("run/jackfield/sandboxes")); err != nil || len(names) > 0 {
		t.Error(names, err)
	}
	testkit.Must(t, n.openHookStore(true).UnmountIfEmpty())
}

// One of many processes sweeps. The next sweep is due only later.
func TestOneOfManyProcessesSweeps(t *testing.T) {
	n := newSharedNode(t)
	hook := n.openHookStore(false)
	for i, want := range []int{1, 0} {
		testkit.Must(t, hook.Prepare(edit.Container{ID: "c", SandboxID: "c", Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}}}))
		n.makeOld("c/c.container")
		if got, err := hook.SweepIfDue(time.Minute); got != want || err != nil {
			t.Errorf("%d: %d, %v", i, got, err)
		}
	}
	testkit.Must(t, os.Chtimes(filepath.Join(n.path("run/jackfield"), lastSweepFile), time.Time{}, time.Now().Add(-2*MinOrphanAge)))
	if got, err := hook.SweepIfDue(time.Minute); got != 1 || err != nil {
		t.Error(got, err)
	}
	testkit.Must(t, hook.UnmountIfEmpty())
	if err := unix.Access(n.path("run/jackfield/ready"), unix.F_OK); err != nil {
		t.Error(err)
	}
}

// A process that may not be inspected can belong to any container that was recorded before the
// process started, and to no later one.
func TestSweepWithHiddenProcesses(t *testing.T) {
	denied := &os.PathError{Op: "readlink", Path: "/proc/self/ns/mnt", Err: unix.EACCES}
	var k mountScan
	testkit.Must(t, k.noteHidden("/proc/self", denied))
	if ago := time.Now().Unix() - k.hiddenSince; ago < -2 || ago > 3600 {
		t.Errorf("this process started %d s ago", ago)
	}
	k = mountScan{}
	for _, err := range []error{unix.ENOENT, unix.ESRCH, unix.EINVAL} {
		testkit.Must(t, k.noteHidden("/proc/self", err))
	}
	testkit.Must(t, k.noteHidden("/proc/none", denied))
	if k.hiddenSince != 0 {
		t.Errorf("ended processes: %d", k.hiddenSince)
	}
	for stat, want := range map[string]struct {
		seconds    int64
		kernel, ok bool
	}{
		"7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4200 9 9":    {42, false, true},
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0": {1, true, true},
		"7 (a) S 1 7": {}, "": {}, "7 (a) S 1 7 7 0 -1 x 1 2 3 4 5 6 7 8 20 0 1 0 4200": {},
	} {
		if seconds, kernel, ok := parseProcStat(stat); seconds != want.seconds || kernel != want.kernel || ok != want.ok {
			t.Errorf("%q: %d, %t, %t", stat, seconds, kernel, ok)
		}
	}
}

// A container lives whose first thread has ended: other threads of the process run on.
func TestSweepKeepsContainerWithoutFirstThread(t *testing.T) {
	n := newSharedNode(t)
	testkit.Must(t, n.openHookStore(false).Prepare(edit.Container{ID: "alive", SandboxID: "alive", Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}}}))
	self, err := os.Executable()
	testkit.Must(t, err)
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", `mkdir "$0" && mount --rbind "$1" "$0" && exec "$2"`,
		n.path("seen"), n.stagedPath("alive", ""), self)
	cmd.Env = append(os.Environ(), leaderless+"=1")
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	n.makeOld("alive/alive.container")
	if got, err := n.Sweep(MinOrphanAge, time.Minute); got != 0 || err != nil {
		t.Error(got, err)
	}
}

// A process is killed between the removal of a container's record and that of its access to a socket. The
// next sweep revokes the access, also on a node without jackfield-nri.
func TestSweepRevokesAccessThatKilledProcessLeft(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	testkit.Must(t, n.UnmountIfEmpty())
	before := accessOf(t, path)
	hook := n.openHookStore(false)
	testkit.Must(t, hook.Prepare(newContainerOf("c1", "c1", "p/a.sock", edit.ByACL, 1234, 4321)))
	testkit.Must(t, hook.Prepare(newContainerOf("c2", "c2", "p/a.sock", edit.ByACL, 1235, 4321)))
	testkit.Must(t, os.Remove(hook.records.file("c1", "c1")))
	if _, err := hook.SweepIfDue(time.Minute); err != nil {
		t.Error(err)
	}
	if canWrite(t, 1234, 4321, path) || !canWrite(t, 1235, 4321, path) {
		t.Errorf("access is %s, was %s without a container", accessOf(t, path), before)
	}
	testkit.Must(t, hook.RemoveSandbox("c2"))
	testkit.Must(t, hook.RemoveSandbox("c1"))
}
