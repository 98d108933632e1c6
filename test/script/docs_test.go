// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/jackfield/jackfield/internal/adapter/cli"
)

// On the node of testdata/docs, each command in a block marked "console" prints the output below it.
// The commands run in the order of the page.
func TestConsoleBlocksOfCLIPage(t *testing.T) {
	checkConsolesOnNode(t, "../../docs/reference/cli.md", 8)
}

// The node's other commands, which no page shows, print the output in testdata/docs/commands.console.
func TestConsoleBlocksOfOtherCommands(t *testing.T) {
	checkConsolesOnNode(t, "testdata/docs/commands.console", 4)
}

// checkConsolesOnNode checks the blocks of a file on a new node of testdata/docs.
func checkConsolesOnNode(t *testing.T, file string, atLeast int) {
	t.Helper()
	page, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	checkConsoles(t, page, docsNode(t), atLeast)
}

func checkConsoles(t *testing.T, page, root string, atLeast int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```\n")
	shown := 0
	got := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
		body := blocks.FindStringSubmatch(block)[1]
		var b strings.Builder
		b.WriteString("```console\n")
		for _, cmd := range regexp.MustCompile(`(?m)^\$ jackfield ((?:.*\\\n)*.*)\n`).FindAllStringSubmatch(body, -1) {
			shown++
			b.WriteString(cmd[0])
			b.WriteString(runAt(root, strings.Fields(strings.ReplaceAll(cmd[1], "\\\n", " "))))
		}
		return b.String() + "```\n"
	})
	if shown < atLeast {
		t.Errorf("%s shows only %d commands", page, shown)
	}
	if got == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, is := strings.Split(string(text), "\n"), strings.Split(got, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Fatalf("%s:%d: the page has\n%s\nand the command prints\n%s\n(-update writes the page)", page, i+1, was[i], is[i])
		}
	}
	t.Fatalf("%s: a command prints more or fewer lines than the page has (-update writes the page)", page)
}

// docsNode creates the host of the page and changes to its home directory.
func docsNode(t *testing.T) string {
	root := t.TempDir()
	ar, err := txtar.ParseFile("testdata/docs/node.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if err := txtar.Write(ar, root); err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(root, "var/run/vsw/east/vhost.sock")
	if err := os.MkdirAll(filepath.Dir(sock), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(sock))
	l, err := net.Listen("unix", "vhost.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Chdir(filepath.Join(root, "home"))
	return root
}

// runAt runs a command on the host below root and returns its whole output.
func runAt(root string, args []string) string {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }); i > 0 {
		args = slices.Insert(slices.Clone(args), i, "--root", root)
	} else if args[0] != "version" {
		args = append(args, "--root", root)
	}
	var out bytes.Buffer
	cli.Run(context.Background(), args, cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" },
	})
	return out.String()
}
