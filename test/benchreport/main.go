// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackfield/jackfield/test/parts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	only  []string
	quick bool
	doc   string
	out   io.Writer
}

func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("benchreport", flag.ContinueOnError)
	only := fs.String("only", "", "comma list of sections to run and write: "+strings.Join(sectionNames(), ", ")+"; all of them without it")
	quick := fs.Bool("quick", false, "run everything once and briefly and write nothing: to see that it works")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: only flags are supported", fs.Arg(0))
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	o := options{quick: *quick, doc: filepath.Join(root, "docs", "contributing", "performance.md"), out: out}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(sectionNames(), name) {
			return fmt.Errorf("-only: invalid value %q: must be of %s", name, strings.Join(sectionNames(), ", "))
		}
	}
	tmp, err := os.MkdirTemp("", "benchreport")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	r := &runner{root: root, tmp: tmp, out: out, quick: o.quick}
	return report(ctx, o, r)
}

// report runs the sections and writes each when it is done, so that a later failure loses no results.
func report(ctx context.Context, o options, r *runner) error {
	start := time.Now()
	var errs []error
	for i := range sections {
		s := &sections[i]
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		results, err := r.section(ctx, s)
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
		text := s.tables(results)
		fmt.Fprintf(o.out, "\n%s\n", text)
		if o.quick {
			continue
		}
		if err := s.write(o.doc, text, results); err != nil {
			errs = append(errs, err)
		}
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	fmt.Fprintf(o.out, "%v in all\n", time.Since(start).Round(time.Second))
	return errors.Join(errs...)
}

// plot is a figure of the documentation.
type plot interface {
	drawSVG(results) (string, bool)
	fileName() string
}

func (s *section) plots() []plot {
	var all []plot
	for i := range s.growths {
		all = append(all, &s.growths[i])
	}
	if s.outages != nil {
		all = append(all, s.outages)
	}
	return all
}

// write writes a section's tables and plots into the documentation.
func (s *section) write(doc, text string, results results) error {
	have, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	next, err := between(string(have), s.name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	images := filepath.Join(filepath.Dir(doc), "..", "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	for _, p := range s.plots() {
		svg, ok := p.drawSVG(results)
		if !ok {
			continue
		}
		if err := os.WriteFile(filepath.Join(images, p.fileName()), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(doc, []byte(next), 0o644)
}
