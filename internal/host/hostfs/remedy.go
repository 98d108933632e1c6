// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// sharedDirs are directories that every process of a system can expect to write to.
var sharedDirs = []string{"/", "/dev", "/dev/mqueue", "/dev/shm", "/run", "/run/lock", "/tmp", "/var/lock", "/var/run",
	"/var/tmp"}

// IsSharedDir reports whether the system's processes share a directory: it is sticky, or
// well-known. Its mode must not be changed.
func IsSharedDir(file string, mode uint32) bool {
	return mode&unix.S_IFMT == unix.S_IFDIR && (mode&unix.S_ISVTX != 0 || slices.Contains(sharedDirs, path.Clean(file)))
}

// WriteRemedy returns the remedy for a file or directory that users other than its owner can write.
func WriteRemedy(file string, mode uint32) string {
	if IsSharedDir(file, mode) {
		return "choose a directory that only root can write to"
	}
	return fmt.Sprintf("run `chmod go-w %s`", file)
}
