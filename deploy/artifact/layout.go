// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// Media types, image-spec 1.1.
const (
	TypeIndex    = "application/vnd.oci.image.index.v1+json"
	TypeManifest = "application/vnd.oci.image.manifest.v1+json"
	TypeConfig   = "application/vnd.oci.image.config.v1+json"
	TypeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typeEmpty    = "application/vnd.oci.empty.v1+json"
)

// The documents of image-spec 1.1, with the fields that are used here.
type (
	// Platform is the platform of an image.
	Platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	// Descriptor refers to a blob.
	Descriptor struct {
		MediaType    string            `json:"mediaType"`
		ArtifactType string            `json:"artifactType,omitempty"`
		Digest       string            `json:"digest"`
		Size         int               `json:"size"`
		Platform     *Platform         `json:"platform,omitempty"`
		Annotations  map[string]string `json:"annotations,omitempty"`
	}
	// Index lists manifests.
	Index struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Manifests     []Descriptor      `json:"manifests"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	// Manifest is an image or another artifact.
	Manifest struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		ArtifactType  string            `json:"artifactType,omitempty"`
		Config        Descriptor        `json:"config"`
		Layers        []Descriptor      `json:"layers"`
		Subject       *Descriptor       `json:"subject,omitempty"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	// Config is the configuration of the image's containers.
	Config struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		WorkingDir string            `json:"WorkingDir"`
		Labels     map[string]string `json:"Labels"`
	}
	// RootFS lists the layers of an image.
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	// Image is an image's configuration.
	Image struct {
		Created string `json:"created"`
		Platform
		Config Config `json:"config"`
		RootFS RootFS `json:"rootfs"`
	}
)

// Layout writes an OCI image layout as a tar archive. After an error it does nothing, and Close
// returns the error.
type Layout struct {
	*Tarball
	created time.Time
	top     []Descriptor    // entries of index.json
	has     map[string]bool // blobs, by digest
}

// NewLayout returns a layout that writes to w.
func NewLayout(w io.Writer, created time.Time) *Layout {
	l := &Layout{Tarball: NewTarball(w, created), created: created, has: map[string]bool{}}
	l.Add(File{Name: "oci-layout", Mode: 0o644, Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	l.Add(File{Name: "blobs/", Mode: 0o755})
	l.Add(File{Name: "blobs/sha256/", Mode: 0o755})
	return l
}

// Image adds the image of one architecture.
func (l *Layout) Image(arch string, cfg Config, content Layer) Descriptor {
	p := Platform{Architecture: arch, OS: "linux"}
	layers := []Descriptor{l.Blob(TypeLayer, content.Compressed)}
	m := l.Manifest(Manifest{Layers: layers, Annotations: cfg.Labels,
		Config: l.document(TypeConfig, Image{Created: l.created.Format(time.RFC3339), Platform: p, Config: cfg,
			RootFS: RootFS{Type: "layers", DiffIDs: []string{content.DiffID}}})})
	m.Platform = &p
	return m
}

// Manifest adds a manifest. It completes the version and media type.
func (l *Layout) Manifest(m Manifest) Descriptor {
	m.SchemaVersion, m.MediaType = 2, TypeManifest
	d := l.document(TypeManifest, m)
	d.ArtifactType = m.ArtifactType
	return d
}

// Index adds the index of all architectures' images.
func (l *Layout) Index(images []Descriptor, annotations map[string]string) Descriptor {
	return l.document(TypeIndex, Index{SchemaVersion: 2, MediaType: TypeIndex, Manifests: images,
		Annotations: annotations})
}

// Refer adds a document about a subject, as an artifact that refers to the subject. name is the
// document's file name.
func (l *Layout) Refer(subject Descriptor, mediaType, name string, data []byte) {
	layer := l.Blob(mediaType, data)
	layer.Annotations = map[string]string{"org.opencontainers.image.title": name}
	m := l.Manifest(Manifest{ArtifactType: mediaType, Config: l.Blob(typeEmpty, []byte("{}")),
		Layers:      []Descriptor{layer},
		Subject:     &Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{"org.opencontainers.image.created": l.created.Format(time.RFC3339)}})
	l.top = append(l.top, m)
}

// Name sets the name of a manifest or index in the layout. name has no tag.
func (l *Layout) Name(d Descriptor, name, tag string) {
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name": name + ":" + tag}
	l.top = append([]Descriptor{d}, l.top...)
}

// Close writes the layout's index and ends the archive.
func (l *Layout) Close() error {
	data, err := json.Marshal(Index{SchemaVersion: 2, MediaType: TypeIndex, Manifests: l.top})
	l.fail(err)
	l.Add(File{Name: "index.json", Mode: 0o644, Data: data})
	return l.Tarball.Close()
}

func (l *Layout) document(mediaType string, v any) Descriptor {
	data, err := json.Marshal(v)
	l.fail(err)
	return l.Blob(mediaType, data)
}

// Blob adds a blob.
func (l *Layout) Blob(mediaType string, data []byte) Descriptor {
	d := Digest(data)
	if !l.has[d] {
		l.has[d] = true
		l.Add(File{Name: "blobs/sha256/" + strings.TrimPrefix(d, "sha256:"), Mode: 0o644, Data: data})
	}
	return Descriptor{MediaType: mediaType, Digest: d, Size: len(data)}
}

// Digest is the digest of data, sha256:HEX.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
