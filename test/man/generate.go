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

// chapter is a page that is made of one of the documentation's.
type chapter struct {
	name, section, source, summary string
	see                            []string
}

func chapters() []chapter {
	return []chapter{
		{"jackfield.yaml", "5", "docs/configuration.md", "the node's configuration, /etc/jackfield/config.yaml", []string{"jackfield(1)", "jackfield-nri(8)"}},
		{"jackfield-cni", "8", "docs/cni.md", "CNI plugin that makes sockets' directories and writes device-info", []string{"jackfield(1)", "jackfield.yaml(5)"}},
		{"jackfield-hook", "8", "docs/hooks.md", "OCI hook that gives containers the sockets and devices they were granted", []string{"jackfield(1)", "jackfield.yaml(5)"}},
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

// page makes a manual page of a page of the documentation: its title becomes the
// name, its headings the sections, links lose their targets.
func (c chapter) page(top string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(top, c.source))
	if err != nil {
		return nil, err
	}
	_, body, ok := strings.Cut(string(text), "\n")
	if !ok || !strings.HasPrefix(string(text), "# ") {
		return nil, fmt.Errorf("%s: the first line is no title", c.source)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%% %q %q %q \"Jackfield\" \"Jackfield\"\n\n# NAME\n\n%s - %s\n\n# DESCRIPTION\n",
		strings.ToUpper(c.name), c.section, date.Format("Jan 2006"), c.name, c.summary)
	fenced := false
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if !fenced {
			line = regexp.MustCompile(`\[((?:[^\]\[]|\[[^\]]*\])*)\]\([^)\s]+\)`).ReplaceAllString(line, "$1")
			if heading, ok := strings.CutPrefix(line, "## "); ok {
				line = "# " + strings.ToUpper(strings.ReplaceAll(heading, "`", ""))
			} else if strings.HasPrefix(line, "###") {
				line = line[1:]
			}
		}
		b.WriteString(line)
	}
	see := slices.Clone(c.see)
	slices.Sort(see)
	fmt.Fprintf(&b, "\n# SEE ALSO\n\n%s\n", strings.Join(see, ", "))
	return md2man.Render([]byte(b.String())), nil
}
