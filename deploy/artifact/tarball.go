// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"time"
)

// File is an entry of an archive.
type File struct {
	Name string // no leading slash; a trailing slash marks a directory
	Mode int64
	Link string // target of a symbolic link
	Data []byte
}

// Tarball writes an archive in which all files belong to root and have one time. After an error it
// does nothing, and Close returns the error.
type Tarball struct {
	w     *tar.Writer
	mtime time.Time
	err   error
}

// NewTarball returns an archive that writes to w.
func NewTarball(w io.Writer, mtime time.Time) *Tarball {
	return &Tarball{w: tar.NewWriter(w), mtime: mtime}
}

func (t *Tarball) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// Add adds a file.
func (t *Tarball) Add(f File) {
	if t.err != nil {
		return
	}
	h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)), Typeflag: tar.TypeReg, ModTime: t.mtime,
		Format: tar.FormatPAX}
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case strings.HasSuffix(f.Name, "/"):
		h.Typeflag = tar.TypeDir
	}
	if t.fail(t.w.WriteHeader(h)); t.err == nil {
		_, err := t.w.Write(f.Data)
		t.fail(err)
	}
}

// Close ends the archive and returns its first error.
func (t *Tarball) Close() error {
	t.fail(t.w.Close())
	return t.err
}

// Layer is a compressed archive, and the digest of the archive itself.
type Layer struct {
	Compressed []byte
	DiffID     string
}

// Compress returns a compressed archive of files, sorted by name.
func Compress(files []File, mtime time.Time) (Layer, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	var plain, packed bytes.Buffer
	w := NewTarball(&plain, mtime)
	for _, f := range files {
		w.Add(f)
	}
	if err := w.Close(); err != nil {
		return Layer{}, err
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return Layer{}, err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return Layer{}, err
	}
	if err := z.Close(); err != nil {
		return Layer{}, err
	}
	return Layer{packed.Bytes(), Digest(plain.Bytes())}, nil
}
