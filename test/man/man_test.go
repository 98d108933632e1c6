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

// docs/man matches the current commands and documentation.
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
			t.Errorf("docs/man/%s is outdated: run make man", filepath.Base(f))
		}
	}
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(names, have) {
		t.Errorf("docs/man has %q, want %q: run make man", have, names)
	}
	// man NAME shows the page of the lowest section only, so no name may be in two sections.
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
			t.Errorf("%s does not exist", must)
		}
	}
}

// man(1) can read each page: it has a title, and a NAME for whatis. groff, if it is installed, reports
// no errors.
func TestPagesAreValidManPages(t *testing.T) {
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("groff is not installed: only titles and NAME sections are checked")
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

// The page of each program and command has an exit status. Those of programs also have files and environment.
func TestPagesHaveRequiredSections(t *testing.T) {
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range pages {
		if strings.HasSuffix(name, ".5") {
			continue
		}
		if !regexp.MustCompile(`(?m)^\.SH EXIT STATUS$`).Match(page) {
			t.Errorf("%s has no EXIT STATUS", name)
		}
		if program := strings.HasSuffix(name, ".8") || name == "jackfield.1"; program && !regexp.MustCompile(`(?m)^\.SH FILES$`).Match(page) {
			t.Errorf("%s has no FILES", name)
		}
	}
}

// No line is wider than a terminal of 80 columns.
func TestPagesFitTerminal(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("skipped: no groff to format pages with")
	}
	pages, err := generate(top)
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range pages {
		cmd := exec.Command(groff, "-Kutf8", "-t", "-man", "-Tascii", "-P-c", "-P-bou", "-rLL=80n")
		cmd.Stdin = bytes.NewReader(page)
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

// Manual pages are for users, so they name no tests.
func TestPagesNameNoTests(t *testing.T) {
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
			t.Errorf("jackfield.yaml.5 does not mention %s", want)
		}
	}
}
