// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/busytest"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// TestMain runs the tests in a mount namespace of their own, where that can be had.
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
		fmt.Fprintln(os.Stderr, "no mount namespace of its own:", err)
		os.Exit(m.Run())
	}
	os.Exit(0)
}

// node is a host of the test's own, with a shared file system.
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
}

func (e *events) Rebound(r Rebound) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rebound = append(e.rebound, r)
}

func (e *events) Failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = append(e.failed, err)
}

func (e *events) failures() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]error(nil), e.failed...)
}

// canMount skips a test where nothing can be mounted.
func canMount(t *testing.T) {
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
	canMount(t)
	dir, err := os.MkdirTemp("", "jf")
	must(t, err)
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("test", dir, "tmpfs", 0, "mode=755"))
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	n := &node{t: t, dir: dir}
	t.Cleanup(func() {
		must(t, n.Close())
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = os.Remove(dir)
	})
	n.host, err = hostfs.New(dir)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, "run/vsw"), 0o755))
	n.open(Options{Mode: Mounts, Watch: true})
	return n
}

// open opens the store, as a new process would.
func (n *node) open(o Options) {
	n.t.Helper()
	if n.Store != nil {
		must(n.t, n.Close())
	}
	n.events = &events{}
	o.Events = n.events
	s, err := Open(n.host, "/run/jackfield", o)
	must(n.t, err)
	n.Store = s
}

func (n *node) path(p string) string { return filepath.Join(n.dir, p) }

// in is a path in a container's staging directory.
func (n *node) in(id, p string) string {
	return n.path(filepath.Join(ContainerDir("/run/jackfield", id), p))
}

// listen makes a socket that answers with a text.
func (n *node) listen(p, text string) *net.UnixListener {
	n.t.Helper()
	must(n.t, os.MkdirAll(filepath.Dir(n.path(p)), 0o755))
	// While a socket is being bound, what it replaces is mounted on it.
	for end := time.Now().Add(busytest.Hangs); errors.Is(os.Remove(n.path(p)), unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.path(p), Net: "unix"})
	must(n.t, err)
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

// ask is what a socket answers.
func ask(path string) (string, error) {
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

// answers waits until the socket at path answers with a text.
func (n *node) answers(path, want string) {
	n.t.Helper()
	var got string
	var err error
	for end := time.Now().Add(busytest.Hangs); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err = ask(path); err == nil && got == want {
			return
		}
	}
	n.t.Errorf("%s answers %q, %v, want %q; failures: %v", path, got, err, want, n.events.failures())
}

func one(id, sandbox, rel string) Container {
	return Container{ID: id, SandboxID: sandbox, Files: []File{{"devices.json", []byte("[]")}}, Dirs: []Dir{{Path: "net/net1"}},
		Sockets: []Socket{{Root: "/run/vsw", Rel: rel, At: []string{"net/net1/" + filepath.Base(rel)}, From: "file: vhost-user.path"}}}
}

// mounts are the mount points below the state directory, but for the one that
// holds all containers.
func (n *node) mounts() []string {
	n.t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	must(n.t, err)
	var out []string
	for line := range strings.Lines(string(data)) {
		if p := strings.Fields(line)[4]; strings.HasPrefix(p, n.path("run/jackfield/containers")+"/") {
			out = append(out, strings.TrimPrefix(p, n.path("run/jackfield/containers/")))
		}
	}
	return out
}

func TestASocketIsBound(t *testing.T) {
	n := newNode(t)
	if st := n.Status(); st.Mode != Mounts {
		t.Fatalf("status %+v", st)
	}
	n.listen("run/vsw/p1/a.sock", "first")
	must(t, n.Prepare(one("c1", "s1", "p1/a.sock")))
	must(t, n.Prepare(one("c1", "s1", "p1/a.sock"))) // again
	at := n.in("c1", "net/net1/a.sock")
	n.answers(at, "first")
	// Not even root can change it from in there.
	if err := os.Chmod(at, 0o777); !errors.Is(err, unix.EROFS) {
		t.Errorf("chmod gave %v", err)
	}
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
	must(t, n.RemoveContainer("s1", "c1"))
	must(t, n.RemoveContainer("s1", "c1"))
	must(t, n.RemoveSandbox("s1"))
	if got, l := n.mounts(), left(t, n.dir); len(got) > 0 || len(l) != 1 { // the vswitch's own directory
		t.Errorf("left: %v %v", got, l)
	}
}

func TestASocketMadeAnewIsBoundAnew(t *testing.T) {
	n := newNode(t)
	l := n.listen("run/vsw/p1/a.sock", "first")
	for i := range 3 {
		must(t, n.Prepare(one(fmt.Sprintf("c%d", i), fmt.Sprintf("s%d", i), "p1/a.sock")))
	}
	check := func(want string) {
		t.Helper()
		for i := range 3 {
			n.answers(n.in(fmt.Sprintf("c%d", i), "net/net1/a.sock"), want)
		}
	}
	check("first")
	l.Close()
	n.listen("run/vsw/p1/a.sock", "second")
	check("second")
	// Renamed into place.
	n.listen("run/vsw/p1/.new", "third")
	must(t, os.Rename(n.path("run/vsw/p1/.new"), n.path("run/vsw/p1/a.sock")))
	check("third")
	// Its directory made anew.
	must(t, os.RemoveAll(n.path("run/vsw/p1")))
	n.listen("run/vsw/p1/a.sock", "fourth")
	check("fourth")
	// The directory swapped for another that was filled before.
	n.listen("run/vsw/p2/a.sock", "fifth")
	must(t, os.Rename(n.path("run/vsw/p1"), n.path("run/vsw/p0")))
	must(t, os.Rename(n.path("run/vsw/p2"), n.path("run/vsw/p1")))
	check("fifth")
	// The root itself.
	must(t, os.RemoveAll(n.path("run/vsw")))
	n.listen("run/vsw/p1/a.sock", "sixth")
	check("sixth")
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
	if got := n.mounts(); len(got) != 3 {
		t.Errorf("mounts: %v", got)
	}
}

func TestWhatWasMissedIsMadeUpFor(t *testing.T) {
	n := newNode(t)
	l := n.listen("run/vsw/p1/a.sock", "first")
	must(t, n.Prepare(one("c1", "s1", "p1/a.sock")))
	must(t, n.Prepare(one("c2", "s2", "p1/a.sock")))
	l.Close()
	must(t, n.Close())
	n.listen("run/vsw/p1/a.sock", "second")
	n.open(Options{Mode: Mounts, Watch: true})
	must(t, n.Retain(func(id string) bool { return id == "s1" }, func(id string) bool { return id == "c1" }))
	n.answers(n.in("c1", "net/net1/a.sock"), "second")
	n.listen("run/vsw/p1/a.sock", "third")
	n.answers(n.in("c1", "net/net1/a.sock"), "third")
	if got := n.mounts(); len(got) != 1 {
		t.Errorf("mounts: %v", got)
	}
	if exists(n.in("c2", "")) {
		t.Error("what is gone was kept")
	}
}

func TestUpdate(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "a")
	must(t, n.Prepare(one("c1", "s1", "p1/a.sock")))
	update := func(c Container, want string) {
		t.Helper()
		ch, err := n.Update(c)
		if got := fmt.Sprint(ch.Added, ch.Removed, ch.Files); err != nil || got != want {
			t.Fatalf("changed %s, %v, want %s", got, err, want)
		}
	}
	same := one("c1", "s1", "p1/a.sock")
	update(same, "[] [] false")
	// A second comes, before the host side has made its socket; and a directory.
	two := one("c1", "s1", "p1/a.sock")
	two.Files = []File{{"devices.json", []byte(`["two"]`)}}
	two.Dirs = append(two.Dirs, Dir{Path: "net/net2", Scratch: true}, Dir{Path: "net/net3"})
	two.Sockets = append(two.Sockets, Socket{Root: "/run/vsw", Rel: "p2/b.sock", At: []string{"net/net2/b.sock"}})
	two.SocketDirs = append(two.SocketDirs, SocketDir{Root: "/run/vsw", Rel: "p3", At: "net/net3", UID: -1, GID: -1})
	update(two, "[net/net2/b.sock net/net3] [] true")
	n.answers(n.in("c1", "net/net1/a.sock"), "a")
	n.listen("run/vsw/p2/b.sock", "b")
	n.answers(n.in("c1", "net/net2/b.sock"), "b")
	must(t, os.WriteFile(n.in("c1", "net/net2/lock"), nil, 0o600))
	must(t, os.WriteFile(n.in("c1", "net/net3/app"), nil, 0o600))
	if !exists(n.path("run/vsw/p3/app")) {
		t.Error("what the application makes is not on the host")
	}
	// The plugin starts anew, and both go again, the last socket with them.
	n.open(Options{Mode: Mounts, Watch: true})
	must(t, n.Retain(func(string) bool { return true }, func(string) bool { return true }))
	update(same, "[] [net/net2/b.sock net/net3] true")
	update(Container{ID: "c1", SandboxID: "s1"}, "[] [net/net1/a.sock] false")
	if exists(n.in("c1", "net/net2/b.sock")) || exists(n.in("c1", "net/net3/app")) || exists(n.in("c1", "net/net1/a.sock")) {
		t.Error("what went is still there")
	}
	update(two, "[net/net1/a.sock net/net2/b.sock net/net3] [] true")
	n.answers(n.in("c1", "net/net2/b.sock"), "b")
	n.answers(n.in("c1", "net/net1/a.sock"), "a")
	// What could not be bound was not added.
	third := two
	third.Sockets = append(slices.Clone(two.Sockets), Socket{Root: "/run/vsw", Rel: "p2/b.sock", At: []string{"net/net2/c.sock"}})
	must(t, os.MkdirAll(n.in("c1", "net/net2/c.sock/in/the/way"), 0o755))
	if ch, err := n.Update(third); err == nil || len(ch.Added) > 0 {
		t.Errorf("with something in the way: added %v, %v", ch.Added, err)
	}
	// It is tried again in the background, and that fails until the way is clear: cleared
	// in one step, since what is half removed may be taken for a place to bind at.
	n.eventually(func() bool { return len(n.events.failures()) > 0 }, "nothing was told of what could not be bound")
	must(t, os.Rename(n.in("c1", "net/net2/c.sock"), n.in("c1", "net/net2/aside")))
	update(two, "[] [net/net2/c.sock] false")
	if _, err := n.Update(one("c2", "s1", "p1/a.sock")); !errdefs.IsNotFound(err) {
		t.Errorf("an unknown container: %v", err)
	}
	must(t, n.RemoveSandbox("s1"))
	if got := n.mounts(); len(got) > 0 {
		t.Errorf("mounts: %v", got)
	}
	if exists(n.path("run/vsw/p3")) || exists(n.in("c1", "")) {
		t.Error("something is left")
	}
	for _, f := range n.events.failures() {
		if !strings.Contains(f.Error(), n.in("c1", "net/net2/c.sock")+": invalid argument") {
			t.Errorf("failure: %v", f)
		}
	}
}

// eventually waits until something is so.
func (n *node) eventually(so func() bool, otherwise string) {
	n.t.Helper()
	if !busytest.Until(so) {
		n.t.Errorf("%s; failures: %v", otherwise, n.events.failures())
	}
}

// A socket that the host side makes anew all the time is given to containers all the
// same: what was looked at may be gone before it is mounted.
func TestPrepareWhileTheSocketIsMadeAnew(t *testing.T) {
	n := newNode(t)
	n.open(Options{Mode: Mounts}) // nobody binds anew what is given here
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
			// As a vswitch that renames its socket into place.
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path + ".new"}), unix.Close(fd), os.Rename(path+".new", path))
			}
			if err != nil && !errors.Is(err, unix.EBUSY) {
				t.Error(err)
				return
			}
			os.Remove(path + ".new")
			// Without a rest the kernel itself loses more than half of the looks.
			rest := unix.NsecToTimespec(int64(50 * time.Microsecond))
			unix.Nanosleep(&rest, nil)
		}
	}()
	for i := range 1000 {
		id := fmt.Sprintf("c%d", i)
		c := one(id, "s1", "p1/a.sock")
		c.Dirs[0].Scratch = true
		c.Sockets[0].At = append(c.Sockets[0].At, "net/net1/again.sock")
		steady := one(id, "s1", "p2/b.sock").Sockets[0]
		c.Sockets = []Socket{steady, c.Sockets[0], steady}
		c.Sockets[2].At = []string{"net/net1/last.sock"}
		if err := n.Prepare(c); err != nil {
			t.Errorf("container %d: %v", i, err)
		}
		two, _ := bound(n.in(id, "net/net1/a.sock"))
		if again, ok := bound(n.in(id, "net/net1/again.sock")); !ok || again != two {
			t.Errorf("container %d: one socket at one place, %v, and another at another, %v", i, two, again)
		}
		if got := n.mounts(); len(got) != 5 {
			t.Errorf("container %d: mounts %v", i, got)
		}
		must(t, n.RemoveContainer("s1", id))
	}
	close(stop)
	<-done
}
