// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Programs are built from source, with the versions that a go.mod names, because no distribution has them.
type Programs struct {
	// Name is the name in messages, and of the folder in the cache.
	Name string
	// Dir has the go.mod and go.sum.
	Dir string
	// Module is the module whose version is the programs' version.
	Module string
	// Packages are the import paths of the programs.
	Packages []string
	// Test builds the tests of the packages in place of programs. Each is a file NAME.test.
	Test bool
	// Tags are build tags, separated by commas.
	Tags string
	// Ldflags returns the linker's flags for a version; nil: "-s -w".
	Ldflags func(version string) string
}

// progressInterval is how often a build reports its progress.
const progressInterval = 15 * time.Second

// Build returns the programs' directory in the cache folder, and their version without the "v". It builds
// the programs unless the cache has them. The directory has the digest of go.mod and go.sum in its name.
func (p Programs) Build(ctx context.Context, cache string, logf func(string, ...any)) (dir, version string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build %s: %w", p.Name, err)
		}
	}()
	mod, err := os.ReadFile(filepath.Join(p.Dir, "go.mod"))
	if err != nil {
		return "", "", err
	}
	sums, err := os.ReadFile(filepath.Join(p.Dir, "go.sum"))
	if err != nil {
		return "", "", err
	}
	found := regexp.MustCompile(`\s` + regexp.QuoteMeta(p.Module) + ` v(\S+)`).FindSubmatch(mod)
	if found == nil {
		return "", "", fmt.Errorf("%s/go.mod does not require %s: %w", p.Dir, p.Module, errdefs.ErrNotFound)
	}
	version = string(found[1])
	key := sha256.Sum256(append(append(mod, sums...), p.Tags...))
	dir = filepath.Join(cache, p.Name, fmt.Sprintf("%s-%x", version, key[:6]))
	return dir, version, Once(ctx, dir, logf, func(tmp string) error {
		logf("building %s %s from source, once", p.Name, version)
		return p.build(ctx, tmp, version, logf)
	})
}

func (p Programs) build(ctx context.Context, dir, version string, logf func(string, ...any)) error {
	ldflags := "-s -w"
	if p.Ldflags != nil {
		ldflags = p.Ldflags(version)
	}
	args := []string{"build", "-v"}
	if p.Test {
		args = []string{"test", "-c"}
	}
	args = append(args, "-trimpath", "-tags", p.Tags, "-ldflags", ldflags, "-o", dir+"/")
	cmd := p.goCommand(ctx, append(args, p.Packages...)...)
	total, err := p.countPackages(ctx)
	if err != nil {
		return err
	}
	log := &buildLog{}
	cmd.Stdout, cmd.Stderr = log, log
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for tick := time.NewTicker(progressInterval); ; {
		select {
		case err := <-done:
			tick.Stop()
			if err != nil {
				return fmt.Errorf("%w\n%s", err, log.faults())
			}
			return nil
		case <-tick.C:
			elapsed := time.Since(started).Round(time.Second)
			if p.Test { // go test -c does not list the packages that it compiles
				logf("building %s: %d packages, since %s", p.Name, total, elapsed)
				continue
			}
			logf("building %s: %d of up to %d packages compiled in %s", p.Name, log.packages(), total, elapsed)
		}
	}
}

// countPackages returns the number of packages that the programs consist of. A build does not compile those that the
// build cache has.
func (p Programs) countPackages(ctx context.Context) (int, error) {
	args := []string{"list", "-deps", fmt.Sprintf("-test=%t", p.Test), "-tags", p.Tags}
	cmd := p.goCommand(ctx, append(args, p.Packages...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("list packages: %w\n%s", err, stderr.Bytes())
	}
	return bytes.Count(list, []byte("\n")), nil
}

// goCommand returns a command of Go for the module of Dir.
func (p Programs) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return cmd
}

// buildLog is the output of go build -v: a line for each compiled package, and faults.
type buildLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *buildLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *buildLog) packages() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte("\n"))
}

// faults returns the lines that are not import paths.
func (l *buildLog) faults() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var faults strings.Builder
	for line := range strings.Lines(l.text.String()) {
		if strings.ContainsAny(strings.TrimRight(line, "\n"), " \t") {
			faults.WriteString(line)
		}
	}
	return faults.String()
}
