// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// sharedDirs are directories that every process of a system may expect to write to.
var sharedDirs = []string{"/", "/dev", "/dev/mqueue", "/dev/shm", "/run", "/run/lock", "/tmp", "/var/lock", "/var/run",
	"/var/tmp"}

// IsSharedDir reports whether a directory is one that the system's processes share: a sticky
// directory, or a well-known one. Never change its mode.
func IsSharedDir(file string, mode uint32) bool {
	return mode&unix.S_IFMT == unix.S_IFDIR && (mode&unix.S_ISVTX != 0 || slices.Contains(sharedDirs, path.Clean(file)))
}

// WriteRemedy returns what to do about a file or directory that others than its owner can write.
func WriteRemedy(file string, mode uint32) string {
	if IsSharedDir(file, mode) {
		return "choose a directory that only root can write to"
	}
	return fmt.Sprintf("run `chmod go-w %s`", file)
}
