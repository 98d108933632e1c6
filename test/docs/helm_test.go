// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// docs/reference/helm-values.md lists each value of the chart, the default of each scalar, and the defaults of config.
func TestHelmValuesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "deploy/helm/jackfield/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	page, err := os.ReadFile(filepath.Join(top, "docs/reference/helm-values.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range regexp.MustCompile("(?m)^- (`[^(]*`) \\((.*?)\\): ").FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(item[1], ", ") {
			documented[strings.Trim(name, "`")] = strings.Trim(item[2], "`")
		}
	}
	seen := map[string]bool{}
	var check func(name string, value any)
	check = func(name string, value any) {
		want, ok := documented[name]
		seen[name] = true
		switch value := value.(type) {
		case map[string]any:
			if !ok {
				for key, inner := range value {
					check(name+"."+key, inner)
				}
			}
		case []any:
			if !ok {
				t.Errorf("docs/reference/helm-values.md does not have %s", name)
			}
		default:
			got, err := yaml.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			if def := strings.TrimSpace(string(got)); def != want {
				t.Errorf("docs/reference/helm-values.md: %s has the default %q, and the chart has %q", name, want, def)
			}
		}
	}
	for key, value := range values {
		check(key, value)
	}
	for name := range documented {
		if !seen[name] {
			t.Errorf("docs/reference/helm-values.md has %s, which the chart does not have", name)
		}
	}
	config, err := yaml.Marshal(values["config"])
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range readPages(t) {
		if p.path != "docs/reference/helm-values.md" {
			continue
		}
		var onPage any
		if err := yaml.Unmarshal([]byte(p.blocks[0].text), &onPage); err != nil {
			t.Fatal(err)
		}
		if got, err := yaml.Marshal(onPage); err != nil || string(got) != string(config) {
			t.Errorf("%s: the block is not the chart's config (%v):\n%s", p.path, err, config)
		}
	}
}

// tableRows returns the rows of the page's table with the given column titles.
func tableRows(t *testing.T, path string, titles ...string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	inTable := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case slices.Equal(cells, titles):
			inTable = true
		case inTable && len(cells) == len(titles) && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}
