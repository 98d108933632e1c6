// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
)

// maxPattern bounds the bytes of a pattern, so that a match keeps its state in
// a few machine words.
const maxPattern = 255

const words = (maxPattern + 1 + 63) / 64

// Glob is a compiled pattern, anchored at both ends. In a pattern of names "*"
// stands for any characters; in a pattern of paths "*" stands for any
// characters but "/", and "**" for any. The zero value matches the empty
// string only.
//
// Matching simulates the pattern's automaton with one bit a position: position
// i means that the first i literal bytes have been matched. There is no
// backtracking, so the time is linear in the length of what is matched.
type Glob struct {
	pattern string
	// prefix are the literal bytes before the first star; most names differ
	// there already.
	prefix string
	// rest is what follows; nil in a pattern without stars.
	rest *automaton
}

// automaton is the part of a pattern from its first star on.
type automaton struct {
	// last is the accepting position, the number of literal bytes.
	last int
	// class numbers the distinct literal bytes, from 1; 0 is every other.
	class [256]uint8
	// literal holds for each class the positions that the byte leaves.
	literal [][words]uint64
	// any and notSlash hold the positions at which "**" and "*" stand; for
	// names all are in any.
	any, notSlash [words]uint64
	// tail is set where the star is the last thing and nothing else is left.
	tail star
}

type star uint8

const (
	noStar star = iota
	oneStar
	twoStars
)

// CompileName compiles a pattern of names: CDI names, namespaces, networks,
// resources.
func CompileName(pattern string) (Glob, error) {
	if strings.Contains(pattern, "**") {
		return Glob{}, fmt.Errorf("%s: ** is for paths; in a name * stands for any characters", quote(pattern))
	}
	return compile(pattern, twoStars)
}

// CompilePath compiles a pattern of absolute, clean host paths.
func CompilePath(pattern string) (Glob, error) {
	if !cleanPath(pattern) || pattern == "/" {
		return Glob{}, fmt.Errorf("%s: want an absolute path without //, /./, /../ and without / at the end", quote(pattern))
	}
	if strings.Contains(pattern, "***") {
		return Glob{}, fmt.Errorf("%s: * and ** are known, *** is not", quote(pattern))
	}
	return compile(pattern, oneStar)
}

// compile builds the automaton. single is what a lone star means.
func compile(pattern string, single star) (Glob, error) {
	switch {
	case pattern == "":
		return Glob{}, fmt.Errorf("%s: a pattern must not be empty", quote(pattern))
	case len(pattern) > maxPattern:
		return Glob{}, fmt.Errorf("%s: a pattern has at most %d bytes", quote(pattern), maxPattern)
	}
	for i := range len(pattern) {
		if c := pattern[i]; c <= ' ' || c == 0x7f || isReserved(c) {
			return Glob{}, fmt.Errorf("%s: a pattern holds no space, no control character and none of ? [ ] { } \\ ; only * and ** are special", quote(pattern))
		}
	}
	at := strings.IndexByte(pattern, '*')
	if at < 0 {
		return Glob{pattern: pattern, prefix: pattern}, nil
	}
	a := &automaton{literal: make([][words]uint64, 1)}
	for rest := pattern[at:]; rest != ""; {
		if rest[0] != '*' {
			a.add(rest[0])
			rest = rest[1:]
			continue
		}
		kind := single
		rest = rest[1:]
		if rest != "" && rest[0] == '*' {
			kind, rest = twoStars, rest[1:]
		}
		if kind == twoStars {
			setBit(&a.any, a.last)
		} else {
			setBit(&a.notSlash, a.last)
		}
		if a.last == 0 {
			a.tail = kind
		}
	}
	if a.last > 0 {
		a.tail = noStar
	}
	return Glob{pattern: pattern, prefix: pattern[:at], rest: a}, nil
}

// isReserved reports whether c has a meaning in other programs' patterns. It
// is refused rather than taken as itself, so that nobody writes a rule that
// means less than it seems to.
func isReserved(c byte) bool { return strings.IndexByte(`?[]{}\`, c) >= 0 }

func (a *automaton) add(c byte) {
	if a.class[c] == 0 {
		a.class[c] = uint8(len(a.literal))
		a.literal = append(a.literal, [words]uint64{})
	}
	setBit(&a.literal[a.class[c]], a.last)
	a.last++
}

func setBit(set *[words]uint64, i int) { set[i/64] |= 1 << (i % 64) }

// String returns the pattern.
func (g Glob) String() string { return g.pattern }

// Match reports whether the whole of s matches. It allocates nothing.
func (g Glob) Match(s string) bool {
	rest, ok := strings.CutPrefix(s, g.prefix)
	switch {
	case !ok:
		return false
	case g.rest == nil:
		return rest == ""
	case g.rest.tail == twoStars:
		return true
	case g.rest.tail == oneStar:
		return strings.IndexByte(rest, '/') < 0
	}
	state, _ := g.rest.run(rest)
	return state[g.rest.last/64]&(1<<(g.rest.last%64)) != 0
}

// MatchesBelow reports whether the pattern matches some path below dir, a clean
// absolute path. A pattern that matches dir alone does not.
func (g Glob) MatchesBelow(dir string) bool {
	dir = strings.TrimSuffix(dir, "/") + "/"
	if len(dir) <= len(g.prefix) {
		return strings.HasPrefix(g.prefix, dir)
	}
	rest, ok := strings.CutPrefix(dir, g.prefix)
	if !ok || g.rest == nil {
		return false
	}
	// From every position that is left, the rest of the pattern's literal bytes leads to a match.
	_, live := g.rest.run(rest)
	return live
}

// Covers reports whether the pattern matches every path below dir, a clean absolute
// path, as "DIR/**" does. It may report false for an unusual pattern that does.
func (g Glob) Covers(dir string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(dir, "/")+"/", g.prefix)
	if !ok || g.rest == nil {
		return false
	}
	// What ends with "**" goes on matching once it has matched.
	last, bit := g.rest.last/64, uint64(1)<<(g.rest.last%64)
	state, _ := g.rest.run(rest)
	return state[last]&bit != 0 && g.rest.any[last]&bit != 0
}

// run returns the positions that are reached after s, and whether there is one.
func (a *automaton) run(s string) (state [words]uint64, live bool) {
	n := a.last/64 + 1
	state[0] = 1
	for i := range len(s) {
		c := s[i]
		literal := &a.literal[a.class[c]]
		var carry, reached uint64
		for w := range n {
			here := state[w]
			moved := here & literal[w]
			stay := here & a.any[w]
			if c != '/' {
				stay |= here & a.notSlash[w]
			}
			state[w] = moved<<1 | carry | stay
			carry = moved >> 63
			reached |= state[w]
		}
		if reached == 0 {
			return state, false
		}
	}
	return state, true
}

// maxPath is PATH_MAX without the NUL.
const maxPath = 4095

// cleanPath reports whether s is an absolute path with nothing in it that
// another spelling of the same path would not have. It allocates nothing.
func cleanPath(s string) bool {
	if s == "" || s[0] != '/' || len(s) > maxPath || strings.IndexByte(s, 0) >= 0 {
		return false
	}
	if s == "/" {
		return true
	}
	for rest := s; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest[1:], "/")
		if part == "" || part == "." || part == ".." {
			return false
		}
		if rest == "" {
			// Either the end, or a slash at the end.
			return s[len(s)-1] != '/'
		}
		rest = s[len(s)-len(rest)-1:]
	}
	return true
}
