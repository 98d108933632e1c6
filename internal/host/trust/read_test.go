// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// A file that is replaced by a symlink after its check is not followed: the link's target was not checked.
func TestFileReplacedBySymlinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/elsewhere", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", dir+"/file"); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := Reader{Host: hostfs.Host()}
	for what, target := range map[string]string{"file": "", "target of a symlink": dir + "/file"} {
		if fd, err := r.openFile(int(d.Fd()), dir+"/file", target); err == nil {
			unix.Close(fd)
			t.Errorf("%s that is a symlink now: it is followed", what)
		}
	}
	if f, fault := r.ReadFile(int(d.Fd()), dir+"/file"); f == nil || fault != nil || f.Target != dir+"/elsewhere" {
		t.Errorf("a symlink that was checked: %+v, %v", f, fault)
	}
}
