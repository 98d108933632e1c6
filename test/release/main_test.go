// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const version = "0.1.0"

// scratch is a directory for what the tests share. It is removed at the end.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "jackfield-release-test"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// buildRelease makes a release of both architectures once, in a directory.
var buildRelease = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "release")
	checkout, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	ctx, stop := testContext()
	defer stop()
	return dir, run(ctx, []string{"-version", version, "-uncommitted", "-C", checkout, "-o", dir}, io.Discard, os.Stderr)
})

func released(t *testing.T) string {
	t.Helper()
	dir, err := buildRelease()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// command runs a program and returns what it prints.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var plainEnv = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// The second run uses another directory for temporary files and another path of the checkout. It makes one
// architecture only: what it makes is a part of the first run's.
func TestReleaseIsReproducible(t *testing.T) {
	first, second := released(t), filepath.Join(t.TempDir(), "release")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOSTNAME", "elsewhere")
	if err := run(t.Context(), []string{"-version", version, "-uncommitted", "-o", second, "-archs", runtime.GOARCH}, io.Discard, os.Stderr); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		archiveName(runtime.GOARCH) + ".tar.gz", archiveName(runtime.GOARCH) + ".spdx.json",
		"jackfield_" + version + "_" + runtime.GOARCH + ".deb", "jackfield-" + version + "." + rpmArchs[runtime.GOARCH] + ".rpm",
	} {
		if read(t, first, name) != read(t, second, name) {
			t.Errorf("%s differs between two runs", name)
		}
	}
	image := readLayout(t, filepath.Join(first, "jackfield-image-"+version+".oci.tar"))
	for name, blob := range readLayout(t, filepath.Join(second, "jackfield-image-"+version+".oci.tar")) {
		if len(blob) > 1<<20 && image[name] != blob {
			t.Errorf("the image's layer %s differs between two runs", name)
		}
	}
}

func archiveName(arch string) string { return "jackfield-" + version + "-linux-" + arch }

func TestInvalidFlagsAreRejected(t *testing.T) {
	empty := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		command(t, empty, append([]string{"HOME=" + empty, "GIT_CONFIG_NOSYSTEM=1"}, plainEnv...), "git", append([]string{"-c", "user.name=A", "-c", "user.email=a@example.com"}, args...)...)
	}
	git("init", "--quiet")
	git("commit", "--quiet", "--allow-empty", "--message", "a: begin")
	if err := os.WriteFile(filepath.Join(empty, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"", "-version"}, {"-version v1.0.0", "without v"}, {"-version 1.0", "-version"}, {"-version 1.0.0+x", "-version"}, {"-version 01.0.0", "-version"},
		{"-version 1.0.0-a..b", "-version"}, {"-version 1.0.0 -archs riscv64", "-archs"}, {"-version 1.0.0 x", "argument"}, {"-nope", "flag"},
		{"-version 1.0.0 -C " + empty, "not committed"},
	} {
		args := append([]string{"-o", filepath.Join(t.TempDir(), "x")}, strings.Fields(tc.args)...)
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want an error with %q", tc.args, err, tc.want)
		}
	}
}

// SHA256SUMS and the provenance have every other file.
func TestChecksumsAndProvenanceNameEveryFile(t *testing.T) {
	dir := released(t)
	command(t, dir, plainEnv, "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	sums := map[string]string{}
	for line := range strings.Lines(read(t, dir, "SHA256SUMS")) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	provenance := "jackfield-" + version + ".intoto.json"
	s := decode[statement](t, read(t, dir, provenance))
	commit := strings.TrimSpace(command(t, "../..", plainEnv, "git", "rev-parse", "HEAD"))
	if s.Type != "https://in-toto.io/Statement/v1" || s.Predicate != "https://slsa.dev/provenance/v1" || s.Content.Definition.Dependencies[0].Digest["gitCommit"] != commit {
		t.Errorf("the provenance is %+v", s)
	}
	subjects := map[string]string{"SHA256SUMS": "", provenance: ""}
	for _, s := range s.Subject {
		subjects[s.Name] = s.Digest["sha256"]
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if subject, ok := subjects[e.Name()]; !ok || subject != "" && subject != sums[e.Name()] {
			t.Errorf("the provenance has the digest %q of %s, SHA256SUMS %q", subject, e.Name(), sums[e.Name()])
		}
		if _, ok := sums[e.Name()]; !ok && e.Name() != "SHA256SUMS" {
			t.Errorf("SHA256SUMS does not have %s", e.Name())
		}
		delete(subjects, e.Name())
	}
	if len(subjects) > 0 || len(entries) != 21 {
		t.Errorf("there are %d files; the provenance has also %v", len(entries), subjects)
	}
}

// The notes have the changes and the digests of the image and the chart, and their links work anywhere.
func TestNotesHaveChangesAndDigests(t *testing.T) {
	dir := released(t)
	notes := read(t, dir, "RELEASE_NOTES.md")
	for _, want := range []string{"# Jackfield " + version + "\n", "- `jackfield-nri`, an NRI plugin",
		"ghcr.io/jackfield/jackfield:" + version + "@" + topDescriptor(t, dir, "image").Digest.String(),
		"ghcr.io/jackfield/charts/jackfield:" + version + "@" + topDescriptor(t, dir, "chart").Digest.String()} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not have %q:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "](docs/") || strings.Contains(notes, "What an upgrade changes") {
		t.Errorf("the notes are\n%s", notes)
	}
	r := &release{}
	r.Version = "1.2.3"
	for from, want := range map[string]string{
		"[a](../x.txt#b) [c](#d) [e](https://example.com/f)": "[a](" + home + "/blob/v1.2.3/docs/x.txt#b) [c](#d) [e](https://example.com/f)",
	} {
		if got := r.absoluteLinks(from, "docs/how-to"); got != want {
			t.Errorf("%q becomes %q, want %q", from, got, want)
		}
	}
}
