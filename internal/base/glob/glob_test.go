// SPDX-License-Identifier: Apache-2.0

package glob

import (
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func TestStarInNameMatchesAnyCharacters(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"vendor.com/net=*", "vendor.com/net=a", true},
		{"vendor.com/net=*", "vendor.com/net2=a", false},
		{"vendor.com/net=*", "xvendor.com/net=a", false},
		{"vendor.com/net=a", "vendor.com/net=a", true},
		{"vendor.com/net=a", "vendor.com/net=ab", false},
		{"*", "", true},
		{"*", "a/b", true},
		{"*/b", "a/b", true},
		{"*/b", "a/c/b", true},
		{"*/b", "a/bc", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "abcbc", true},
		{"a*b*c", "acb", false},
		{"ab*ba", "aba", false},
		{"a*b", "aXb", true},
		{"a*b", "aXbc", false},
		{"*ab*ab", "abab", true},
		{"*ab*ab", "ab", false},
		{"dpdk-*", "dpdk-", true},
		{"dpdk-*", "dpdk", false},
	} {
		check(t, CompileName, tc.pattern, tc.s, tc.want)
	}
}

func TestPatternMatchesPathsBelowDirectory(t *testing.T) {
	for _, tc := range []struct {
		pattern, dir string
		want         bool
	}{
		{"/srv/t/secret/**", "/srv/t/secret", true},
		{"/srv/t/secret/**", "/srv/t/secret/a", true},
		{"/srv/t/secret/**", "/srv/t", true},
		{"/srv/t/secret/**", "/srv/t/open", false},
		{"/srv/t/secret/**", "/srv/t/secret2", false},
		{"/srv/t/secret/**", "/", true},
		{"/srv/x/key", "/srv/x", true},
		{"/srv/x/key", "/srv/x/key", false},
		{"/srv/x/key", "/srv/x/ke", false},
		{"/srv/*/key", "/srv/any", true},
		{"/srv/*/key", "/srv/any/key", false},
		{"/srv/*/key", "/srv/any/other", false},
		{"/srv/a*", "/srv/ab", false},
		{"/srv/**/key", "/srv/a/b/c", true},
		{"/**", "/srv", true},
	} {
		g, err := CompilePath(tc.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.MatchesBelow(tc.dir); got != tc.want {
			t.Errorf("pattern %q below %q: got %v, want %v", tc.pattern, tc.dir, got, tc.want)
		}
	}
}

func TestStarInPathStopsAtSlash(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"/var/run/vsw/**", "/var/run/vsw/a", true},
		{"/var/run/vsw/**", "/var/run/vsw/a/b/c", true},
		{"/var/run/vsw/**", "/var/run/vsw", false},
		{"/var/run/vsw/**", "/var/run/vsw2/a", false},
		{"/dev/vfio/*", "/dev/vfio/12", true},
		{"/dev/vfio/*", "/dev/vfio/devices/vfio0", false},
		{"/dev/vhost-vdpa-*", "/dev/vhost-vdpa-3", true},
		{"/dev/vhost-vdpa-*", "/x/dev/vhost-vdpa-3", false},
		{"/a/*/b", "/a/x/b", true},
		{"/a/*/b", "/a/x/y/b", false},
		{"/a/**/b", "/a/x/y/b", true},
		{"/a/**/b", "/a/b", false},
		{"/a/*.sock", "/a/x.sock", true},
		{"/a/*.sock", "/a/x.sock/y", false},
		{"/a/**x*", "/a/b/c/xd", true},
		{"/a/**x*", "/a/b/xc/d", false},
		{"/a/**x*", "/a/b/xc/dx", true},
		{"/**", "/a", true},
		{"/a", "/a", true},
		{"/a", "/A", false},
	} {
		check(t, CompilePath, tc.pattern, tc.s, tc.want)
	}
}

func check(t *testing.T, compile func(string) (Glob, error), pattern, s string, want bool) {
	t.Helper()
	g, err := compile(pattern)
	if err != nil {
		t.Errorf("%q: %v", pattern, err)
		return
	}
	if got := g.Match(s); got != want {
		t.Errorf("%q on %q: %v", pattern, s, got)
	}
	if g.String() != pattern {
		t.Errorf("String() = %q, want %q", g, pattern)
	}
}

func TestCompileRefusesOtherWildcards(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                        `a pattern must not be empty`,
		"a**":                     `** is for paths; in a name * stands for any characters`,
		"a?":                      `a pattern holds no space`,
		"a[b]":                    `a pattern holds no space`,
		"a b":                     `a pattern holds no space`,
		"a\x00":                   `a pattern holds no space`,
		strings.Repeat("a", 256):  `a pattern has at most 255 bytes`,
		strings.Repeat("*a", 128): `a pattern has at most 255 bytes`,
	} {
		if _, err := CompileName(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("name %q: got %v, want %s", pattern, err, want)
		}
	}
	for _, pattern := range []string{"", "a", "./a", "/", "//a", "/a/", "/a//b", "/a/./b", "/a/../b", "/..", "/a/..", "/a\x00", "/a/***", "/a?", "/{a,b}"} {
		if _, err := CompilePath(pattern); err == nil {
			t.Errorf("path %q is accepted", pattern)
		}
	}
	if _, err := CompilePath("/" + strings.Repeat("a", 254)); err != nil {
		t.Errorf("255 bytes: %v", err)
	}
}

func TestCleanPathHasOneSpelling(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "/": true, "a": false, "/a": true, "/a/": false, "//": false, "/a//b": false,
		"/.": false, "/..": false, "/a/.": false, "/a/..": false, "/a/../b": false, "/a/..b": true, "/...": true,
		"/a\x00b": false, "/" + strings.Repeat("a", 4094): true, "/" + strings.Repeat("a", 4095): false,
	} {
		if got := CleanPath(s); got != want {
			t.Errorf("CleanPath(%.20q) = %v", s, got)
		}
	}
}

func TestMatchTimeIsBoundedForHostileNames(t *testing.T) {
	g, err := CompilePath("/" + strings.Repeat("a**", 80) + "b")
	if err != nil {
		t.Fatal(err)
	}
	s := "/" + strings.Repeat("a", 4000)
	testkit.Cheap(t, 100*5*time.Millisecond, func() {
		for range 100 {
			if g.Match(s) {
				t.Fatal("matches")
			}
		}
	})
}

// The time is at most the product of the lengths, of which one pair of bytes costs 10 ns. A matcher that also
// tries every pair of positions for "**" and "*" takes 10 times the bound for the longest segments.
func TestMatchTimeIsBoundedByBothLengths(t *testing.T) {
	a := strings.Repeat("a", 100)
	for _, tc := range []struct{ pattern, s string }{
		{"/**a*" + a + "b", strings.Repeat("a", 4000)},
		{"/**a*" + a + "b", strings.Repeat("a", 2000) + "/" + strings.Repeat("a", 2000)},
		{"/**a*" + a + "b", strings.Repeat(a+"/", 39) + "a"},
		{"/**" + strings.Repeat("a*/", 80) + "b", strings.Repeat("a/", 2000) + "a"},
		{"/**" + strings.Repeat("a", 200) + "b*c", strings.Repeat("a", 4000)},
	} {
		g, err := CompilePath(tc.pattern)
		if err != nil {
			t.Fatal(err)
		}
		const matches = 20
		most := time.Duration(matches*len(tc.pattern)*len(tc.s)) * 100 * time.Nanosecond
		testkit.Cheap(t, most, func() {
			for range matches {
				if g.Match("/" + tc.s) {
					t.Fatalf("%q matches", tc.pattern)
				}
			}
		})
	}
}

// reference is the simplest implementation of a pattern.
func reference(pattern, s string, name bool) bool {
	type at struct{ p, s int }
	seen := make(map[at]bool)
	var match func(p, i int) bool
	match = func(p, i int) bool {
		if p == len(pattern) {
			return i == len(s)
		}
		if v, ok := seen[at{p, i}]; ok {
			return v
		}
		var v bool
		switch {
		case strings.HasPrefix(pattern[p:], "**"):
			v = match(p+2, i) || i < len(s) && match(p, i+1)
		case pattern[p] == '*':
			v = match(p+1, i) || i < len(s) && (name || s[i] != '/') && match(p, i+1)
		default:
			v = i < len(s) && s[i] == pattern[p] && match(p+1, i+1)
		}
		seen[at{p, i}] = v
		return v
	}
	return match(0, 0)
}

// referenceBelow reports whether the pattern matches a path that begins with dir and "/": dir ends within the
// pattern, between two bytes of it or in a star.
func referenceBelow(pattern, dir string) bool {
	for cut := range len(pattern) + 1 {
		if reference(pattern[:cut], dir+"/", false) {
			return true
		}
	}
	return false
}

func FuzzGlob(f *testing.F) {
	f.Add("/var/run/vsw/**", "/var/run/vsw/a/b")
	f.Add("/a/*b*/c**d", "/a/xbx/cxx/d")
	f.Add("vendor.com/net=*", "vendor.com/net=a")
	f.Add("*ab*ab*", "xabxxab")
	f.Add("/**a*/b*c", "/a/ba/bc")
	f.Add("/**a*b/a*c", "/ab/a/xab/a/ac")
	f.Add("/"+strings.Repeat("ab*", 70), "/"+strings.Repeat("abx", 90))
	f.Add("/"+strings.Repeat("a", 64)+"*"+strings.Repeat("b", 64)+"**c", "/"+strings.Repeat("a", 70)+strings.Repeat("b", 64)+"/c")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(s) > 2000 {
			return
		}
		if g, err := CompilePath(pattern); err == nil {
			if got, want := g.Match(s), reference(pattern, s, false); got != want {
				t.Errorf("path %q on %q: %v, want %v", pattern, s, got, want)
			}
			if len(pattern)*len(s) <= 2000 { // the reference is slow
				if got, want := g.MatchesBelow(s), referenceBelow(pattern, strings.TrimSuffix(s, "/")); got != want {
					t.Errorf("path %q below %q: %v, want %v", pattern, s, got, want)
				}
			}
			if g.Covers(s) && !(reference(pattern, s+"/a", false) && reference(pattern, s+"/a/b", false)) {
				t.Errorf("path %q does not cover %q", pattern, s)
			}
		}
		if g, err := CompileName(pattern); err == nil {
			if got, want := g.Match(s), reference(pattern, s, true); got != want {
				t.Errorf("name %q on %q: %v, want %v", pattern, s, got, want)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	g, err := CompilePath("/var/run/*/vsw/**/port-*.sock")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Match("/var/run/abc/vsw/x/y/z/port-0001.sock")
	}
}
