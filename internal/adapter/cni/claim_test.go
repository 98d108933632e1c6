// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/port/attach"
)

const otherID = "f061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"

// claimBy claims a directory as the NRI plugin does for a pod.
func (n *node) socketDirs() *sockdir.Dirs { return sockdir.New(n.host, attach.DefaultClaimsDir) }

func (n *node) claimBy(sandbox, dir string) error {
	h := sockdir.Holder{Sandbox: sandbox, Adapter: sockdir.NRI, StateDir: "/var/run/jackfield"}
	_, err := n.socketDirs().Claim(dir, h, false)
	return err
}

// From ADD to DEL, the claim says that the directory was created for its pod.
func TestAddClaimsDirectoryUntilDel(t *testing.T) {
	n := newNode(t)
	// The claim has the path that the NRI plugin finds, without the host's symlinks.
	testkit.Must(t, os.MkdirAll(filepath.Join(n.dir, "run"), 0o755))
	testkit.Must(t, os.MkdirAll(filepath.Join(n.dir, "var"), 0o755))
	testkit.Must(t, os.Symlink("../run", filepath.Join(n.dir, "var/run")))
	n.mustRun(env("ADD"), confWith(""))
	dir := path.Join("/run/jackfield/sockets", socketDirName("fast", testID, "net1"))
	for _, d := range []string{dir, dir + "/below", path.Dir(dir)} {
		if err := n.claimBy(otherID, d); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), testID) {
			t.Errorf("another pod and %s: %v", d, err)
		}
	}
	f, err := os.Open(filepath.Join(n.dir, dir))
	testkit.Must(t, err)
	defer f.Close()
	if own, err := n.socketDirs().IsCreated(dir, testID, int(f.Fd())); !own || err != nil {
		t.Errorf("created for the pod: %t, %v", own, err)
	}
	testkit.Must(t, n.claimBy(testID, dir))
	n.mustRun(env("DEL"), confWith(""))
	if err := n.claimBy(otherID, dir); !errdefs.IsConflict(err) {
		t.Errorf("after DEL, while the NRI plugin has the pod: %v", err)
	}
	testkit.Must(t, n.socketDirs().Release(func(h sockdir.Holder) bool { return h.Adapter == sockdir.NRI }))
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// ADD creates nothing in a directory that another pod has claimed.
func TestAddRefusesDirectoryOfAnotherPod(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, n.claimBy(otherID, "/var/run/jackfield/sockets"))
	if a := n.run(env("ADD"), confWith("")); a.code != codeConfig || !strings.Contains(a.all, otherID) {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	testkit.Must(t, n.socketDirs().Release(func(h sockdir.Holder) bool { return h.Sandbox == otherID }))
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// An ADD that fails removes no directory that was created for another pod.
func TestFailedAddKeepsDirectoryOfAnotherPod(t *testing.T) {
	n := newNode(t)
	dir := path.Join(attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
	n.write(dir+"/app.sock", "another pod's")
	testkit.Must(t, n.claimBy(otherID, dir))
	f, err := os.Open(filepath.Join(n.dir, dir))
	testkit.Must(t, err)
	defer f.Close()
	_, err = n.socketDirs().Limit(dir, int(f.Fd()), sockdir.Holder{Sandbox: otherID, Adapter: sockdir.NRI, StateDir: "/var/run/jackfield"}, 0)
	testkit.Must(t, err)
	before := n.files()
	if a := n.run(env("ADD"), confWith("")); a.code != codeConfig || !strings.Contains(a.all, otherID) {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	if after := n.files(); !slices.Equal(after, before) {
		t.Errorf("left %q of %q", after, before)
	}
	if _, err := os.Stat(filepath.Join(n.dir, dir, "app.sock")); err != nil {
		t.Error(err)
	}
}

// DEL removes the directory that ADD created, and no other that took its place.
func TestDelKeepsReplacedDirectory(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	dir := filepath.Join(n.dir, attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
	testkit.Must(t, os.Rename(dir, filepath.Join(n.dir, "away")))
	testkit.Must(t, os.Mkdir(dir, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600))
	n.mustRun(env("DEL"), confWith(""))
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Error(err)
	}
}

// GC releases a claim whose record is lost, and no other.
func TestGCReleasesClaimWithoutRecord(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	record := filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", testID, "net1"))
	testkit.Must(t, os.Remove(record))
	testkit.Must(t, n.claimBy(otherID, "/run/vsw/other"))
	n.mustRun(env("GC"), confWith(`, "cni.dev/valid-attachments": []`))
	all := n.socketDirs()
	dir := path.Join(attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
	if c, err := all.Holders(dir); err != nil || len(c) > 0 {
		t.Errorf("the lost attachment's claim: %+v, %v", c, err)
	}
	if c, err := all.Holders("/run/vsw/other"); err != nil || len(c) != 1 {
		t.Errorf("the NRI plugin's claim: %+v, %v", c, err)
	}
}

// An ADD of another network may run beside GC. It writes the record before it claims the directory, so GC must not
// trust a list of records that is older than the sockdir.
func TestGCKeepsClaimOfAddThatRunsMeanwhile(t *testing.T) {
	n := newNode(t)
	n.mustRun(env("ADD"), confWith(""))
	record := filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", testID, "net1"))
	testkit.Must(t, os.Rename(record, filepath.Join(n.dir, "record")))
	lock, err := os.Open(filepath.Join(n.dir, attach.DefaultClaimsDir))
	testkit.Must(t, err)
	defer lock.Close()
	testkit.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.mustRun(env("GC"), strings.Replace(confWith(`, "cni.dev/valid-attachments": []`), `"fast"`, `"other"`, 1))
	}()
	time.Sleep(300 * time.Millisecond) // GC waits for the claims
	testkit.Must(t, os.Rename(filepath.Join(n.dir, "record"), record))
	testkit.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	<-done
	dir := path.Join(attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
	if c, err := n.socketDirs().Holders(dir); err != nil || len(c) != 1 {
		t.Errorf("the attachment's claim: %+v, %v", c, err)
	}
}
