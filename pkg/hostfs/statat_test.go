// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// TestStatOfPathsOfEveryLength: on the stack or not, the file is the one at the path.
func TestStatOfPathsOfEveryLength(t *testing.T) {
	dir, err := os.MkdirTemp("", "stat") // t.TempDir has longer names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for length := shortPath - 3; length <= shortPath+3; length++ {
		name := filepath.Join(dir, strings.Repeat("d", length-len(dir)-1))
		if len(name) != length {
			t.Fatalf("%q has %d bytes", name, len(name))
		}
		if _, err := Host().Stat(name); !errdefs.IsNotFound(err) {
			t.Errorf("%d bytes: %v, want not found", length, err)
		}
		if err := os.WriteFile(name, []byte(fmt.Sprint(length)), 0o600); err != nil {
			t.Fatal(err)
		}
		var want unix.Stat_t
		if err := unix.Stat(name, &want); err != nil {
			t.Fatal(err)
		}
		if st, err := Host().Stat(name); err != nil || st.Ino != want.Ino || st.Mode != want.Mode || st.Size != want.Size {
			t.Errorf("%d bytes: %+v, %v, want %+v", length, st, err, want)
		}
		link := name[:length-1] + "l"
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if st, err := Host().Stat(link); err != nil || st.Ino != want.Ino {
			t.Errorf("%d bytes: the symlink leads to %+v, %v, want %+v", length, st, err, want)
		}
		if st, err := Host().Lstat(link); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			t.Errorf("%d bytes: the symlink is %+v, %v", length, st, err)
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = Host().Stat(link) }); length < shortPath && n != 0 {
			t.Errorf("%d bytes: %v allocations", length, n)
		}
	}
}
