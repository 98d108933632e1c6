// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	commandForm  = regexp.MustCompile(`^(?:cd (\S+) && )?go test (?:-\S+ )*(\.\S*)(?: .*?-run "?([^" ]+)"?)?$`)
	testFunction = regexp.MustCompile(`(?m)^func (Test\w*)\(`)
)

// mutation is the removal of one defence.
type mutation struct {
	name, command string
	edits         []edit
}

// edit replaces the text before, in a file below the path within, by the text after.
type edit struct{ within, before, after string }

func readMutations(dir string, prefixes []string) ([]mutation, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var mutations []mutation
	for _, entry := range entries {
		name, isText := strings.CutSuffix(entry.Name(), ".txt")
		if !isText {
			return nil, fmt.Errorf("%s is not a mutation: must be NAME.txt", filepath.Join(dir, entry.Name()))
		}
		isSelected := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, isSelected) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		m, err := parseMutation(name, string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		mutations = append(mutations, m)
	}
	if len(mutations) == 0 {
		return nil, fmt.Errorf("%s: no mutation begins with %q", dir, prefixes)
	}
	return mutations, nil
}

func parseMutation(name, text string) (mutation, error) {
	command, rest, _ := strings.Cut(text, "\n")
	m := mutation{name: name, command: command}
	for block := range strings.SplitSeq(strings.Trim(rest, "\n"), "\n\n") {
		var e edit
		for line := range strings.Lines(block) {
			path, isHint := strings.CutPrefix(line, "in ")
			switch {
			case isHint && e == edit{}:
				e.within = strings.TrimSpace(path)
				continue
			case !strings.ContainsRune(" -+", rune(line[0])):
				return m, fmt.Errorf("invalid line %q: must begin with a blank, -, + or \"in \"", line)
			}
			if line[0] != '+' {
				e.before += line[1:]
			}
			if line[0] != '-' {
				e.after += line[1:]
			}
		}
		if strings.TrimSpace(e.before) == "" || e.before == e.after {
			return m, errors.New("an edit has no line to find, or changes nothing")
		}
		m.edits = append(m.edits, e)
	}
	return m, nil
}

// readProduct returns the files with code and manifests of the product by their paths.
func readProduct(top string) (map[string][]byte, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.yaml")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := map[string][]byte{}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "test/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(top, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed, but still in the index
			return nil, err
		}
		files[name] = data
	}
	return files, nil
}

// apply returns the files that the mutation changes, with their mutated content.
func (m mutation) apply(files map[string][]byte) (map[string][]byte, error) {
	current, changed := maps.Clone(files), map[string][]byte{}
	for _, e := range m.edits {
		file, text, err := e.apply(current)
		if err != nil {
			return nil, err
		}
		current[file], changed[file] = text, text
	}
	return changed, nil
}

// apply returns the only file that has the text before, and its content after the edit.
func (e edit) apply(files map[string][]byte) (file string, text []byte, err error) {
	words := strings.Fields(e.before)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	pattern := regexp.MustCompile(strings.Join(words, `\s+`))
	var places []string
	for name, data := range files {
		if e.within != "" && name != e.within && !strings.HasPrefix(name, e.within+"/") {
			continue
		}
		for _, at := range pattern.FindAllIndex(data, -1) {
			if !isBlank(data, at[0]-1) || !isBlank(data, at[1]) {
				continue // within a word
			}
			places = append(places, fmt.Sprintf("%s:%d", name, 1+bytes.Count(data[:at[0]], []byte("\n"))))
			file, text = name, slices.Concat(data[:at[0]], e.indented(data[:at[0]]), data[at[1]:])
		}
	}
	switch len(places) {
	case 0:
		return "", nil, fmt.Errorf("no file has this text:\n%s", e.before)
	case 1:
		return file, text, nil
	}
	slices.Sort(places)
	return "", nil, fmt.Errorf("%s have this text; add neighbouring lines:\n%s", strings.Join(places, ", "), e.before)
}

// indented returns the text after with the indentation of the line that it begins in, which YAML needs.
func (e edit) indented(before []byte) []byte {
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	indentation := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	return []byte(strings.ReplaceAll(strings.TrimSpace(e.after), "\n", "\n"+string(indentation)))
}

func isBlank(data []byte, i int) bool {
	return i < 0 || i >= len(data) || strings.IndexByte(" \t\n", data[i]) >= 0
}

// findFaults returns a text for each mutation that does not apply or whose test does not exist.
func findFaults(top string, files map[string][]byte, mutations []mutation) []string {
	var faults []string
	for _, m := range mutations {
		_, err := m.apply(files)
		if err = errors.Join(err, checkCommand(top, m.command)); err != nil {
			faults = append(faults, m.name+": "+err.Error())
		}
	}
	return faults
}

// checkCommand checks that the package of a command exists and has a test for each alternative of -run.
func checkCommand(top, command string) error {
	form := commandForm.FindStringSubmatch(command)
	if form == nil {
		return fmt.Errorf("invalid command %q: must be [cd DIRECTORY &&] go test PACKAGE [-run TESTS]", command)
	}
	dir := filepath.Join(top, form[1], form[2])
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var tests []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		for _, match := range testFunction.FindAllSubmatch(data, -1) {
			tests = append(tests, string(match[1]))
		}
	}
	function, _, _ := strings.Cut(form[3], "/")
	for alternative := range strings.SplitSeq(function, "|") {
		matcher, err := regexp.Compile(alternative)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(tests, matcher.MatchString) {
			return fmt.Errorf("%s has no test %s", dir, alternative)
		}
	}
	return nil
}
