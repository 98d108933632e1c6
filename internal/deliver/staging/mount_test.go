// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// leaderless names the variable with which this program is a process whose first thread has ended, while
// another one sleeps.
const leaderless = "JACKFIELD_LEADERLESS"

func init() { // on the first thread
	if os.Getenv(leaderless) == "" {
		return
	}
	go func() {
		for {
			st, err := os.ReadFile("/proc/self/stat")
			if err == nil && strings.Contains(string(st), ") Z ") {
				fmt.Println("ready")
				time.Sleep(time.Hour)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// TestMain runs the tests in a private mount namespace if possible.
func TestMain(m *testing.M) {
	const inside = "JACKFIELD_STAGING_TEST"
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "no private mount namespace:", err)
		os.Exit(m.Run())
	}
	os.Exit(0)
}

// node is a directory tree of a host on a file system with shared mounts.
type node struct {
	t    *testing.T
	dir  string
	host hostfs.Root
	*Store
	events *events
}

type events struct {
	mu      sync.Mutex
	rebound []Rebound
	failed  []error

	hostFailures int // of failed, those that no tenant can cause
}

func (e *events) Rebound(r Rebound) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rebound = append(e.rebound, r)
}

func (e *events) Failed(_ string, tenant bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = append(e.failed, err)
	if !tenant {
		e.hostFailures++
	}
}

func (e *events) failures() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]error(nil), e.failed...)
}

// requireMounts skips a test that cannot mount.
func requireMounts(t *testing.T) {
	t.Helper()
	why := "this needs root"
	if os.Geteuid() == 0 {
		if os.Getenv("JACKFIELD_STAGING_TEST") != "" {
			return
		}
		why = "this root has no mount namespace of its own"
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("cannot run, and CI promises that it can: %s", why)
	}
	t.Skipf("skipped: %s", why)
}

func newNode(t *testing.T) *node {
	t.Helper()
	requireMounts(t)
	dir, err := os.MkdirTemp("", "jf")
	testkit.Must(t, err)
	testkit.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	testkit.Must(t, unix.Mount("test", dir, "tmpfs", 0, "mode=755"))
	testkit.Must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	n := &node{t: t, dir: dir}
	t.Cleanup(func() {
		testkit.Must(t, n.Close())
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = os.Remove(dir)
	})
	n.host, err = hostfs.New(dir)
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "run/vsw"), 0o755))
	n.open(Options{Mode: ModeMount, Watch: true})
	return n
}

// open closes the store and opens it again, like a new process.
func (n *node) open(o Options) {
	n.t.Helper()
	if n.Store != nil {
		testkit.Must(n.t, n.Close())
	}
	n.events = &events{}
	o.Events = n.events
	s, err := Open(n.host, "/run/jackfield", o)
	testkit.Must(n.t, err)
	n.Store = s
}

func (n *node) path(p string) string { return filepath.Join(n.dir, p) }

// stagedPath returns a path in a container's staging directory.
func (n *node) stagedPath(id, p string) string {
	return n.path(filepath.Join(edit.ContainerDir("/run/jackfield", id), p))
}

// listen creates a socket that answers with a text.
func (n *node) listen(p, text string) *net.UnixListener {
	n.t.Helper()
	testkit.Must(n.t, os.MkdirAll(filepath.Dir(n.path(p)), 0o755))
	// While a socket is being rebound, the old socket is mounted on it.
	for end := time.Now().Add(testkit.Hangs); errors.Is(os.Remove(n.path(p)), unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.path(p), Net: "unix"})
	testkit.Must(n.t, err)
	l.SetUnlinkOnClose(false)
	n.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(text))
			c.Close()
		}
	}()
	return l
}

// readSocket connects to a socket and returns what it sends.
func readSocket(path string) (string, error) {
	c, err := net.DialTimeout("unix", path, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 64)
	k, err := c.Read(buf)
	return string(buf[:k]), err
}

// wantAnswer waits until the socket at path sends a text.
func (n *node) wantAnswer(path, want string) {
	n.t.Helper()
	var got string
	var err error
	for end := time.Now().Add(testkit.Hangs); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err = readSocket(path); err == nil && got == want {
			return
		}
	}
	n.t.Errorf("%s answers %q, %v, want %q; failures: %v", path, got, err, want, n.events.failures())
}

// newContainer returns a container with a socket of the host.
func newContainer(id, sandbox, rel string) edit.Container {
	return edit.Container{ID: id, SandboxID: sandbox, Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}}, Dirs: []edit.Dir{{Path: "net/net1"}},
		Sockets: []edit.Socket{{Root: "/run/vsw", Rel: rel, At: []string{"net/net1/" + filepath.Base(rel)}, From: "file: vhost-user.path"}}}
}

// mounts returns the mount points below the state directory, except the shared mount.
func (n *node) mounts() []string { return n.mountsOf("/proc/self/mountinfo") }

// startContainer starts a thread in a mount namespace that gets the node's mounts, as a container
// does, and returns the file that lists its mounts.
func (n *node) startContainer() (mountinfo string) {
	n.t.Helper()
	started, end := make(chan error), make(chan struct{})
	var enter func()
	enter = func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and /proc/self shows its mounts. While it is locked here, the next goroutine
			// runs on another one.
			go enter()
			<-end
			runtime.UnlockOSThread()
			return
		}
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		mountinfo = fmt.Sprintf("/proc/self/task/%d/mountinfo", unix.Gettid())
		started <- err
		<-end
	}
	go enter()
	n.t.Cleanup(func() { close(end) })
	testkit.Must(n.t, <-started)
	return mountinfo
}

func (n *node) mountsOf(mountinfo string) []string {
	n.t.Helper()
	data, err := os.ReadFile(mountinfo)
	testkit.Must(n.t, err)
	var out []string
	for line := range strings.Lines(string(data)) {
		if p := strings.Fields(line)[4]; strings.HasPrefix(p, n.path("run/jackfield/containers")+"/") {
			out = append(out, strings.TrimPrefix(p, n.path("run/jackfield/containers/")))
		}
	}
	return out
}

func TestSocketIsBound(t *testing.T) {
	n := newNode(t)
	if st := n.Status(); st.Mode != ModeMount {
		t.Fatalf("status %+v", st)
	}
	n.listen("run/vsw/p1/a.sock", "first")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p1/a.sock")))
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p1/a.sock"))) // a second time
	at := n.stagedPath("c1", "net/net1/a.sock")
	n.wantAnswer(at, "first")
	// In the container, not even root can write there.
	if err := os.Chmod(at, 0o777); !errors.Is(err, unix.EROFS) {
		t.Errorf("chmod: %v", err)
	}
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
	testkit.Must(t, n.RemoveContainer("s1", "c1"))
	testkit.Must(t, n.RemoveContainer("s1", "c1"))
	testkit.Must(t, n.RemoveSandbox("s1"))
	if got, l := n.mounts(), listFiles(t, n.dir); len(got) > 0 || len(l) != 1 { // only the vswitch's directory
		t.Errorf("left: %v %v", got, l)
	}
}

func TestRecreatedSocketIsRebound(t *testing.T) {
	n := newNode(t)
	l := n.listen("run/vsw/p1/a.sock", "first")
	for i := range 3 {
		testkit.Must(t, n.Prepare(newContainer(fmt.Sprintf("c%d", i), fmt.Sprintf("s%d", i), "p1/a.sock")))
	}
	check := func(want string) {
		t.Helper()
		for i := range 3 {
			n.wantAnswer(n.stagedPath(fmt.Sprintf("c%d", i), "net/net1/a.sock"), want)
		}
	}
	check("first")
	l.Close()
	n.listen("run/vsw/p1/a.sock", "second")
	check("second")
	// Renamed into place.
	n.listen("run/vsw/p1/.new", "third")
	testkit.Must(t, os.Rename(n.path("run/vsw/p1/.new"), n.path("run/vsw/p1/a.sock")))
	check("third")
	// Its directory is re-created.
	testkit.Must(t, os.RemoveAll(n.path("run/vsw/p1")))
	n.listen("run/vsw/p1/a.sock", "fourth")
	check("fourth")
	// Another directory with a socket takes its place.
	n.listen("run/vsw/p2/a.sock", "fifth")
	testkit.Must(t, os.Rename(n.path("run/vsw/p1"), n.path("run/vsw/p0")))
	testkit.Must(t, os.Rename(n.path("run/vsw/p2"), n.path("run/vsw/p1")))
	check("fifth")
	// The root itself.
	testkit.Must(t, os.RemoveAll(n.path("run/vsw")))
	n.listen("run/vsw/p1/a.sock", "sixth")
	check("sixth")
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
	if got := n.mounts(); len(got) != 3 {
		t.Errorf("mounts: %v", got)
	}
}

// The list follows a socket from its first binding over its removal to its return, also over a restart of the process.
func TestSocketsAreListed(t *testing.T) {
	n := newNode(t)
	start := time.Now().Add(-time.Minute) // clocks of file systems are coarse
	want := func(state SocketState, rebinds int) PlacedSocket {
		t.Helper()
		var got []PlacedSocket
		if !testkit.Until(func() bool {
			got = n.Sockets()
			return len(got) == 1 && got[0].State == state && got[0].Rebinds == rebinds
		}) {
			t.Fatalf("found %+v, want a socket that is %s, with %d rebinds", got, state, rebinds)
		}
		if p := got[0]; p.ContainerID != "c1" || p.SandboxID != "s1" || p.At != "net/net1/a.sock" || p.HostPath != "/run/vsw/p1/a.sock" {
			t.Errorf("found %+v", p)
		}
		return got[0]
	}
	c := newContainer("c1", "s1", "p1/a.sock")
	c.Sockets[0].Await = true
	testkit.Must(t, os.MkdirAll(n.path("run/vsw/p1"), 0o755))
	testkit.Must(t, n.Prepare(c))
	if got := want(SocketAwaited, 0); !got.Since.IsZero() || got.Identity.Inode != 0 {
		t.Errorf("found %+v, want no socket", got)
	}
	l := n.listen("run/vsw/p1/a.sock", "first")
	first := want(SocketBound, 0)
	if first.Since.Before(start) || first.Identity.Inode == 0 {
		t.Errorf("found %+v, want a socket since %v", first, start)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if got := want(SocketRefusing, 0); got.Identity != first.Identity || got.Since != first.Since {
		t.Errorf("found %+v, want the socket of %+v", got, first)
	}
	testkit.Must(t, os.RemoveAll(n.path("run/vsw/p1/a.sock")))
	if got := want(SocketRemoved, 0); got.Identity != first.Identity || got.Since != first.Since {
		t.Errorf("found %+v, want the socket of %+v", got, first)
	}
	n.listen("run/vsw/p1/a.sock", "second")
	second := want(SocketBound, 1)
	// A network of the container writes its record again.
	later := time.Now().Add(time.Hour)
	testkit.Must(t, os.Chtimes(n.records.file("s1", "c1"), later, later))
	// A binding is in the list before its event is reported.
	if !testkit.Until(func() bool {
		n.events.mu.Lock()
		defer n.events.mu.Unlock()
		return len(n.events.rebound) == 2
	}) || n.events.rebound[0].Again+n.events.rebound[1].Again != 1 {
		t.Errorf("events %+v, want one first binding and one rebinding", n.events.rebound)
	}
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.Retain(time.Time{}, func(string) bool { return true }, func(string) bool { return true }))
	if got := want(SocketBound, 0); got.Since != second.Since || got.Identity != second.Identity {
		t.Errorf("after a restart found %+v, want the socket of %+v", got, second)
	}
}

func TestRetainRebindsSocketsRecreatedMeanwhile(t *testing.T) {
	n := newNode(t)
	l := n.listen("run/vsw/p1/a.sock", "first")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p1/a.sock")))
	testkit.Must(t, n.Prepare(newContainer("c2", "s2", "p1/a.sock")))
	l.Close()
	testkit.Must(t, n.Close())
	n.listen("run/vsw/p1/a.sock", "second")
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.Retain(time.Time{}, func(id string) bool { return id == "s1" }, func(id string) bool { return id == "c1" }))
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "second")
	n.listen("run/vsw/p1/a.sock", "third")
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "third")
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
	if exists(n.stagedPath("c2", "")) {
		t.Error("a removed container was kept")
	}
}

func TestUpdateAddsAndRemovesSockets(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "a")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p1/a.sock")))
	update := func(c edit.Container, want string) {
		t.Helper()
		ch, err := n.Update(c)
		if got := fmt.Sprint(ch.Added, ch.Removed, ch.Files); err != nil || got != want {
			t.Fatalf("changed %s, %v, want %s", got, err, want)
		}
	}
	unchanged := newContainer("c1", "s1", "p1/a.sock")
	update(unchanged, "[] [] false")
	// Add a second socket before the vswitch creates it, and a directory.
	two := newContainer("c1", "s1", "p1/a.sock")
	two.Files = []edit.File{{Name: "devices.json", Data: []byte(`["two"]`)}}
	two.Dirs = append(two.Dirs, edit.Dir{Path: "net/net2", Scratch: true}, edit.Dir{Path: "net/net3"})
	two.Sockets = append(two.Sockets, edit.Socket{Root: "/run/vsw", Rel: "p2/b.sock", At: []string{"net/net2/b.sock"}})
	two.SocketDirs = append(two.SocketDirs, edit.SocketDir{Root: "/run/vsw", Rel: "p3", At: "net/net3"})
	update(two, "[net/net2/b.sock net/net3] [] true")
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "a")
	n.listen("run/vsw/p2/b.sock", "b")
	n.wantAnswer(n.stagedPath("c1", "net/net2/b.sock"), "b")
	testkit.Must(t, os.WriteFile(n.stagedPath("c1", "net/net2/lock"), nil, 0o600))
	testkit.Must(t, os.WriteFile(n.stagedPath("c1", "net/net3/app"), nil, 0o600))
	if !exists(n.path("run/vsw/p3/app")) {
		t.Error("a file of the application is missing on the host")
	}
	// The plugin restarts, and everything is removed again.
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.Retain(time.Time{}, func(string) bool { return true }, func(string) bool { return true }))
	update(unchanged, "[] [net/net2/b.sock net/net3] true")
	update(edit.Container{ID: "c1", SandboxID: "s1"}, "[] [net/net1/a.sock] false")
	if exists(n.stagedPath("c1", "net/net2/b.sock")) || exists(n.stagedPath("c1", "net/net3/app")) || exists(n.stagedPath("c1", "net/net1/a.sock")) {
		t.Error("a removed socket or directory still exists")
	}
	update(two, "[net/net1/a.sock net/net2/b.sock net/net3] [] true")
	n.wantAnswer(n.stagedPath("c1", "net/net2/b.sock"), "b")
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "a")
	// A socket that could not be bound is not in Change.Added.
	third := two
	third.Sockets = append(slices.Clone(two.Sockets), edit.Socket{Root: "/run/vsw", Rel: "p2/b.sock", At: []string{"net/net2/c.sock"}})
	testkit.Must(t, os.MkdirAll(n.stagedPath("c1", "net/net2/c.sock/in/the/way"), 0o755))
	if ch, err := n.Update(third); err == nil || len(ch.Added) > 0 {
		t.Errorf("with an obstacle: added %v, %v", ch.Added, err)
	}
	// The background retry fails until the obstacle is removed. Remove it in one step, since a
	// half-removed one can look like a mount point.
	n.waitUntil(func() bool { return len(n.events.failures()) > 0 }, "no failure was reported for the socket that could not be mounted")
	testkit.Must(t, os.Rename(n.stagedPath("c1", "net/net2/c.sock"), n.stagedPath("c1", "net/net2/aside")))
	update(two, "[] [net/net2/c.sock] false")
	// Nor are a file that is no socket, and a directory that belongs to another pod.
	testkit.Must(t, n.Prepare(edit.Container{ID: "other", SandboxID: "s9", SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "p9"}}}))
	testkit.Must(t, os.WriteFile(n.path("run/vsw/p2/file"), nil, 0o600))
	denied := two
	denied.Sockets = append(slices.Clone(two.Sockets), edit.Socket{Root: "/run/vsw", Rel: "p2/file", At: []string{"net/net2/file"}})
	denied.SocketDirs = append(slices.Clone(two.SocketDirs), edit.SocketDir{Root: "/run/vsw", Rel: "p9", At: "net/net2"})
	if ch, err := n.Update(denied); !errdefs.IsInvalidArgument(err) || !errdefs.IsConflict(err) || !ch.Empty() || exists(n.stagedPath("c1", "net/net2/file")) {
		t.Errorf("denied items: %+v, %v", ch, err)
	}
	testkit.Must(t, n.RemoveSandbox("s9"))
	if _, err := n.Update(newContainer("c2", "s1", "p1/a.sock")); !errdefs.IsNotFound(err) {
		t.Errorf("unknown container: %v", err)
	}
	testkit.Must(t, n.RemoveSandbox("s1"))
	if got := n.mounts(); len(got) > 0 {
		t.Errorf("mounts: %v", got)
	}
	if exists(n.path("run/vsw/p3")) || exists(n.stagedPath("c1", "")) {
		t.Error("a directory is left")
	}
	for _, f := range n.events.failures() {
		if !strings.Contains(f.Error(), n.stagedPath("c1", "net/net2/c.sock")+": invalid argument") {
			t.Errorf("failure: %v", f)
		}
	}
}

// The message about a socket that an update may not deliver names the request once.
func TestUpdateNamesRequestOfDeniedSocketOnce(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p/a.sock", "host")
	testkit.Must(t, n.Prepare(edit.Container{ID: "c1", SandboxID: "s1"}))
	_, err := n.sockets.dirs.Claim("/run/vsw/p", sockdir.Holder{Sandbox: "other", Adapter: sockdir.CNI}, true)
	testkit.Must(t, err)
	c := newContainer("c1", "s1", "p/a.sock")
	if _, err := n.Update(c); !errdefs.IsConflict(err) || strings.Count(err.Error(), c.Sockets[0].From) != 1 {
		t.Errorf("error %v, want a conflict with %q once", err, c.Sockets[0].From)
	}
}

// A directory of its own that a running container gets belongs to the container's user, as one that it is created with.
func TestUpdateGivesScratchDirectoryToUser(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p/a.sock", "host")
	testkit.Must(t, n.Prepare(edit.Container{ID: "c1", SandboxID: "s1"}))
	c := newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)
	c.Dirs[0].Scratch = true
	_, err := n.Update(c)
	testkit.Must(t, err)
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(n.stagedPath("c1", "net/net1"), &st))
	if st.Uid != 1234 || st.Gid != 4321 || st.Mode&0o7777 != 0o755 {
		t.Errorf("the directory belongs to %d:%d and has mode %o", st.Uid, st.Gid, st.Mode&0o7777)
	}
}

// A container whose socket at a place is replaced by another one has the new socket, and keeps the old one until then.
func TestUpdateReplacesSocketAtItsPlace(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/old/a.sock", "old")
	n.listen("run/vsw/new/a.sock", "new")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "old/a.sock")))
	_, err := n.Update(newContainer("c1", "s1", "new/a.sock"))
	testkit.Must(t, err)
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "new")
	_, err = n.Update(newContainer("c1", "s1", "later/a.sock"))
	testkit.Must(t, err)
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "new")
	n.listen("run/vsw/later/a.sock", "later")
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "later")
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
}

// A socket that is awaited is bound once its server creates it, also with its directory. Others are refused.
func TestAwaitedSocketIsBoundOnceItExists(t *testing.T) {
	n := newNode(t)
	c := newContainer("c1", "s1", "server/deep/a.sock")
	if err := n.Prepare(c); !errdefs.IsNotFound(err) {
		t.Fatalf("not awaited: %v", err)
	}
	c.Sockets[0].Await = true
	testkit.Must(t, n.Prepare(c))
	at := n.stagedPath("c1", "net/net1/a.sock")
	if _, err := readSocket(at); err == nil {
		t.Error("something answers before the server runs")
	}
	n.listen("run/vsw/server/deep/a.sock", "first")
	n.wantAnswer(at, "first")
	// The server's directory is removed and created again.
	n.waitUntil(func() bool { return os.RemoveAll(n.path("run/vsw/server")) == nil }, "the server's directory stays")
	n.listen("run/vsw/server/deep/a.sock", "second")
	n.wantAnswer(at, "second")
	testkit.Must(t, n.RemoveSandbox("s1"))
	if got := n.mounts(); len(got) > 0 || exists(n.stagedPath("c1", "")) {
		t.Errorf("left: %v", got)
	}
	// A process that starts later waits, too.
	testkit.Must(t, os.RemoveAll(n.path("run/vsw/server")))
	c.ID, c.SandboxID = "c2", "s2"
	testkit.Must(t, n.Prepare(c))
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.Retain(time.Time{}, func(string) bool { return true }, func(string) bool { return true }))
	n.listen("run/vsw/server/deep/a.sock", "third")
	n.wantAnswer(n.stagedPath("c2", "net/net1/a.sock"), "third")
}

// waitUntil waits until a condition holds.
func (n *node) waitUntil(condition func() bool, failure string) {
	n.t.Helper()
	if !testkit.Until(condition) {
		n.t.Errorf("%s; failures: %v", failure, n.events.failures())
	}
}

// A socket is staged although it is re-created continuously: the checked socket can disappear before it
// is mounted.
func TestPrepareWhileSocketIsRecreated(t *testing.T) {
	n := newNode(t)
	n.open(Options{Mode: ModeMount}) // no process rebinds these sockets
	n.listen("run/vsw/p1/a.sock", "first")
	n.listen("run/vsw/p2/b.sock", "steady")
	stop, done := make(chan struct{}), make(chan struct{})
	path := filepath.Join(n.dir, "run/vsw/p1/a.sock")
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// A vswitch may rename its socket into place.
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path + ".new"}), unix.Close(fd), os.Rename(path+".new", path))
			}
			if err != nil && !errors.Is(err, unix.EBUSY) {
				t.Error(err)
				return
			}
			os.Remove(path + ".new")
			// Without a pause, more than half of the attempts fail.
			rest := unix.NsecToTimespec(int64(50 * time.Microsecond))
			unix.Nanosleep(&rest, nil)
		}
	}()
	for i := range 1000 {
		id := fmt.Sprintf("c%d", i)
		c := newContainer(id, "s1", "p1/a.sock")
		c.Dirs[0].Scratch = true
		c.Sockets[0].At = append(c.Sockets[0].At, "net/net1/again.sock")
		steady := newContainer(id, "s1", "p2/b.sock").Sockets[0]
		c.Sockets = []edit.Socket{steady, c.Sockets[0], steady}
		c.Sockets[2].At = []string{"net/net1/last.sock"}
		if err := n.Prepare(c); err != nil {
			t.Errorf("container %d: %v", i, err)
		}
		two, _ := boundSocket(n.stagedPath(id, "net/net1/a.sock"))
		if again, ok := boundSocket(n.stagedPath(id, "net/net1/again.sock")); !ok || again != two {
			t.Errorf("container %d: different sockets at two paths: %v and %v", i, two, again)
		}
		if got := n.mounts(); len(got) != 5 {
			t.Errorf("container %d: mounts %v", i, got)
		}
		testkit.Must(t, n.RemoveContainer("s1", id))
	}
	close(stop)
	<-done
}

// The state directory is named by a path with a symlink, such as /var/run. Its shared mount is
// made once, and interrupted swaps in it are finished.
func TestStateDirectoryBehindSymlink(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, os.MkdirAll(n.path("var"), 0o755))
	testkit.Must(t, os.Symlink("../run", n.path("var/run")))
	for range 3 {
		s, err := Open(n.host, "/var/run/state", Options{Mode: ModeMount})
		testkit.Must(t, err)
		testkit.Must(t, s.Close())
	}
	mounts, err := hostfs.Mounts()
	testkit.Must(t, err)
	made := 0
	for _, m := range mounts {
		if m.Point == n.path("run/state/containers") {
			made++
		}
	}
	if made != 1 {
		t.Errorf("the directory is mounted %d times", made)
	}
}

// A container that is staged again, with other sockets, has nothing of the first time: a container of
// Podman keeps its ID, and its end may not have been reported.
func TestSecondPrepareKeepsNothingOfTheFirst(t *testing.T) {
	n, a := newRightsNode(t, "p1/a.sock")
	n.listen("run/vsw/p1/b.sock", "other")
	before := accessOf(t, a)
	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p1/a.sock", edit.ByACL, 1234, 4321)))
	again := newContainer("c1", "s1", "p1/b.sock")
	again.Dirs[0].Path, again.Sockets[0].At[0] = "net/net2", "net/net2/b.sock"
	testkit.Must(t, n.Prepare(again))
	if got := n.mounts(); !slices.Equal(got, []string{"/c1/net/net2/b.sock"}) {
		t.Errorf("mounts: %q", got)
	}
	if after := accessOf(t, a); after != before {
		t.Errorf("access to the first socket is %s, was %s before", after, before)
	}
}

// On a full file system nothing is left of a container that cannot be recorded.
func TestContainerThatCannotBeRecordedLeavesNothing(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, unix.Mount("", n.dir, "", unix.MS_REMOUNT, "size=64k"))
	f, err := os.Create(n.path("full"))
	testkit.Must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	testkit.Must(t, f.Close())
	if err := n.Prepare(newContainer("c1", "s1", "p1/a.sock")); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error %v, want %v", err, unix.ENOSPC)
	}
	for _, dir := range []string{n.records.sandboxesDir(), n.containers.dir} {
		if left, err := listNames(dir); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %q, %v", dir, left, err)
		}
	}
}

// A hook stages a container at precreate, and again at createRuntime, where the runtime has mounted the
// container's directory and the bundle is known. The container sees what is staged then.
func TestSecondPrepareKeepsMountedDirectory(t *testing.T) {
	n := newSharedNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	store := n.openHookStore(false)
	c := newContainer("c1", "c1", "p1/a.sock")
	testkit.Must(t, store.Prepare(c))
	var before, after unix.Stat_t
	testkit.Must(t, unix.Stat(n.stagedPath("c1", ""), &before))
	c.Bundle = "/run/bundle"
	testkit.Must(t, store.Prepare(c))
	testkit.Must(t, unix.Stat(n.stagedPath("c1", ""), &after))
	if before.Ino != after.Ino {
		t.Error("the directory that the container has mounted was replaced")
	}
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "first")
}
