// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
)

// tree is a host root with a program and two hooks.d directories.
type tree struct {
	*testing.T
	dir string
	r   *Registry
}

func newTree(t *testing.T, opts Options) *tree {
	t.Helper()
	n := &tree{T: t, dir: t.TempDir()}
	n.must(os.Chmod(n.dir, 0o755)) // whatever the umask
	n.write("/bin/prog", "#!/bin/sh\n", 0o755)
	n.mkdir("/etc/hooks.d")
	n.mkdir("/usr/hooks.d")
	host, err := hostfs.New(n.dir)
	n.must(err)
	n.r = New(host, []string{"/usr/hooks.d", "/etc/hooks.d"}, opts)
	return n
}

func (n *tree) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *tree) path(p string) string { return filepath.Join(n.dir, p) }

func (n *tree) mkdir(p string) { n.Helper(); n.must(os.MkdirAll(n.path(p), 0o755)) }

func (n *tree) write(p, content string, mode os.FileMode) {
	n.Helper()
	n.must(os.MkdirAll(filepath.Dir(n.path(p)), 0o755))
	n.must(os.WriteFile(n.path(p), []byte(content), mode))
	n.must(os.Chmod(n.path(p), mode))
}

// hook writes a hook file, which arg distinguishes from others.
func (n *tree) hook(p, arg string) { n.Helper(); n.write(p, hookJSON("/bin/prog", arg), 0o644) }

func hookJSON(program, arg string) string {
	return fmt.Sprintf(`{"version":"1.0.0","hook":{"path":%q,"args":["prog",%q]},"when":{"always":true},"stages":["createRuntime"]}`, program, arg)
}

// args returns the arguments of the hooks in order. A "!" marks a hook with an error.
func (n *tree) args() string {
	var out []string
	for _, h := range ocihook.Matching(n.r.Hooks(), &Container{Args: []string{"x"}}) {
		arg := h.Args[1]
		if h.Err != nil {
			arg += "!"
		}
		out = append(out, arg)
	}
	return strings.Join(out, " ")
}

func (n *tree) want(want string, problems ...string) {
	n.Helper()
	if got := n.args(); got != want {
		n.Errorf("hooks are %q, want %q", got, want)
	}
	all := n.r.Snapshot().Problems
	if len(all) != len(problems) {
		n.Errorf("%d problems, want %d:\n%s", len(all), len(problems), text(all))
		return
	}
	for i, p := range problems {
		if !strings.Contains(all[i].Error(), p) {
			n.Errorf("problem %d is\n%v\nwant %s", i, all[i], p)
		}
	}
}

func TestSnapshotOrdersAndMasksHooks(t *testing.T) {
	n := newTree(t, Options{})
	n.want("")
	n.hook("/usr/hooks.d/20-b.json", "usr-b")
	n.hook("/usr/hooks.d/10-A.json", "usr-A")
	n.hook("/usr/hooks.d/10-b.json", "usr-10b")
	n.hook("/etc/hooks.d/20-b.json", "etc-b")
	n.hook("/etc/hooks.d/x.conf", "none")
	n.want("usr-A usr-10b etc-b")
	n.must(os.Remove(n.path("/etc/hooks.d/20-b.json")))
	n.want("usr-A usr-10b usr-b")
	// A file with an error masks no other and disables no other.
	n.write("/etc/hooks.d/20-b.json", "{", 0o644)
	n.want("usr-A usr-10b usr-b", "/etc/hooks.d/20-b.json:1:")
	n.must(os.RemoveAll(n.path("/usr/hooks.d")))
	n.want("", "/etc/hooks.d/20-b.json:1:")
	// A directory that is created again is read.
	n.hook("/usr/hooks.d/30.json", "again")
	n.want("again", "/etc/hooks.d/20-b.json:1:")
}

func TestInvalidFilesAreReported(t *testing.T) {
	n := newTree(t, Options{})
	n.hook("/etc/hooks.d/50-good.json", "good")
	n.must(unix.Mkfifo(n.path("/etc/hooks.d/10-fifo.json"), 0o644))
	n.mkdir("/etc/hooks.d/11-dir.json")
	n.write("/etc/hooks.d/12-huge.json", "", 0o644)
	n.must(os.Truncate(n.path("/etc/hooks.d/12-huge.json"), 1<<40))
	n.must(os.Symlink("/etc/hooks.d/13-loop.json", n.path("/etc/hooks.d/13-loop.json")))
	n.must(os.Symlink("/nowhere", n.path("/etc/hooks.d/14-dangling.json")))
	n.must(os.Symlink("/proc/self/environ", n.path("/etc/hooks.d/15-proc.json")))
	// A symlink cannot leave the host root.
	outside := filepath.Join(t.TempDir(), "x.json")
	n.must(os.WriteFile(outside, []byte(hookJSON("/bin/prog", "outside")), 0o644))
	n.must(os.Symlink(outside, n.path("/etc/hooks.d/16-out.json")))
	n.hook("/etc/hooks.d/17-open.json", "open")
	n.must(os.Chmod(n.path("/etc/hooks.d/17-open.json"), 0o666))
	n.mkdir("/tmp/pub")
	n.hook("/tmp/pub/x.json", "public")
	n.must(os.Chmod(n.path("/tmp/pub"), 0o777))
	n.must(os.Symlink("/tmp/pub/x.json", n.path("/etc/hooks.d/18-public.json")))
	n.write("/etc/hooks.d/19-many.json", `{"version":"1.0.0","hook":{"path":"/h"},"when":{"commands":[`+strings.Repeat(`"(",`, 2000)+`"("]},"stages":["poststop"]}`, 0o644)
	done := make(chan struct{})
	go func() { n.r.Snapshot(); close(done) }()
	select {
	case <-done:
	case <-time.After(testkit.Hangs):
		t.Fatal("Snapshot hangs")
	}
	problems := []string{"10-fifo.json: found a FIFO", "11-dir.json: found a directory", "12-huge.json: ", "13-loop.json: cannot follow the symlink",
		"17-open.json: found file \"/etc/hooks.d/17-open.json\", mode 0666: it must be writable by its owner alone: run `chmod go-w /etc/hooks.d/17-open.json`",
		"18-public.json: found directory \"/tmp/pub\", mode 0777"}
	for range maxDiagnostics {
		problems = append(problems, "when.commands")
	}
	n.want("good", problems...)
	if !errdefs.IsPermissionDenied(n.r.Snapshot().Problems[4]) {
		t.Errorf("%v is not errdefs.ErrPermissionDenied", n.r.Snapshot().Problems[4])
	}
	// Corrected files are read.
	n.must(os.Chmod(n.path("/etc/hooks.d/17-open.json"), 0o644))
	n.must(os.Chmod(n.path("/tmp/pub"), 0o755))
	n.write("/nowhere", hookJSON("/bin/prog", "dangling"), 0o644)
	for _, name := range []string{"10-fifo", "11-dir", "12-huge", "13-loop", "19-many"} {
		n.must(os.Remove(n.path("/etc/hooks.d/" + name + ".json")))
	}
	n.want("dangling open public good")
}

func TestDirectoryThatOthersCanWriteIsRefused(t *testing.T) {
	n := newTree(t, Options{})
	n.hook("/etc/hooks.d/10.json", "etc")
	n.hook("/usr/hooks.d/20.json", "usr")
	n.must(os.Chmod(n.path("/etc/hooks.d"), 0o777))
	n.want("usr", "/etc/hooks.d: found directory \"/etc/hooks.d\", mode 0777: it must be writable by its owner alone: run `chmod go-w /etc/hooks.d`")
	n.must(os.Chmod(n.path("/etc/hooks.d"), 0o755))
	n.want("etc usr")
	if os.Geteuid() == 0 {
		n.must(os.Chown(n.path("/etc/hooks.d"), 12345, -1))
		n.want("usr", "/etc/hooks.d: found directory \"/etc/hooks.d\", owned by uid 12345")
		n.must(os.Chown(n.path("/etc/hooks.d"), 0, -1))
		n.want("etc usr")
	} else {
		t.Log("not root: a directory of another user's is left out")
	}
	n.must(os.RemoveAll(n.path("/etc/hooks.d")))
	n.write("/etc/hooks.d", "a file", 0o644)
	n.want("usr", "/etc/hooks.d: cannot read the directory: not a directory")

	any := newTree(t, Options{TrustAnyone: true})
	any.hook("/etc/hooks.d/10.json", "etc")
	any.must(os.Chmod(any.path("/etc/hooks.d"), 0o777))
	any.want("etc")
}

// Each snapshot checks the program, below the host root.
func TestProgramIsCheckedAtEachSnapshot(t *testing.T) {
	n := newTree(t, Options{})
	n.write("/etc/hooks.d/10.json", hookJSON("/opt/late", "late"), 0o644)
	n.hook("/etc/hooks.d/20.json", "there")
	n.want("late! there", `/etc/hooks.d/10.json:1:35: hook.path: found "/opt/late": no such file on this host`)
	if err := n.r.Snapshot().Hooks[0].Err; !errdefs.IsNotFound(err) {
		t.Errorf("%v is not errdefs.ErrNotFound", err)
	}
	n.write("/opt/late", "", 0o644)
	n.want("late! there", `hook.path: found "/opt/late": it has mode 0644 on this host and cannot be executed; run `+"`chmod +x /opt/late`")
	n.must(os.Chmod(n.path("/opt/late"), 0o777))
	n.want("late! there", `hook.path: found program "/opt/late", mode 0777: it must be writable by its owner alone`)
	n.must(os.Chmod(n.path("/opt/late"), 0o755))
	n.want("late there")
	n.must(os.Remove(n.path("/opt/late")))
	n.mkdir("/opt/late")
	n.want("late! there", `hook.path: found "/opt/late": on this host it is a directory, not a program`)
	// A file whose program is missing masks nothing.
	n.write("/usr/hooks.d/10.json", hookJSON("/bin/prog", "below"), 0o644)
	n.want("below there", `/etc/hooks.d/10.json:1:35: hook.path`)
	// This process's own root has /bin/sh, and the host root has none.
	n.write("/etc/hooks.d/20.json", hookJSON("/bin/sh", "sh"), 0o644)
	n.want("below sh!", `/etc/hooks.d/10.json:1:35: hook.path`, `/etc/hooks.d/20.json:1:35: hook.path: found "/bin/sh": no such file`)
}

// A user who can write a directory on the program's path can replace the program.
func TestProgramInDirectoryThatOthersCanWriteIsRefused(t *testing.T) {
	n := newTree(t, Options{})
	n.write("/opt/a/b/prog", "#!/bin/sh\n", 0o755)
	n.write("/srv/real/prog", "#!/bin/sh\n", 0o755)
	n.mkdir("/var/links")
	n.must(os.Symlink("../../srv/real", n.path("/var/links/dir")))
	n.must(os.Symlink("/var/links/dir/prog", n.path("/opt/link")))
	n.write("/etc/hooks.d/10.json", hookJSON("/opt/a/b/prog", "direct"), 0o644)
	n.write("/etc/hooks.d/20.json", hookJSON("/opt/link", "linked"), 0o644)
	n.want("direct linked")
	for _, tc := range []struct{ dir, want string }{
		{"/opt/a/b", "direct! linked"}, {"/opt/a", "direct! linked"}, {"/srv/real", "direct linked!"}, {"/srv", "direct linked!"}, {"/var/links", "direct linked!"},
	} {
		for octal, mode := range map[string]os.FileMode{"0777": 0o777, "0757": 0o757, "1777": 0o777 | os.ModeSticky} {
			n.must(os.Chmod(n.path(tc.dir), mode))
			n.want(tc.want, fmt.Sprintf("through directory %q, mode %s: it must be writable by its owner alone: ", tc.dir, octal))
			if h := n.r.Snapshot().Hooks[strings.Index(tc.want, "!")/8]; !errdefs.IsPermissionDenied(h.Err) {
				t.Errorf("%s: %v is not errdefs.ErrPermissionDenied", tc.dir, h.Err)
			}
		}
		// In a sticky directory of root a group cannot replace a file of root, as in /nix/store.
		for _, mode := range []os.FileMode{0o775 | os.ModeSticky, 0o755} {
			n.must(os.Chmod(n.path(tc.dir), mode))
			n.want("direct linked")
		}
	}
	if os.Geteuid() == 0 {
		n.must(os.Chown(n.path("/opt/a"), 12345, -1))
		n.want("direct! linked", `through directory "/opt/a", owned by uid 12345`)
	}
	any := newTree(t, Options{TrustAnyone: true})
	any.hook("/etc/hooks.d/10.json", "etc")
	any.must(os.Chmod(any.path("/bin"), 0o777))
	any.want("etc")
}

// The next snapshot sees a file that was renamed into place, rewritten, or replaced behind a symlink.
func TestSnapshotSeesEveryChange(t *testing.T) {
	n := newTree(t, Options{})
	n.hook("/etc/hooks.d/10.json", "1")
	n.want("1")
	for i := range 200 {
		want := fmt.Sprint(i + 2)
		n.write("/etc/hooks.d/.new", hookJSON("/bin/prog", want), 0o644)
		n.must(os.Rename(n.path("/etc/hooks.d/.new"), n.path("/etc/hooks.d/10.json")))
		if got := n.args(); got != want {
			t.Fatalf("after a rename hooks are %q, want %q", got, want)
		}
	}
	// Content of the same size, within one tick of the file system's clock.
	for i := range 200 {
		want := fmt.Sprint(i + 100)
		n.hook("/etc/hooks.d/10.json", want)
		if got := n.args(); got != want {
			t.Fatalf("after a write in place hooks are %q, want %q", got, want)
		}
	}
	n.hook("/etc/hooks.d/10.json", "in place")
	n.want("in place")
	// As the kubelet swaps a ConfigMap's files.
	n.hook("/etc/hooks.d/..1/20.json", "one")
	n.hook("/etc/hooks.d/..2/20.json", "two")
	n.must(os.Symlink("..1", n.path("/etc/hooks.d/..data")))
	n.must(os.Symlink("..data/20.json", n.path("/etc/hooks.d/20.json")))
	n.want("in place one")
	n.must(os.Symlink("..2", n.path("/etc/hooks.d/..tmp")))
	n.must(os.Rename(n.path("/etc/hooks.d/..tmp"), n.path("/etc/hooks.d/..data")))
	n.want("in place two")
	// The directory itself is swapped.
	n.hook("/etc/other/30.json", "swapped")
	n.must(os.Rename(n.path("/etc/hooks.d"), n.path("/etc/away")))
	n.want("")
	n.must(os.Rename(n.path("/etc/other"), n.path("/etc/hooks.d")))
	n.want("swapped")
	n.hook("/etc/hooks.d/40.json", "more")
	n.want("swapped more")
}

func TestConcurrentSnapshots(t *testing.T) {
	n := newTree(t, Options{})
	n.hook("/etc/hooks.d/10.json", "a")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if len(n.r.Snapshot().Hooks) > 2 {
					t.Error("more hooks than files")
				}
			}
		})
	}
	for i := range 100 {
		if i%2 == 0 {
			n.hook("/usr/hooks.d/20.json", "b")
		} else {
			n.must(os.Remove(n.path("/usr/hooks.d/20.json")))
		}
	}
	wg.Wait()
	n.want("a")
}

func BenchmarkSnapshotAndMatch(b *testing.B) {
	dir := b.TempDir()
	host, err := hostfs.New("/")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10 {
		content := fmt.Sprintf(`{"version":"1.0.0","hook":{"path":"/bin/sh"},"when":{"annotations":{"^example\\.com/hook-%d$":"^yes$"}},"stages":["createRuntime"]}`, i)
		if err := os.WriteFile(fmt.Sprintf("%s/%d.json", dir, i), []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	r := New(host, []string{dir}, Options{})
	c := &Container{Args: []string{"/bin/sh"}, Annotations: map[string]string{}}
	for i := range 20 {
		c.Annotations[fmt.Sprintf("example.com/annotation-%d", i)] = "value"
	}
	for b.Loop() {
		ocihook.Matching(r.Hooks(), c)
	}
}

// A directory with too many files is an error, and none of its files is read.
func TestDirectoryOfManyFiles(t *testing.T) {
	n := newTree(t, Options{})
	n.hook("/usr/hooks.d/10.json", "usr")
	n.hook("/etc/hooks.d/20.json", "etc")
	for i := range maxFiles + 1024 {
		n.must(os.WriteFile(n.path(fmt.Sprintf("/etc/hooks.d/%d.json", i)), nil, 0o644))
	}
	s := n.r.Snapshot()
	if len(s.Hooks) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Error(), "more than 4096 hook files") {
		t.Errorf("%d hooks, %d problems", len(s.Hooks), len(s.Problems))
	}
	if len(s.Problems) > 0 && !errdefs.IsResourceExhausted(s.Problems[0]) {
		t.Errorf("%v is not errdefs.ErrResourceExhausted", s.Problems[0])
	}
}

// Only too many files are a limit. A directory that cannot be read is unavailable.
func TestListFaultHasKindOfItsError(t *testing.T) {
	tooMany := fmt.Errorf("more than 1: %w", errdefs.ErrResourceExhausted)
	for err, want := range map[error]error{unix.EIO: errdefs.ErrUnavailable, tooMany: errdefs.ErrResourceExhausted} {
		if got := listFault("/d", err).Kind; got != want {
			t.Errorf("%v: kind %v, want %v", err, got, want)
		}
	}
}
