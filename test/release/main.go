// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() { os.Exit(status()) }

func status() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var r release
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&r.Source, "C", "../..", "`directory` of the checkout")
	f.StringVar(&r.Version, "version", "", "`version` of the release, as 1.2.3 or 1.2.3-rc.1")
	f.StringVar(&r.out, "o", "", "`directory` to write to, which is replaced (default bin/release/VERSION of the checkout)")
	f.StringVar(&r.builder, "builder", home+"/blob/main/docs/contributing/releases.md", "`URI` of who builds, for the provenance")
	f.BoolVar(&r.uncommitted, "uncommitted", false, "allow changes that are not committed; such a release is for tests only")
	f.BoolVar(&r.onlyPackages, "packages", false, "make only archives and packages")
	archs := f.String("archs", "amd64,arm64", "comma `list` of GOARCH")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("found the argument %q: there are flags only", f.Arg(0))
	}
	r.archs = strings.Split(*archs, ",")
	return r.make(ctx, stdout)
}
