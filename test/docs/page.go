// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// top is the top directory of the checkout.
const top = "../.."

// page is one Markdown file.
type page struct {
	path   string // from the checkout's top
	lines  []line
	blocks []block
}

// line is a line of text outside of fenced blocks.
type line struct {
	number int
	text   string
}

// block is a fenced block.
type block struct {
	line int // of the opening fence
	lang string
	text string
}

// place returns the page's path with a line number.
func (p *page) place(line int) string { return fmt.Sprintf("%s:%d", p.path, line) }

// pages reads all Markdown files of the checkout except test data.
func pages() ([]*page, error) {
	var all []*page
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") && path != top) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		all = append(all, parse(rel, string(data)))
		return nil
	})
	return all, err
}

func parse(path, text string) *page {
	p := &page{path: path}
	var open *block
	var body strings.Builder
	number := 0
	for l := range strings.Lines(text) {
		number++
		l = strings.TrimSuffix(l, "\n")
		fence := strings.HasPrefix(strings.TrimSpace(l), "```")
		switch {
		case fence && open == nil:
			open = &block{line: number, lang: strings.TrimPrefix(strings.TrimSpace(l), "```")}
			body.Reset()
		case fence:
			open.text = body.String()
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			body.WriteString(l + "\n")
		default:
			p.lines = append(p.lines, line{number, l})
		}
	}
	return p
}

// code returns the inline code spans of a line.
func (l line) code() []string {
	var spans []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(l.text, -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// anchors returns the anchors that GitHub derives from the page's headings.
func (p *page) anchors() map[string]bool {
	all := map[string]bool{}
	for _, l := range p.lines {
		m := regexp.MustCompile(`^#{1,6} +(.*)$`).FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		name := slug(m[1])
		for i := 1; all[name]; i++ {
			name = fmt.Sprintf("%s-%d", slug(m[1]), i)
		}
		all[name] = true
	}
	return all
}

// slug returns GitHub's anchor of a heading: lower case, without punctuation, with "-" for spaces.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 0x7f && !strings.ContainsRune("–—…“”‘’×→·§≤≥", r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// commandLines returns the lines of a block that run a program: in console blocks those after a
// prompt, in others those that begin with the program. It joins continued lines.
func (b block) commandLines(programs []string) []string {
	var found []string
	text := strings.ReplaceAll(b.text, "\\\n", " ")
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if b.lang == "console" {
			after, ok := strings.CutPrefix(l, "$ ")
			if !ok {
				if after, ok = strings.CutPrefix(l, "# "); !ok {
					continue
				}
			}
			l = after
		}
		for part := range strings.SplitSeq(strings.NewReplacer("&&", "\n", "|", "\n", ";", "\n").Replace(l), "\n") {
			words := strings.Fields(part)
			for len(words) > 0 && (words[0] == "sudo" || strings.Contains(words[0], "=")) {
				words = words[1:]
			}
			if len(words) > 0 && slices.Contains(programs, filepath.Base(words[0])) {
				words[0] = filepath.Base(words[0])
				found = append(found, strings.Join(words, " "))
			}
		}
	}
	return found
}
