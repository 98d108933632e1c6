// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	out, name, version, revision, source string
	platforms                            []string // GOOS/GOARCH
	created                              time.Time
}

// tag is the image's tag.
func (o options) tag() string {
	if o.version == "" {
		return "devel"
	}
	return strings.ReplaceAll(o.version, "+", "_")
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
	l := newLayout(tmp, o.created)
	for _, platform := range o.platforms {
		goos, goarch, ok := strings.Cut(platform, "/")
		if !ok || goos != "linux" || goarch == "" {
			return fmt.Errorf("--platforms: found %q, want linux/GOARCH", platform)
		}
		files, err := o.files(ctx, goos, goarch)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		layer, err := compress(files, o.created)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		l.image(goos, goarch, o.config(), layer)
	}
	if err := l.close(o.name, o.tag()); err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), o.out)
}

// config is what a runtime starts when it is told nothing else. NRI's socket is
// root's, so that the user is; the number, for there is nobody to look a name up.
func (o options) config() config {
	labels := map[string]string{
		"org.opencontainers.image.title":       "jackfield",
		"org.opencontainers.image.description": "Devices and fast-path sockets for containers",
		"org.opencontainers.image.url":         "https://github.com/jackfield/jackfield",
		"org.opencontainers.image.source":      "https://github.com/jackfield/jackfield",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     o.tag(),
	}
	if o.revision != "" {
		labels["org.opencontainers.image.revision"] = o.revision
	}
	return config{User: "0:0", Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"/usr/bin/jackfield-nri"}, WorkingDir: "/", Labels: labels}
}

// files are the image's, built for the platform, sorted.
func (o options) files(ctx context.Context, goos, goarch string) ([]file, error) {
	dir, err := os.MkdirTemp("", "jackfield-image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ldflags := "-s -w"
	if o.version != "" {
		ldflags += " -X github.com/jackfield/jackfield/pkg/version.release=" + o.version
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", ldflags, "-o", dir+"/", "./cmd/...")
	cmd.Dir = o.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	license, err := os.ReadFile(filepath.Join(o.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := []file{
		{name: "dev/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "etc/jackfield/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\n")},
		{name: "proc/", mode: 0o755}, {name: "run/", mode: 0o755}, {name: "sys/", mode: 0o755}, {name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755}, {name: "usr/bin/", mode: 0o755}, {name: "usr/share/", mode: 0o755}, {name: "usr/share/licenses/", mode: 0o755},
		{name: "usr/share/licenses/jackfield/", mode: 0o755}, {name: "usr/share/licenses/jackfield/LICENSE", mode: 0o644, data: license},
		{name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755}, {name: "var/run", link: "../run"},
	}
	commands, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, c := range commands {
		data, err := os.ReadFile(filepath.Join(dir, c.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "usr/bin/" + c.Name(), mode: 0o755, data: data})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// layer is a layer's archive, compressed, and the digest of the archive itself.
type layer struct {
	compressed []byte
	diffID     string
}

func compress(files []file, mtime time.Time) (layer, error) {
	var plain, packed bytes.Buffer
	w := newTarball(&plain, mtime)
	for _, f := range files {
		w.add(f)
	}
	if err := w.close(); err != nil {
		return layer{}, err
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return layer{}, err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return layer{}, err
	}
	if err := z.Close(); err != nil {
		return layer{}, err
	}
	return layer{packed.Bytes(), digest(plain.Bytes())}, nil
}
