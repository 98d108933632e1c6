// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// MaxFile bounds a file of a runtime's configuration, in bytes.
const MaxFile = 4 << 20

// MaxNames bounds the entries of a directory that are read.
const MaxNames = 10000

// Files reads configuration files, which may lie on any file system. Reading is called with the
// path of what is read next, so that a caller that gives up waiting can name it; nil where nobody
// asks.
type Files struct {
	Host    hostfs.Root
	Reading func(path string)
}

// At returns the host, whose file at the path is read next.
func (f Files) At(path string) hostfs.Root {
	if f.Reading != nil {
		f.Reading(path)
	}
	return f.Host
}

// ReadFile is [hostfs.Root.ReadFile] with the limit of a configuration file.
func (f Files) ReadFile(path string) ([]byte, error) { return f.At(path).ReadFile(path, MaxFile) }

// ReadDir is [hostfs.Root.ReadDir] with the limit of a directory.
func (f Files) ReadDir(path string) ([]string, error) { return f.At(path).ReadDir(path, MaxNames) }

// WriteFile replaces a file in one step, with the mode and owner that it had. A symlink stays, and
// the file that it leads to is replaced.
func WriteFile(host hostfs.Root, file, text string) error {
	like := hostfs.Own(0o644)
	st, err := host.Stat(file)
	switch {
	case err == nil:
		if file, err = host.Resolve(file); err != nil {
			return err
		}
		like = hostfs.Like{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
	case !errdefs.IsNotFound(err):
		return err
	}
	return host.Replace(file, []byte(text), like)
}
