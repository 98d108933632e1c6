// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	ispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Registry serves images of OCI layouts, because CRI-O takes no image from a file. It is the part of the OCI
// Distribution Specification that a pull needs: GET and HEAD of manifests and blobs.
type Registry struct {
	mu    sync.Mutex
	blobs map[string][]byte           // by digest
	tags  map[string]ispec.Descriptor // by NAME:TAG, the reference without the registry
}

// NewRegistry returns a registry without images.
func NewRegistry() *Registry {
	return &Registry{blobs: map[string][]byte{}, tags: map[string]ispec.Descriptor{}}
}

// Add adds the images of a layout, a tar archive.
func (r *Registry) Add(layout io.Reader) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for archive := tar.NewReader(layout); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read image layout: %w", err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("read image layout: %w", err)
		}
		if h.Name != ispec.ImageIndexFile {
			r.blobs["sha256:"+path.Base(h.Name)] = data
			continue
		}
		var index ispec.Index
		if err := json.Unmarshal(data, &index); err != nil {
			return fmt.Errorf("read image layout: %w", err)
		}
		for _, m := range index.Manifests {
			_, ref, _ := strings.Cut(m.Annotations["io.containerd.image.name"], "/")
			r.tags[ref] = m
		}
	}
}

// ServeHTTP serves the images.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.URL.Path == "/v2/" {
		return
	}
	rest, last := path.Split(strings.TrimPrefix(q.URL.Path, "/v2/"))
	name, kind := path.Split(strings.TrimSuffix(rest, "/"))
	name = strings.TrimSuffix(name, "/")
	if d, ok := r.tags[name+":"+last]; ok {
		last = d.Digest.String()
	}
	data, ok := r.blobs[last]
	if !ok {
		http.NotFound(w, q)
		return
	}
	if kind == "manifests" {
		// Manifests and indexes carry their type.
		var manifest struct{ MediaType string }
		if err := json.Unmarshal(data, &manifest); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", cmp.Or(manifest.MediaType, ispec.MediaTypeImageManifest))
		w.Header().Set("Docker-Content-Digest", last)
	}
	http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
}
