// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackfield/jackfield/deploy/artifact"
)

const (
	home     = "https://github.com/jackfield/jackfield"
	registry = "ghcr.io/jackfield"
)

// release makes the files of a release.
type release struct {
	artifact.Build
	out, builder string
	archs        []string
	uncommitted  bool
	onlyPackages bool // and archives

	work      string // for programs and trees, removed at the end
	completer string // a program jackfield of this machine's architecture
	goVersion string // that built the programs
	files     map[string][]byte
	digests   []string // NAME:TAG@DIGEST of the image and of the chart
}

// semver is a version without build metadata, which tags of images and versions of packages cannot have.
var semver = regexp.MustCompile(`^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// make writes all files into a new directory and renames it into place.
func (r *release) make(ctx context.Context, stdout io.Writer) (err error) {
	if !semver.MatchString(r.Version) {
		return fmt.Errorf("-version: found %q, want a version as 1.2.3 or 1.2.3-rc.1, without v", r.Version)
	}
	for _, arch := range r.archs {
		if _, ok := rpmArchs[arch]; !ok {
			return fmt.Errorf("-archs: found %q, want amd64 or arm64", arch)
		}
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	if r.out == "" {
		r.out = filepath.Join(r.Source, "bin", "release", r.Version)
	}
	if r.work, err = os.MkdirTemp("", "jackfield-release"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	r.files = map[string][]byte{}
	steps := []func(context.Context) error{r.makePrograms, r.makeArchives, r.makeKubectlPlugin, r.makeImage, r.makeChart, r.makeNotes}
	if r.onlyPackages {
		steps = steps[:2]
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := r.makeProvenance(); err != nil {
		return err
	}
	r.files["SHA256SUMS"] = r.checksums()
	if err := r.write(); err != nil {
		return err
	}
	for _, name := range r.names() {
		fmt.Fprintf(stdout, "%s (%d bytes)\n", filepath.Join(r.out, name), len(r.files[name]))
	}
	return nil
}

// names returns the names of the files made so far, sorted.
func (r *release) names() []string {
	var names []string
	for name := range r.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checksums lists the files made so far, for `sha256sum --check`.
func (r *release) checksums() []byte {
	var list bytes.Buffer
	for _, name := range r.names() {
		fmt.Fprintf(&list, "%s  %s\n", strings.TrimPrefix(artifact.Digest(r.files[name]), "sha256:"), name)
	}
	return list.Bytes()
}

// write replaces the output directory.
func (r *release) write() error {
	parent := filepath.Dir(r.out)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, ".release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	for name, data := range r.files {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.Rename(tmp, r.out)
}

// readCommit reads the checkout's commit and its time.
func (r *release) readCommit(ctx context.Context) error {
	text, err := r.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(text), " ")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read commit: %w", err)
	}
	r.Commit, r.Time = commit, time.Unix(s, 0).UTC()
	changes, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && !r.uncommitted {
		return fmt.Errorf("the checkout has changes that are not committed; commit or stash them:\n%s", changes)
	}
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", r.Source}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("git %s: %w\n%s", args[0], err, exit.Stderr)
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}

// programs is the directory of an architecture's programs.
func (r *release) programs(arch string) string { return filepath.Join(r.work, "programs", arch) }

// makePrograms builds the programs of all architectures, and the one that prints completions.
func (r *release) makePrograms(ctx context.Context) error {
	archs := r.archs
	if !slices.Contains(archs, runtime.GOARCH) {
		archs = append(slices.Clone(archs), runtime.GOARCH)
	}
	for _, arch := range archs {
		if err := os.MkdirAll(r.programs(arch), 0o755); err != nil {
			return err
		}
		if err := r.Programs(ctx, arch, r.programs(arch)); err != nil {
			return err
		}
	}
	r.completer = filepath.Join(r.programs(runtime.GOARCH), "jackfield")
	var err error
	r.goVersion, err = artifact.GoVersion(r.programs(runtime.GOARCH))
	return err
}
