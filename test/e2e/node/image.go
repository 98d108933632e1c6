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

// File is an entry of an image layer.
type File struct {
	Name string // no leading slash; a trailing slash means a directory
	Mode int64
	Link string // symbolic link to
	Data []byte
}

// WriteImages writes an OCI layout with both images as a tar archive.
func WriteImages(w io.Writer, kit *Kit) error {
	test, err := TestFiles(kit)
	if err != nil {
		return err
	}
	l := NewLayout(w)
	client, err := os.ReadFile(kit.Commands["sockclient"])
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	l.Image(PauseImage, ispec.ImageConfig{Entrypoint: []string{"/pause", "pause"}}, []File{
		{Name: "dev/", Mode: 0o755}, {Name: "proc/", Mode: 0o755}, {Name: "sys/", Mode: 0o755},
		{Name: "pause", Mode: 0o755, Data: client},
	})
	l.Image(Image, ispec.ImageConfig{
		Env: []string{"PATH=/bin"},
		Cmd: []string{"/bin/sleep", "100000000"},
		// sleep is the container's first process, for which SIGTERM does nothing. CRI-O would wait for it.
		StopSignal: "SIGKILL",
	}, test)
	return l.Close()
}

// TestFiles returns the files of the test image, and links for more applets of busybox.
func TestFiles(kit *Kit, more ...string) ([]File, error) {
	busybox, err := os.ReadFile(kit.Busybox)
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	client, err := os.ReadFile(kit.Commands["sockclient"])
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	const passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home:/bin/sh\n"
	files := []File{
		{Name: "bin/", Mode: 0o755}, {Name: "dev/", Mode: 0o755}, {Name: "proc/", Mode: 0o755},
		{Name: "sys/", Mode: 0o755}, {Name: "etc/", Mode: 0o755}, {Name: "home/", Mode: 0o755},
		{Name: "root/", Mode: 0o700}, {Name: "tmp/", Mode: 0o1777}, {Name: "run/", Mode: 0o755},
		{Name: "var/", Mode: 0o755}, {Name: "var/run", Link: "/run"},
		{Name: "etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		{Name: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\napp:x:1000:\n")},
		{Name: "bin/busybox", Mode: 0o755, Data: busybox},
		{Name: "bin/sockclient", Mode: 0o755, Data: client},
	}
	for _, a := range append(applets(), more...) {
		files = append(files, File{Name: "bin/" + a, Link: "busybox"})
	}
	return files, nil
}

// Layout writes an OCI image layout as a tar archive. It stores the first error.
type Layout struct {
	tar   *tar.Writer
	index ispec.Index
	err   error
}

// NewLayout returns a layout without images.
func NewLayout(w io.Writer) *Layout {
	l := &Layout{tar: tar.NewWriter(w)}
	l.index = ispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ispec.MediaTypeImageIndex}
	l.addFile(File{Name: "oci-layout", Mode: 0o644, Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return l
}

// Image adds an image with one layer.
func (l *Layout) Image(ref string, cfg ispec.ImageConfig, files []File) {
	var layer bytes.Buffer
	w := &Layout{tar: tar.NewWriter(&layer)}
	for _, f := range files {
		w.addFile(f)
	}
	if w.err == nil {
		w.err = w.tar.Close()
	}
	if w.err != nil {
		l.err = w.err
		return
	}
	layerDesc := l.addBlob(ispec.MediaTypeImageLayer, layer.Bytes())
	platform := ispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	config := l.addJSON(ispec.MediaTypeImageConfig, ispec.Image{
		Platform: platform, Config: cfg,
		RootFS: ispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerDesc.Digest}},
	})
	manifest := l.addJSON(ispec.MediaTypeImageManifest, ispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ispec.MediaTypeImageManifest,
		Config: config, Layers: []ispec.Descriptor{layerDesc},
	})
	manifest.Platform = &platform
	manifest.Annotations = map[string]string{"io.containerd.image.name": ref, ispec.AnnotationRefName: "latest"}
	l.index.Manifests = append(l.index.Manifests, manifest)
}

func (l *Layout) addJSON(mediaType string, v any) ispec.Descriptor {
	data, err := json.Marshal(v)
	if err != nil && l.err == nil {
		l.err = err
	}
	return l.addBlob(mediaType, data)
}

func (l *Layout) addBlob(mediaType string, data []byte) ispec.Descriptor {
	d := digest.NewDigestFromBytes(digest.SHA256, sum(data))
	l.addFile(File{Name: "blobs/sha256/" + d.Encoded(), Mode: 0o644, Data: data})
	return ispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (l *Layout) addFile(f File) {
	if l.err != nil {
		return
	}
	h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case strings.HasSuffix(f.Name, "/"):
		h.Typeflag = tar.TypeDir
	}
	if l.err = l.tar.WriteHeader(h); l.err == nil {
		_, l.err = l.tar.Write(f.Data)
	}
}

// Close completes the layout and returns the first error.
func (l *Layout) Close() error {
	data, err := json.Marshal(l.index)
	if err != nil && l.err == nil {
		l.err = err
	}
	l.addFile(File{Name: "index.json", Mode: 0o644, Data: data})
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
