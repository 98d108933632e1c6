// SPDX-License-Identifier: Apache-2.0

package hangfs

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts the file system on dir until the test ends. Processes that wait for it then get an
// error. release ends it earlier. Without FUSE the test is skipped, or fails in CI.
func Mount(t testing.TB, dir string) (release func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Mount("hangfs", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
			fmt.Sprintf("fd=%d,rootmode=40755,user_id=%d,group_id=%d,allow_other", fd, os.Geteuid(), os.Getegid()))
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("mount a FUSE file system: %v", err)
		}
		t.Skipf("mount a FUSE file system: %v", err)
	}
	done := false
	release = func() {
		if done {
			return
		}
		done = true
		// Closing the descriptor aborts the connection: every request that waits ends.
		if err := errors.Join(unix.Close(fd), unix.Unmount(dir, unix.MNT_DETACH)); err != nil {
			t.Errorf("end the FUSE file system on %s: %v", dir, err)
		}
	}
	t.Cleanup(release)
	return release
}
