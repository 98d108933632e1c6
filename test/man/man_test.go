// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
			cmd := exec.Command(groff, "-t", "-man", "-Tutf8", "-ww", "-z")
			cmd.Stdin = bytes.NewReader(page)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	}
}
