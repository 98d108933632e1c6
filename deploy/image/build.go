// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackfield/jackfield/deploy/artifact"
)

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
			return fmt.Errorf("--platforms: invalid value %q: must be linux/GOARCH", platform)
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
