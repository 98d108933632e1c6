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
	"slices"
	"strings"
	"syscall"
	"time"
)

// runner builds and runs the test binaries.
type runner struct {
	root, tmp string
	out       io.Writer
	quick     bool
	built     map[string]binary
}

// binary is a test binary with its benchmarks.
type binary struct {
	path, dir string
	tops      []string // names of the functions, less "Benchmark"
}

// ownPackage has the benchmarks of which none goes unreported.
const ownPackage = "test/bench"

// limit is how long one run of benchmarks may take.
const limit = 5 * time.Minute

// section runs what a section needs. The results are there with an error, too.
func (r *runner) section(ctx context.Context, s *section) (results, error) {
	all := results{}
	var errs []error
	plan := s.plan()
	if s.rest {
		bin, err := r.build(ctx, ownPackage)
		if err != nil {
			return all, err
		}
		used := claimed()
		for _, top := range bin.tops {
			if !used[top] {
				plan = append(plan, bench{bench: top, pkg: ownPackage})
			}
		}
	}
	for _, b := range plan {
		if ctx.Err() != nil {
			break
		}
		bin, err := r.build(ctx, b.pkg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		top, _, _ := strings.Cut(b.bench, "/")
		if !slices.Contains(bin.tops, top) {
			fmt.Fprintf(r.out, "# %s has no Benchmark%s: left out\n", b.pkg, top)
			continue
		}
		if err := r.run(ctx, bin, b, all); err != nil {
			errs = append(errs, fmt.Errorf("%s: Benchmark%s: %w", b.pkg, b.bench, err))
		}
	}
	return all, errors.Join(errs...)
}

// build makes the test binary of a package, given from the repository's root.
func (r *runner) build(ctx context.Context, pkg string) (binary, error) {
	if b, ok := r.built[pkg]; ok {
		return b, nil
	}
	dir := r.root
	rel := pkg
	if in, ok := strings.CutPrefix(pkg, "test/"); ok {
		dir, rel = filepath.Join(r.root, "test"), in
	}
	b := binary{path: filepath.Join(r.tmp, strings.ReplaceAll(pkg, "/", "_")+".test"), dir: filepath.Join(r.root, pkg)}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "grpcnotrace", "-o", b.path, "./"+rel)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build the benchmarks of %s: %w\n%s", pkg, err, out)
	}
	list := exec.CommandContext(ctx, b.path, "-test.list", "^Benchmark")
	list.Dir = b.dir
	out, err := list.Output()
	if err != nil {
		return b, fmt.Errorf("list the benchmarks of %s: %w", pkg, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if top, ok := strings.CutPrefix(name, "Benchmark"); ok {
			b.tops = append(b.tops, top)
		}
	}
	if r.built == nil {
		r.built = map[string]binary{}
	}
	r.built[pkg] = b
	return b, nil
}

// run runs the benchmarks of one name and adds what they report.
func (r *runner) run(ctx context.Context, bin binary, b bench, all results) error {
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
		"-test.count", fmt.Sprint(count), "-test.benchmem", "-test.timeout", limit.String()}
	fmt.Fprintf(r.out, "# %s %s\n", filepath.Base(bin.path), strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, bin.path, args...)
	cmd.Dir = bin.dir
	// It ends what it started when it is asked to, before it is made to.
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
	if !strings.Contains(out.String(), "ns/op") && !strings.Contains(out.String(), "\nBenchmark") {
		fmt.Fprintf(r.out, "# %s reported nothing: its rows are left out\n", b.bench)
	}
	return nil
}

// pattern is the regular expression of a benchmark's name, in which each element
// stands for itself, or for what a "*" in it leaves open.
func pattern(name string) string {
	elems := strings.Split("Benchmark"+name, "/")
	for i, e := range elems {
		elems[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(e), `\*`, ".*") + "$"
	}
	return strings.Join(elems, "/")
}
