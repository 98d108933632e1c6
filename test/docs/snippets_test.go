// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// snippetFile is the program into which a snippet is inserted that is no program itself. The snippet may use spec and return an error.
const snippetFile = `package main

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/cdi"
)

func snippet(spec *specs.Spec) error {
%s
	return nil
}

func main() { fmt.Println(snippet(nil), cdi.AnnotationPrefix) }
`

// The Go code of the documentation compiles.
func TestGoSnippetsCompile(t *testing.T) {
	found := 0
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" || !strings.HasPrefix(p.path, "docs/") {
				continue
			}
			found++
			file, text := filepath.Join(t.TempDir(), "snippet.go"), b.text
			if !strings.HasPrefix(text, "package ") {
				text = fmt.Sprintf(snippetFile, text)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
				t.Errorf("%s does not compile: %v\n%s", p.place(b.line), err, out)
			}
		}
	}
	if found < 2 {
		t.Errorf("found only %d snippets", found)
	}
}
