// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/jackfield/jackfield/nri"
	"github.com/jackfield/jackfield/pkg/cli"
)

// date stands on the pages: a month of its own for each would change them all
// the time.
var date = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// chapter is a page that is made of the documentation's: the first source with its
// sections, each further one as a section that is called by its title.
type chapter struct {
	name, section, summary string
	sources, see           []string
	without                []string // sections for readers of the source code
}

func chapters() []chapter {
	return []chapter{
		{
			name: "jackfield.yaml", section: "5", summary: "the node's configuration and policy, /etc/jackfield/config.yaml",
			sources: []string{"docs/configuration.md", "docs/policy.md"}, see: []string{"jackfield(1)", "jackfield-nri(8)"},
		},
		{
			name: "jackfield-cni", section: "8", summary: "CNI plugin that makes sockets' directories and writes device-info",
			sources: []string{"docs/cni.md"}, see: []string{"jackfield(1)", "jackfield.yaml(5)"}, without: []string{"Every MUST of the specification"},
		},
		{
			name: "jackfield-hook", section: "8", summary: "OCI hook that gives containers the sockets and devices they were granted",
			sources: []string{"docs/hooks.md"}, see: []string{"jackfield(1)", "jackfield.yaml(5)"}, without: []string{"What it costs", "Tested"},
		},
	}
}

// generate gives the pages by file name.
func generate(top string) (map[string][]byte, error) {
	all := map[string][]byte{}
	none := func(string) string { return "" }
	tree := cli.Command(cli.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: none})
	if err := commands(all, tree, "1"); err != nil {
		return nil, err
	}
	if err := commands(all, nri.Command(none, io.Discard), "8"); err != nil {
		return nil, err
	}
	for _, c := range chapters() {
		page, err := c.page(top)
		if errors.Is(err, fs.ErrNotExist) && !exists(filepath.Join(top, "cmd", c.name)) && c.section == "8" {
			continue // there is no such program
		}
		if err != nil {
			return nil, err
		}
		all[c.name+"."+c.section] = page
	}
	return all, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// commands adds the page of a command and those of its subcommands.
func commands(all map[string][]byte, cmd *cobra.Command, section string) error {
	cmd.DisableAutoGenTag = true
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := commands(all, sub, section); err != nil {
			return err
		}
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: section, Date: &date, Source: "Jackfield", Manual: "Jackfield"}
	var page bytes.Buffer
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return fmt.Errorf("make page of %q: %w", cmd.CommandPath(), err)
	}
	all[name+"."+section] = page.Bytes()
	return nil
}

// page makes a manual page of pages of the documentation: the first title becomes the
// name, headings become sections, links lose their targets, and tables become lists.
func (c chapter) page(top string) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%% %q %q %q \"Jackfield\" \"Jackfield\"\n\n# NAME\n\n%s - %s\n\n# DESCRIPTION\n",
		strings.ToUpper(c.name), c.section, date.Format("Jan 2006"), c.name, c.summary)
	for i, source := range c.sources {
		text, err := os.ReadFile(filepath.Join(top, source))
		if err != nil {
			return nil, err
		}
		first, body, _ := strings.Cut(string(text), "\n")
		title, ok := strings.CutPrefix(first, "# ")
		if !ok {
			return nil, fmt.Errorf("%s: the first line is no title", source)
		}
		level := 1
		if i > 0 {
			fmt.Fprintf(&b, "\n# %s\n", strings.ToUpper(title))
			level = 2
		}
		c.write(&b, body, level)
	}
	see := slices.Clone(c.see)
	slices.Sort(see)
	fmt.Fprintf(&b, "\n# SEE ALSO\n\n%s\n", strings.Join(see, ", "))
	return md2man.Render([]byte(b.String())), nil
}

var link = regexp.MustCompile(`\[((?:[^\]\[]|\[[^\]]*\])*)\]\([^)\s]+\)`)

// write adds the body of a page, whose sections (##) get the given level.
func (c chapter) write(b *strings.Builder, body string, level int) {
	fenced, left := false, false
	var table []string
	flush := func() {
		if len(table) > 0 {
			writeTable(b, table)
			table = nil
		}
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if !fenced && strings.HasPrefix(line, "## ") {
			left = slices.Contains(c.without, strings.TrimSpace(line[3:]))
		}
		if left {
			continue
		}
		if !fenced {
			line = link.ReplaceAllString(line, "$1")
			if strings.HasPrefix(line, "|") {
				table = append(table, line)
				continue
			}
			if hashes := len(line) - len(strings.TrimLeft(line, "#")); hashes > 1 {
				heading := strings.TrimLeft(line, "# ")
				if level == 1 && hashes == 2 {
					heading = strings.ToUpper(strings.ReplaceAll(heading, "`", ""))
				}
				line = strings.Repeat("#", hashes-2+level) + " " + heading
			}
		}
		flush()
		b.WriteString(line)
	}
	flush()
}

// writeTable writes a table as a list, which fits a terminal of any width: the first
// column has the terms, and what is in the others stands below with the columns' titles.
func writeTable(b *strings.Builder, lines []string) {
	titles := cells(lines[0])
	for _, line := range lines[2:] { // the second line is |---|
		row := cells(line)
		term := row[0]
		if term == "" {
			term = "–"
		}
		var parts []string
		for i, cell := range row[1:] {
			switch {
			case cell == "":
			case len(row) == 2 || titles[i+1] == "":
				parts = append(parts, cell)
			default:
				parts = append(parts, "*"+titles[i+1]+":* "+cell)
			}
		}
		fmt.Fprintf(b, "\n%s\n: %s\n", term, strings.Join(parts, ". "))
	}
	b.WriteString("\n")
}

// cells are those of a table's row; "\|" is a bar in one.
func cells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, bar)
	row := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i := range row {
		row[i] = strings.TrimSpace(strings.ReplaceAll(row[i], bar, "|"))
	}
	return row
}
