// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/nri"
)

// date is the date of all pages. It is fixed, so that the pages change only with their content.
var date = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// chapter is a manual page that is generated from pages of the documentation: the first source with its
// sections, and each further one as a section with its title.
type chapter struct {
	name, section, summary string
	sources, see           []string
	more                   string // additional sections in Markdown, which the documentation has elsewhere
}

func chapters() []chapter {
	return []chapter{
		{
			name: "jackfield.yaml", section: "5", summary: "the node's configuration and policy",
			sources: []string{"docs/reference/configuration.md", "docs/reference/policy.md"}, see: []string{"jackfield(1)", "jackfield-nri(8)"},
			more: `
# FILES

/etc/jackfield/config.yaml
: the configuration

/etc/nri/conf.d/50-jackfield.conf
: the configuration, if the runtime starts jackfield-nri

/run/jackfield/last-good-config.yaml
: copy of the last good configuration, for the next start of jackfield-nri
`,
		},
		{
			name: "jackfield-cni", section: "8", summary: "CNI plugin that creates socket directories and writes device-info",
			sources: []string{"docs/reference/cni-plugin.md"}, see: []string{"jackfield(1)", "jackfield.yaml(5)"},
			more: `
# FILES

/var/run/jackfield/sockets
: directories of attachments

/var/run/jackfield/cni
: records of attachments

/var/run/jackfield/claims
: the node's claims of socket directories

/var/run/k8s.cni.cncf.io/devinfo/cni
: device-info files

# ENVIRONMENT

CNI_COMMAND, CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_ARGS, CNI_PATH, CNI_NETNS_OVERRIDE
: as in the CNI specification

# EXIT STATUS

0
: success

1
: an error, which is printed to standard output as the CNI specification requires
`,
		},
		{
			name: "jackfield-netavark", section: "8", summary: "netavark plugin for networks of Podman with vhost-user and memif sockets",
			sources: []string{"docs/reference/netavark-plugin.md"}, see: []string{"jackfield(1)", "jackfield-hook(8)", "jackfield.yaml(5)", "podman-network-create(1)"},
			more: `
# FILES

/usr/local/libexec/netavark/jackfield-netavark
: where netavark finds the plugin

/etc/jackfield/config.yaml
: the node's configuration, which names the other directories

~/.config/jackfield/config.yaml
: the configuration of an ordinary user's Podman

# EXIT STATUS

0
: success

1
: an error, which is printed to standard output as netavark requires

2
: the command line has an unknown flag
`,
		},
		{
			name: "kubectl-jackfield", section: "1", summary: "run jackfield in the plugin's pod on a pod's node",
			sources: []string{"docs/reference/kubectl-jackfield.md"}, see: []string{"jackfield(1)", "kubectl(1)"},
			more: `
# EXIT STATUS

0, 2
: as of jackfield

1
: as of jackfield, or the pod does not exist

3
: as of jackfield, or jackfield did not run
`,
		},
		{
			name: "jackfield-run", section: "1", summary: "start a program with the arguments that its container's devices need",
			sources: []string{"docs/reference/jackfield-run.md"}, see: []string{"jackfield(1)", "jackfield-nri(8)"},
		},
		{
			name: "jackfield-hook", section: "8", summary: "OCI hook that delivers the granted devices and sockets to a container",
			sources: []string{"docs/reference/oci-hook.md"}, see: []string{"jackfield(1)", "jackfield.yaml(5)"},
			more: `
# EXIT STATUS

0
: delivered, or nothing to do

1
: the container must not start; the error is on standard error

2
: the same: the command line has a mistake
`,
		},
	}
}

// commandSections returns the sections that cobra does not write: files, environment and exit status.
func commandSections(cmd *cobra.Command) string {
	var b strings.Builder
	term := func(name, meaning string) {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", strings.ReplaceAll(name, "-", "\\-"), meaning)
	}
	daemon := cmd.Root().Name() == "jackfield-nri"
	if cmd.Flag("config") != nil || !cmd.HasParent() {
		b.WriteString(".SH FILES\n")
		term("/etc/jackfield/config.yaml", "the configuration, see jackfield.yaml(5)")
		term("/etc/cdi, /var/run/cdi", "CDI files, unless the configuration names other directories")
		term("/run/jackfield", "state of containers, and the socket of \\fBjackfield status\\fR")
		b.WriteString(".SH ENVIRONMENT\n")
		term("CDI_SPEC_DIRS", "directories of CDI files, separated by colons, in place of those of the configuration")
	}
	b.WriteString(".SH EXIT STATUS\n")
	if daemon {
		term("0", "the plugin was stopped")
	} else {
		term("0", "success; the answer is yes")
		term("1", "the answer is no: denied, invalid, or nothing found")
	}
	term("2", "the command line is wrong")
	if daemon {
		term("3", "any other error")
	} else {
		term("3", "no answer: something could not be read, done or checked")
	}
	return b.String()
}

// generate returns the pages by file name.
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
			continue // the program does not exist
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

// commands adds the page of a command and those of its subcommands. Cobra's texts about the shells have
// lines that are wider than a page, and stay in the help.
func commands(all map[string][]byte, cmd *cobra.Command, section string) error {
	cmd.DisableAutoGenTag = true
	shells := cmd.Name() == "completion"
	for _, sub := range cmd.Commands() {
		if shells || !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
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
	before, see, _ := strings.Cut(page.String(), "\n.SH SEE ALSO\n")
	text := strings.TrimRight(before, "\n") + "\n" + commandSections(cmd)
	switch {
	case shells:
		text += ".SH SEE ALSO\n\\fBjackfield(1)\\fP\n"
	case see != "":
		text += ".SH SEE ALSO\n" + see
	case !cmd.HasParent():
		text += ".SH SEE ALSO\n\\fBjackfield(1)\\fP, \\fBjackfield.yaml(5)\\fP\n"
	}
	all[name+"."+section] = []byte(text)
	return nil
}

// page generates a manual page from pages of the documentation: the first title becomes the name,
// headings become sections, links lose their targets, and tables become lists.
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
	b.WriteString(c.more)
	see := slices.Clone(c.see)
	slices.Sort(see)
	fmt.Fprintf(&b, "\n# SEE ALSO\n\n%s\n", strings.Join(see, ", "))
	return md2man.Render([]byte(b.String())), nil
}

var (
	link = regexp.MustCompile(`\[((?:[^\]\[]|\[[^\]]*\])*)\]\([^)\s]+\)`)
	// reference is a link that only says where to read on: it stands after "see", or alone in parentheses.
	reference = regexp.MustCompile(`(\b[Ss]ee )` + link.String() + `| \(` + link.String() + `\)`)
	target    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// replaceLinks writes the links of a line without their targets. A reference becomes the name of the section
// or of the manual page; it is left out if it leads to neither.
func replaceLinks(line string) string {
	line = reference.ReplaceAllStringFunc(line, func(found string) string {
		m := reference.FindStringSubmatch(found)
		see, text := m[1], m[2]+m[3]
		name := manualPage(path.Base(target.FindStringSubmatch(found)[1]), text)
		switch {
		case name == "" && see != "":
			return see + text
		case name == "":
			return ""
		case see != "":
			return see + name
		}
		return " (see " + name + ")"
	})
	return link.ReplaceAllString(line, "$1")
}

// manualPage returns the manual page that is generated from a page of the documentation, or the title of a section
// of the same page; "" if the target is another page.
func manualPage(target, text string) string {
	if strings.HasPrefix(target, "#") {
		return strings.ToUpper(text)
	}
	file, _, _ := strings.Cut(target, "#")
	if file == "cli.md" {
		return "jackfield(1)"
	}
	for _, c := range chapters() {
		if slices.ContainsFunc(c.sources, func(source string) bool { return path.Base(source) == file }) {
			return c.name + "(" + c.section + ")"
		}
	}
	return ""
}

// exampleWidth is the width of a terminal, less the indents of a manual page.
const exampleWidth = 69

// wrapExample breaks a line of an example that is wider than exampleWidth at its spaces, and indents what follows.
// In a shell a backslash continues the line.
func wrapExample(line, language string) string {
	line = strings.TrimSuffix(line, "\n")
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	next, end := indent+"    ", ""
	if language == "sh" || language == "console" && strings.HasPrefix(line[len(indent):], "$ ") {
		end = " \\"
	}
	var b strings.Builder
	for utf8.RuneCountInString(line) > exampleWidth {
		head := string([]rune(line)[:exampleWidth-len(end)])
		at := strings.LastIndex(head, " ")
		if at <= len(next) {
			// The first word is too long: break behind it.
			if at = strings.Index(strings.TrimLeft(line, " "), " "); at < 0 {
				break
			}
			at += len(line) - len(strings.TrimLeft(line, " "))
		}
		b.WriteString(strings.TrimRight(line[:at], " ") + end + "\n")
		line = next + strings.TrimLeft(line[at:], " ")
	}
	return b.String() + line + "\n"
}

// write appends the body of a page. Its sections (##) get the given level.
func (c chapter) write(b *strings.Builder, body string, level int) {
	example, language := false, ""
	var table []string
	flush := func() {
		if len(table) > 0 {
			writeTable(b, table)
			table = nil
		}
	}
	for line := range strings.Lines(body) {
		if after, fence := strings.CutPrefix(strings.TrimSpace(line), "```"); fence {
			example, language = !example, after
		} else if example {
			line = wrapExample(line, language)
		}
		if !example {
			line = replaceLinks(line)
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

// writeTable writes a table as a list, which fits a terminal of any width: the first column has the
// terms, and the other cells follow below with the titles of their columns.
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

// cells returns the cells of a table row. "\|" is a bar within a cell.
func cells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, bar)
	row := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i := range row {
		row[i] = strings.TrimSpace(strings.ReplaceAll(row[i], bar, "|"))
	}
	return row
}
