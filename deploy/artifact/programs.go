// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Build describes a build of programs, and the version that they report.
type Build struct {
	Source  string // directory of the checkout
	Version string // of the release; empty: "devel"
	Commit  string // empty: not known
	Time    time.Time
}

// Programs builds the static programs of a Linux architecture in a directory.
func (b Build) Programs(ctx context.Context, goarch, dir string) error {
	return b.Build(ctx, "linux", goarch, "./cmd/...", dir)
}

// Build builds programs of a platform in a directory.
func (b Build) Build(ctx context.Context, goos, goarch, packages, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-ldflags",
		b.linkerFlags(), "-o", dir+"/", packages)
	cmd.Dir = b.Source
	// These environment variables change the output of Go.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=", "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w\n%s", packages, goos, goarch, err, out)
	}
	return nil
}

// linkerFlags sets the variables of internal/base/version. Go's own stamp is off, because it
// depends on how the checkout was fetched.
func (b Build) linkerFlags() string {
	flags := []string{"-s", "-w"}
	set := func(name, value string) {
		if value != "" {
			flags = append(flags, "-X", "github.com/jackfield/jackfield/internal/base/version."+name+"="+value)
		}
	}
	set("release", b.Version)
	set("commit", b.Commit)
	if b.Commit != "" {
		set("date", b.Time.Format(time.RFC3339))
	}
	return strings.Join(flags, " ")
}

// ReadPrograms returns the programs in a directory as files of an archive's directory.
func ReadPrograms(dir, target string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: target + "/" + e.Name(), Mode: 0o755, Data: data})
	}
	return files, nil
}
