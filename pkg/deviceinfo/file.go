// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"path"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// infoFile is the place of one device-info file. Neither the file nor its directory need exist.
type infoFile struct {
	host hostfs.Root
	dir  string // host path
	name string
}

func (f infoFile) path() string { return path.Join(f.dir, f.name) }

// read returns the content, and its bytes. Without the directory the error is errdefs.ErrNotFound.
func (f infoFile) read() (*Info, []byte, error) {
	d, err := openDir(f.host, f.dir)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	return d.readInfo(f.name)
}

// remove removes the file. A missing file or directory is no error.
func (f infoFile) remove() error {
	d, err := openDir(f.host, f.dir)
	if err != nil {
		return ignoreNotFound(err)
	}
	defer d.Close()
	return d.removeFile(f.name)
}

// change creates the directory if it is missing, and runs fn while no other writer of this package
// changes the directory.
func (f infoFile) change(fn func(d *directory) error) error {
	d, err := createDir(f.host, f.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.withLock(lockWait, func() error { return fn(d) })
}

// replace replaces the file by data while no other writer of this package is active.
func (f infoFile) replace(data []byte) error {
	return f.change(func(d *directory) error { return d.replaceFile(f.name, data) })
}
