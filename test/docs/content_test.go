// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/validate"
)

// knownKeys returns the top-level keys of the configuration file, from the error about an unknown key.
func knownKeys(t *testing.T) []string {
	t.Helper()
	return keysIn(t, "")
}

// keysIn returns the keys below a dotted field; nil if it is no mapping.
func keysIn(t *testing.T, field string) []string {
	t.Helper()
	text := "no-such-key: 1\n"
	if field != "" {
		for part := range strings.SplitSeq(reverse(field), ".") {
			text = part + ":\n  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
		}
	}
	_, err := config.Parse([]byte(text), "x")
	if err == nil {
		t.Fatalf("the configuration accepts %q", text)
	}
	m := regexp.MustCompile(`unknown key "no-such-key"; the keys here are ([\w, ]+)`).FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	return strings.Split(m[1], ", ")
}

func reverse(field string) string {
	parts := strings.Split(field, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

// A YAML block with a key of the configuration is a valid configuration.
func TestConfigurationBlocksAreValid(t *testing.T) {
	keys := knownKeys(t)
	checked := 0
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if b.lang != "yaml" {
				continue
			}
			var doc any
			dec := yaml.NewDecoder(strings.NewReader(b.text))
			for {
				if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: %v", p.place(b.line), err)
					break
				}
			}
			top, ok := doc.(map[string]any)
			if !ok || top["apiVersion"] != nil || top["metadata"] != nil {
				continue
			}
			if !slices.ContainsFunc(keys, func(k string) bool { return top[k] != nil }) {
				continue
			}
			checked++
			checkBlock(t, p, b, "config")
		}
	}
	if checked < 8 {
		t.Errorf("found only %d configurations", checked)
	}
}

// checkBlock runs the checks of `jackfield validate` on a block, as a kind of file or of the kind that it has. A warning
// is an error here.
func checkBlock(t *testing.T, p *page, b block, as string) {
	t.Helper()
	v, err := validate.New(hostfs.Host(), "", as, false)
	if err != nil {
		t.Fatal(err)
	}
	file, err := v.CheckInput(strings.NewReader(b.text))
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range file.Findings {
		t.Errorf("%s: %s", p.place(b.line), finding)
	}
}

// A block with a CDI file or a CNI network passes `jackfield validate` without a warning.
func TestFilesInBlocksAreValid(t *testing.T) {
	checked := map[string]int{}
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if b.lang != "yaml" && b.lang != "json" || strings.Contains(b.text, "…") {
				continue
			}
			key := regexp.MustCompile(`(?m)^[ {"]*(cdiVersion|cniVersion)\b`).FindStringSubmatch(b.text)
			if key == nil {
				continue
			}
			checked[key[1]]++
			checkBlock(t, p, b, "")
		}
	}
	for _, key := range []string{"cdiVersion", "cniVersion"} {
		if checked[key] < 2 {
			t.Errorf("found only %d blocks with %s", checked[key], key)
		}
	}
}

// The first block of the page about the configuration has every key, each with its default.
func TestEveryKeyIsListedWithItsDefault(t *testing.T) {
	for _, p := range readPages(t) {
		if filepath.Base(p.path) != "configuration.md" {
			continue
		}
		block := p.blocks[0]
		got, err := config.Parse([]byte(block.text), p.place(block.line))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(config.Default(), got, cmpopts.IgnoreUnexported(config.Config{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("the defaults (-), the page (+):\n%s", d)
		}
		for _, key := range knownKeys(t) {
			_, section, ok := strings.Cut("\n"+block.text, "\n"+key+":")
			if !ok {
				t.Errorf("%s does not list %s", p.path, key)
				continue
			}
			if next := regexp.MustCompile(`\n\w`).FindStringIndex(section); next != nil {
				section = section[:next[0]]
			}
			for _, inner := range keysIn(t, key) {
				if !regexp.MustCompile(`\b` + inner + `:`).MatchString(section) {
					t.Errorf("%s does not list %s.%s", p.path, key, inner)
				}
			}
		}
		return
	}
	t.Error("found no configuration.md")
}

// A JSON block is valid JSON. "…" replaces an omitted part of a string.
func TestJSONBlocksAreValid(t *testing.T) {
	seen := 0
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if b.lang != "json" {
				continue
			}
			seen++
			dec := json.NewDecoder(strings.NewReader(b.text))
			for {
				var v any
				if err := dec.Decode(&v); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: %v", p.place(b.line), err)
					break
				}
			}
		}
	}
	if seen < 2 {
		t.Errorf("found only %d blocks", seen)
	}
}

// A dotted name in code that begins with a key of the configuration is one of its fields.
func TestNamedConfigurationKeysExist(t *testing.T) {
	keys := knownKeys(t)
	dotted := regexp.MustCompile(`^[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)+$`)
	files := regexp.MustCompile(`\.(d|conf|md|yaml|json|log|sock|go|k8s|io|jackfield|com|dev|service)(\.|$)`)
	checked := 0
	for _, p := range readPages(t) {
		for _, l := range p.lines {
			for _, span := range l.code() {
				first, _, _ := strings.Cut(span, ".")
				// hooks.d files have other fields.
				if strings.Contains(filepath.Base(p.path), "hook") && first == "hook" {
					continue
				}
				if !dotted.MatchString(span) || !slices.Contains(keys, first) || files.MatchString(span) {
					continue
				}
				checked++
				parent, last := span[:strings.LastIndexByte(span, '.')], span[strings.LastIndexByte(span, '.')+1:]
				if known := keysIn(t, parent); known != nil && !slices.Contains(known, last) {
					t.Errorf("%s: `%s`: %s has the keys %s", p.place(l.number), span, parent, strings.Join(known, ", "))
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("found only %d keys", checked)
	}
}

// The tests that pages name exist.
func TestNamedTestsExist(t *testing.T) {
	cmd := exec.Command("git", "grep", "-hoE", `^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+`, "--", "*_test.go")
	if out, err := exec.Command("git", "-C", top, "rev-parse").CombinedOutput(); err != nil {
		cmd = exec.Command("grep", "-rhoE", `^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+`, "--include=*_test.go", ".")
		t.Logf("no git here (%s): reading all files", out)
	} else {
		cmd.Args = slices.Insert(cmd.Args, 2, "--untracked")
	}
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for l := range strings.Lines(string(out)) {
		exists[strings.TrimPrefix(strings.TrimSpace(l), "func ")] = true
	}
	name := regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*`)
	for _, p := range readPages(t) {
		for _, l := range p.lines {
			for _, span := range l.code() {
				if n := name.FindString(span); n != "" && !exists[n] {
					t.Errorf("%s: %s does not exist", p.place(l.number), n)
				}
			}
		}
	}
}
