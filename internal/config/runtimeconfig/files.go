// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// MaxFile bounds a file of a runtime's configuration, in bytes.
const MaxFile = 4 << 20

// maxNames bounds the number of directory entries that are read.
const maxNames = 10000

// Files reads configuration files, which can be on an unresponsive file system. Reading is called
// with the next path, so that a caller that times out can report the path. It can be nil.
type Files struct {
	Host    hostfs.Root
	Reading func(path string)

	dropIn *DropIn // is read as if it existed; nil for none
}

// At returns the host, and reports the path as the next one to read.
func (f Files) At(path string) hostfs.Root {
	if f.Reading != nil {
		f.Reading(path)
	}
	return f.Host
}

// ReadFile is [hostfs.Root.ReadFile] with the limit of a configuration file.
func (f Files) ReadFile(file string) ([]byte, error) {
	if f.dropIn != nil && f.dropIn.File == file {
		return []byte(f.dropIn.Text), nil
	}
	return f.At(file).ReadFile(file, MaxFile)
}

// ReadDir is [hostfs.Root.ReadDir] with the limit of a directory.
func (f Files) ReadDir(dir string) ([]string, error) {
	names, err := f.At(dir).ReadDir(dir, maxNames)
	if f.dropIn == nil || path.Dir(f.dropIn.File) != dir || err != nil && !errdefs.IsNotFound(err) {
		return names, err
	}
	names = append(names, path.Base(f.dropIn.File))
	slices.Sort(names)
	return names, nil
}
