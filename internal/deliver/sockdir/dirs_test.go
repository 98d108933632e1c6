// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestPathsStayBelowTheirRoot(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(dir+"/run/vsw/p1", 0o755))
	testkit.Must(t, os.MkdirAll(dir+"/run/other", 0o755))
	testkit.Must(t, os.Symlink("p1", dir+"/run/vsw/link"))
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	for rel, allowed := range map[string]bool{"p1": true, ".": true, "p1/../p1": true, "../other": false, "p1/../../other": false, "/run/vsw/p1": false, "link": false} {
		fd, err := OpenBelowRoot(host, "/run/vsw", rel, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			unix.Close(fd)
		}
		if allowed != (err == nil) || !allowed && !errdefs.IsPermissionDenied(err) {
			t.Errorf("open %q below its root: %v", rel, err)
		}
	}
}

// A directory that does not exist yet can be created only below a root that exists.
func TestMissingSocketDirNeedsItsRoot(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(dir+"/run/vsw", 0o755))
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	if got, err := New(host, "/run/jackfield/claims").FindState("s1", "/run/vsw", "p1"); got != edit.MissingDir || err != nil {
		t.Errorf("below a root: %v, %v", got, err)
	}
	if _, err := New(host, "/run/jackfield/claims").FindState("s1", "/run/none", "p1"); !errdefs.IsNotFound(err) {
		t.Errorf("without the root: %v", err)
	}
}
