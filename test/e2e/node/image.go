// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// Image is the test image: busybox in /bin, /bin/sockclient, the users root and app (1000). By default it
	// sleeps.
	Image = "localhost/jackfield/test:latest"
	// PauseImage is the image of sandboxes.
	PauseImage = "localhost/jackfield/pause:latest"
)

// applets are the commands of busybox in the image. Each of them is a symbolic link in every container, so
// the list has only those that tests use.
func applets() []string {
	return strings.Fields(`[ ash awk basename cat chgrp chmod chown cmp cp cut date dd df diff dirname echo
		env expr false find free grep head hexdump hostname id ifconfig ip kill ln ls mkdir mkfifo mknod mktemp
		mount mv nc od pidof printf ps pwd readlink realpath rm rmdir sed seq sh sha256sum sleep sort stat
		strings sync tail tar tee test timeout touch tr true tty umount uname uniq unlink wc which xargs xxd yes`)
}

// file is an entry of an image layer.
type file struct {
	name string // no leading slash; a trailing slash means a directory
	mode int64
	link string // symbolic link to
	data []byte
}

// WriteImages writes an OCI layout with both images as a tar archive.
func WriteImages(w io.Writer, kit *Kit) error {
	busybox, err := os.ReadFile(kit.Busybox)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	client, err := os.ReadFile(kit.Commands["sockclient"])
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	pause := []file{
		{name: "dev/", mode: 0o755}, {name: "proc/", mode: 0o755}, {name: "sys/", mode: 0o755},
		{name: "pause", mode: 0o755, data: client},
	}
	test := []file{
		{name: "bin/", mode: 0o755}, {name: "dev/", mode: 0o755}, {name: "proc/", mode: 0o755}, {name: "sys/", mode: 0o755},
		{name: "etc/", mode: 0o755}, {name: "home/", mode: 0o755}, {name: "root/", mode: 0o700}, {name: "tmp/", mode: 0o1777},
		{name: "run/", mode: 0o755}, {name: "var/", mode: 0o755}, {name: "var/run", link: "/run"},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home:/bin/sh\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\napp:x:1000:\n")},
		{name: "bin/busybox", mode: 0o755, data: busybox},
		{name: "bin/sockclient", mode: 0o755, data: client},
	}
	for _, a := range applets() {
		test = append(test, file{name: "bin/" + a, link: "busybox"})
	}

	l := newLayout(w)
	l.image(PauseImage, ispec.ImageConfig{Entrypoint: []string{"/pause", "pause"}}, pause)
	l.image(Image, ispec.ImageConfig{
		Env: []string{"PATH=/bin"},
		Cmd: []string{"/bin/sleep", "100000000"},
		// sleep is the container's first process, for which SIGTERM does nothing. CRI-O would wait for it.
		StopSignal: "SIGKILL",
	}, test)
	return l.close()
}

// layout writes an OCI image layout as a tar archive. It stores the first error.
type layout struct {
	tar   *tar.Writer
	index ispec.Index
	err   error
}

func newLayout(w io.Writer) *layout {
	l := &layout{tar: tar.NewWriter(w)}
	l.index = ispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ispec.MediaTypeImageIndex}
	l.add(file{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return l
}

func (l *layout) image(ref string, cfg ispec.ImageConfig, files []file) {
	var layer bytes.Buffer
	w := &layout{tar: tar.NewWriter(&layer)}
	for _, f := range files {
		w.add(f)
	}
	if w.err == nil {
		w.err = w.tar.Close()
	}
	if w.err != nil {
		l.err = w.err
		return
	}
	layerDesc := l.blob(ispec.MediaTypeImageLayer, layer.Bytes())
	platform := ispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	config := l.json(ispec.MediaTypeImageConfig, ispec.Image{
		Platform: platform, Config: cfg,
		RootFS: ispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerDesc.Digest}},
	})
	manifest := l.json(ispec.MediaTypeImageManifest, ispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ispec.MediaTypeImageManifest,
		Config: config, Layers: []ispec.Descriptor{layerDesc},
	})
	manifest.Platform = &platform
	manifest.Annotations = map[string]string{"io.containerd.image.name": ref, ispec.AnnotationRefName: "latest"}
	l.index.Manifests = append(l.index.Manifests, manifest)
}

func (l *layout) json(mediaType string, v any) ispec.Descriptor {
	data, err := json.Marshal(v)
	if err != nil && l.err == nil {
		l.err = err
	}
	return l.blob(mediaType, data)
}

func (l *layout) blob(mediaType string, data []byte) ispec.Descriptor {
	d := digest.NewDigestFromBytes(digest.SHA256, sum(data))
	l.add(file{name: "blobs/sha256/" + d.Encoded(), mode: 0o644, data: data})
	return ispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (l *layout) add(f file) {
	if l.err != nil {
		return
	}
	h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	switch {
	case f.link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
	case strings.HasSuffix(f.name, "/"):
		h.Typeflag = tar.TypeDir
	}
	if l.err = l.tar.WriteHeader(h); l.err == nil {
		_, l.err = l.tar.Write(f.data)
	}
}

func (l *layout) close() error {
	data, err := json.Marshal(l.index)
	if err != nil && l.err == nil {
		l.err = err
	}
	l.add(file{name: "index.json", mode: 0o644, data: data})
	if l.err == nil {
		l.err = l.tar.Close()
	}
	if l.err != nil {
		return fmt.Errorf("make image: %w", l.err)
	}
	return nil
}

func sum(data []byte) []byte {
	s := sha256.Sum256(data)
	return s[:]
}
