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
	"strings"
	"syscall"
	"time"
)

// runner builds and runs the benchmarks.
type runner struct {
	root, tmp string
	out       io.Writer
	quick     bool
	binary    string // the section's test binary
}

// limit is the time limit of one run of benchmarks. A cluster's first run builds Kubernetes.
const limit = 40 * time.Minute

// section runs the benchmarks of a section. With an error it also returns the results of the others.
func (r *runner) section(ctx context.Context, s *section) (results, error) {
	all := results{}
	dir := filepath.Join(r.root, "test", s.directory())
	if err := r.build(ctx, dir); err != nil {
		return all, err
	}
	var errs []error
	for _, b := range s.plan() {
		if ctx.Err() != nil {
			break
		}
		if err := r.run(ctx, dir, b, all); err != nil {
			errs = append(errs, fmt.Errorf("run Benchmark%s: %w", b.bench, err))
		}
	}
	return all, errors.Join(errs...)
}

// build builds the benchmarks of a package.
func (r *runner) build(ctx context.Context, dir string) error {
	binary := filepath.Join(r.tmp, filepath.Base(dir)+".test")
	if r.binary == binary {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "grpcnotrace", "-o", binary, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the benchmarks: %w\n%s", err, out)
	}
	r.binary = binary
	return nil
}

// run runs the benchmarks of one name and adds what they report.
func (r *runner) run(ctx context.Context, dir string, b bench, all results) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	count, benchtime := max(b.count, 1), b.time
	if benchtime == "" {
		benchtime = "1s"
	}
	if r.quick {
		count, benchtime = 1, "1x"
	}
	args := []string{"-test.run", "^$", "-test.bench", pattern(b.bench), "-test.benchtime", benchtime,
		"-test.count", fmt.Sprint(count), "-test.benchmem", "-test.v", "-test.timeout", limit.String()}
	fmt.Fprintf(r.out, "# %s %s\n", filepath.Base(r.binary), strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, r.binary, args...)
	cmd.Dir = dir
	// SIGTERM lets the benchmark stop the processes it started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), "TMPDIR="+r.tmp)
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, r.out)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	all.parse(out.String())
	if err != nil {
		return err
	}
	if strings.Contains(out.String(), "--- SKIP: ") || !strings.Contains(out.String(), "\nBenchmark") {
		fmt.Fprintf(r.out, "# %s reported nothing, or a part of it was skipped; rows without figures are omitted\n", b.bench)
	}
	return nil
}

// pattern returns the regular expression of a benchmark's name, in whose elements "*" matches
// anything.
func pattern(name string) string {
	elems := strings.Split("Benchmark"+name, "/")
	for i, e := range elems {
		elems[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(e), `\*`, ".*") + "$"
	}
	return strings.Join(elems, "/")
}
