// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"
)

func testContext() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt)
}

// decode decodes JSON. An unknown field is an error.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// readLayout returns the files of a tar archive by name.
func readLayout(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
	}
}

// openLayout opens the OCI layout of the image or of the chart.
func openLayout(t *testing.T, dir, what string) *oci.ReadOnlyStore {
	t.Helper()
	store, err := oci.NewFromTar(t.Context(), filepath.Join(dir, "jackfield-"+what+"-"+version+".oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// topDescriptor is what the layout's tag names.
func topDescriptor(t *testing.T, dir, what string) ocispec.Descriptor {
	t.Helper()
	d, err := openLayout(t, dir, what).Resolve(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
