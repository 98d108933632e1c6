// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/parts"
)

// Page has the sample programs.
const Page = "docs/how-to/read-devices-in-a-program.md"

// ReadBlock returns the first fenced block of a language on a page of the checkout.
func ReadBlock(top, page, language string) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile("(?s)\n```" + regexp.QuoteMeta(language) + "\n(.*?)```").FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s has no block of %s: %w", page, language, errdefs.ErrNotFound)
	}
	return string(found[1]), nil
}

// WriteSamples writes the page's programs to dir: go, a static program; sample.py and jackfield.py; and c, if
// the machine has gcc. The additional arguments are gcc's.
func WriteSamples(ctx context.Context, dir string, gcc ...string) error {
	top, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	for language, file := range map[string]string{"go": "sample.go", "python": "sample.py", "c": "sample.c"} {
		text, err := ReadBlock(top, Page, language)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	module, err := os.ReadFile(filepath.Join(top, "deploy/kit/jackfield.py"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "jackfield.py"), module, 0o644); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "go"), filepath.Join(dir, "sample.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the sample in Go: %w\n%s", err, out)
	}
	if !HasGCC() {
		return nil
	}
	args := append([]string{"-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-I", filepath.Join(top, "deploy/kit"),
		"-o", filepath.Join(dir, "c"), filepath.Join(dir, "sample.c")}, gcc...)
	if out, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the sample in C: %w\n%s", err, out)
	}
	return nil
}

// HasGCC reports whether the machine has a C compiler.
func HasGCC() bool {
	_, err := exec.LookPath("gcc")
	return err == nil
}
