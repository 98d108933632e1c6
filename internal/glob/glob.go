// SPDX-License-Identifier: Apache-2.0

// Package glob matches names and host paths with the patterns of the configuration.
//
// Invariant: the time of a match is at most proportional to the product of the lengths of pattern and name,
// since names come from pods.
package glob

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// MaxPattern bounds the bytes of a pattern.
const MaxPattern = 255

// Glob is a compiled pattern. It matches a whole name. In a pattern of names "*" stands for any characters.
// In a pattern of paths "*" stands for any characters but "/", and "**" for any characters. The zero value
// matches only the empty string.
type Glob struct {
	pattern string
	// steps is the pattern with one byte for each step: anyStar for any characters, '*' for any characters but
	// "/", and every other byte for itself.
	steps string
}

// anyStar is not part of a pattern, since compile refuses control characters.
const anyStar = '\x00'

// CompileName compiles a pattern of names: CDI names, namespaces, networks, resources. The error is the rule that
// the pattern breaks; it does not name the pattern.
func CompileName(pattern string) (Glob, error) {
	if strings.Contains(pattern, "**") {
		return Glob{}, errors.New("** is for paths; in a name * stands for any characters")
	}
	return compile(pattern, strings.ReplaceAll(pattern, "*", string(anyStar)))
}

// CompilePath compiles a pattern of absolute, clean host paths. The error is as of CompileName.
func CompilePath(pattern string) (Glob, error) {
	if !CleanPath(pattern) || pattern == "/" {
		return Glob{}, errors.New("want an absolute path without //, /./, /../ and without / at the end")
	}
	if strings.Contains(pattern, "***") {
		return Glob{}, errors.New("* and ** are known, *** is not")
	}
	return compile(pattern, strings.ReplaceAll(pattern, "**", string(anyStar)))
}

func compile(pattern, steps string) (Glob, error) {
	switch {
	case pattern == "":
		return Glob{}, errors.New("a pattern must not be empty")
	case len(pattern) > MaxPattern:
		return Glob{}, fmt.Errorf("a pattern has at most %d bytes", MaxPattern)
	}
	for _, c := range []byte(pattern) {
		// Characters that are special in other programs' patterns are refused, so that no rule means less
		// than it seems to.
		if c <= ' ' || c == 0x7f || strings.IndexByte(`?[]{}\`, c) >= 0 {
			return Glob{}, errors.New(`a pattern holds no space, no control character and none of ? [ ] { } \ ; only * and ** are special`)
		}
	}
	return Glob{pattern: pattern, steps: steps}, nil
}

// String returns the pattern.
func (g Glob) String() string { return g.pattern }

// Prefix returns the characters before the first star.
func (g Glob) Prefix() string {
	prefix, _, _ := strings.Cut(g.pattern, "*")
	return prefix
}

// Match reports whether the whole of s matches.
func (g Glob) Match(s string) bool { return g.stepsTaken(s)[len(g.steps)] }

// MatchesBelow reports whether the pattern matches some path below dir, a clean absolute path. A pattern that
// matches only dir itself does not.
func (g Glob) MatchesBelow(dir string) bool {
	return slices.Contains(g.stepsTaken(strings.TrimSuffix(dir, "/")+"/"), true)
}

// Covers reports whether the pattern matches every path below dir, a clean absolute path, as "DIR/**" does. It
// may report false for an unusual pattern that does.
func (g Glob) Covers(dir string) bool {
	return strings.HasSuffix(g.steps, string(anyStar)) && g.Match(strings.TrimSuffix(dir, "/")+"/")
}

// stepsTaken reports for each number of steps whether the first so many can stand for s.
func (g Glob) stepsTaken(s string) []bool {
	taken, next := make([]bool, len(g.steps)+1), make([]bool, len(g.steps)+1)
	taken[0] = true
	g.skipStars(taken)
	for _, c := range []byte(s) {
		clear(next)
		for i, step := range []byte(g.steps) {
			switch {
			case !taken[i]:
			case step == anyStar, step == '*' && c != '/':
				next[i] = true
			case step == c:
				next[i+1] = true
			}
		}
		g.skipStars(next)
		taken, next = next, taken
	}
	return taken
}

// skipStars adds the steps that stand for no character.
func (g Glob) skipStars(taken []bool) {
	for i, step := range []byte(g.steps) {
		if taken[i] && (step == anyStar || step == '*') {
			taken[i+1] = true
		}
	}
}

// maxPath is PATH_MAX without the NUL.
const maxPath = 4095

// CleanPath reports whether s is an absolute path in the one spelling that path.Clean leaves.
func CleanPath(s string) bool {
	return strings.HasPrefix(s, "/") && len(s) <= maxPath && !strings.Contains(s, "\x00") && path.Clean(s) == s
}
