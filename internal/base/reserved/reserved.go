// SPDX-License-Identifier: Apache-2.0

// Package reserved lists the directories that belong to the system. On a host, Jackfield keeps
// neither sockets nor state there. In a container, it mounts nothing there, because a mount would
// hide the image's own files.
package reserved

import (
	"slices"
	"strings"
)

// trees are reserved with everything below them.
var trees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/sbin", "/sys",
	"/usr"}

// shared directories are reserved themselves; directories below them are not.
var shared = []string{"/", "/home", "/media", "/mnt", "/opt", "/run", "/srv", "/tmp", "/var", "/var/cache", "/var/lib",
	"/var/log", "/var/run", "/var/tmp"}

// Tree returns the reserved directory that contains or equals a clean absolute path, or "".
func Tree(dir string) string {
	if first := firstDir(dir); slices.Contains(trees, first) {
		return first
	}
	return ""
}

// firstDir returns the first component of a path, as a directory of /.
func firstDir(dir string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	return "/" + first
}

// WithoutVar replaces /var/run with /run, to which it is a symlink on hosts and in images.
func WithoutVar(p string) string {
	if p == "/var/run" || strings.HasPrefix(p, "/var/run/") {
		return strings.TrimPrefix(p, "/var")
	}
	return p
}

// IsShared reports whether the whole system keeps directories in a clean absolute path.
func IsShared(dir string) bool { return slices.Contains(shared, dir) }

// DirInContainer returns the reserved directory that contains or equals a clean absolute path in a
// container, or "". Images can have further library directories (/libx32, /libexec).
func DirInContainer(dir string) string {
	first := firstDir(dir)
	switch {
	case IsShared(dir):
		return dir
	case strings.HasPrefix(first, "/lib"):
		return first
	}
	return Tree(dir)
}
