// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

// What is in docs/man is what the commands and the documentation say today.
func TestPagesAreCurrent(t *testing.T) {
	want, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(top, "docs/man/*.[1-8]"))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		have = append(have, filepath.Base(f))
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, want[filepath.Base(f)]) {
			t.Errorf("docs/man/%s is not what it should be: run make man", filepath.Base(f))
		}
	}
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(names, have) {
		t.Errorf("docs/man has %q, want %q: run make man", have, names)
	}
	// man NAME shows the lowest section: a second page of that name is never seen.
	sections := map[string]string{}
	for name := range want {
		page, section := name[:len(name)-2], name[len(name)-1:]
		if other := sections[page]; other != "" {
			t.Errorf("%s has pages in sections %s and %s", page, other, section)
		}
		sections[page] = section
	}
	for _, must := range []string{"jackfield.1", "jackfield-explain.1", "jackfield-nri.8", "jackfield.yaml.5"} {
		if want[must] == nil {
			t.Errorf("there is no %s", must)
		}
	}
}

// Each page is what man(1) can read: it has a title and a NAME for whatis, and
// groff, where there is one, finds no fault.
func TestPagesCanBeRead(t *testing.T) {
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("there is no groff: only the pages' form is looked at")
	}
	for name, page := range pages {
		text := string(page)
		if !strings.Contains(text, "\n.TH ") || !strings.Contains(text, ".SH NAME\n") {
			t.Errorf("%s has no title or no NAME", name)
		}
		if err := os.WriteFile(filepath.Join(t.TempDir(), name), page, 0o600); err != nil {
			t.Fatal(err)
		}
		if groff != "" {
			cmd := exec.Command(groff, "-Kutf8", "-t", "-man", "-Tutf8", "-ww", "-z")
			cmd.Stdin = bytes.NewReader(page)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	}
}

// Outside of examples no line is wider than a terminal of 80 columns.
func TestPagesFitATerminal(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("skipped: no groff to format pages with")
	}
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile(`(?s)\n\.(EX|nf)\n.*?\n\.(EE|fi)\n`)
	for name, page := range pages {
		cmd := exec.Command(groff, "-Kutf8", "-t", "-man", "-Tascii", "-P-c", "-P-bou", "-rLL=80n")
		cmd.Stdin = bytes.NewReader(example.ReplaceAll(page, []byte("\n")))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			// A word that cannot be broken, such as a path, may be wide.
			if line = strings.TrimRight(line, "\n"); len(line) > 80 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: a line has %d columns:\n%s", name, len(line), line)
			}
		}
	}
}

// Pages are for users: what the tests are called is in the documentation of the source.
func TestPagesNameNoTest(t *testing.T) {
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+|test/[a-z]\w+`)
	for name, page := range pages {
		for _, test := range named.FindAllString(string(page), -1) {
			t.Errorf("%s names %s", name, test)
		}
	}
	for _, want := range []string{"POLICY", "podLabels", "namespaces"} {
		if !bytes.Contains(pages["jackfield.yaml.5"], []byte(want)) {
			t.Errorf("jackfield.yaml.5 has nothing about %s", want)
		}
	}
}
