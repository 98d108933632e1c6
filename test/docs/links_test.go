// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func readPages(t *testing.T) []*page {
	t.Helper()
	p, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(p) < 15 {
		t.Fatalf("found only %d pages", len(p))
	}
	return p
}

var link = regexp.MustCompile(`\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)`)

// The file and the heading of each link exist.
func TestLinkTargetsExist(t *testing.T) {
	everything := readPages(t)
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
					t.Errorf("%s: link %q: %s does not exist", p.place(l.number), m[1], to)
				} else if target := byPath[to]; u.Fragment != "" && (target == nil || !target.anchors()[u.Fragment]) {
					t.Errorf("%s: link %q: %s has no such heading", p.place(l.number), m[1], to)
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("found only %d links", seen)
	}
}

// A reader can reach each page of docs/ by links from the README.
func TestEveryPageIsLinked(t *testing.T) {
	byPath := map[string]*page{}
	for _, p := range readPages(t) {
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
			t.Errorf("%s cannot be reached from README.md", path)
		}
	}
}

// The pages and headings that code, charts, scripts and configuration files name exist.
func TestPagesNamedInOtherFilesExist(t *testing.T) {
	byPath := map[string]*page{}
	for _, p := range readPages(t) {
		byPath[p.path] = p
	}
	named := regexp.MustCompile(`docs/[A-Za-z0-9./_-]+\.(?:md|json)(?:#[a-z0-9-]+)?`)
	seen := 0
	for _, dir := range []string{"cmd", "deploy", "hooks.d", "internal", "nri", "pkg", "test", "Makefile"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !d.Type().IsRegular() || strings.HasSuffix(path, ".md") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range named.FindAllString(string(text), -1) {
				seen++
				file, heading, _ := strings.Cut(name, "#")
				if _, err := os.Stat(filepath.Join(top, file)); err != nil {
					t.Errorf("%s: %s does not exist", path, file)
				} else if p := byPath[file]; heading != "" && (p == nil || !p.anchors()[heading]) {
					t.Errorf("%s: %s has no heading %s", path, file, heading)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 20 {
		t.Errorf("found only %d names", seen)
	}
}

func TestSlugMatchesGitHub(t *testing.T) {
	for heading, want := range map[string]string{
		"Who is believed": "who-is-believed", "`metrics`, `audit`": "metrics-audit", "What policy does not say": "what-policy-does-not-say",
		"A [link](x.md) here": "a-link-here", "containerd ≥ 1.7": "containerd--17", "`hooks.d`": "hooksd",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%q: got %q, want %q", heading, got, want)
		}
	}
}
