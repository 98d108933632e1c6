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
		return fmt.Errorf("found the argument %q: there are flags only", f.Arg(0))
	}
	o.platforms = strings.Split(*platforms, ",")
	if epoch := getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		s, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: found %q, want seconds since 1970: %w", epoch, err)
		}
		o.Time = time.Unix(s, 0).UTC()
	}
	return o.make(ctx)
}

type options struct {
	artifact.Build
	out, name string
	platforms []string // GOOS/GOARCH
}

// make builds the commands for each platform and writes the archive.
func (o options) make(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(o.out), ".image")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	l := artifact.NewLayout(tmp, o.Time)
	var images []artifact.Descriptor
	for _, platform := range o.platforms {
		goos, goarch, ok := strings.Cut(platform, "/")
		if !ok || goos != "linux" || goarch == "" {
			return fmt.Errorf("--platforms: found %q, want linux/GOARCH", platform)
		}
		layer, err := o.layer(ctx, goarch)
		if err != nil {
			return err
		}
		images = append(images, l.Image(goarch, o.ImageConfig(), layer))
	}
	l.Name(l.Index(images, nil), o.name, o.Tag())
	if err := l.Close(); err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), o.out)
}

// layer is the image's layer, built for the architecture.
func (o options) layer(ctx context.Context, goarch string) (artifact.Layer, error) {
	dir, err := os.MkdirTemp("", "jackfield-image")
	if err != nil {
		return artifact.Layer{}, err
	}
	defer os.RemoveAll(dir)
	if err := o.Programs(ctx, goarch, dir); err != nil {
		return artifact.Layer{}, err
	}
	licenses, err := o.Licenses(ctx, dir)
	if err != nil {
		return artifact.Layer{}, err
	}
	files, err := artifact.ImageFiles(dir, licenses)
	if err != nil {
		return artifact.Layer{}, err
	}
	return artifact.Compress(files, o.Time)
}
