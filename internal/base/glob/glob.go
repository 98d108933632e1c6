// SPDX-License-Identifier: Apache-2.0

// Package glob matches names and host paths with the patterns of the configuration.
//
// Invariant: the time of a match is at most proportional to the product of the lengths of pattern
// and name, because pods choose names.
package glob

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// MaxPattern bounds the bytes of a pattern.
const MaxPattern = 255

// Glob is a compiled pattern, which matches a whole name. In a pattern of names, "*" stands for any
// characters. In a pattern of paths, "*" stands for any characters but "/", and "**" for any
// characters. The zero value matches only the empty string.
type Glob struct {
	pattern string
	// stars is the normalised pattern: "**" for any characters, and "*" for any characters but "/".
	stars string
}

// CompileName compiles a pattern of names: CDI names, namespaces, networks, resources. The error is
// the broken rule, without the pattern.
func CompileName(pattern string) (Glob, error) {
	if strings.Contains(pattern, "**") {
		return Glob{}, errors.New("** is for paths; in a name * stands for any characters")
	}
	return compile(pattern, strings.ReplaceAll(pattern, "*", "**"))
}

// CompilePath compiles a pattern of absolute, clean host paths. For the error see CompileName.
func CompilePath(pattern string) (Glob, error) {
	if !CleanPath(pattern) || pattern == "/" {
		return Glob{}, errors.New("must be an absolute path without //, /./, /../ and without / at the end")
	}
	if strings.Contains(pattern, "***") {
		return Glob{}, errors.New("* and ** are known, *** is not")
	}
	return compile(pattern, pattern)
}

// compile checks a pattern. stars is the pattern in the form that consume reads.
func compile(pattern, stars string) (Glob, error) {
	switch {
	case pattern == "":
		return Glob{}, errors.New("a pattern must not be empty")
	case len(pattern) > MaxPattern:
		return Glob{}, fmt.Errorf("a pattern has at most %d bytes", MaxPattern)
	}
	for _, c := range []byte(pattern) {
		// Characters that are special in other programs' patterns are rejected, so that no rule
		// matches less than its author expects.
		if c <= ' ' || c == 0x7f || strings.IndexByte(`?[]{}\`, c) >= 0 {
			return Glob{}, errors.New(`a pattern holds no space, no control character and none of ? [ ] { } \ ; ` +
				`only * and ** are special`)
		}
	}
	return Glob{pattern: pattern, stars: stars}, nil
}

// String returns the pattern.
func (g Glob) String() string { return g.pattern }

// Prefix returns the characters before the first star.
func (g Glob) Prefix() string {
	prefix, _, _ := strings.Cut(g.pattern, "*")
	return prefix
}

// Match reports whether the whole of s matches.
func (g Glob) Match(s string) bool {
	rest, ok := g.consume(s)
	return ok && strings.Trim(rest, "*") == ""
}

// MatchesBelow reports whether the pattern matches a path below dir, a clean absolute path. A
// pattern that matches only dir itself does not count.
func (g Glob) MatchesBelow(dir string) bool {
	_, ok := g.consume(strings.TrimSuffix(dir, "/") + "/")
	return ok
}

// Covers reports whether the pattern matches every path below dir, a clean absolute path, like
// "DIR/**". It can return false for an unusual pattern that covers dir as well.
func (g Glob) Covers(dir string) bool {
	return strings.HasSuffix(g.stars, "**") && g.Match(strings.TrimSuffix(dir, "/")+"/")
}

// consume matches all of s, in which each star stands for as little as possible, and returns the rest of the
// pattern. ok is false where the pattern fits no string that begins with s.
//
// After a mismatch the last "*" stands for one character more, or, where that is a "/", the last "**" does.
// Earlier stars need no second try: a later start leaves less of s to the rest of the pattern.
func (g Glob) consume(s string) (rest string, ok bool) {
	// retry is a star to which the match returns: the pattern after it, and the characters it does not
	// stand for yet.
	type retry struct {
		pattern, s string
		isSet      bool
	}
	var one, two retry
	p := g.stars
	for s != "" {
		// Stars come before literals, and the shorter retry before the longer one: "*" extends within its directory,
		// and only then "**" extends over the next "/".
		switch {
		case strings.HasPrefix(p, "**"):
			p = p[2:]
			one, two = retry{}, retry{p, s, true}
		case strings.HasPrefix(p, "*"):
			p = p[1:]
			one = retry{p, s, true}
		case p != "" && p[0] == s[0]:
			p, s = p[1:], s[1:]
		case one.isSet && one.s[0] != '/':
			one.s = one.s[1:]
			p, s = one.pattern, one.s
		case two.isSet:
			skip := 1
			if one.isSet {
				// The text between the two stars matched, but "*" cannot match the next "/".
				// Any start that leaves that "/" to the "*" fails likewise.
				between := strings.IndexByte(two.pattern, '*')
				skip = strings.IndexByte(two.s[between:], '/') + 1
				if skip == 0 {
					return "", false
				}
			}
			one, two.s = retry{}, two.s[skip:]
			p, s = two.pattern, two.s
		default:
			return "", false
		}
	}
	return p, true
}

// maxPath is PATH_MAX without the NUL.
const maxPath = 4095

// CleanPath reports whether s is an absolute path in the one spelling that path.Clean leaves.
func CleanPath(s string) bool {
	return strings.HasPrefix(s, "/") && len(s) <= maxPath && !strings.Contains(s, "\x00") && path.Clean(s) == s
}
