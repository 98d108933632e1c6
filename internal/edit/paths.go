// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"path"
	"strings"

	"github.com/jackfield/jackfield/internal/base/reserved"
)

// Clean returns the spelling of a container path that [SameContainerPath] compares: absolute,
// clean, and with /run for /var/run, which images have as a symlink to /run.
func Clean(p string) string { return reserved.WithoutVar(absolute(p)) }

// absolute returns a container path with a slash in front, and clean.
func absolute(p string) string {
	if !path.IsAbs(p) {
		p = "/" + p
	}
	return path.Clean(p)
}

// spellings returns the absolute paths that are the same as p for [SameContainerPath], first p itself.
func spellings(p string) []string {
	p = absolute(p)
	switch short := Clean(p); {
	case short != p:
		return []string{p, short}
	case p == "/run" || strings.HasPrefix(p, "/run/"):
		return []string{p, "/var" + p}
	}
	return []string{p}
}

// SameContainerPath reports whether two container paths name the same file in an image whose
// /var/run is a symlink to /run.
func SameContainerPath(a, b string) bool { return a == b || Clean(a) == Clean(b) }

// EqualClean reports whether path.Clean makes two paths equal.
func EqualClean(a, b string) bool { return a == b || path.Clean(a) == path.Clean(b) }

// IsUnder reports whether container path p is dir or lies below it, in the sense of
// [SameContainerPath].
func IsUnder(dir, p string) bool {
	_, isUnder := below(dir, p)
	return isUnder
}

// below returns the path of p relative to dir, if [IsUnder] is true: "" for dir itself.
func below(dir, p string) (rel string, isUnder bool) {
	dir, p = Clean(dir), Clean(p)
	if dir == p {
		return "", true
	}
	return strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// Depth returns the number of slashes in a clean container path. Mounts are sorted by it.
func Depth(p string) int { return strings.Count(path.Clean(p), "/") }
