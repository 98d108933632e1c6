// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func all(t *testing.T) []*page {
	t.Helper()
	p, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(p) < 15 {
		t.Fatalf("found %d pages only", len(p))
	}
	return p
}

var link = regexp.MustCompile(`\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)`)

// Each link leads to a file of the checkout, and to a heading in it.
func TestLinks(t *testing.T) {
	everything := all(t)
	byPath := map[string]*page{}
	for _, p := range everything {
		byPath[p.path] = p
	}
	seen := 0
	for _, p := range everything {
		for _, l := range p.lines {
			for _, m := range link.FindAllStringSubmatch(regexp.MustCompile("`[^`]*`").ReplaceAllString(l.text, "code"), -1) {
				u, err := url.Parse(m[1])
				if err != nil {
					t.Errorf("%s: link %q: %v", p.place(l.number), m[1], err)
					continue
				}
				if u.Scheme != "" {
					continue
				}
				seen++
				to := p.path
				if u.Path != "" {
					to = filepath.Join(filepath.Dir(p.path), u.Path)
				}
				if _, err := os.Stat(filepath.Join(top, to)); err != nil || strings.HasPrefix(to, "..") {
					t.Errorf("%s: link %q: there is no %s", p.place(l.number), m[1], to)
				} else if target := byPath[to]; u.Fragment != "" && (target == nil || !target.anchors()[u.Fragment]) {
					t.Errorf("%s: link %q: %s has no such heading", p.place(l.number), m[1], to)
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("found %d links only", seen)
	}
}

// Each page of docs/ can be reached from the README, by links.
func TestEveryPageIsLinked(t *testing.T) {
	byPath := map[string]*page{}
	for _, p := range all(t) {
		byPath[p.path] = p
	}
	reached := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		p := byPath[path]
		if p == nil || reached[path] {
			return
		}
		reached[path] = true
		for _, l := range p.lines {
			for _, m := range link.FindAllStringSubmatch(l.text, -1) {
				to, _, _ := strings.Cut(m[1], "#")
				to = filepath.Join(filepath.Dir(path), to)
				visit(to)
				if stat, err := os.Stat(filepath.Join(top, to)); err == nil && stat.IsDir() {
					for path := range byPath {
						if filepath.Dir(path) == to {
							visit(path)
						}
					}
				}
			}
		}
	}
	visit("README.md")
	for path := range byPath {
		if strings.HasPrefix(path, "docs/") && !reached[path] {
			t.Errorf("%s: no link leads there from README.md", path)
		}
	}
}

func TestSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"Who is believed": "who-is-believed", "`metrics`, `audit`": "metrics-audit", "What policy does not say": "what-policy-does-not-say",
		"A [link](x.md) here": "a-link-here", "containerd ≥ 1.7": "containerd--17", "`hooks.d`": "hooksd",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%q: got %q, want %q", heading, got, want)
		}
	}
}
