// SPDX-License-Identifier: Apache-2.0

// Package reserved holds the list of directories that belong to the system. On a host, Jackfield keeps neither
// sockets nor state there; in a container, it mounts nothing there, because a mount would hide the image's own
// files.
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

// Tree returns the reserved directory that a clean absolute path is, or lies in, with everything below it; ""
// for a path outside such directories.
func Tree(dir string) string {
	if first := firstDir(dir); slices.Contains(trees, first) {
		return first
	}
	return ""
}

// firstDir returns the directory of / that a path is, or lies in.
func firstDir(dir string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	return "/" + first
}

// WithoutVar returns a path with /run for /var/run, which hosts and images have as a symlink to /run.
func WithoutVar(p string) string {
	if p == "/var/run" || strings.HasPrefix(p, "/var/run/") {
		return strings.TrimPrefix(p, "/var")
	}
	return p
}

// IsShared reports whether a clean absolute path is a directory in which the whole system keeps directories.
func IsShared(dir string) bool { return slices.Contains(shared, dir) }

// DirInContainer returns the reserved directory that a clean absolute path in a container is, or lies in; "" for
// a path that is not reserved. An image may have more directories of libraries (/libx32, /libexec).
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
