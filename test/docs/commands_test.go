// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/adapter/kubectl"
	"github.com/jackfield/jackfield/nri"
)

// programs returns the commands whose documented command lines are checked.
func programs() map[string]*cobra.Command {
	none := func(string) string { return "" }
	tree := cli.Command(cli.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: none})
	tree.InitDefaultHelpCmd()
	tree.InitDefaultCompletionCmd()
	return map[string]*cobra.Command{"jackfield": tree, "jackfield-nri": nri.Command(none, io.Discard)}
}

// The command lines of the documentation use existing commands and flags.
func TestCommandLinesExist(t *testing.T) {
	tree := programs()
	names := []string{"jackfield", "jackfield-nri"}
	seen := 0
	for _, p := range readPages(t) {
		check := func(number int, text string) {
			seen++
			words := strings.Fields(text)
			if why := unknownPart(tree[words[0]], words[1:]); why != "" {
				t.Errorf("%s: `%s`: %s", p.place(number), text, why)
			}
		}
		for _, b := range p.blocks {
			if b.lang != "console" && b.lang != "sh" {
				continue
			}
			for _, l := range b.commandLines(names) {
				check(b.line, l)
			}
		}
		for _, l := range p.lines {
			for _, span := range l.code() {
				// Check only what looks like a command line: "jackfield" alone is a name.
				first, rest, _ := strings.Cut(span, " ")
				if slices.Contains(names, first) && rest != "" {
					check(l.number, span)
				}
			}
		}
	}
	if seen < 25 {
		t.Errorf("found only %d command lines", seen)
	}
}

// unknownPart returns an error text about the command or flag of a command line that does not exist.
func unknownPart(cmd *cobra.Command, words []string) string {
	depth := 0
	for i, w := range words {
		if w == "" || strings.HasPrefix(w, "-") || strings.HasPrefix(w, "[") {
			break
		}
		next, _, err := cmd.Find(words[i : i+1])
		if err != nil || next == cmd {
			break
		}
		cmd, depth = next, i+1
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if cmd.HasSubCommands() && depth < len(words) && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(words[depth]) {
		return cmd.CommandPath() + " has no command " + words[depth]
	}
	for _, w := range words {
		if w == "--" { // another program's options follow
			break
		}
		for _, flag := range regexp.MustCompile(`(?:^|[\[|(])(--?[a-z][a-z-]*)`).FindAllStringSubmatch(w, -1) {
			if !hasFlag(cmd, flag[1]) {
				return cmd.CommandPath() + " has no flag " + flag[1]
			}
		}
	}
	return ""
}

func hasFlag(cmd *cobra.Command, flag string) bool {
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags(), cmd.PersistentFlags()} {
		if name, long := strings.CutPrefix(flag, "--"); long {
			if set.Lookup(name) != nil {
				return true
			}
		} else if set.ShorthandLookup(flag[1:2]) != nil {
			return true
		}
	}
	return false
}

// docs/reference/cli.md names every command.
func TestEveryCommandIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "docs/reference/cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range programs()["jackfield"].Commands() {
		if !cmd.Hidden && !strings.Contains(string(text), "`"+cmd.Name()) && !strings.Contains(string(text), "jackfield "+cmd.Name()) {
			t.Errorf("docs/reference/cli.md does not name `jackfield %s`", cmd.Name())
		}
	}
}

// manualFlag matches a flag where a manual page lists it.
var manualFlag = regexp.MustCompile(`(?m)^(?:\\fB-\w\\fP, )?\\fB--([a-z-]+)\\fP`)

// The manual page of each command has every flag of the command, and no other flag.
func TestEveryFlagIsDocumented(t *testing.T) {
	checked := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "completion" || cmd.Name() == "help" {
			return
		}
		section := ".1"
		if cmd.Root().Name() == "jackfield-nri" {
			section = ".8"
		}
		file := "docs/man/" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + section
		text, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			t.Fatal(err)
		}
		documented := map[string]bool{}
		for _, m := range manualFlag.FindAllSubmatch(text, -1) {
			documented[string(m[1])] = true
			if !hasFlag(cmd, "--"+string(m[1])) && string(m[1]) != "help" {
				t.Errorf("%s has --%s, which `%s` does not have", file, m[1], cmd.CommandPath())
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || f.Deprecated != "" {
				return
			}
			checked++
			if !documented[f.Name] {
				t.Errorf("%s does not name --%s of `%s`", file, f.Name, cmd.CommandPath())
			}
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	for _, cmd := range programs() {
		check(cmd)
	}
	if checked < 40 {
		t.Errorf("found only %d flags", checked)
	}
}

// docs/reference/cli.md names each flag that several commands share.
func TestSharedFlagsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "docs/reference/cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--output", "--config", "--root", "--color", "-n", "-w", "-q"} {
		if !regexp.MustCompile("(?m)^\\|.*`" + flag + `\b.* \|`).Match(text) {
			t.Errorf("docs/reference/cli.md has no row for %s", flag)
		}
	}
}

// The help of a flag has a name for its value, not the name of a Go type.
func TestFlagValuesHaveNames(t *testing.T) {
	types := []string{"string", "strings", "stringArray", "stringToString", "int", "uint", "float", "time", "duration"}
	checked := 0
	visitFlags(func(cmd *cobra.Command, f *pflag.Flag) {
		checked++
		if name, _ := pflag.UnquoteUsage(f); slices.Contains(types, name) {
			t.Errorf("%s: --%s %s: the usage %q has no name for the value", cmd.CommandPath(), f.Name, name, f.Usage)
		}
	})
	if checked < 100 {
		t.Errorf("found only %d flags", checked)
	}
}

// visitFlags calls visit for each flag of each command of all programs, kubectl's plugin included.
func visitFlags(visit func(cmd *cobra.Command, f *pflag.Flag)) {
	all := programs()
	all["kubectl-jackfield"] = kubectl.Command(kubectl.Env{Getenv: func(string) string { return "" }})
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { visit(cmd, f) })
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, cmd := range all {
		walk(cmd)
	}
}

// A short flag, and a long flag of several commands, has one meaning in every command: its name, the name of its value,
// and the beginning of its usage.
func TestFlagHasOneMeaning(t *testing.T) {
	type meaning struct{ short, value, usage string }
	meanings := map[string]meaning{
		"output":    {"o", "format", "format: text"},
		"namespace": {"n", "namespace", "the namespace of "},
		"watch":     {"w", "", "print changes until interrupted: "},
		"quiet":     {"q", "", "print diagnostics only"},
		"selector":  {"l", "labels", "labels of "},
		"config":    {"", "file", "configuration file"},
		"out":       {"", "file", "file to write"},

		"filename":       {"f", "FILE", "FILE, directory or URL"},
		"all-namespaces": {"A", "", "the pods of all namespaces"},
	}
	found := map[string]int{}
	visitFlags(func(cmd *cobra.Command, f *pflag.Flag) {
		want, known := meanings[f.Name]
		if !known && f.Shorthand == "" || f.Name == "help" || f.Name == "version" {
			return
		}
		found[f.Name]++
		value, usage := pflag.UnquoteUsage(f)
		if got := (meaning{f.Shorthand, value, usage[:min(len(usage), len(want.usage))]}); got != want {
			t.Errorf("%s: --%s means %+v, and elsewhere %+v", cmd.CommandPath(), f.Name, meaning{f.Shorthand, value, usage}, want)
		}
	})
	for name := range meanings {
		if found[name] == 0 {
			t.Errorf("no command has --%s", name)
		}
	}
}

// unknownPart finds unknown commands and flags.
func TestUnknownCommandsAndFlagsAreFound(t *testing.T) {
	tree := programs()["jackfield"]
	for line, want := range map[string]string{
		"explain --container x": "", "explain --containers x": "--containers", "deviceinfo list": "", "deviceinfo lisst": "lisst", "explane": "explane",
		"explain FILE [--container NAME] [-o text|json]": "", "version": "", "completion bash": "", "explain [--nope]": "--nope",
	} {
		if got := unknownPart(tree, strings.Fields(line)); want == "" && got != "" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
