// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"path"
	"strings"
)

// cleanPath makes two spellings of one container path equal: images have
// /var/run as a symlink to /run.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	if !isClean(p) {
		p = path.Clean(p)
	}
	if len(p) >= len("/var/run") && p[:len("/var/run")] == "/var/run" && (len(p) == len("/var/run") || p[len("/var/run")] == '/') {
		return p[len("/var"):]
	}
	return p
}

// isClean reports that path.Clean would change nothing; false is no answer.
func isClean(p string) bool {
	return !strings.Contains(p, "//") && !strings.Contains(p, "/.") && (len(p) == 1 || p[len(p)-1] != '/')
}

// Clean is a container path in one spelling: what [SamePlace] compares.
func Clean(p string) string { return cleanPath(p) }

// SameSpelling reports whether two paths are the same but for what path.Clean takes
// away: doubled slashes, dots, and a slash at the end.
func SameSpelling(a, b string) bool {
	return a == b || !differ(a, b) && !apart(a, b) && path.Clean(a) == path.Clean(b)
}

// differ reports that two paths are not of one place, without cleaning them; false
// is no answer. Most paths differ in their last byte already, which cleaning leaves
// alone where it is neither a slash nor a dot.
func differ(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, y := a[len(a)-1], b[len(b)-1]
	return x != y && x != '/' && x != '.' && y != '/' && y != '.'
}

// apart is differ for paths that end alike, as the libraries of one directory and
// its subdirectories do: it goes back to the first byte that is another. What is
// alike behind it has no component that begins with a dot, so cleaning leaves it, and
// the components that differ.
func apart(a, b string) bool {
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		switch x, y := a[i], b[j]; {
		case x != y:
			return x != '/' && x != '.' && y != '/' && y != '.'
		case x == '/' && i+1 < len(a) && a[i+1] == '.':
			return false
		}
	}
	return false
}

// SamePlace reports whether two container paths mean the same place under the
// convention that /var/run is /run.
func SamePlace(a, b string) bool {
	return a == b || !differ(a, b) && !apart(a, b) && cleanPath(a) == cleanPath(b)
}

// Within reports whether path p is dir or lies below it, under the convention
// of [SamePlace].
func Within(dir, p string) bool { return WithinClean(cleanPath(dir), cleanPath(p)) }

// WithinClean is Within for paths that are [Clean].
func WithinClean(dir, p string) bool {
	return dir == p || dir == "/" || len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/'
}

// Depth is the number of slashes in the clean spelling (path.Clean) of a container
// path: by it mounts are put in order.
func Depth(p string) int {
	if n := slashes(p); n > 0 {
		return n
	}
	return strings.Count(path.Clean(p), "/")
}

// slashes is the number of them in an absolute path that is clean; 0 is no answer.
func slashes(p string) int {
	n := 0
	for i := range len(p) {
		if p[i] != '/' {
			continue
		}
		if i+1 == len(p) || p[i+1] == '/' || p[i+1] == '.' {
			return 0
		}
		n++
	}
	if n == 0 || p[0] != '/' {
		return 0
	}
	return n
}
