// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// owner is the owner of a new file, set at its creation. A later change would be unsafe, because a
// process of a container that shares the directory can replace the file in between.
type owner struct{ uid, gid int }

// createFiles calls f. Files that this thread creates in f belong to o. The thread keeps its
// capabilities, which a change of the file system user would drop. The file system can belong to a
// user namespace without the host's root, where only its own users can create files.
func (o *owner) createFiles(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var capabilities [2]unix.CapUserData
	if err := unix.Capget(&header, &capabilities[0]); err != nil {
		return fmt.Errorf("read the thread's capabilities: %w", err)
	}
	// Both calls are per thread, return the old ID, and fail silently.
	oldGID, err := unix.SetfsgidRetGid(o.gid)
	if err != nil {
		return err
	}
	oldUID, err := unix.SetfsuidRetUid(o.uid)
	if err != nil {
		return err
	}
	defer func() {
		_, _ = unix.SetfsuidRetUid(oldUID)
		_, _ = unix.SetfsgidRetGid(oldGID)
	}()
	if err := unix.Capset(&header, &capabilities[0]); err != nil {
		return fmt.Errorf("keep the thread's capabilities: %w", err)
	}
	return f()
}
