// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/jackfield/jackfield/deploy/artifact"
)

func main() { os.Exit(status()) }

func status() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	o := options{Build: artifact.Build{Time: time.Unix(0, 0).UTC()}}
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.out, "o", "bin/jackfield-image.tar", "`file` to write")
	f.StringVar(&o.name, "name", "localhost/jackfield/jackfield", "the image's `name`, without a tag")
	f.StringVar(&o.Version, "version", "", "`version` of the release; the image's tag; empty: devel")
	f.StringVar(&o.Commit, "revision", "", "`commit`, for a label")
	f.StringVar(&o.Source, "C", ".", "`directory` of the checkout")
	platforms := f.String("platforms", "linux/amd64,linux/arm64", "comma `list` of GOOS/GOARCH")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: only flags are accepted", f.Arg(0))
	}
	o.platforms = strings.Split(*platforms, ",")
	if epoch := getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		s, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: invalid value %q: must be seconds since 1970: %w", epoch, err)
		}
		o.Time = time.Unix(s, 0).UTC()
	}
	return o.make(ctx)
}
