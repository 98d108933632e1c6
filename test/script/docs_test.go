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

	"github.com/jackfield/jackfield/pkg/cli"
)

const page = "../../docs/cli.md"

// Each command in a block marked "console" prints what stands below it, on the
// node of testdata/docs, in the order of the page.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	pagePath, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	root := docsNode(t)
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
	if shown < 8 {
		t.Errorf("%s shows %d commands only", page, shown)
	}
	if got == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(pagePath, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, is := strings.Split(string(text), "\n"), strings.Split(got, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Fatalf("%s:%d: the page says\n%s\nand the command\n%s\n(-update writes the page)", page, i+1, was[i], is[i])
		}
	}
	t.Fatalf("%s: a command prints more, or less, than the page says (-update writes the page)", page)
}

// docsNode makes the host of the page, and its home directory the current one.
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

// runAt runs a command on the host below root, and gives all that it prints.
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
