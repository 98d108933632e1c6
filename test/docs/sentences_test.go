// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan    = regexp.MustCompile("`[^`]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)\s]*\)`)
	parentheses = regexp.MustCompile(`\([^()]*\)`)
	// leadIn is what a list item or paragraph begins with: its marker, and words in bold.
	leadIn = regexp.MustCompile(`^\s*(?:[-*] +|\d+\. +|> )?(?:\*\*[^*]+\*\*)?`)
	// nextSentence matches the end of a sentence and the beginning of another. Names of programs begin in lower case.
	nextSentence = regexp.MustCompile(`[^.][.!?][)"*]* +(?:[A-Z\[*"(` + "`" + `]|(?:containerd|grout|runc|crun|systemd|testpmd)\b)`)
)

// secondSentence returns where another sentence begins on a line of prose, or "".
func secondSentence(text string) string {
	text = strings.TrimPrefix(text, leadIn.FindString(text))
	text = codeSpan.ReplaceAllString(text, "`code`")
	text = linkTarget.ReplaceAllString(text, "]")
	text = parentheses.ReplaceAllString(text, "()")
	return nextSentence.FindString(text)
}

// Each sentence begins on a line of its own, so that a change of one sentence is a change of one line.
func TestSentencesHaveTheirOwnLines(t *testing.T) {
	for _, p := range readPages(t) {
		// make bench writes the one; in the other, an entry is a line.
		if p.path == "docs/contributing/performance.md" || p.path == "CHANGELOG.md" {
			continue
		}
		for _, l := range p.lines {
			if strings.HasPrefix(l.text, "|") || strings.HasPrefix(l.text, "#") || strings.HasPrefix(l.text, "![") {
				continue
			}
			if next := secondSentence(l.text); next != "" {
				t.Errorf("%s: %q begins another sentence: move it to a line of its own", p.place(l.number), next)
			}
		}
	}
}

func TestSecondSentenceIsFound(t *testing.T) {
	for text, want := range map[string]bool{
		"One sentence.": false, "One. Two.": true, "- One. `two` is code.": true, "1. One.": false, "1. One. Two.": true,
		"**Lead-in.** One sentence.": false, "**Lead-in.** One. Two.": true, "It has `a. B` in code.": false,
		"See [a page](x.md). Then go on.": true, "It is so (or not. Really) here.": false, "It needs runc. runc starts it.": true,
		"Linux 5.12 and 6.5 know it.": false, "They are a, b … All of them.": false,
	} {
		if found := secondSentence(text) != ""; found != want {
			t.Errorf("%q: found %v, want %v", text, found, want)
		}
	}
}
