// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// newTestStore opens a store below a new host root.
func newTestStore(t *testing.T) (*Store, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "jf")
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "run/vsw"), 0o755))
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	s, err := Open(host, "/run/jackfield", Options{Mode: ModeDirectory})
	testkit.Must(t, err)
	return s, dir
}

// listFiles lists the files in the state directory and the socket root.
func listFiles(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	for _, d := range []string{"run/jackfield/containers", "run/jackfield/sandboxes", "run/jackfield/claims", "run/vsw"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		testkit.Must(t, err)
		for _, e := range entries {
			out = append(out, d+"/"+e.Name())
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

var sample = edit.Container{ID: "c1", SandboxID: "s1", Files: []edit.File{{Name: "devices.json", Data: []byte("[]")}}, Dirs: []edit.Dir{{Path: "net/net1"}},
	SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "a/b", Access: edit.Access{User: &edit.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}}}}}

func TestPreparedContainerIsRemovedCompletely(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, s.Prepare(sample))
	testkit.Must(t, s.Prepare(sample))
	base := filepath.Join(dir, edit.ContainerDir("/run/jackfield", "c1"))
	for path, mode := range map[string]os.FileMode{"": 0o755, "devices.json": 0o644, "net": 0o755, "net/net1": 0o755} {
		st, err := os.Stat(filepath.Join(base, path))
		testkit.Must(t, err)
		if st.Mode().Perm() != mode {
			t.Errorf("%q has mode %o, want %o", path, st.Mode().Perm(), mode)
		}
	}
	// The application leaves a socket behind.
	l, err := net.Listen("unix", filepath.Join(dir, "run/vsw/a/b/app.sock"))
	testkit.Must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	testkit.Must(t, s.RemoveContainer("s1", "c1"))
	testkit.Must(t, s.RemoveContainer("s1", "c1"))
	if !exists(filepath.Join(dir, "run/vsw/a/b/app.sock")) {
		t.Error("the sandbox's directory was removed with the container")
	}
	testkit.Must(t, s.RemoveSandbox("s1"))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if l := listFiles(t, dir); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}

// A damaged claim does not block the removal of a sandbox: it is reported once, and the directories remain.
func TestDamagedClaimOfSocketDirectory(t *testing.T) {
	for what, text := range map[string]string{"empty": "", "zeros": "\x00\x00", "half": `{"holders":[{"sandb`,
		"leads out": `{"parents":[{"path":"/etc"}]}`, "below": `{"parents":[{"path":"/run/vsw/a/b/c"}]}`, "itself": `{"parents":[{"path":"/run/vsw/a/b"}]}`} {
		s, dir := newTestStore(t)
		testkit.Must(t, s.Prepare(sample))
		claim := filepath.Join(dir, "run/jackfield/claims/%2Frun%2Fvsw%2Fa%2Fb")
		testkit.Must(t, os.WriteFile(claim, []byte(text), 0o600))
		if err := s.RemoveSandbox("s1"); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), claim) || !strings.Contains(err.Error(), "remain") {
			t.Errorf("%s: %v", what, err)
		}
		testkit.Must(t, s.RemoveSandbox("s1"))
		if l := listFiles(t, dir); len(l) != 1 || l[0] != "run/vsw/a" || !exists(filepath.Join(dir, "run/vsw/a/b")) {
			t.Errorf("%s: left: %v", what, l)
		}
		// Then any sandbox can claim the directory.
		other := sample
		other.SandboxID = "s2"
		other.SocketDirs = slices.Clone(sample.SocketDirs)
		other.SocketDirs[0].Granted = true
		testkit.Must(t, s.Prepare(other))
	}
}

func TestExistingDirectoriesStay(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "run/vsw/a"), 0o700))
	testkit.Must(t, s.Prepare(sample))
	// Another process creates a file next to it.
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/a/other"), nil, 0o600))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if exists(filepath.Join(dir, "run/vsw/a/b")) || !exists(filepath.Join(dir, "run/vsw/a/other")) {
		t.Error("wrong directories were removed")
	}
	if st, _ := os.Stat(filepath.Join(dir, "run/vsw/a")); st.Mode().Perm() != 0o700 {
		t.Errorf("the mode of an existing directory is now %o", st.Mode().Perm())
	}
}

func TestSocketDirectoryBelongsToOneSandbox(t *testing.T) {
	s, _ := newTestStore(t)
	testkit.Must(t, s.Prepare(sample))
	for _, rel := range []string{"a/b", "a", "a/b/c"} {
		other := edit.Container{ID: "c2", SandboxID: "s2", SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: rel}}}
		if err := s.Prepare(other); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "s1") {
			t.Errorf("%s: %v, want a conflict that names the sandbox", rel, err)
		}
	}
	testkit.Must(t, s.RemoveSandbox("s2"))
	testkit.Must(t, s.RemoveSandbox("s1"))
	other := sample
	other.ID, other.SandboxID = "c2", "s2"
	testkit.Must(t, s.Prepare(other))
}

func TestSymlinksBelowARootAreNotFollowed(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "outside"), 0o755))
	testkit.Must(t, os.Symlink("../../outside", filepath.Join(dir, "run/vsw/a")))
	if err := s.Prepare(sample); !errdefs.IsPermissionDenied(err) {
		t.Errorf("got %v", err)
	}
	// A tenant swaps its directory for a link before it is removed.
	testkit.Must(t, os.Remove(filepath.Join(dir, "run/vsw/a")))
	testkit.Must(t, s.Prepare(sample))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "outside/precious"), nil, 0o600))
	testkit.Must(t, os.RemoveAll(filepath.Join(dir, "run/vsw/a/b")))
	testkit.Must(t, os.Symlink("../../../outside", filepath.Join(dir, "run/vsw/a/b")))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if !exists(filepath.Join(dir, "outside/precious")) {
		t.Error("the removal followed a symlink out of the root")
	}
}

func TestPrepareIsAllOrNothing(t *testing.T) {
	s, dir := newTestStore(t)
	for name, c := range map[string]edit.Container{
		"mount point": {ID: "c1", SandboxID: "s1", Dirs: []edit.Dir{{Path: "net/../../x"}}},
		"file":        {ID: "c1", SandboxID: "s1", Files: []edit.File{{Name: "../x", Data: nil}}},
		"socket dir":  {ID: "c1", SandboxID: "s1", SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "../x"}}},
		"root":        {ID: "c1", SandboxID: "s1", SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "."}}},
		"ID":          {ID: "../c", SandboxID: "s1"},
		"sandbox ID":  {ID: "c1", SandboxID: ".."},
	} {
		if err := s.Prepare(c); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
		if l := listFiles(t, dir); len(l) > 0 {
			t.Errorf("%s: left: %v", name, l)
		}
	}
}

// Containers may be created after the runtime's report and before Retain: in a sandbox of the report, and in a
// new one. Retain keeps them.
func TestRetainKeepsWhatWasCreatedAfterTheReport(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, s.Prepare(sample))
	testkit.Must(t, os.Chtimes(s.records.file("s1", "c1"), time.Time{}, time.Now().Add(-maxCreationTime)))
	testkit.Must(t, os.Chtimes(filepath.Join(s.records.sandboxesDir(), "s1"), time.Time{}, time.Now().Add(-maxCreationTime)))
	testkit.Must(t, os.Chtimes(filepath.Join(s.containers.dir, "c1"), time.Time{}, time.Now().Add(-maxCreationTime)))
	report := time.Now()
	none := func(string) bool { return false }
	testkit.Must(t, s.Prepare(edit.Container{ID: "c2", SandboxID: "s2"}))
	testkit.Must(t, os.Mkdir(filepath.Join(s.containers.dir, "c3"), 0o755))
	testkit.Must(t, s.Retain(report, none, none))
	got := strings.Join(listFiles(t, dir), " ")
	if want := "run/jackfield/containers/c2 run/jackfield/containers/c3 run/jackfield/sandboxes/s2"; got != want {
		t.Errorf("left are %q, want %q", got, want)
	}
	testkit.Must(t, s.Retain(time.Now().Add(time.Hour), none, none))
	if l := listFiles(t, dir); len(l) > 0 {
		t.Errorf("left: %q", l)
	}
}

func TestRetainKeepsLivingAndNewContainers(t *testing.T) {
	s, dir := newTestStore(t)
	for _, c := range []edit.Container{sample, {ID: "c2", SandboxID: "s2"}, {ID: "c3", SandboxID: "s2"}, {ID: "new", SandboxID: "s2"}, {ID: "new1", SandboxID: "s1"}} {
		testkit.Must(t, s.Prepare(c))
	}
	// The runtime does not report a container that it is creating.
	for id, sandbox := range map[string]string{"c1": "s1", "c2": "s2", "c3": "s2"} {
		testkit.Must(t, os.Chtimes(s.records.file(sandbox, id), time.Time{}, time.Now().Add(-maxCreationTime)))
	}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "run/jackfield/containers/orphan"), 0o755))
	testkit.Must(t, s.Retain(time.Time{}, func(id string) bool { return id == "s2" }, func(id string) bool { return id == "c3" }))
	got := strings.Join(listFiles(t, dir), " ")
	if want := "run/jackfield/containers/c3 run/jackfield/containers/new run/jackfield/sandboxes/s2"; got != want {
		t.Errorf("left are %q, want %q", got, want)
	}
	testkit.Must(t, s.RemoveSandbox("s2"))
	if l := listFiles(t, dir); len(l) > 0 {
		t.Errorf("left: %q", l)
	}
}

func TestStateDirectoryThatOthersCanWriteIsRefused(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, os.Chmod(filepath.Join(dir, "run/jackfield"), 0o777))
	if _, err := Open(s.host, "/run/jackfield", Options{Mode: ModeDirectory}); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "0777") {
		t.Errorf("got %v", err)
	}
}

// A vswitch of another user needs access to the same parent directories.
func TestStateDirectoryWithUmask(t *testing.T) {
	host, err := hostfs.New(t.TempDir())
	testkit.Must(t, err)
	defer unix.Umask(unix.Umask(0o077))
	_, err = Open(host, "/run/jackfield/hook", Options{Mode: ModeDirectory, Shared: true})
	testkit.Must(t, err)
	for dir, want := range map[string]os.FileMode{"/run": 0o755, "/run/jackfield": 0o755, "/run/jackfield/hook": 0o755, "/run/jackfield/hook/containers": privateDir} {
		if st, err := os.Stat(host.Path(dir)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", dir, st, err, want)
		}
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	s, _ := newTestStore(t)
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		testkit.Must(t, err)
		return len(e)
	}
	before := count()
	for range 20 {
		testkit.Must(t, s.Prepare(sample))
		_ = s.Prepare(edit.Container{ID: "c2", SandboxID: "s2", SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "a/b/c/d"}}})
		testkit.Must(t, s.RemoveSandbox("s2"))
		testkit.Must(t, s.RemoveSandbox("s1"))
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// An update removes a part of a list, or a value, only if the new list does not have it, in whatever order.
func TestUpdateRemoves(t *testing.T) {
	const one, two, three = `{"name":"a","interface":"net1"}`, `{"name":"a","interface":"net2","jackfield":{"eal":["-a","x"]}}`, `{"name":"b","interface":"net1"}`
	file := func(devices string) []edit.File {
		var text bytes.Buffer
		testkit.Must(t, json.Indent(&text, []byte(devices), "", "  "))
		return []edit.File{{Name: "devices.json", Data: text.Bytes()}}
	}
	s, _ := newTestStore(t)
	c := edit.Container{ID: "c1", SandboxID: "s1", Files: file("[" + one + "," + two + "," + three + "]")}
	testkit.Must(t, s.Prepare(c))
	for devices, want := range map[string]bool{
		"[" + one + "," + two + "," + three + "]":                                             false,
		"[" + two + "," + three + "," + one + "]":                                             false,
		"[" + strings.Replace(one, "}", `,"mtu":9000}`, 1) + "," + two + "," + three + ",{}]": false,
		// Every line of the first device is in the others, too.
		"[" + two + "," + three + "]":                                           true,
		"[" + one + "," + strings.Replace(two, "x", "y", 1) + "," + three + "]": true,
		"[]": true,
		"{}": true,
	} {
		c.Files = file(devices)
		if got := s.UpdateRemoves(c); got != want {
			t.Errorf("%s: removes %t, want %t", devices, got, want)
		}
	}
	c.ID = "c2"
	if s.UpdateRemoves(c) {
		t.Error("something is removed from a container without files")
	}
}
