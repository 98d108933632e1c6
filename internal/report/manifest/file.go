// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Suffixes end the names of manifests in a directory.
var Suffixes = []string{".yaml", ".yml", ".json"}

// FilesIn returns the manifests in a directory of the caller, without those in directories below it. Any
// other name is that of a file.
func FilesIn(name string) ([]string, error) {
	if st, err := os.Stat(name); name == "-" || err != nil || !st.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, hostfs.WithoutPath(err)
	}
	var files []string
	for _, e := range entries { // sorted
		file := filepath.Join(name, e.Name())
		if e.IsDir() || !slices.Contains(Suffixes, filepath.Ext(file)) {
			continue
		}
		if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: it is no regular file: %w", file, errdefs.ErrInvalidArgument)
		}
		files = append(files, file)
	}
	return files, nil
}

// ReadInput reads a file of the caller, or standard input for "-". More than MaxSize is an error.
func ReadInput(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return readManifest(stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, hostfs.WithoutPath(err)
	}
	defer f.Close()
	return readManifest(f)
}

// readManifest reads a manifest, of at most MaxSize bytes.
func readManifest(r io.Reader) ([]byte, error) {
	data, err := hostfs.ReadAtMost(r, MaxSize)
	if errdefs.IsInvalidArgument(err) {
		return nil, errdefs.ErrInvalidArgument.WithMessage(diag.ErrorText(err) + ": split it into several files")
	}
	return data, err
}

// Read returns the objects of a manifest of the caller, or of standard input for "-", as Parse does.
func Read(file string, stdin io.Reader, namespace string) (Objects, error) {
	data, err := ReadInput(file, stdin)
	if err != nil {
		return Objects{}, fmt.Errorf("read manifest %q: %w", file, err)
	}
	return Parse(file, data, namespace)
}
