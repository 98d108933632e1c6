// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
)

// newServer returns a container whose application creates its socket in a directory.
func newServer(id, sandbox, rel string) edit.Container {
	return edit.Container{ID: id, SandboxID: sandbox, Dirs: []edit.Dir{{Path: "net/net1"}},
		SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: rel, From: "file: vhost-user.path"}}}
}

// newClient returns a container that gets a socket of the host.
func newClient(id, sandbox, rel string) edit.Container {
	return edit.Container{ID: id, SandboxID: sandbox, Sockets: []edit.Socket{{Root: "/run/vsw", Rel: rel, From: "file: vhost-user.path"}}}
}

func listen(t *testing.T, path string) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
}

// A path of an invalid request is neither recorded nor removed with the sandbox.
func TestRefusedRequestRemovesNothing(t *testing.T) {
	s, dir := newTestStore(t)
	vsw := filepath.Join(dir, "run/vsw")
	listen(t, filepath.Join(vsw, "victim.sock"))
	testkit.Must(t, os.WriteFile(filepath.Join(vsw, "vswitch.conf"), []byte("x"), 0o600))
	testkit.Must(t, os.MkdirAll(filepath.Join(vsw, "empty"), 0o755))
	testkit.Must(t, os.Symlink("empty", filepath.Join(vsw, "link")))
	for _, rel := range []string{"victim.sock", "victim.sock/deeper", "vswitch.conf", "vswitch.conf/deeper/x", "link", "link/x", "empty"} {
		if err := s.Prepare(newServer("c1", "s1", rel)); err == nil {
			t.Errorf("%s was handed over", rel)
		}
	}
	if claims, err := listNames(s.host.Path("/run/jackfield/claims")); err != nil || len(claims) > 0 {
		t.Errorf("recorded: %v, %v", claims, err)
	}
	testkit.Must(t, s.RemoveSandbox("s1"))
	for _, name := range []string{"victim.sock", "vswitch.conf", "empty", "link"} {
		if !exists(filepath.Join(vsw, name)) {
			t.Errorf("%s was removed", name)
		}
	}
	if l := listFiles(t, dir); len(l) != 4 {
		t.Errorf("left: %v", l)
	}
}

// An existing directory is delivered if policy grants everything below it. Otherwise it is denied
// with the policy's refusal, without a claim that would exclude others.
func TestExistingDirectoryNeedsGrant(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "run/vsw/ports"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/ports/precious"), nil, 0o600))
	c := newServer("c1", "s1", "ports")
	if err := s.Prepare(c); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "/run/vsw/ports") {
		t.Errorf("without a grant of the policy: %v", err)
	}
	words := errors.New("add DIR/** to the rule")
	c.SocketDirs[0].Refusal = words
	if err := s.Prepare(c); !errors.Is(err, words) {
		t.Errorf("got %v", err)
	}
	granted := newServer("c2", "s2", "ports")
	granted.SocketDirs[0].Granted = true
	testkit.Must(t, s.Prepare(granted))
	testkit.Must(t, s.RemoveSandbox("s1"))
	testkit.Must(t, s.RemoveSandbox("s2"))
	if l := listFiles(t, dir); len(l) != 1 || !exists(filepath.Join(dir, "run/vsw/ports/precious")) {
		t.Errorf("left: %v", l)
	}
}

// A directory that replaced the sandbox's own is neither delivered nor removed.
func TestReplacedDirectoryIsForeign(t *testing.T) {
	s, dir := newTestStore(t)
	own, parent := filepath.Join(dir, "run/vsw/a/b"), filepath.Join(dir, "run/vsw/a")
	testkit.Must(t, s.Prepare(newServer("c1", "s1", "a/b")))
	testkit.Must(t, s.Prepare(newServer("c2", "s1", "a/b")))
	testkit.Must(t, os.Rename(own, own+"-away"))
	testkit.Must(t, os.Mkdir(own, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(own, "precious"), nil, 0o600))
	if err := s.Prepare(newServer("c3", "s1", "a/b")); !errdefs.IsPermissionDenied(err) {
		t.Errorf("got %v", err)
	}
	testkit.Must(t, s.RemoveSandbox("s1"))
	if !exists(filepath.Join(own, "precious")) {
		t.Error("a foreign directory was removed")
	}
	// The same holds for an empty parent.
	testkit.Must(t, os.RemoveAll(parent))
	testkit.Must(t, s.Prepare(newServer("c1", "s1", "a/b")))
	testkit.Must(t, os.Rename(parent, parent+"-away"))
	testkit.Must(t, os.Mkdir(parent, 0o755))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if !exists(parent) {
		t.Error("a foreign parent directory was removed")
	}
	// The same holds for a file in place of the directory.
	testkit.Must(t, os.RemoveAll(parent))
	testkit.Must(t, os.RemoveAll(parent+"-away"))
	testkit.Must(t, s.Prepare(newServer("c1", "s1", "b")))
	testkit.Must(t, os.Remove(filepath.Join(dir, "run/vsw/b")))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/b"), nil, 0o600))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if !exists(filepath.Join(dir, "run/vsw/b")) {
		t.Error("a foreign file was removed")
	}
}

// The container's user owns only the socket directory: the owner of a parent could rename other
// directories in it.
func TestParentDirectoriesBelongToRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root gives directories away")
	}
	s, dir := newTestStore(t)
	c := newServer("c1", "s1", "shared/deep/pod-a")
	c.SocketDirs[0].Access.User = &edit.User{UID: 1234, GID: 1235}
	testkit.Must(t, s.Prepare(c))
	for rel, want := range map[string]uint32{"shared": 0, "shared/deep": 0, "shared/deep/pod-a": 1234} {
		var st unix.Stat_t
		testkit.Must(t, unix.Stat(filepath.Join(dir, "run/vsw", rel), &st))
		if st.Uid != want || st.Mode&0o7777 != 0o755 {
			t.Errorf("%s has uid %d and mode %o, want uid %d", rel, st.Uid, st.Mode&0o7777, want)
		}
	}
}

// A sandbox keeps its directory until the sandbox is removed.
func TestClaimOutlivesContainers(t *testing.T) {
	s, dir := newTestStore(t)
	// The vswitch created the directory: there is no list of created directories.
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "run/vsw/p1"), 0o755))
	mine, theirs := newServer("c1", "s1", "p1"), newServer("c2", "s2", "p1/x")
	mine.SocketDirs[0].Granted, theirs.SocketDirs[0].Granted = true, true
	testkit.Must(t, s.Prepare(mine))
	testkit.Must(t, s.RemoveContainer("s1", "c1"))
	if err := s.Prepare(theirs); !errdefs.IsConflict(err) {
		t.Errorf("after the container's removal: %v", err)
	}
	// The plugin calls Retain when it starts.
	testkit.Must(t, s.Retain(time.Time{}, func(id string) bool { return id == "s1" }, func(string) bool { return false }))
	if err := s.Prepare(theirs); !errdefs.IsConflict(err) {
		t.Errorf("after a restart: %v", err)
	}
	testkit.Must(t, s.Retain(time.Time{}, func(id string) bool { return id == "s2" }, func(string) bool { return false }))
	testkit.Must(t, s.Prepare(theirs))
	testkit.Must(t, s.RemoveSandbox("s2"))
	if l := listFiles(t, dir); len(l) != 1 {
		t.Errorf("left: %v", l)
	}
}

// openAllStores opens the stores of the NRI plugin, of the OCI hook and of inject on one node.
func openAllStores(t *testing.T) (map[string]*Store, string) {
	t.Helper()
	plugin, dir := newTestStore(t)
	hook, err := Open(plugin.host, HookDir("/run/jackfield"), Options{Mode: ModeDirectory, Owner: HookOwner, Shared: true})
	testkit.Must(t, err)
	inject, err := Open(plugin.host, InjectDir("/run/jackfield"), Options{Mode: ModeDirectory, Owner: InjectOwner})
	testkit.Must(t, err)
	return map[string]*Store{"NRI plugin": plugin, "OCI hook": hook, "inject": inject}, dir
}

// The OCI hook does not learn of the end of another runtime's pod. Its record of such a pod is
// removed with the last container, unless the pod has directories.
func TestHookReleasesSocketsWithLastContainer(t *testing.T) {
	all, dir := openAllStores(t)
	hook := all["OCI hook"]
	listen(t, filepath.Join(dir, "run/vsw/held/x.sock"))
	testkit.Must(t, hook.Prepare(newClient("c1", "s1", "held/x.sock")))
	testkit.Must(t, hook.Prepare(newClient("c2", "s1", "held/x.sock")))
	testkit.Must(t, hook.RemoveContainer("s1", "c1"))
	if err := all["inject"].Prepare(newServer("c3", "s2", "held")); !errdefs.IsConflict(err) {
		t.Errorf("another sandbox gets the directory of a socket that a container still has: %v", err)
	}
	testkit.Must(t, all["inject"].RemoveSandbox("s2"))
	testkit.Must(t, hook.RemoveContainer("s1", "c2"))
	claimed, err := listNames(hook.host.Path("/run/jackfield/claims"))
	testkit.Must(t, err)
	recorded, err := listNames(hook.records.sandboxesDir())
	testkit.Must(t, err)
	if len(claimed)+len(recorded) > 0 {
		t.Errorf("left: claims %v, records %v", claimed, recorded)
	}
	testkit.Must(t, hook.Prepare(newServer("c1", "s1", "own")))
	testkit.Must(t, hook.RemoveContainer("s1", "c1"))
	if err := all["inject"].Prepare(newServer("c3", "s2", "own")); !errdefs.IsConflict(err) {
		t.Errorf("another sandbox gets the pod's directory after its last container: %v", err)
	}
}

// A directory, or a socket in it, that one adapter delivered to a sandbox is not delivered to
// another sandbox by any adapter. jackfield-cni claims at ADD.
func TestAdaptersShareClaims(t *testing.T) {
	all, dir := openAllStores(t)
	listen(t, filepath.Join(dir, "run/vsw/held/x.sock"))
	for by, first := range all {
		testkit.Must(t, first.Prepare(newServer("c1", "s1", "own")))
		listen(t, filepath.Join(dir, "run/vsw/own/app.sock"))
		testkit.Must(t, first.Prepare(newClient("c2", "s1", "held/x.sock")))
		for name, second := range all {
			if name == by {
				continue
			}
			for what, c := range map[string]edit.Container{
				"the directory": newServer("c3", "s2", "own"), "a parent": newServer("c3", "s2", "."), "a subdirectory": newServer("c3", "s2", "own/deeper"),
				"a socket in it": newClient("c3", "s2", "own/app.sock"), "the directory of a socket": newServer("c3", "s2", "held"),
			} {
				for i := range c.SocketDirs {
					c.SocketDirs[i].Granted = true
				}
				if err := second.Prepare(c); err == nil || !errdefs.IsConflict(err) && what != "a parent" {
					t.Errorf("%s delivers %s that %s delivered to another sandbox: %v", name, what, by, err)
				}
			}
			testkit.Must(t, second.RemoveSandbox("s2"))
			// Containers of one pod share directories and sockets, also by different adapters.
			testkit.Must(t, second.Prepare(newServer("c4", "s1", "own")))
			testkit.Must(t, second.Prepare(newClient("c4", "s1", "own/app.sock")))
			testkit.Must(t, second.RemoveSandbox("s1"))
		}
		testkit.Must(t, first.RemoveSandbox("s1"))
	}
	plugin := all["NRI plugin"]
	byCNI := sockdir.Holder{Sandbox: "s1", Adapter: sockdir.CNI, StateDir: "/run/jackfield/cni"}
	_, err := plugin.sockets.dirs.Claim("/run/vsw/cni", byCNI, true)
	testkit.Must(t, err)
	for name, s := range all {
		if err := s.Prepare(newServer("c1", "s2", "cni")); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "by cni") {
			t.Errorf("%s delivers a directory that jackfield-cni created for another sandbox: %v", name, err)
		}
		testkit.Must(t, s.RemoveSandbox("s2"))
	}
	if names, err := listNames(plugin.host.Path("/run/jackfield/claims")); err != nil || len(names) != 1 {
		t.Errorf("claims left: %v, %v", names, err)
	}
}

// One of many sandboxes that request a directory at the same time, by any adapter, gets it. All
// containers of one sandbox get it.
func TestOneOfManySandboxesGetsDirectory(t *testing.T) {
	for range 10 {
		all, dir := openAllStores(t)
		var got [3]atomic.Int32
		var wait sync.WaitGroup
		i := 0
		for _, s := range all {
			for n := range 4 {
				sandbox := i
				wait.Go(func() {
					if s.Prepare(newServer(fmt.Sprintf("c%d-%d", sandbox, n), fmt.Sprint("s", sandbox), "shared/own")) == nil {
						got[sandbox].Add(1)
					}
				})
			}
			i++
		}
		wait.Wait()
		counts := []int32{got[0].Load(), got[1].Load(), got[2].Load()}
		slices.Sort(counts)
		if !slices.Equal(counts, []int32{0, 0, 4}) {
			t.Fatalf("containers with the directory, for each of three sandboxes: %v", counts)
		}
		i = 0
		for _, s := range all {
			for sandbox := range 3 {
				testkit.Must(t, s.RemoveSandbox(fmt.Sprint("s", sandbox)))
			}
		}
		if l := listFiles(t, dir); len(l) > 0 {
			t.Fatalf("left: %v", l)
		}
	}
}

// A parent that two sandboxes need at the same time is recorded by one of them.
func TestParentIsRecordedOnce(t *testing.T) {
	for range 20 {
		s, _ := newTestStore(t)
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				if err := s.Prepare(newServer("c", fmt.Sprint("s", i), fmt.Sprint("shared/p", i))); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		recorded := 0
		for i := range 4 {
			data, err := os.ReadFile(s.host.Path(fmt.Sprint("/run/jackfield/claims/%2Frun%2Fvsw%2Fshared%2Fp", i)))
			testkit.Must(t, err)
			if strings.Contains(string(data), `"parents"`) {
				recorded++
			}
		}
		if recorded != 1 {
			t.Fatalf("%d sandboxes have recorded the parent", recorded)
		}
	}
}

// In ModeDirectory, too, a socket in another sandbox's directory is denied, also without a user
// to grant access to.
func TestSocketInDirectoryOfAnotherSandboxInDirectoryMode(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, s.Prepare(newServer("c1", "s1", "tenant")))
	listen(t, filepath.Join(dir, "run/vsw/tenant/a.sock"))
	if err := s.Prepare(newClient("c2", "s2", "tenant/a.sock")); !errdefs.IsConflict(err) {
		t.Errorf("got %v", err)
	}
}

// pendingCreation is the part of a claim of a directory that is about to be created.
const pendingCreation = `,"pending":true`

// writeClaim writes the claim that a killed process of sandbox s1 left of a directory below the socket root.
func writeClaim(t *testing.T, s *Store, rel, made string) {
	t.Helper()
	holder, err := json.Marshal(s.sockets.holder("s1"))
	testkit.Must(t, err)
	text := fmt.Sprintf(`{"holders":[%s],"creator":%s%s}`, holder, holder, made)
	testkit.Must(t, os.WriteFile(s.host.Path("/run/jackfield/claims/%2Frun%2Fvsw%2F"+rel), []byte(text), 0o600))
}

// A directory that a crash left without a recorded identity is created again if it is empty.
// Otherwise it is neither delivered nor removed.
func TestCrashWhileDirectoryIsCreated(t *testing.T) {
	s, dir := newTestStore(t)
	at := filepath.Join(dir, "run/vsw/a")
	crash := func() {
		t.Helper()
		testkit.Must(t, s.lock.run(func() error { return s.recordContainer(&edit.Container{ID: "c0", SandboxID: "s1"}) }))
		testkit.Must(t, s.records.markClaimed("s1"))
		writeClaim(t, s, "a", pendingCreation)
		testkit.Must(t, os.Mkdir(at, 0o755))
	}
	crash()
	testkit.Must(t, s.Prepare(newServer("c1", "s1", "a")))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if l := listFiles(t, dir); len(l) > 0 {
		t.Fatalf("left: %v", l)
	}
	crash()
	testkit.Must(t, s.RemoveSandbox("s1"))
	if l := listFiles(t, dir); len(l) > 0 {
		t.Fatalf("left: %v", l)
	}
	crash()
	testkit.Must(t, os.WriteFile(filepath.Join(at, "precious"), nil, 0o600))
	if err := s.Prepare(newServer("c1", "s1", "a")); !errdefs.IsPermissionDenied(err) {
		t.Errorf("got %v", err)
	}
	testkit.Must(t, s.RemoveSandbox("s1"))
	if !exists(filepath.Join(at, "precious")) {
		t.Error("a directory without a recorded identity was removed")
	}
	// A claim without the sandbox's record is removed by the next Retain.
	_, err := s.sockets.dirs.Claim("/run/vsw/b", s.sockets.holder("gone"), false)
	testkit.Must(t, err)
	testkit.Must(t, s.Retain(time.Time{}, func(string) bool { return false }, func(string) bool { return false }))
	testkit.Must(t, s.Prepare(newServer("c1", "s2", "b")))
}

// A container that is created while the sandbox's last one is removed keeps the sandbox's sockets.
func TestSocketsStayClaimedForContainerCreatedDuringRemoval(t *testing.T) {
	all, dir := openAllStores(t)
	hook := all["OCI hook"]
	listen(t, filepath.Join(dir, "run/vsw/held/x.sock"))
	testkit.Must(t, hook.Prepare(newClient("c1", "s1", "held/x.sock")))
	// The claims are locked: the removal waits before it releases them.
	lock, err := openLocked(hook.host.Path("/run/jackfield/claims"), unix.O_DIRECTORY, unix.LOCK_EX)
	testkit.Must(t, err)
	removed, recorded, created := make(chan error), make(chan bool), make(chan error)
	go func() { removed <- hook.RemoveContainer("s1", "c1") }()
	if !testkit.Until(func() bool { return !exists(hook.records.file("s1", "c1")) }) {
		t.Fatal("the first container's record is not removed")
	}
	go func() {
		c := newClient("c2", "s1", "held/x.sock")
		err := errors.Join(hook.lock.run(func() error { return hook.recordContainer(&c) }), hook.records.markClaimed("s1"))
		close(recorded)
		created <- errors.Join(err, hook.sockets.hold("s1", c.Sockets))
	}()
	select {
	case <-recorded:
	case <-time.After(100 * time.Millisecond): // it waits for the removal
	}
	testkit.Must(t, unix.Close(lock))
	testkit.Must(t, <-removed)
	testkit.Must(t, <-created)
	if !exists(filepath.Join(hook.records.sandboxesDir(), "s1", claimedFile)) {
		t.Error("the sandbox's record does not say that it has claims")
	}
	if err := all["inject"].Prepare(newServer("c3", "s2", "held")); !errdefs.IsConflict(err) {
		t.Errorf("another sandbox gets the directory of a socket that a container has: %v", err)
	}
}
