// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// Media types, image-spec 1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// The documents of image-spec 1.1, as far as they are needed here.
type (
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	manifest struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Config        descriptor        `json:"config"`
		Layers        []descriptor      `json:"layers"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	config struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		WorkingDir string            `json:"WorkingDir"`
		Labels     map[string]string `json:"Labels"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	image struct {
		Created string `json:"created"`
		platform
		Config config `json:"config"`
		RootFS rootFS `json:"rootfs"`
	}
)

// layout writes an OCI image layout as a tar archive. The first error stays.
type layout struct {
	*tarball
	created time.Time
	index   index
	has     map[string]bool // blobs, by digest
}

func newLayout(w io.Writer, created time.Time) *layout {
	l := &layout{tarball: newTarball(w, created), created: created, has: map[string]bool{}}
	l.index = index{SchemaVersion: 2, MediaType: typeIndex}
	l.add(file{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	l.add(file{name: "blobs/", mode: 0o755})
	l.add(file{name: "blobs/sha256/", mode: 0o755})
	return l
}

// image adds the image of one platform.
func (l *layout) image(os, arch string, cfg config, content layer) {
	p := platform{Architecture: arch, OS: os}
	layers := []descriptor{l.blob(typeLayer, content.compressed)}
	m := l.document(typeManifest, manifest{SchemaVersion: 2, MediaType: typeManifest, Layers: layers, Annotations: cfg.Labels,
		Config: l.document(typeConfig, image{Created: l.created.Format(time.RFC3339), platform: p, Config: cfg,
			RootFS: rootFS{Type: "layers", DiffIDs: []string{content.diffID}}})})
	m.Platform = &p
	l.index.Manifests = append(l.index.Manifests, m)
}

// close writes the index of the platforms, and the layout's own, which names it.
func (l *layout) close(name, tag string) error {
	all := l.document(typeIndex, l.index)
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name + ":" + tag}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{all}})
	l.fail(err)
	l.add(file{name: "index.json", mode: 0o644, data: top})
	return l.tarball.close()
}

func (l *layout) document(mediaType string, v any) descriptor {
	data, err := json.Marshal(v)
	l.fail(err)
	return l.blob(mediaType, data)
}

func (l *layout) blob(mediaType string, data []byte) descriptor {
	d := digest(data)
	if !l.has[d] {
		l.has[d] = true
		l.add(file{name: "blobs/sha256/" + strings.TrimPrefix(d, "sha256:"), mode: 0o644, data: data})
	}
	return descriptor{MediaType: mediaType, Digest: d, Size: len(data)}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// file is an entry of an archive.
type file struct {
	name string // no leading slash; a trailing one makes a directory
	mode int64
	link string // symbolic link to
	data []byte
}

// tarball writes an archive in which all files are root's and of one time. The
// first error stays.
type tarball struct {
	w     *tar.Writer
	mtime time.Time
	err   error
}

func newTarball(w io.Writer, mtime time.Time) *tarball {
	return &tarball{w: tar.NewWriter(w), mtime: mtime}
}

func (t *tarball) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *tarball) add(f file) {
	if t.err != nil {
		return
	}
	h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, ModTime: t.mtime, Format: tar.FormatPAX}
	switch {
	case f.link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
	case strings.HasSuffix(f.name, "/"):
		h.Typeflag = tar.TypeDir
	}
	if t.fail(t.w.WriteHeader(h)); t.err == nil {
		_, err := t.w.Write(f.data)
		t.fail(err)
	}
}

func (t *tarball) close() error {
	t.fail(t.w.Close())
	return t.err
}
